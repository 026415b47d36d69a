// SPDX-License-Identifier: Apache-2.0
// mbarrier instructions (PTX ISA, "Parallel Synchronization: mbarrier"), one function each.
// Addresses are shared-memory addresses (32 bits); `phase` is the parity that is waited for.
#ifndef GEMMAR_PTX_MBARRIER_CUH
#define GEMMAR_PTX_MBARRIER_CUH

#include <stdint.h>

/* The dynamic shared memory of this CTA. */
static __device__ __forceinline__ uint8_t *gemmar_shared_memory(void)
{
    extern __shared__ uint8_t raw[];

    return raw;
}

static __device__ __forceinline__ uint32_t gemmar_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes of shared memory; the address is a multiple of 16. */
static __device__ __forceinline__ void gemmar_st_shared_v4(uint32_t to, uint32_t x, uint32_t y,
                                                           uint32_t z, uint32_t w)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x), "r"(y), "r"(z),
                 "r"(w)
                 : "memory");
}

static __device__ __forceinline__ uint4 gemmar_ld_shared_v4(uint32_t from)
{
    uint4 v;

    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void gemmar_mbarrier_init(uint32_t bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the cluster and to the copy engine. */
static __device__ __forceinline__ void gemmar_mbarrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

static __device__ __forceinline__ void gemmar_mbarrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrive on the barrier at the same shared-memory offset in CTA `cta` of the cluster. The scope of
 * its release is the CTA: it hands over stages that wgmma has finished reading, which needs no
 * fence, and a release at cluster scope would cost a device-wide memory barrier in every k block.
 */
static __device__ __forceinline__ void gemmar_mbarrier_arrive_cluster(uint32_t bar, uint32_t cta)
{
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}\n" ::"r"(bar),
                 "r"(cta)
                 : "memory");
}

static __device__ __forceinline__ void gemmar_mbarrier_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ bool gemmar_mbarrier_try(uint32_t bar, uint32_t phase)
{
    uint32_t done;

    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}\n"
                 : "=r"(done)
                 : "r"(bar), "r"(phase)
                 : "memory");
    return done != 0;
}

/* Only for barriers that this CTA (or its cluster) completes by itself: no peer is waited for. */
static __device__ __forceinline__ void gemmar_mbarrier_wait(uint32_t bar, uint32_t phase)
{
    while (!gemmar_mbarrier_try(bar, phase)) {
    }
}

#endif
