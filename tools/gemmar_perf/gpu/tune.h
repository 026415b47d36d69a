// SPDX-License-Identifier: Apache-2.0
// --tune: measure how each shape runs best, and keep it in a tuning table.
#ifndef GEMMAR_PERF_GPU_TUNE_H
#define GEMMAR_PERF_GPU_TUNE_H

#include "tools/gemmar_perf/session.h"

/* Before gemmar's communicator: have its rank 0 read the ways that are to be tried. Collective. 0,
 * or 1 after a sentence. */
int gemmar_perf_tune_begin(struct gemmar_perf_session *s);

/* Try every shape of the options; the table is written after each. Collective. As above. */
int gemmar_perf_tune(struct gemmar_perf_session *s);

#endif
