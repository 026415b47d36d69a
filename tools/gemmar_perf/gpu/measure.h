// SPDX-License-Identifier: Apache-2.0
// Check and time one shape on GPUs; and many calls of mixed shapes.
#ifndef GEMMAR_PERF_GPU_MEASURE_H
#define GEMMAR_PERF_GPU_MEASURE_H

#include "tools/gemmar_perf/gpu/result.h"

/* Collective. 0, or 1 after a sentence; wrong elements are counted in the session. */
int gemmar_perf_gpu_measure(struct gemmar_perf_session *s, const struct gemmar_perf_shape *shape,
                            struct gemmar_perf_product *product,
                            struct gemmar_perf_gpu_result *out_result);

/* --mix. As above. */
int gemmar_perf_gpu_mixed_calls(struct gemmar_perf_session *s);

/* Enqueue the random delay of --skew that comes before this rank's next call. 0 or 1. */
int gemmar_perf_gpu_skew(struct gemmar_perf_session *s);

#endif
