// SPDX-License-Identifier: Apache-2.0
// kernels/ptx/wgmma.cuh on the CPU.
#ifndef GEMMAR_PTX_WGMMA_CUH
#define GEMMAR_PTX_WGMMA_CUH

#include "test/emulated/gpu.h"

static inline void gemmar_wgmma_fence(void)
{
}

static inline void gemmar_wgmma_commit(void)
{
    emulated_wgmma_commit();
}

template <int PENDING> static inline void gemmar_wgmma_wait(void)
{
    emulated_wgmma_wait(PENDING);
}

static inline uint32_t gemmar_wgmma_descriptor(uint32_t address)
{
    return (address & 0x3ffffu) >> 4 | 1u << 16;
}

static inline uint32_t gemmar_wgmma_descriptor_n(uint32_t address, uint32_t box)
{
    return (address & 0x3ffffu) >> 4 | (box >> 4) << 16;
}

template <int N, bool BF16, int TRANS_B>
static inline void gemmar_wgmma(float (&d)[N / 2], uint32_t a, uint32_t b, uint32_t accumulate)
{
    emulated_wgmma(d, N, BF16, TRANS_B != 0, a, b, accumulate != 0);
}

static inline void gemmar_stmatrix4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2,
                                    uint32_t r3)
{
    const uint32_t registers[4] = {r0, r1, r2, r3};
    const uint64_t *rows = emulated_exchange(address);
    uint32_t lane = emulated_thread() % 32;

    for (uint32_t matrix = 0; matrix < 4; matrix++) {
        uint32_t to = (uint32_t)rows[matrix * 8 + lane / 4] + lane % 4 * 4;

        memcpy(emulated_shared(to), &registers[matrix], 4);
        emulated_shared_written(to, 4);
    }
}

template <int REGISTERS> static inline void gemmar_registers_up(void)
{
}

template <int REGISTERS> static inline void gemmar_registers_down(void)
{
}

#endif
