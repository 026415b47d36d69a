// SPDX-License-Identifier: Apache-2.0
// Inputs and expected results of the GPU checks, element by element.
#ifndef GEMMAR_TEST_ORACLE_ELEMENT_H
#define GEMMAR_TEST_ORACLE_ELEMENT_H

#include <math.h>

#include "kernels/dtype.h"
#include "test/kernel/oracle.h"

GEMMAR_HD uint64_t oracle_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

GEMMAR_HD float oracle_value(const void *x, int64_t i, int bf16)
{
    return gemmar_load_element(bf16 ? GEMMAR_DTYPE_BF16 : GEMMAR_DTYPE_FP16, x, i);
}

GEMMAR_HD uint16_t oracle_to_16(float x, int bf16)
{
    return bf16 ? gemmar_to_bf16(x) : gemmar_to_fp16(x);
}

/* Element i of an input. */
GEMMAR_HD uint16_t oracle_input(int64_t i, int bf16, enum oracle_numbers numbers, uint64_t seed)
{
    uint64_t r = oracle_mix(seed * 0x9e3779b97f4a7c15ULL + (uint64_t)i);
    float value;

    if (numbers == ORACLE_SPECIAL && (r >> 32 & 511) < 3) {
        value = (r >> 32 & 511) == 0 ? NAN : (r >> 32 & 511) == 1 ? INFINITY : -INFINITY;
    } else if (numbers != ORACLE_NORMAL) { /* mostly zeros: sums stay small */
        value = (r & 15) < 13 ? 0.0f : (float)((int)(r >> 8 & 1) * 2 - 1);
    } else { /* the sum of four uniform numbers, variance 1 */
        value = ((float)(r & 0xffff) + (float)(r >> 16 & 0xffff) + (float)(r >> 32 & 0xffff) +
                 (float)(r >> 48)) /
                    65536.0f * 1.7320508f -
                3.4641016f;
    }
    return oracle_to_16(value, bf16);
}

/* Result and the error that is allowed for it: one rounding of each partial, of each node's sum
 * where there are several, and of the result, and fp32 sums in any order. */
GEMMAR_HD float oracle_expect(const struct oracle *o, int64_t row, int64_t col, float *bound)
{
    float unit = o->bf16 ? 0x1p-8f : 0x1p-11f, sum = 0, roundings = 0, sizes = 0;
    float node = 0;

    for (int r = 0; r < o->ranks; r++) {
        float partial = 0;

        for (int64_t k = 0; k < o->k; k++) {
            float x = oracle_value(o->a[r], row * o->lda + k, o->bf16);
            float y =
                oracle_value(o->b[r], o->trans_b ? col * o->ldb + k : k * o->ldb + col, o->bf16);

            partial += x * y;
            sizes += fabsf(x * y);
        }
        sum += partial;
        node += partial;
        roundings += fabsf(partial);
        if ((r + 1) % o->locals == 0) {
            roundings += o->locals < o->ranks ? fabsf(node) : 0;
            node = 0;
        }
    }
    sum *= o->alpha;
    if (o->beta != 0) {
        sum += o->beta * oracle_value(o->before, row * o->ldc + col, o->bf16);
    }
    if (o->bias != NULL) {
        sum += oracle_value(o->bias, col, o->bf16);
    }
    *bound = fabsf(o->alpha) * (2.0f * (float)o->k * 0x1p-24f * sizes + unit * roundings) +
             unit * fabsf(sum) + 1e-6f;
    return sum;
}

/* Is element (row, col) of C what it should be? How much of the bound its error takes, and its part
 * of the hash of all elements. */
GEMMAR_HD int oracle_judge(const struct oracle *o, const uint16_t *c, int64_t row, int64_t col,
                           enum oracle_numbers numbers, float *of_bound, uint64_t *hash)
{
    float bound, want = oracle_expect(o, row, col, &bound);
    float got = oracle_value(c, row * o->ldc + col, o->bf16);
    uint16_t bits = c[row * o->ldc + col];

    *of_bound = fabsf(got - want) / bound;
    *hash = oracle_mix((uint64_t)(row * o->n + col) << 16 | bits);
    if (numbers == ORACLE_NORMAL) {
        return fabsf(got - want) <= bound;
    }
    return bits == oracle_to_16(want, o->bf16) || (got == 0.0f && want == 0.0f) ||
           (isnan(got) && isnan(want));
}

#endif
