// SPDX-License-Identifier: Apache-2.0
// kernels/ptx/tma.cuh on the CPU.
#ifndef GEMMAR_PTX_TMA_CUH
#define GEMMAR_PTX_TMA_CUH

#include <cuda.h>

#include "test/emulated/gpu.h"

static inline emulated_map emulated_map_of(const CUtensorMap *map)
{
    emulated_map m;

    memcpy(&m, map, sizeof(m));
    return m;
}

static inline void gemmar_tma_prefetch(const CUtensorMap *map)
{
    (void)map;
}

static inline void gemmar_tma_load_multicast(uint32_t dst, const CUtensorMap *map, int32_t x,
                                             int32_t y, uint32_t bar, uint16_t mask)
{
    emulated_map m = emulated_map_of(map);

    emulated_async_load(dst, mask, bar, m.box_rows * 128,
                        [=](uint8_t *to) { emulated_tensor_load(m, x, y, dst, to); });
}

static inline void gemmar_tma_load(uint32_t dst, const CUtensorMap *map, int32_t x, int32_t y,
                                   uint32_t bar)
{
    gemmar_tma_load_multicast(dst, map, x, y, bar, (uint16_t)(1u << emulated_cta_of_cluster()));
}

static inline void gemmar_tma_store(const CUtensorMap *map, uint32_t src, int32_t x, int32_t y)
{
    emulated_map m = emulated_map_of(map);

    emulated_async_store(src, m.box_rows * 128,
                         [=](const uint8_t *from) { emulated_tensor_store(m, x, y, src, from); });
}

static inline void gemmar_bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    emulated_async_load(dst, 1u << emulated_cta_of_cluster(), bar, bytes,
                        [=](uint8_t *to) { memcpy(to, src, bytes); });
}

static inline void gemmar_bulk_store(void *dst, uint32_t src, uint32_t bytes)
{
    emulated_async_store(src, bytes, [=](const uint8_t *from) { memcpy(dst, from, bytes); });
}

static inline void gemmar_bulk_commit(void)
{
    emulated_bulk_commit();
}

template <int PENDING> static inline void gemmar_bulk_wait_read(void)
{
    emulated_bulk_wait(PENDING, true);
}

static inline void gemmar_bulk_wait(void)
{
    emulated_bulk_wait(0, false);
}

static inline void gemmar_fence_async_shared(void)
{
    emulated_fence_async();
}

static inline void gemmar_fence_proxy_async(void)
{
    emulated_fence_async();
}

#endif
