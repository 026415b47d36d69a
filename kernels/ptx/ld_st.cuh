// SPDX-License-Identifier: Apache-2.0
// Loads, stores and atomics with an order and a scope (PTX ISA, "Memory Consistency Model"), one
// instruction each. A word that another GPU, the CPU or the NIC reads or writes has scope .sys.
#ifndef GEMMAR_PTX_LD_ST_CUH
#define GEMMAR_PTX_LD_ST_CUH

#include <stdint.h>

static __device__ __forceinline__ uint64_t gemmar_ld_acquire_sys(const uint64_t *word)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

static __device__ __forceinline__ void gemmar_st_relaxed_sys(uint64_t *word, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/* Sixteen bytes: four words, each with an order of its own. */
static __device__ __forceinline__ uint4 gemmar_ld_relaxed_sys_v4(const uint4 *words)
{
    uint4 value;

    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(words)
                 : "memory");
    return value;
}

static __device__ __forceinline__ void gemmar_st_relaxed_sys_v4(uint4 *words, const uint4 &value)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(words), "r"(value.x),
                 "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

static __device__ __forceinline__ void gemmar_st_release_sys(uint64_t *word, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

static __device__ __forceinline__ void gemmar_fence_acq_rel_sys(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* Sixteen bytes as one store that releases everything before it, for the CPU. */
static __device__ __forceinline__ void gemmar_st_release_sys_b128(void *address, uint64_t low,
                                                                  uint64_t high)
{
    asm volatile("{\n"
                 ".reg .b128 both;\n"
                 "mov.b128 both, {%1, %2};\n"
                 "st.release.sys.global.b128 [%0], both;\n"
                 "}\n" ::"l"(address),
                 "l"(low), "l"(high)
                 : "memory");
}

static __device__ __forceinline__ uint64_t gemmar_atom_add_acq_rel_gpu(uint64_t *word,
                                                                       uint64_t value)
{
    uint64_t before;

    asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(word), "l"(value)
                 : "memory");
    return before;
}

static __device__ __forceinline__ uint64_t gemmar_atom_add_relaxed_gpu(uint64_t *word,
                                                                       uint64_t value)
{
    uint64_t before;

    asm volatile("atom.add.relaxed.gpu.global.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(word), "l"(value)
                 : "memory");
    return before;
}

static __device__ __forceinline__ uint64_t gemmar_ld_relaxed_gpu(const uint64_t *word)
{
    uint64_t value;

    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

/* First-writer-wins records in host memory. */
static __device__ __forceinline__ uint64_t gemmar_atom_exchange_sys(uint64_t *word, uint64_t value)
{
    uint64_t before;

    asm volatile("atom.exch.acq_rel.sys.global.b64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(word), "l"(value)
                 : "memory");
    return before;
}

/* Nanoseconds of the device's clock; it ticks coarsely. */
static __device__ __forceinline__ uint64_t gemmar_globaltimer(void)
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
