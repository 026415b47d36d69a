// SPDX-License-Identifier: Apache-2.0
// The inner product of a tile on Hopper: TMA -> mbarrier ring -> WGMMA.
//
// Two CTAs form a cluster and compute the two halves of one chunk. Along M each loads its own 128
// rows of A and half of the B that both need; along N (few rows) each loads its own B and half of
// A. The copy engine delivers the shared half to both, so that a pair of 128 x 256 tiles costs 512
// rows of L2 traffic per k and not 768. Inside a CTA one thread loads and two warpgroups multiply,
// each 64 of the 128 rows. Input: A [m,k] row-major; B [n,k] row-major, or [k,n] with N_MAJOR.
#ifndef GEMMAR_KERNELS_MAINLOOP_SM90_CUH
#define GEMMAR_KERNELS_MAINLOOP_SM90_CUH

#include <stdint.h>

#include "kernels/call.h"
#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

#define GEMMAR_BM  128                  /* rows of a CTA's tile */
#define GEMMAR_BK  64                   /* depth of a stage: 128 bytes, the swizzle's width */
#define GEMMAR_BOX (64 * GEMMAR_BK * 2) /* bytes of a 64 x 64 box of 16-bit elements */

/* What is fixed at compile time about each enum gemmar_tile_shape. STAGES of operands: as many
 * as fit beside BOXES of staging for each consumer. A whole tile of boxes, because a consumer that
 * waits for its courier holds up both CTAs; one more stage was worth less. */
template <int SHAPE> struct gemmar_tile;
template <> struct gemmar_tile<GEMMAR_TILE_256X256> {
    static constexpr int BN = 256, STAGES = 3, BOXES = 4;
    static constexpr bool ALONG_N = false;
};
template <> struct gemmar_tile<GEMMAR_TILE_256X128> {
    static constexpr int BN = 128, STAGES = 6, BOXES = 2;
    static constexpr bool ALONG_N = false;
};
template <> struct gemmar_tile<GEMMAR_TILE_128X256> {
    static constexpr int BN = 128, STAGES = 6, BOXES = 2;
    static constexpr bool ALONG_N = true;
};
template <> struct gemmar_tile<GEMMAR_TILE_128X128> {
    static constexpr int BN = 64, STAGES = 8, BOXES = 2;
    static constexpr bool ALONG_N = true;
};

/* Operands in shared memory; 128-byte swizzle, so aligned to 1024 bytes. */
template <class T> struct gemmar_stages {
    alignas(1024) uint8_t a[T::STAGES][GEMMAR_BM * GEMMAR_BK * 2];
    alignas(1024) uint8_t b[T::STAGES][T::BN * GEMMAR_BK * 2];
};

/* A part that a tile is added to comes through the same ring, behind the tile's k blocks: BLOCKS
 * stages with BYTES for each consumer, those of half 0 in a, of half 1 in b. */
template <class T> struct gemmar_part_blocks {
    static constexpr int BLOCKS = T::BN > 128 ? T::BN / 128 : 1;
    static constexpr int BYTES = 64 * T::BN * 2 / BLOCKS;
};

/* full[i]: the copy engine -> the consumers of this CTA. empty[i]: the consumers of both CTAs ->
 * this CTA's producer, because it writes into both. */
template <class T> struct gemmar_stage_barriers {
    uint64_t full[T::STAGES], empty[T::STAGES];
};

/* Position in a ring of n entries; `phase` is the parity of the next completion to wait for. */
struct gemmar_cursor {
    uint32_t at, phase;
};

static __device__ __forceinline__ void gemmar_cursor_next(gemmar_cursor *c, uint32_t n)
{
    if (++c->at == n) {
        c->at = 0;
        c->phase ^= 1;
    }
}

template <class T>
static __device__ __forceinline__ void gemmar_stages_init(gemmar_stage_barriers<T> &s)
{
    for (int i = 0; i < T::STAGES; i++) {
        gemmar_mbarrier_init(gemmar_shared_address(&s.full[i]), 1);
        gemmar_mbarrier_init(gemmar_shared_address(&s.empty[i]), 4);
    }
}

/* One stage of B, or of this CTA's half of it: `rows` columns of the product from column n on. */
template <int ROWS, bool N_MAJOR, bool SHARED>
static __device__ __forceinline__ void gemmar_load_b(uint32_t to, const CUtensorMap *map, int32_t k,
                                                     int32_t n, uint32_t full)
{
    if constexpr (!N_MAJOR) {
        SHARED ? gemmar_tma_load_multicast(to, map, k, n, full, 3)
               : gemmar_tma_load(to, map, k, n, full);
    } else {
#pragma unroll
        for (int q = 0; q < ROWS / 64; q++) {
            SHARED ? gemmar_tma_load_multicast(to + q * GEMMAR_BOX, map, n + q * 64, k, full, 3)
                   : gemmar_tma_load(to + q * GEMMAR_BOX, map, n + q * 64, k, full);
        }
    }
}

