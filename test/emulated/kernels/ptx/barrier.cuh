// SPDX-License-Identifier: Apache-2.0
// kernels/ptx/barrier.cuh on the CPU.
#ifndef GEMMAR_PTX_BARRIER_CUH
#define GEMMAR_PTX_BARRIER_CUH

#include "test/emulated/gpu.h"

static inline void gemmar_bar_sync(uint32_t barrier, uint32_t threads)
{
    emulated_bar_sync(barrier, threads);
}

static inline void gemmar_cluster_sync(void)
{
    emulated_cluster_sync();
}

#endif
