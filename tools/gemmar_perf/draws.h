// SPDX-License-Identifier: Apache-2.0
// The draws that operands are made of: a pure function of seed, call, rank and place, in code that
// gcc, clang and nvcc compile, so that a GPU makes the very numbers that the CPU makes.
#ifndef GEMMAR_PERF_DRAWS_H
#define GEMMAR_PERF_DRAWS_H

#include <stdint.h>

#include <gemmar/fifo.h>

/* What a draw is for. */
enum gemmar_perf_use {
    GEMMAR_PERF_OF_A_COLUMN = 1,
    GEMMAR_PERF_OF_A_SIGN = 2,
    GEMMAR_PERF_OF_B = 3,
    GEMMAR_PERF_OF_A_NORMAL = 4,
    GEMMAR_PERF_OF_B_NORMAL = 5,
};

/* A hash of two numbers: the finaliser of SplitMix64 over both. */
GEMMAR_HD uint64_t gemmar_perf_draw(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^ (b + UINT64_C(0x632be59bd9b4e019));

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The key of all draws of one rank, call and use. */
GEMMAR_HD uint64_t gemmar_perf_draw_key(uint64_t seed, uint64_t call, uint32_t rank, uint32_t use)
{
    return gemmar_perf_draw(gemmar_perf_draw(seed, call), (uint64_t)rank << 8 | use);
}

/* Four 16-bit uniform numbers added: mean 0, deviation 1, tails cut at 3.5. */
GEMMAR_HD float gemmar_perf_draw_normal(uint64_t key, int64_t i)
{
    uint64_t x = gemmar_perf_draw(key, (uint64_t)i);
    int32_t sum = (int32_t)(x & 0xffff) + (int32_t)(x >> 16 & 0xffff) +
                  (int32_t)(x >> 32 & 0xffff) + (int32_t)(x >> 48);

    return (float)(sum - 131070) * (1.0f / 37837.0f);
}

/* How many entries of a row of A are not zero when all rows of all ranks together may have `limit`.
 */
GEMMAR_HD int64_t gemmar_perf_exact_count(uint32_t limit, uint32_t ranks, uint32_t rank, int64_t k)
{
    int64_t most = limit / ranks != 0 ? (int64_t)(limit / ranks) : (int64_t)(rank < limit);

    return k < most ? k : most;
}

/* Column of entry i of `count` in a row of A, whose key for columns is `columns`: one entry in each
 * of `count` equal parts of the row, so that no column comes twice. */
GEMMAR_HD int64_t gemmar_perf_exact_column(uint64_t columns, int64_t i, int64_t count, int64_t k)
{
    int64_t low = i * k / count, high = (i + 1) * k / count;

    return low + (int64_t)(gemmar_perf_draw(columns, (uint64_t)i) % (uint64_t)(high - low));
}

GEMMAR_HD int gemmar_perf_exact_sign(uint64_t signs, int64_t i)
{
    return gemmar_perf_draw(signs, (uint64_t)i) & 1 ? 1 : -1;
}

/* Signs of the 64 columns of B that begin at j, a multiple of 64; bit set: +1. */
GEMMAR_HD uint64_t gemmar_perf_exact_signs(uint64_t of_row, int64_t j)
{
    return gemmar_perf_draw(of_row, (uint64_t)j);
}

#endif
