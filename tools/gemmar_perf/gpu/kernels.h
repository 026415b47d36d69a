// SPDX-License-Identifier: Apache-2.0
// The tool's own kernels: operands, the check, the common start. Every function enqueues on
// `stream` and returns a CUDA error. Memory is the device's unless it is said otherwise.
#ifndef GEMMAR_PERF_GPU_KERNELS_H
#define GEMMAR_PERF_GPU_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#define GEMMAR_PERF_GPU_RANKS 256

/* Of what operands are made; see gemmar_perf_inputs. */
struct gemmar_perf_gpu_recipe {
    uint64_t seed, call;
    int64_t m, n, k;
    uint32_t exact;
    uint32_t ranks;
    uint32_t dtype; /* enum gemmar_dtype, 16-bit types only */
    uint32_t trans_b;
    uint32_t limit; /* gemmar_perf_exact_limit() */
    float b_scale;  /* gemmar_perf_b_scale() */
};

/* What a check found; begin with zeros. */
struct gemmar_perf_gpu_found {
    unsigned long long wrong;
    unsigned long long error_bits; /* largest error as the bits of a double */
    long long row, column;         /* of one wrong element */
    double got, want;
};

/* Ranks in the order of their nodes; `last` is set for the last rank of each node. */
struct gemmar_perf_gpu_order {
    uint32_t rank[GEMMAR_PERF_GPU_RANKS];
    uint8_t last[GEMMAR_PERF_GPU_RANKS];
};

/* What a rank says to the others of its host: one cache line of pinned host memory. */
struct gemmar_perf_gpu_word {
    uint64_t enqueued; /* writer: the rank's CPU. The call behind this ticket is enqueued */
    uint64_t
        arrived;   /* writer: the rank's GPU (release, .sys). Its stream has come to the ticket */
    uint64_t late; /* writer: the rank's GPU. First ticket whose wait ran into the deadline */
    uint64_t reserved[5];
};

#ifdef __cplusplus
extern "C" {
#endif

/* Load all kernels now: loading one behind a kernel that waits can block for ever. */
cudaError_t gemmar_perf_gpu_load(void);

/* The operands of `rank`: a [m,k], b [k,n] or [n,k]. */
cudaError_t gemmar_perf_gpu_fill(const struct gemmar_perf_gpu_recipe *recipe, uint32_t rank,
                                 void *a, void *b, cudaStream_t stream);

/* Compare rows first, first + step, ... (count of them) of c [m,n]; adds to *found. */
cudaError_t gemmar_perf_gpu_check(const struct gemmar_perf_gpu_recipe *recipe,
                                  const struct gemmar_perf_gpu_order *order, int64_t first,
                                  int64_t step, int64_t count, const void *c,
                                  struct gemmar_perf_gpu_found *found, cudaStream_t stream);

/* Add the number of bytes that differ from `pattern` to *changed. */
cudaError_t gemmar_perf_gpu_guard(const void *base, int64_t bytes, uint8_t pattern,
                                  unsigned long long *changed, cudaStream_t stream);

/* Add a checksum of 2 * elements bytes to *sum: each element hashed with its place. */
cudaError_t gemmar_perf_gpu_sum(const void *base, int64_t elements, unsigned long long *sum,
                                cudaStream_t stream);

/* Wait until all ranks' CPUs have enqueued and all their streams have reached `ticket`, at most
 * deadline_ns. `words` [ranks] is pinned host memory. */
cudaError_t gemmar_perf_gpu_gate(struct gemmar_perf_gpu_word *words, uint32_t rank, uint32_t ranks,
                                 uint64_t ticket, uint64_t deadline_ns, cudaStream_t stream);

/* Keep the stream busy for that long. */
cudaError_t gemmar_perf_gpu_delay(uint64_t ns, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
