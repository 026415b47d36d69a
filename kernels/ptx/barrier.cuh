// SPDX-License-Identifier: Apache-2.0
// Named barriers of a CTA and the barrier of a cluster (PTX ISA, "bar", "barrier.cluster").
#ifndef GEMMAR_PTX_BARRIER_CUH
#define GEMMAR_PTX_BARRIER_CUH

#include <stdint.h>

static __device__ __forceinline__ void gemmar_bar_sync(uint32_t barrier, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* All threads of the cluster; warps may come one thread at a time. */
static __device__ __forceinline__ void gemmar_cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

#endif
