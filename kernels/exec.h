// SPDX-License-Identifier: Apache-2.0
// What a stage needs from the machine it runs on: lanes of a CTA, order, waits.
//
// The stages (*.cuh) are written in the common subset of C11 and CUDA C++. Compiled by nvcc a CTA
// is a thread block and a lane one of its threads; compiled by a C compiler a CTA is one thread
// with one lane. Every wait for another rank, CTA or the NIC goes through gemmar_exec_wait.
#ifndef GEMMAR_KERNELS_EXEC_H
#define GEMMAR_KERNELS_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/call.h"

#if defined(__CUDACC__)
#define GEMMAR_EXEC static __device__ __forceinline__
#else
#define GEMMAR_EXEC static inline
#endif

/* The CTA that runs a stage. */
struct gemmar_cta {
    uint32_t index; /* 0 .. plan.ctas - 1 */
    uint32_t lane;
    uint32_t lanes;
    uint32_t parity; /* of the running epoch */
    uint64_t epoch;
};

/* Whom a wait waits for, for the watchdog's sentence. */
struct gemmar_wait_for {
    uint32_t stage; /* enum gemmar_stage */
    uint32_t rank;
    uint32_t local; /* local rank, or UINT32_MAX for a rank of another node or the proxy */
    uint64_t slot;
};

/* How long to wait for `whom`. The wait that can name the peer at fault gives up first: that for
 * another node (it knows the queue pair), then that for a rank of this node, at last that for a
 * stage of this rank, which stands still because one of the others waits. */
GEMMAR_EXEC uint64_t gemmar_wait_patience(const struct gemmar_call *call,
                                          const struct gemmar_wait_for *whom)
{
    uint64_t timeout = call->watch.timeout_ns;

    if (whom->local == UINT32_MAX) {
        return timeout - timeout / 5;
    }
    return whom->local == call->place.local ? timeout : timeout - timeout / 10;
}

#if defined(__CUDACC__)
#include "kernels/exec_cuda.cuh"
#else
#include "kernels/cpu/exec_cpu.h"
#endif

/* Elements that one lane handles at a time, held in registers. */
#if defined(__CUDACC__)
#define GEMMAR_BLOCK 8
#else
#define GEMMAR_BLOCK 64
#endif

/* acc[j] += base[i + j], j < n <= GEMMAR_BLOCK. */
GEMMAR_EXEC void gemmar_block_add(float *acc, uint32_t dtype, const void *base, int64_t i, int n)
{
    for (int j = 0; j < n; j++) {
        acc[j] += gemmar_load_element(dtype, base, i + j);
    }
}

GEMMAR_EXEC void gemmar_block_store(uint32_t dtype, void *base, int64_t i, const float *x, int n)
{
    for (int j = 0; j < n; j++) {
        gemmar_store_element(dtype, base, i + j, x[j]);
    }
}

GEMMAR_EXEC int gemmar_block_length(int64_t left)
{
    return left < GEMMAR_BLOCK ? (int)left : GEMMAR_BLOCK;
}

/* Does item i of a stage belong to this CTA? Walk `for (i = first; i < count; i += step)`. */
GEMMAR_EXEC bool gemmar_range_has(const struct gemmar_range *range, uint32_t cta)
{
    return cta >= range->first && cta - range->first < range->count;
}

#endif
