// SPDX-License-Identifier: Apache-2.0
// What the machine can do: the rates that the bounds divide by, measured in the run itself.
#ifndef GEMMAR_PERF_GPU_RATES_H
#define GEMMAR_PERF_GPU_RATES_H

#include "tools/gemmar_perf/gpu/gpu.h"

/* Fill g->rates: the slowest rank's. Collective. A rate that cannot be measured stays NaN, after a
 * sentence. 0, or 1 when a rank has failed. */
int gemmar_perf_gpu_rates(struct gemmar_perf_session *s);

#endif
