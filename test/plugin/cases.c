// SPDX-License-Identifier: Apache-2.0
// The table of cases.
#include "test/plugin/cases.h"

#define ONE  1u
#define TWO  2u
#define BOTH 3u

// clang-format off
const struct contract_case contract_cases[] = {
    {"table", case_table, ONE, 1, 6, NULL},
    {"properties", case_properties, ONE, 0, 6, NULL},
    {"sizes", case_sizes, BOTH, 0, 6, NULL},
    {"groups", case_groups, BOTH, 0, 6, NULL},
    {"zero", case_zero, BOTH, 0, 6, "reads the mhandle of an empty message"},
    {"optional", case_optional, BOTH, 0, 6, NULL},
    {"capacity", case_capacity, BOTH, 0, 6, NULL},
    {"too-small", case_too_small, BOTH, 0, 6, "cuts the send to the receive's size"},
    {"rails", case_rails, BOTH, 0, 6, NULL},
    {"uneven", case_uneven, BOTH, 0, 9, "takes its rail's number for the peer's"},
    {"memory", case_memory, ONE, 0, 6, NULL},
    {"dmabuf", case_dmabuf, ONE, 1, 6, NULL},
    {"threads", case_threads, ONE, 0, 6, NULL},
    {"connect", case_connect, ONE, 0, 6, NULL},
    {"late", case_late, ONE, 0, 6, NULL},
    {"pairs", case_pairs, ONE, 0, 6, NULL},
    {"cut", case_cut, ONE, 0, 6, "an abandoned handshake is never given up"},
    {"vanish", case_vanish, ONE, 1, 6, "a handshake that ends early is an error of accept"},
    {"closes", case_closes, ONE, 0, 6, NULL},
    {"bad-handle", case_bad_handle, ONE, 0, 6, "trusts the handle"},
    {"bent-handle", case_bent_handle, ONE, 1, 6, "trusts the handle"},
    {"bad-server", case_bad_server, ONE, 1, 6, "waits for a silent server for ever"},
    {"bad-client", case_bad_client, ONE, 1, 6, "waits for a silent client for ever"},
    {"init", case_init, ONE, 1, 6, "threads stay"},
    {"load", case_load, ONE, 1, 6, "threads stay"},
    {"virtual-again", case_virtual_again, ONE, 1, 9, "an index stays when it is loaded again"},
    {"no-device", case_no_device, ONE, 1, 6, "init succeeds with 0 devices"},
    {"traffic-class", case_traffic_class, ONE, 1, 10, NULL},
    {"wrap16", case_wrap16, BOTH, 1, 6, "no such setting"},
    {"wrap24", case_wrap24, BOTH, 1, 6, "no such setting"},
    {"wrap31", case_wrap31, BOTH, 1, 6, "no such setting"},
    {"wrap32", case_wrap32, BOTH, 1, 6, "no such setting"},
    {"absent-port", case_absent_port, TWO, 0, 9, "sets up every port of a virtual NIC"},
    {"disturbed", case_disturbed, TWO, 0, 9, "does not survive a lost port by default"},
    {"disturbed-uneven", case_disturbed_uneven, TWO, 0, 9, "does not survive a lost port by default"},
    {"flush-error", case_flush_error, TWO, 0, 9, "does not survive a lost port by default"},
    {"idle-receiver", case_idle_receiver, TWO, 0, 9, "does not survive a lost port by default"},
    {"sender-closes", case_sender_closes, TWO, 0, 9, "does not survive a lost port by default"},
    {"receiver-closes", case_receiver_closes, TWO, 0, 9, "does not survive a lost port by default"},
    {"sender-ends", case_sender_ends, TWO, 0, 9, "does not survive a lost port by default"},
    {"one-sided", case_one_sided, TWO, 1, 9, "has no such setting"},
    {"receiver-ends", case_receiver_ends, TWO, 0, 9, "does not survive a lost port by default"},
    {"killed-receiver", case_killed_receiver, TWO, 1, 6, "tells after all retries only"},
    {"killed-sender", case_killed_sender, TWO, 1, 6, "tells after all retries only"},
    {"huge", case_huge, TWO, 0, 9, "keeps the size of a send in an int"},
    {0},
};
// clang-format on
