// SPDX-License-Identifier: Apache-2.0
// Cases that are named for a bug: docs/field-cases.md tells what each is about.
#ifndef GEMMAR_TEST_PLUGIN_FIELD_H
#define GEMMAR_TEST_PLUGIN_FIELD_H

#include "test/plugin/world.h"

void case_c04_black_hole(struct world *w);
void case_e01_first_error(struct world *w);
void case_e02_hints(struct world *w);
void case_e05_stopped_receiver(struct world *w);
void case_e05_stopped_sender(struct world *w);
void case_e05_stopped_for_ever(struct world *w);
void case_e06_exit(struct world *w);
void case_e07_failing_calls(struct world *w);
void case_m01_failed_registrations(struct world *w);
void case_o01_failed_flush(struct world *w);
void case_o02_strict_words(struct world *w);
void case_o03_late_queue_pair(struct world *w);
void case_r02_refused_posts(struct world *w);
void case_r05_empty_messages(struct world *w);
void case_r07_short_queues(struct world *w);

#endif
