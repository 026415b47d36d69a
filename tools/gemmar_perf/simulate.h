// SPDX-License-Identifier: Apache-2.0
// --simulate: forecasts of calls on machines that are not there.
#ifndef GEMMAR_PERF_SIMULATE_H
#define GEMMAR_PERF_SIMULATE_H

#include "tools/gemmar_perf/options.h"

/* Tables of time and bytes against the number of nodes, and JSON when asked to; with --against, the
 * forecast beside what was measured. Returns the exit status. */
int gemmar_perf_simulate(const struct gemmar_perf_options *o, char **argv);

/* The part of it behind --against (simulate_against.c). */
int gemmar_perf_simulate_against(const struct gemmar_perf_options *o);

#endif