/* All k blocks of the tile at (row, col) of this CTA; A has m rows. One thread. */
template <class T, bool N_MAJOR>
static __device__ __forceinline__ void
gemmar_produce(const CUtensorMap *map_a, const CUtensorMap *map_b, gemmar_stages<T> &s,
               gemmar_stage_barriers<T> &barriers, gemmar_cursor *at, uint32_t cta, int32_t row,
               int32_t col, int32_t m, int32_t k_blocks)
{
    /* A box wholly behind the end of A takes longer to load than any other: other rows do, too. */
    int32_t half = row + (int32_t)cta * 64 < m ? row + (int32_t)cta * 64 : row;

    for (int32_t kb = 0; kb < k_blocks; kb++) {
        uint32_t full = gemmar_shared_address(&barriers.full[at->at]);
        uint32_t a = gemmar_shared_address(s.a[at->at]), b = gemmar_shared_address(s.b[at->at]);
        int32_t k = kb * GEMMAR_BK;

        gemmar_mbarrier_wait(gemmar_shared_address(&barriers.empty[at->at]), at->phase);
        gemmar_mbarrier_expect(full, sizeof(s.a[0]) + sizeof(s.b[0]));
        if constexpr (T::ALONG_N) {
            gemmar_tma_load_multicast(a + cta * GEMMAR_BOX, map_a, k, half, full, 3);
            gemmar_load_b<T::BN, N_MAJOR, false>(b, map_b, k, col, full);
        } else {
            gemmar_tma_load(a, map_a, k, row, full);
            gemmar_load_b<T::BN / 2, N_MAJOR, true>(b + cta * (uint32_t)sizeof(s.b[0]) / 2, map_b,
                                                    k, col + (int32_t)cta * (T::BN / 2), full);
        }
        gemmar_cursor_next(at, T::STAGES);
    }
}

/* This consumer has read stage `at`: for the producers of both CTAs. 128 threads. */
template <class T>
static __device__ __forceinline__ void gemmar_stage_release(gemmar_stage_barriers<T> &barriers,
                                                            uint32_t at)
{
    uint32_t thread = threadIdx.x % 128;

    if (thread < 2) {
        gemmar_mbarrier_arrive_cluster(gemmar_shared_address(&barriers.empty[at]), thread);
    }
}

/* d = the 64 rows of warpgroup `half` of the tile. 128 threads. */
template <class T, bool BF16, bool N_MAJOR>
static __device__ __forceinline__ void
gemmar_multiply(gemmar_stages<T> &s, gemmar_stage_barriers<T> &barriers, gemmar_cursor *at,
                uint32_t half, int32_t k_blocks, float (&d)[T::BN / 2])
{
    /* Descriptors of stage 0; those of other stages and k steps differ by constants. */
    uint32_t first_a = gemmar_wgmma_descriptor(gemmar_shared_address(s.a[0]) + half * GEMMAR_BOX);
    uint32_t first_b = gemmar_shared_address(s.b[0]);
    int previous = -1;

    first_b =
        N_MAJOR ? gemmar_wgmma_descriptor_n(first_b, GEMMAR_BOX) : gemmar_wgmma_descriptor(first_b);
    for (int32_t kb = 0; kb < k_blocks; kb++) {
        gemmar_mbarrier_wait(gemmar_shared_address(&barriers.full[at->at]), at->phase);
        uint32_t a = first_a + at->at * (uint32_t)(sizeof(s.a[0]) / 16);
        uint32_t b = first_b + at->at * (uint32_t)(sizeof(s.b[0]) / 16);

        gemmar_wgmma_fence();
#pragma unroll
        for (int q = 0; q < GEMMAR_BK / 16; q++) {
            gemmar_wgmma<T::BN, BF16, N_MAJOR>(d, a + q * 2, b + q * (N_MAJOR ? 2048 : 32) / 16,
                                               (kb | q) != 0);
        }
        gemmar_wgmma_commit();
        if (previous >= 0) {
            gemmar_wgmma_wait<1>();
            gemmar_stage_release<T>(barriers, (uint32_t)previous);
        }
        previous = (int)at->at;
        gemmar_cursor_next(at, T::STAGES);
    }
    gemmar_wgmma_wait<0>();
    if (previous >= 0) {
        gemmar_stage_release<T>(barriers, (uint32_t)previous);
    }
}

#endif
