// SPDX-License-Identifier: Apache-2.0
// The inner product of one tile on the CPU: operands widened to fp32 block by block along K, a loop
// that the compiler vectorises along the columns.
//
// K is cut in blocks of a fixed size and every element is summed in the order of k, so that the
// bits never depend on how many threads share the work. A BLAS would be faster, but brings threads
// of its own and blocks K by the machine it runs on.
#include "kernels/cpu/gemm_tile_cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/exec.h"

#define K_BLOCK 256

/* For loops over the scratch, which is its thread's own: ThreadSanitizer has nothing to see in
 * them. AddressSanitizer has seen it all before, when the same elements were written one by one.
 * Either would make them 20 times slower. */
#define UNCHECKED __attribute__((no_sanitize("thread", "address", "undefined")))

struct gemmar_gemm_scratch {
    uint32_t tile_m, tile_n;
    float *a;   /* [tile_m][K_BLOCK] */
    float *b;   /* [K_BLOCK][tile_n] */
    float *sum; /* [tile_m][tile_n] */
};

int gemmar_gemm_scratch_open(uint32_t tile_m, uint32_t tile_n, struct gemmar_gemm_scratch **out)
{
    struct gemmar_gemm_scratch *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        return -ENOMEM;
    }
    s->tile_m = tile_m;
    s->tile_n = tile_n;
    s->a = malloc(sizeof(float) * tile_m * K_BLOCK);
    s->b = malloc(sizeof(float) * tile_n * K_BLOCK);
    s->sum = malloc(sizeof(float) * tile_m * tile_n);
    if (s->a == NULL || s->b == NULL || s->sum == NULL) {
        gemmar_gemm_scratch_close(s);
        return -ENOMEM;
    }
    *out = s;
    return 0;
}

void gemmar_gemm_scratch_close(struct gemmar_gemm_scratch *s)
{
    if (s != NULL) {
        free(s->a);
        free(s->b);
        free(s->sum);
        free(s);
    }
}

static void widen_a(const struct gemmar_operands *o, float *a, int64_t row0, int64_t rows,
                    int64_t k0, int64_t ks)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < ks; k++) {
            a[r * K_BLOCK + k] = gemmar_load_element(o->dtype, o->a, (row0 + r) * o->lda + k0 + k);
        }
    }
}

static void widen_b(const struct gemmar_operands *o, float *b, uint32_t ld, int64_t col0,
                    int64_t cols, int64_t k0, int64_t ks)
{
    if (o->trans_b) {
        for (int64_t c = 0; c < cols; c++) {
            for (int64_t k = 0; k < ks; k++) {
                b[k * ld + c] = gemmar_load_element(o->dtype, o->b, (col0 + c) * o->ldb + k0 + k);
            }
        }
        return;
    }
    for (int64_t k = 0; k < ks; k++) {
        for (int64_t c = 0; c < cols; c++) {
            b[k * ld + c] = gemmar_load_element(o->dtype, o->b, (k0 + k) * o->ldb + col0 + c);
        }
    }
}

/*
 * sum += a * b, four k at a time; every element is summed in the order of k, without contraction
 * (the build is ISO C), so the bits are the same whatever the vector width.
 */
static inline __attribute__((always_inline)) UNCHECKED void
multiply_rows(struct gemmar_gemm_scratch *s, int64_t rows, int64_t cols, int64_t ks)
{
    for (int64_t r = 0; r < rows; r++) {
        float *restrict sum = s->sum + r * s->tile_n;
        const float *a = s->a + r * K_BLOCK;
        int64_t k = 0;

        for (; k + 3 < ks; k += 4) {
            const float *restrict b = s->b + k * s->tile_n;
            const float *restrict b1 = b + s->tile_n, *restrict b2 = b1 + s->tile_n;
            const float *restrict b3 = b2 + s->tile_n;
            float x0 = a[k], x1 = a[k + 1], x2 = a[k + 2], x3 = a[k + 3];

            for (int64_t c = 0; c < cols; c++) {
                sum[c] = sum[c] + x0 * b[c] + x1 * b1[c] + x2 * b2[c] + x3 * b3[c];
            }
        }
        for (; k < ks; k++) {
            const float *restrict b = s->b + k * s->tile_n;

            for (int64_t c = 0; c < cols; c++) {
                sum[c] += a[k] * b[c];
            }
        }
    }
}

#if defined(__x86_64__)
static __attribute__((target("avx2"))) UNCHECKED void
multiply_avx2(struct gemmar_gemm_scratch *s, int64_t rows, int64_t cols, int64_t ks)
{
    multiply_rows(s, rows, cols, ks);
}
#endif

static UNCHECKED void multiply(struct gemmar_gemm_scratch *s, int64_t rows, int64_t cols,
                               int64_t ks)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        multiply_avx2(s, rows, cols, ks);
        return;
    }
#endif
    multiply_rows(s, rows, cols, ks);
}

void gemmar_exec_gemm_tile(const struct gemmar_call *call, const struct gemmar_cta *cta,
                           const struct gemmar_chunk *chunk, int64_t t,
                           struct gemmar_gemm_scratch *s)
{
    const struct gemmar_operands *o = &call->operands;
    int64_t cols = gemmar_chunk_tile_cols(&call->map, chunk, t);
    int64_t col0 = chunk->col0 + t * call->map.tile_n;
    int64_t offset = gemmar_map_chunk_offset(&call->map, chunk->index);
    char *partial = (char *)call->locals[call->place.local].partial + offset;
    int64_t first = gemmar_chunk_tile_offset(&call->map, chunk, t);

    (void)cta;
    for (int64_t r = 0; r < chunk->rows; r++) {
        memset(s->sum + r * s->tile_n, 0, sizeof(float) * (size_t)cols);
    }
    for (int64_t k0 = 0; k0 < o->k; k0 += K_BLOCK) {
        int64_t ks = gemmar_min64(K_BLOCK, o->k - k0);

        widen_a(o, s->a, chunk->row0, chunk->rows, k0, ks);
        widen_b(o, s->b, s->tile_n, col0, cols, k0, ks);
        multiply(s, chunk->rows, cols, ks);
    }
    for (int64_t r = 0; r < chunk->rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            gemmar_store_element(o->dtype, partial, first + r * cols + c,
                                 s->sum[r * s->tile_n + c]);
        }
    }
}
