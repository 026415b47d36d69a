// SPDX-License-Identifier: Apache-2.0
// The inner product on Hopper: TMA -> mbarrier ring -> WGMMA -> shared staging -> TMA store.
//
// Roles of a CTA (384 threads): warpgroup 0 gives its registers away and one thread of it loads;
// warpgroups 1 and 2 each multiply 64 of the 128 rows of a tile and store them. Two CTAs form a
// cluster on two tiles of one column: each loads its own A and half of B, and the copy engine
// delivers the half to both, so that a tile costs 256 rows of L2 traffic and not 384.
// Input: A [m,k] row-major; B [n,k] row-major, or [k,n] with TRANS_B. Output: C [m,n] row-major.
#ifndef GEMMAR_KERNELS_GEMM_SM90_CUH
#define GEMMAR_KERNELS_GEMM_SM90_CUH

#include <stdint.h>

#include "kernels/gemm_sm90.h"
#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

#define GEMMAR_GEMM_BM      128
#define GEMMAR_GEMM_BN      256
#define GEMMAR_GEMM_BK      64
#define GEMMAR_GEMM_THREADS 384
#define GEMMAR_GEMM_BOX     (64 * 64 * 2) /* bytes of a 64 x 64 box of 16-bit elements */

template <int STAGES, int STAGING_COLUMNS> struct gemmar_gemm_shared {
    alignas(1024) uint8_t a[STAGES][GEMMAR_GEMM_BM * GEMMAR_GEMM_BK * 2];
    alignas(1024) uint8_t b[STAGES][GEMMAR_GEMM_BN * GEMMAR_GEMM_BK * 2];
    alignas(1024) uint8_t c[2][64 * STAGING_COLUMNS * 2];
    uint64_t full[STAGES];  /* the copy engine -> this CTA's consumers */
    uint64_t empty[STAGES]; /* consumers of both CTAs -> this CTA's producer */
};

/* Position in the ring of stages. */
struct gemmar_gemm_cursor {
    int stage;
    uint32_t phase;
};

template <int STAGES> static __device__ __forceinline__ void gemmar_gemm_next(gemmar_gemm_cursor *c)
{
    if (++c->stage == STAGES) {
        c->stage = 0;
        c->phase ^= 1;
    }
}

/* Cluster tile `t` -> column of tiles and row of cluster tiles (two tiles high); bands of
 * `p.band` rows are walked column by column so that both operands stay in L2. */
static __device__ __forceinline__ void gemmar_gemm_where(const gemmar_gemm_params &p, int32_t t,
                                                         int32_t *row, int32_t *col)
{
    int32_t per_band = p.band * p.tile_cols;
    int32_t band = t / per_band;
    int32_t rows = min(p.band, p.pair_rows - band * p.band);
    int32_t in = t - band * per_band;

    *row = band * p.band + in % rows;
    *col = in / rows;
}

template <class SHARED, int STAGES, int TRANS_B>
static __device__ __forceinline__ void gemmar_gemm_produce(const gemmar_gemm_params &p, SHARED &s,
                                                           uint32_t cta)
{
    gemmar_gemm_cursor at = {0, 1};

    for (int32_t t = blockIdx.x / 2; t < p.tiles; t += gridDim.x / 2) {
        int32_t row, col;

        gemmar_gemm_where(p, t, &row, &col);
        for (int32_t kb = 0; kb < p.k_blocks; kb++) {
            uint32_t full = gemmar_shared_address(&s.full[at.stage]);
            uint32_t a = gemmar_shared_address(s.a[at.stage]);
            uint32_t half = gemmar_shared_address(s.b[at.stage]) + cta * 2 * GEMMAR_GEMM_BOX;
            int32_t n = col * GEMMAR_GEMM_BN + (int32_t)cta * (GEMMAR_GEMM_BN / 2);
            int32_t k = kb * GEMMAR_GEMM_BK;

            gemmar_mbarrier_wait(gemmar_shared_address(&s.empty[at.stage]), at.phase);
            gemmar_mbarrier_expect(full, sizeof(s.a[0]) + sizeof(s.b[0]));
            gemmar_tma_load(a, &p.a, k, (row * 2 + (int32_t)cta) * GEMMAR_GEMM_BM, full);
            if (TRANS_B) {
                gemmar_tma_load_multicast(half, &p.b, n, k, full, 3);
                gemmar_tma_load_multicast(half + GEMMAR_GEMM_BOX, &p.b, n + 64, k, full, 3);
            } else {
                gemmar_tma_load_multicast(half, &p.b, k, n, full, 3);
            }
            gemmar_gemm_next<STAGES>(&at);
        }
    }
}

/* Round 64 x STAGING_COLUMNS accumulators from column group `first` on into swizzled staging. */
template <bool BF16, int STAGING_COLUMNS>
static __device__ __forceinline__ void
gemmar_gemm_stage(const float (&d)[128], int first, uint32_t staging, uint32_t warp, uint32_t lane)
{
    uint32_t r = warp * 16 + (lane >> 3 & 1) * 8 + (lane & 7);

#pragma unroll
    for (int j = 0; j < STAGING_COLUMNS / 8; j += 2) {
        uint32_t column = (uint32_t)j + (lane >> 4);
        uint32_t address =
            staging + column / 8 * GEMMAR_GEMM_BOX + r * 128 + (((column & 7) ^ (r & 7)) << 4);
        const float *e = &d[(first + j) * 4];

        gemmar_stmatrix4(address, gemmar_pack16<BF16>(e[0], e[1]), gemmar_pack16<BF16>(e[2], e[3]),
                         gemmar_pack16<BF16>(e[4], e[5]), gemmar_pack16<BF16>(e[6], e[7]));
    }
}

