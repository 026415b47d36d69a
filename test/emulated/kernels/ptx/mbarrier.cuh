// SPDX-License-Identifier: Apache-2.0
// kernels/ptx/mbarrier.cuh on the CPU.
#ifndef GEMMAR_PTX_MBARRIER_CUH
#define GEMMAR_PTX_MBARRIER_CUH

#include "test/emulated/gpu.h"

static inline uint8_t *gemmar_shared_memory(void)
{
    return emulated_shared_base();
}

static inline uint32_t gemmar_shared_address(const void *p)
{
    return emulated_shared_address(p);
}

static inline void gemmar_st_shared_v4(uint32_t to, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    const uint32_t words[4] = {x, y, z, w};

    memcpy(emulated_shared(to), words, sizeof(words));
    emulated_shared_written(to, sizeof(words));
}

static inline uint4 gemmar_ld_shared_v4(uint32_t from)
{
    uint4 v;

    memcpy(&v, emulated_shared(from), sizeof(v));
    return v;
}

static inline void gemmar_mbarrier_init(uint32_t bar, uint32_t arrivals)
{
    emulated_mbarrier_init(bar, arrivals);
}

static inline void gemmar_mbarrier_init_fence(void)
{
}

static inline void gemmar_mbarrier_arrive(uint32_t bar)
{
    emulated_mbarrier_arrive(emulated_cta_of_cluster(), bar, 0);
}

static inline void gemmar_mbarrier_arrive_cluster(uint32_t bar, uint32_t cta)
{
    emulated_mbarrier_arrive(cta, bar, 0);
}

static inline void gemmar_mbarrier_expect(uint32_t bar, uint32_t bytes)
{
    emulated_mbarrier_arrive(emulated_cta_of_cluster(), bar, bytes);
}

static inline void gemmar_mbarrier_wait(uint32_t bar, uint32_t phase)
{
    emulated_mbarrier_wait(bar, phase);
}

#endif
