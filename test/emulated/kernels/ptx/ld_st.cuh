// SPDX-License-Identifier: Apache-2.0
// kernels/ptx/ld_st.cuh on the CPU.
#ifndef GEMMAR_PTX_LD_ST_CUH
#define GEMMAR_PTX_LD_ST_CUH

#include "test/emulated/gpu.h"

static inline uint64_t gemmar_ld_acquire_sys(const uint64_t *word)
{
    return emulated_load(word);
}

static inline void gemmar_st_relaxed_sys(uint64_t *word, uint64_t value)
{
    emulated_store_later(word, &value, sizeof(value));
}

static inline uint4 gemmar_ld_relaxed_sys_v4(const uint4 *words)
{
    uint64_t low = emulated_load((const uint64_t *)words);
    uint64_t high = __atomic_load_n((const uint64_t *)words + 1, __ATOMIC_RELAXED);

    return make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}

static inline void gemmar_st_relaxed_sys_v4(uint4 *words, const uint4 &value)
{
    emulated_store_later(&words->x, &value.x, 4);
    emulated_store_later(&words->y, &value.y, 4);
    emulated_store_later(&words->z, &value.z, 4);
    emulated_store_later(&words->w, &value.w, 4);
}

static inline void gemmar_fence_acq_rel_sys(void)
{
    emulated_release();
}

static inline void gemmar_st_release_sys(uint64_t *word, uint64_t value)
{
    emulated_release();
    emulated_store_later(word, &value, sizeof(value));
}

/* Its reader takes the two halves together or not at all. */
static inline void gemmar_st_release_sys_b128(void *address, uint64_t low, uint64_t high)
{
    emulated_release();
    emulated_store_later(address, &low, sizeof(low));
    emulated_store_later((uint64_t *)address + 1, &high, sizeof(high));
}

static inline uint64_t gemmar_atom_add_relaxed_gpu(uint64_t *word, uint64_t value)
{
    emulated_yield(false);
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

static inline uint64_t gemmar_atom_add_acq_rel_gpu(uint64_t *word, uint64_t value)
{
    emulated_release();
    return gemmar_atom_add_relaxed_gpu(word, value);
}

static inline uint64_t gemmar_ld_relaxed_gpu(const uint64_t *word)
{
    return emulated_load(word);
}

static inline uint64_t gemmar_atom_exchange_sys(uint64_t *word, uint64_t value)
{
    emulated_release();
    emulated_yield(false);
    return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);
}

static inline uint64_t gemmar_globaltimer(void)
{
    return emulated_now_ns();
}

#endif
