// SPDX-License-Identifier: Apache-2.0
// What a consumer warpgroup does with the accumulators of its 64 rows of a tile: adds other ranks'
// parts, and hands them on through boxes of staging in shared memory, 64 columns (8 KB) each.
//
// A part on its way to its owner keeps the order of the accumulators: word q of thread t (16 bytes,
// eight neighbours of d) at q * 128 + t, because the thread that adds it holds the same elements; a
// box of it is four such words of each thread. A box of a result has 128-byte swizzle, as a TMA
// store reads it.
#ifndef GEMMAR_KERNELS_EPILOGUE_SM90_CUH
#define GEMMAR_KERNELS_EPILOGUE_SM90_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/mainloop_sm90.cuh"
#include "kernels/ptx/convert.cuh"

template <bool BF16> static __device__ __forceinline__ uint32_t gemmar_pack16(float low, float high)
{
    return BF16 ? gemmar_cvt_bf16x2(low, high) : gemmar_cvt_f16x2(low, high);
}

template <bool BF16> static __device__ __forceinline__ float2 gemmar_unpack16(uint32_t packed)
{
    if constexpr (BF16) {
        return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
    } else {
        __half2 pair;

        memcpy((void *)&pair, &packed, sizeof(pair));
        return __half22float2(pair);
    }
}

/* 32 accumulators of every thread -> a box, in their own order. */
template <bool BF16>
static __device__ __forceinline__ void gemmar_stage_part(uint32_t box, uint32_t thread,
                                                         const float *d)
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const float *e = &d[q * 8];

        gemmar_st_shared_v4(box + (q * 128 + thread) * 16, gemmar_pack16<BF16>(e[0], e[1]),
                            gemmar_pack16<BF16>(e[2], e[3]), gemmar_pack16<BF16>(e[4], e[5]),
                            gemmar_pack16<BF16>(e[6], e[7]));
    }
}

/* `WORDS` * 8 accumulators of every thread += what lies at `from` in their order. */
template <int WORDS, bool BF16>
static __device__ __forceinline__ void gemmar_add_part(uint32_t from, uint32_t thread, float *d)
{
#pragma unroll
    for (int q = 0; q < WORDS; q++) {
        uint4 word = gemmar_ld_shared_v4(from + (q * 128 + thread) * 16);
        float2 x0 = gemmar_unpack16<BF16>(word.x), x1 = gemmar_unpack16<BF16>(word.y);
        float2 x2 = gemmar_unpack16<BF16>(word.z), x3 = gemmar_unpack16<BF16>(word.w);
        float *e = &d[q * 8];

        e[0] += x0.x, e[1] += x0.y, e[2] += x1.x, e[3] += x1.y;
        e[4] += x2.x, e[5] += x2.y, e[6] += x3.x, e[7] += x3.y;
    }
}

/* Accumulators += the part of warpgroup `half` in the next stages of the ring. 128 threads. */
template <class T, bool BF16>
static __device__ __forceinline__ void
gemmar_add_source(gemmar_stages<T> &s, gemmar_stage_barriers<T> &barriers, gemmar_cursor *at,
                  uint32_t half, float (&d)[T::BN / 2])
{
    using blocks = gemmar_part_blocks<T>;
    uint32_t thread = threadIdx.x % 128;

#pragma unroll
    for (int block = 0; block < blocks::BLOCKS; block++) {
        gemmar_mbarrier_wait(gemmar_shared_address(&barriers.full[at->at]), at->phase);
        gemmar_add_part<blocks::BYTES / 2048, BF16>(
            gemmar_shared_address(half == 0 ? s.a[at->at] : s.b[at->at]), thread,
            &d[block * (T::BN / 2 / blocks::BLOCKS)]);
        gemmar_bar_sync(half + 1, 128); /* all have read */
        gemmar_stage_release<T>(barriers, at->at);
        gemmar_cursor_next(at, T::STAGES);
    }
}

/* 32 accumulators of every thread -> a box, in rows. */
template <bool BF16>
static __device__ __forceinline__ void gemmar_stage_rows(uint32_t box, uint32_t thread,
                                                         const float *d)
{
    uint32_t lane = thread % 32, r = thread / 32 * 16 + (lane >> 3 & 1) * 8 + (lane & 7);

#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        uint32_t column = (uint32_t)j + (lane >> 4);
        uint32_t address = box + r * 128 + ((column ^ (r & 7)) << 4);
        const float *e = &d[j * 4];

        gemmar_stmatrix4(address, gemmar_pack16<BF16>(e[0], e[1]), gemmar_pack16<BF16>(e[2], e[3]),
                         gemmar_pack16<BF16>(e[4], e[5]), gemmar_pack16<BF16>(e[6], e[7]));
    }
}

template <bool BF16>
static __device__ __forceinline__ float gemmar_read16(const void *base, int64_t i)
{
    return gemmar_load_element(BF16 ? GEMMAR_DTYPE_BF16 : GEMMAR_DTYPE_FP16, base, i);
}

/* d = alpha * d + beta * C + bias for the rows from `row` and the columns from `col` on. Only the
 * owner of a tile reads its C, before anybody writes it. */
template <int BN, bool BF16>
static __device__ __forceinline__ void gemmar_scale(const struct gemmar_call &call, int64_t row,
                                                    int64_t col, uint32_t thread,
                                                    float (&d)[BN / 2])
{
    const struct gemmar_operands &o = call.operands;

    row += thread / 32 * 16 + thread % 32 / 4;
    col += 2 * (thread % 4);
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
        int64_t r = row + (i >> 1 & 1) * 8, c = col + i / 4 * 8 + (i & 1);
        float x = o.alpha * d[i];

        if (r < call.map.m && c < call.map.n) {
            if (o.beta != 0.0f) {
                x += o.beta * gemmar_read16<BF16>(o.c, r * o.ldc + c);
            }
            if (o.bias != NULL) {
                x += gemmar_read16<BF16>(o.bias, c);
            }
        }
        d[i] = x;
    }
}

#endif
