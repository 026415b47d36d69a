// SPDX-License-Identifier: Apache-2.0
// The cases; the table in cases.c says which runs where.
#ifndef GEMMAR_TEST_PLUGIN_CASES_H
#define GEMMAR_TEST_PLUGIN_CASES_H

#include <sys/types.h>

#include "test/plugin/world.h"

struct plan;

// The shell command of --while, beside the case.
pid_t command_start(struct world *w);

// A virtual NIC of up to four devices where the version has that, else the device of the options.
int rails_open(struct world *w);
// Groups of all kinds with `transfers` messages in all.
void plan_mix(struct world *w, struct plan *plan, unsigned transfers);

void case_table(struct world *w);
void case_properties(struct world *w);
void case_sizes(struct world *w);
void case_huge(struct world *w);
void case_groups(struct world *w);
void case_zero(struct world *w);
void case_optional(struct world *w);
void case_capacity(struct world *w);
void case_too_small(struct world *w);
void case_rails(struct world *w);
void case_uneven(struct world *w);
void case_wrap16(struct world *w);
void case_wrap24(struct world *w);
void case_wrap31(struct world *w);
void case_wrap32(struct world *w);
void case_memory(struct world *w);
void case_connect(struct world *w);
void case_late(struct world *w);
void case_pairs(struct world *w);
void case_cut(struct world *w);
void case_vanish(struct world *w);
void case_threads(struct world *w);
void case_dmabuf(struct world *w);
void case_flush_error(struct world *w);
void case_closes(struct world *w);
void case_bad_handle(struct world *w);
void case_bent_handle(struct world *w);
void case_bad_server(struct world *w);
void case_bad_client(struct world *w);
void case_killed_receiver(struct world *w);
void case_killed_sender(struct world *w);
void case_load(struct world *w);
void case_init(struct world *w);
void case_virtual_again(struct world *w);
void case_no_device(struct world *w);
void case_absent_port(struct world *w);
void case_disturbed(struct world *w);
void case_disturbed_uneven(struct world *w);
void case_idle_receiver(struct world *w);
void case_sender_closes(struct world *w);
void case_receiver_closes(struct world *w);
void case_sender_ends(struct world *w);
void case_receiver_ends(struct world *w);
void case_one_sided(struct world *w);
void case_traffic_class(struct world *w);

#endif
