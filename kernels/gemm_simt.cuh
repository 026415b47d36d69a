// SPDX-License-Identifier: Apache-2.0
// The inner product of one tile without tensor cores: for operands whose address or stride the copy
// engine cannot take. Any layout, any type, fp32 accumulation in the order of k.
//
// 256 threads walk the tile in blocks of 64 x 64; each thread holds 4 x 4 sums.
#ifndef GEMMAR_KERNELS_GEMM_SIMT_CUH
#define GEMMAR_KERNELS_GEMM_SIMT_CUH

#include "kernels/exec.h"

#define GEMMAR_SIMT_BLOCK 64
#define GEMMAR_SIMT_K     16

struct gemmar_gemm_scratch {
    float a[GEMMAR_SIMT_K][GEMMAR_SIMT_BLOCK];
    float b[GEMMAR_SIMT_K][GEMMAR_SIMT_BLOCK];
};

static __device__ __forceinline__ float gemmar_simt_a(const struct gemmar_operands *o, int64_t row,
                                                      int64_t k, bool inside)
{
    return inside ? gemmar_load_element(o->dtype, o->a, row * o->lda + k) : 0.0f;
}

static __device__ __forceinline__ float gemmar_simt_b(const struct gemmar_operands *o, int64_t k,
                                                      int64_t col, bool inside)
{
    int64_t at = o->trans_b ? col * o->ldb + k : k * o->ldb + col;

    return inside ? gemmar_load_element(o->dtype, o->b, at) : 0.0f;
}

/* Sums of the block at (row0, col0) of C; rows and cols are what is left of the tile. */
static __device__ void gemmar_simt_block(const struct gemmar_operands *o,
                                         const struct gemmar_cta *cta,
                                         struct gemmar_gemm_scratch *s, int64_t row0, int64_t col0,
                                         int64_t rows, int64_t cols, float (&sum)[4][4])
{
    uint32_t tr = cta->lane / 16 * 4, tc = cta->lane % 16 * 4;

    for (int64_t k0 = 0; k0 < o->k; k0 += GEMMAR_SIMT_K) {
        for (uint32_t i = cta->lane; i < GEMMAR_SIMT_K * GEMMAR_SIMT_BLOCK; i += cta->lanes) {
            uint32_t k = i / GEMMAR_SIMT_BLOCK, x = i % GEMMAR_SIMT_BLOCK;
            bool in_k = k0 + k < o->k;

            s->a[k][x] = gemmar_simt_a(o, row0 + x, k0 + k, in_k && x < rows);
            s->b[k][x] = gemmar_simt_b(o, k0 + k, col0 + x, in_k && x < cols);
        }
        __syncthreads();
        for (int k = 0; k < GEMMAR_SIMT_K; k++) {
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) {
                    sum[i][j] += s->a[k][tr + i] * s->b[k][tc + j];
                }
            }
        }
        __syncthreads();
    }
}

static __device__ void gemmar_exec_gemm_tile(const struct gemmar_call *call,
                                             const struct gemmar_cta *cta,
                                             const struct gemmar_chunk *chunk, int64_t t,
                                             struct gemmar_gemm_scratch *scratch)
{
    const struct gemmar_operands *o = &call->operands;
    int64_t cols = gemmar_chunk_tile_cols(&call->map, chunk, t);
    int64_t first = gemmar_chunk_tile_offset(&call->map, chunk, t);
    char *partial = (char *)call->locals[call->place.local].partial +
                    gemmar_map_chunk_offset(&call->map, chunk->index);
    uint32_t tr = cta->lane / 16 * 4, tc = cta->lane % 16 * 4;

    for (int64_t r0 = 0; r0 < chunk->rows; r0 += GEMMAR_SIMT_BLOCK) {
        for (int64_t c0 = 0; c0 < cols; c0 += GEMMAR_SIMT_BLOCK) {
            float sum[4][4] = {};

            gemmar_simt_block(o, cta, scratch, chunk->row0 + r0,
                              chunk->col0 + t * call->map.tile_n + c0, chunk->rows - r0, cols - c0,
                              sum);
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) {
                    int64_t r = r0 + tr + i, c = c0 + tc + j;

                    if (r < chunk->rows && c < cols) {
                        gemmar_store_element(o->dtype, partial, first + r * cols + c, sum[i][j]);
                    }
                }
            }
        }
    }
}

#endif
