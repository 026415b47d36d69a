// SPDX-License-Identifier: Apache-2.0
// One rank's GPU: its stream, communicators and memory.
#ifndef GEMMAR_PERF_GPU_GPU_H
#define GEMMAR_PERF_GPU_GPU_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>

#include "tools/gemmar_perf/gpu/gate.h"
#include "tools/gemmar_perf/gpu/kernels.h"
#include "tools/gemmar_perf/nccl_log.h"
#include "tools/gemmar_perf/session.h"

#define GEMMAR_PERF_GPU_GUARD      0xa5
#define GEMMAR_PERF_GPU_GUARD_ROWS 2

/* Memory that all shapes of a run use one after the other. */
struct gemmar_perf_gpu_memory {
    void *base;
    size_t bytes;
    bool plain; /* of cudaMalloc */
};

/* What this machine can do; NaN: not known. GB/s. The first two are measured in the run. */
struct gemmar_perf_gpu_rates {
    double copy;   /* device to device, bytes read and written */
    double nvlink; /* copy engine to the next rank of the node, all ranks at once, per direction */
    double net;    /* line rate of what a rank has of NICs, per direction */
    /* Of softhca's model, as a measurement before this run found it (GEMMAR_PERF_NIC_GBS, _US). */
    double net_measured, net_latency_us;
};

struct gemmar_perf_gpu {
    int device;
    size_t l2;
    uint32_t hosts; /* nodes by the ranks' names for them */
    uint32_t sms;
    uint32_t sharing; /* ranks of all nodes on this GPU, itself included */
    cudaStream_t stream;
    ncclComm_t nccl;    /* that gemmar's stands beside; over the plugin where there is `builtin` */
    ncclComm_t builtin; /* --baseline between nodes: over NCCL's own IB transport; else NULL */
    int log;            /* NCCL's log; -1: none */
    bool networks_known;
    struct gemmar_perf_nccl_facts networks; /* of all ranks */
    struct gemmar_perf_gate gate;
    struct gemmar_perf_gpu_memory operands; /* A and B */
    struct gemmar_perf_gpu_memory output;   /* C with guard bytes behind */
    void *registration;                     /* of output, with gemmar */
    struct gemmar_perf_gpu_memory baseline; /* C of cuBLASLt and ncclAllReduce */
    ncclWindow_t window, builtin_window;    /* of baseline, with NCCL */
    bool symmetric;                         /* it was asked for as a symmetric window */
    struct gemmar_perf_gpu_found *found;    /* on the GPU, as are the counters */
    unsigned long long *counters;           /* checksum, changed guard bytes */
    struct gemmar_perf_gpu_order order;
    struct gemmar_perf_gpu_rates rates;
    char doing[128];  /* for the sentence when it does not end */
    const char *nvls; /* value of NCCL_NVLS_ENABLE, or "unset" */
    char name[64];    /* of the GPU's model */
    char versions[192];
};

/* Has a call failed? Then say what. */
bool gemmar_perf_gpu_bad(cudaError_t error, const char *doing);
bool gemmar_perf_gpu_bad_nccl(struct gemmar_perf_gpu *g, ncclResult_t result, const char *doing);

/* Has this or any other rank failed? Collective. 0: none has; 1: one has, and has said so. */
int gemmar_perf_gpu_agree(struct gemmar_perf_session *s, bool failed);

/* Allocate what all shapes of the options need; collective, as C is registered. 0 or 1. */
int gemmar_perf_gpu_memory_open(struct gemmar_perf_session *s);
/* Give back the registrations that gemmar's communicator knows. */
void gemmar_perf_gpu_memory_leave(struct gemmar_perf_session *s, bool healthy);
void gemmar_perf_gpu_memory_close(struct gemmar_perf_gpu *g, bool healthy);

/* How many sets of operands calls of this shape take in turn, so that the L2 cache does not hold
 * them from call to call. */
uint32_t gemmar_perf_gpu_sets(const struct gemmar_perf_gpu *g,
                              const struct gemmar_perf_shape *shape);
#define GEMMAR_PERF_GPU_SETS 8u

/* Mixed calls have this much of operands, and of results, beside what the largest shape needs. */
#define GEMMAR_PERF_GPU_BURST_BYTES (UINT64_C(256) << 20)

/* Operands and result of one call, inside the memory above. */
struct gemmar_perf_gpu_buffers {
    void *a, *b, *c;
    size_t c_bytes, guard_bytes;
};

/* Bytes of a shape's operands and of its result with guard bytes, in steps that suit TMA. */
size_t gemmar_perf_gpu_operand_bytes(const struct gemmar_perf_shape *shape);
size_t gemmar_perf_gpu_output_bytes(const struct gemmar_perf_shape *shape);
/* Operands at `operands` bytes into their memory, C at `output` bytes. */
struct gemmar_perf_gpu_buffers gemmar_perf_gpu_buffers(const struct gemmar_perf_gpu *g,
                                                       const struct gemmar_perf_shape *shape,
                                                       size_t operands, size_t output);

struct gemmar_perf_gpu_recipe gemmar_perf_gpu_recipe(const struct gemmar_perf_inputs *in);

/* Enqueue: this rank's operands; NaNs and the guard pattern in C. 0 or 1. */
int gemmar_perf_gpu_operands(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                             const struct gemmar_perf_gpu_buffers *b);
int gemmar_perf_gpu_poison(struct gemmar_perf_session *s, const struct gemmar_perf_gpu_buffers *b);

/* Enqueue one call of the operator. *out_us (may be NULL): time that the CPU spent in it. */
gemmarResult_t gemmar_perf_gpu_call(struct gemmar_perf_session *s,
                                    const struct gemmar_perf_inputs *in,
                                    const struct gemmar_perf_gpu_buffers *b, double *out_us);

/* Name what is enqueued next. */
void gemmar_perf_gpu_doing(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                           const char *what);

/* Wait for the stream; a call's failure shows here. 0, or 1 after a sentence. */
int gemmar_perf_gpu_wait(struct gemmar_perf_session *s);

/* Check this rank's share of C and the guard, wait, add to the verdict and say what the first wrong
 * element is. *out_sum: checksum of all of C. 0 or 1. */
int gemmar_perf_gpu_verify(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                           const struct gemmar_perf_gpu_buffers *b,
                           struct gemmar_perf_verdict *verdict, uint64_t *out_sum);

#endif
