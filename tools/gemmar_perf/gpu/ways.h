// SPDX-License-Identifier: Apache-2.0
// The ways to the same result that are timed against each other, in rounds inside one run.
#ifndef GEMMAR_PERF_GPU_WAYS_H
#define GEMMAR_PERF_GPU_WAYS_H

#include "tools/gemmar_perf/gpu/gpu.h"
#include "tools/gemmar_perf/gpu/product.h"

enum gemmar_perf_way {
    GEMMAR_PERF_FUSED,       /* gemmar_fused() */
    GEMMAR_PERF_FUSED_GRAPH, /* the same, captured once and replayed */
    GEMMAR_PERF_BASE,        /* cuBLASLt, then ncclAllReduce in place */
    GEMMAR_PERF_BASE_GRAPH,  /* both captured in one graph */
    GEMMAR_PERF_GEMM,        /* cuBLASLt alone */
    GEMMAR_PERF_REDUCE,      /* ncclAllReduce alone */
    /* Between nodes the three above are over NCCL's own transport, and these over the plugin. */
    GEMMAR_PERF_PLUGIN,
    GEMMAR_PERF_PLUGIN_GRAPH,
    GEMMAR_PERF_PLUGIN_REDUCE,
    GEMMAR_PERF_WAYS
};

struct gemmar_perf_times {
    double us[GEMMAR_PERF_WAYS];                          /* this rank's medians; NaN: not timed */
    double low[GEMMAR_PERF_WAYS], high[GEMMAR_PERF_WAYS]; /* first and ninth decile */
    double host_us;                                       /* CPU time of a call, median */
    uint64_t baseline_wrong; /* elements of the baseline's first result */
    uint32_t sets;           /* of operands, taken in turn */
    bool checked_baseline;
};

/* Time the ways of the options on one shape; `product` may be NULL without --baseline. Collective.
 * 0, or 1 after a sentence. */
int gemmar_perf_time_ways(struct gemmar_perf_session *s, const struct gemmar_perf_shape *shape,
                          struct gemmar_perf_product *product, struct gemmar_perf_times *out_times);

/* Capture what `enqueue` puts on the rank's stream. 0 or 1. */
int gemmar_perf_capture(struct gemmar_perf_session *s, int (*enqueue)(void *what), void *what,
                        cudaGraphExec_t *out_graph);

#endif
