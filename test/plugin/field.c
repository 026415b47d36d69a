// SPDX-License-Identifier: Apache-2.0
// The table of net-field.
#include "test/plugin/field.h"

#define ONE 1u
#define TWO 2u

// clang-format off
const struct contract_case contract_cases[] = {
    {"c04-black-hole", case_c04_black_hole, ONE, 1, 6, NULL},
    {"e01-first-error", case_e01_first_error, ONE, 1, 6, NULL},
    {"e02-hints", case_e02_hints, ONE, 1, 6, NULL},
    {"e05-stopped-receiver", case_e05_stopped_receiver, TWO, 1, 6, NULL},
    {"e05-stopped-sender", case_e05_stopped_sender, TWO, 1, 6, NULL},
    {"e05-stopped-for-ever", case_e05_stopped_for_ever, TWO, 1, 6, NULL},
    {"e06-exit", case_e06_exit, ONE, 1, 6, NULL},
    {"e07-failing-calls", case_e07_failing_calls, ONE, 1, 6, NULL},
    {"m01-failed-registrations", case_m01_failed_registrations, ONE, 1, 6, NULL},
    {"o01-failed-flush", case_o01_failed_flush, ONE, 1, 6, NULL},
    {"o02-strict-words", case_o02_strict_words, ONE, 1, 6, NULL},
    {"o03-late-queue-pair", case_o03_late_queue_pair, ONE, 1, 6, NULL},
    {"r02-refused-posts", case_r02_refused_posts, ONE, 1, 6, NULL},
    {"r05-empty-messages", case_r05_empty_messages, ONE, 1, 6, NULL},
    {"r07-short-queues", case_r07_short_queues, ONE, 1, 6, NULL},
    {0},
};
// clang-format on
