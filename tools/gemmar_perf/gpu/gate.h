// SPDX-License-Identifier: Apache-2.0
// The common start of timed calls: words in memory that all ranks of a host share, which their GPUs
// watch. Ranks on several hosts wait for each other's finished streams on the CPU, call by call.
#ifndef GEMMAR_PERF_GPU_GATE_H
#define GEMMAR_PERF_GPU_GATE_H

#include "tools/gemmar_perf/gpu/kernels.h"
#include "tools/gemmar_perf/session.h"

struct gemmar_perf_gate {
    struct gemmar_perf_session *s;
    struct gemmar_perf_gpu_word *words;  /* [ranks]; NULL: not all ranks are on this host */
    struct gemmar_perf_gpu_word *device; /* the same, as the GPU sees it */
    size_t bytes;
    uint64_t ticket;
};

/* Collective. 0, or 1 after a sentence. */
int gemmar_perf_gate_open(struct gemmar_perf_session *s, struct gemmar_perf_gate *gate);
void gemmar_perf_gate_close(struct gemmar_perf_gate *gate);

/* What is enqueued on `stream` between the two calls starts when all ranks' has been enqueued and
 * all their streams have come there, the host's work included: a call's launch is not waited for.
 * 0, or 1 after a sentence. */
int gemmar_perf_gate_shut(struct gemmar_perf_gate *gate, cudaStream_t stream);
void gemmar_perf_gate_lift(struct gemmar_perf_gate *gate);

/* Did a start run into its deadline? Then ranks did not start together. */
bool gemmar_perf_gate_late(const struct gemmar_perf_gate *gate);

#endif