template <class SHARED, int STAGES, int STAGING_COLUMNS, bool BF16, int TRANS_B, int LAG>
static __device__ __forceinline__ void gemmar_gemm_consume(const gemmar_gemm_params &p, SHARED &s,
                                                           uint32_t cta, uint32_t half)
{
    gemmar_gemm_cursor at = {0, 0};
    uint32_t thread = threadIdx.x % 128;
    uint32_t staging = gemmar_shared_address(s.c[half]);
    float d[128];

    if (LAG > 0 && half == 1) {
        gemmar_bar_sync(3, 256);
    }
    bool leading = LAG > 0 && half == 0;
    for (int32_t t = blockIdx.x / 2; t < p.tiles; t += gridDim.x / 2) {
        int32_t row, col, previous = -1;

        gemmar_gemm_where(p, t, &row, &col);
        for (int32_t kb = 0; kb < p.k_blocks; kb++) {
            gemmar_mbarrier_wait(gemmar_shared_address(&s.full[at.stage]), at.phase);
            uint32_t a = gemmar_shared_address(s.a[at.stage]) + half * GEMMAR_GEMM_BOX;
            uint32_t b = gemmar_shared_address(s.b[at.stage]);

            gemmar_wgmma_fence();
#pragma unroll
            for (int q = 0; q < GEMMAR_GEMM_BK / 16; q++) {
                uint64_t db = TRANS_B ? gemmar_wgmma_descriptor_n(b + q * 2048, GEMMAR_GEMM_BOX)
                                      : gemmar_wgmma_descriptor(b + q * 32);

                gemmar_wgmma<256, BF16, TRANS_B>(d, gemmar_wgmma_descriptor(a + q * 32), db,
                                                 (kb | q) != 0);
            }
            gemmar_wgmma_commit();
            if (previous >= 0) {
                gemmar_wgmma_wait<1>();
                if (thread < 2) {
                    gemmar_mbarrier_arrive_cluster(gemmar_shared_address(&s.empty[previous]),
                                                   thread);
                }
            }
            previous = at.stage;
            gemmar_gemm_next<STAGES>(&at);
            if (leading && (kb == LAG - 1 || kb == p.k_blocks - 1)) {
                gemmar_bar_arrive(3, 256);
                leading = false;
            }
        }
        gemmar_wgmma_wait<0>();
        if (thread < 2) {
            gemmar_mbarrier_arrive_cluster(gemmar_shared_address(&s.empty[previous]), thread);
        }
#pragma unroll
        for (int part = 0; part < GEMMAR_GEMM_BN / STAGING_COLUMNS; part++) {
            if (thread == 0) {
                gemmar_bulk_wait_read();
            }
            gemmar_bar_sync(half + 1, 128);
            gemmar_gemm_stage<BF16, STAGING_COLUMNS>(d, part * STAGING_COLUMNS / 8, staging,
                                                     thread / 32, thread % 32);
            gemmar_fence_async_shared();
            gemmar_bar_sync(half + 1, 128);
            if (thread == 0) {
                for (int q = 0; q < STAGING_COLUMNS / 64; q++) {
                    gemmar_tma_store(&p.c, staging + q * GEMMAR_GEMM_BOX,
                                     col * GEMMAR_GEMM_BN + part * STAGING_COLUMNS + q * 64,
                                     (row * 2 + (int32_t)cta) * GEMMAR_GEMM_BM +
                                         (int32_t)half * 64);
                }
                gemmar_bulk_commit();
            }
        }
    }
    if (thread == 0) {
        gemmar_bulk_wait();
    }
}

template <int STAGES, int STAGING_COLUMNS, bool BF16, int TRANS_B, int LAG>
__global__ void __launch_bounds__(GEMMAR_GEMM_THREADS, 1) __cluster_dims__(2, 1, 1)
    gemmar_gemm_kernel(const __grid_constant__ gemmar_gemm_params p)
{
    using shared_t = gemmar_gemm_shared<STAGES, STAGING_COLUMNS>;
    extern __shared__ uint8_t raw[];
    shared_t &s = *(shared_t *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
    uint32_t cta = blockIdx.x & 1;

    static_assert(sizeof(shared_t) + 1024 <= 227 * 1024, "shared memory of an SM");
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            gemmar_mbarrier_init(gemmar_shared_address(&s.full[i]), 1);
            gemmar_mbarrier_init(gemmar_shared_address(&s.empty[i]), 4);
        }
        gemmar_mbarrier_init_fence();
    }
    gemmar_cluster_sync();
    if (threadIdx.x < 128) {
        gemmar_registers_down<40>();
        if (threadIdx.x == 0) {
            gemmar_tma_prefetch(&p.a);
            gemmar_tma_prefetch(&p.b);
            gemmar_tma_prefetch(&p.c);
            gemmar_gemm_produce<shared_t, STAGES, TRANS_B>(p, s, cta);
        }
    } else {
        gemmar_registers_up<232>();
        gemmar_gemm_consume<shared_t, STAGES, STAGING_COLUMNS, BF16, TRANS_B, LAG>(
            p, s, cta, threadIdx.x / 128 - 1);
    }
    /* A CTA may not leave while the other one can still write to its shared memory. */
    gemmar_cluster_sync();
}

#endif
