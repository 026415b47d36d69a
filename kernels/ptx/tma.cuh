// SPDX-License-Identifier: Apache-2.0
// Bulk tensor copies (PTX ISA, "cp.async.bulk.tensor"), one function each.
#ifndef GEMMAR_PTX_TMA_CUH
#define GEMMAR_PTX_TMA_CUH

#include <cuda.h>
#include <stdint.h>

static __device__ __forceinline__ void gemmar_tma_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Box at (x, y) of `map` to shared memory; its bytes complete on `bar`. x is the inner dimension.
 */
static __device__ __forceinline__ void gemmar_tma_load(uint32_t dst, const CUtensorMap *map,
                                                       int32_t x, int32_t y, uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
                 "l"(map), "r"(x), "r"(y), "r"(bar)
                 : "memory");
}

/* The same to every CTA of the cluster in `mask`, at the same offsets of data and barrier. */
static __device__ __forceinline__ void gemmar_tma_load_multicast(uint32_t dst,
                                                                 const CUtensorMap *map, int32_t x,
                                                                 int32_t y, uint32_t bar,
                                                                 uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(dst),
                 "l"(map), "r"(x), "r"(y), "r"(bar), "h"(mask)
                 : "memory");
}

static __device__ __forceinline__ void gemmar_tma_store(const CUtensorMap *map, uint32_t src,
                                                        int32_t x, int32_t y)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
        "r"(src), "r"(x), "r"(y)
        : "memory");
}

/* `bytes` bytes, all addresses and the length multiples of 16, without a tensor map. */
static __device__ __forceinline__ void gemmar_bulk_load(uint32_t dst, const void *src,
                                                        uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar)
                 : "memory");
}

static __device__ __forceinline__ void gemmar_bulk_store(void *dst, uint32_t src, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src),
                 "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void gemmar_bulk_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* The source in shared memory of all groups but the newest PENDING may be written again. Says
 * nothing about the destination. */
template <int PENDING> static __device__ __forceinline__ void gemmar_bulk_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/* The destination is written. */
static __device__ __forceinline__ void gemmar_bulk_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Each thread that wrote shared memory, before the barrier behind which the copy is issued. */
static __device__ __forceinline__ void gemmar_fence_async_shared(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Between the plain accesses and the bulk copies of one thread, whatever the memory. */
static __device__ __forceinline__ void gemmar_fence_proxy_async(void)
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

#endif
