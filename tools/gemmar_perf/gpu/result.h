// SPDX-License-Identifier: Apache-2.0
// What one shape's run on GPUs says: times, bounds, the check; as a line and as a JSON object.
#ifndef GEMMAR_PERF_GPU_RESULT_H
#define GEMMAR_PERF_GPU_RESULT_H

#include "tools/gemmar_perf/gpu/ways.h"

struct gemmar_perf_gpu_result {
    struct gemmar_perf_shape shape;
    double us[GEMMAR_PERF_WAYS]; /* maximum over the ranks of their medians; NaN: not timed */
    double low[GEMMAR_PERF_WAYS], high[GEMMAR_PERF_WAYS]; /* the same of first and ninth deciles */
    double host_us;
    uint32_t sets;
    uint32_t runs; /* of each checked call */
    bool checked, checked_baseline;
    bool identical; /* between ranks and between the runs of a checked call */
    uint64_t wrong, baseline_wrong;
    double max_abs_err;
    gemmarAlgo_t algo;
    uint64_t workspace_bytes, chunks;
    uint64_t wire_bytes, wire_formula; /* of one call and the rank that sent most */
    double wire_mean;                  /* over the ranks */
};

/* "fused", "fused_graph", "baseline_eager", "baseline_graph", "gemm", "allreduce", "plugin_eager",
 * "plugin_graph", "plugin_allreduce". */
const char *gemmar_perf_way_name(enum gemmar_perf_way way);

/* The bounds of docs/design.md in microseconds, NaN where a rate is not known. */
struct gemmar_perf_gpu_bounds {
    double gemm, hbm, nvlink, net, largest;
};

struct gemmar_perf_gpu_bounds gemmar_perf_gpu_bounds(const struct gemmar_perf_session *s,
                                                     const struct gemmar_perf_gpu_result *r);

/* The better of the eager and the replayed calls; NaN: neither. */
double gemmar_perf_gpu_time(const struct gemmar_perf_gpu_result *r);
double gemmar_perf_gpu_baseline(const struct gemmar_perf_gpu_result *r);
double gemmar_perf_gpu_plugin(const struct gemmar_perf_gpu_result *r); /* the same over ours */

/* Bytes that every rank must send to other nodes at least: (N-1) S, or 2 (N-1)/N S in two shots. */
double gemmar_perf_gpu_wire_least(const struct gemmar_perf_session *s,
                                  const struct gemmar_perf_gpu_result *r);

void gemmar_perf_gpu_report_head(const struct gemmar_perf_session *s, FILE *out);
void gemmar_perf_gpu_report_line(const struct gemmar_perf_session *s, FILE *out,
                                 const struct gemmar_perf_gpu_result *r);
/* One object and a line feed. 0 or a negative errno. */
int gemmar_perf_gpu_report_json(const struct gemmar_perf_session *s, FILE *out,
                                const struct gemmar_perf_gpu_result *r);
/* What every object ends with: who, where, when; and the line feed. As above. */
int gemmar_perf_gpu_report_json_end(const struct gemmar_perf_session *s, FILE *out);

#endif
