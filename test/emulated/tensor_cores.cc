// SPDX-License-Identifier: Apache-2.0
// Emulated GPUs: the tensor cores. Descriptors are those of kernels/ptx/wgmma.cuh.
#include "test/emulated/machine.h"

#include "kernels/dtype.h"

#define MMA_ROWS     64
#define MMA_DEPTH    16
#define MOST_COLUMNS 256

void emulated_wgmma(float *d, uint32_t columns, bool bf16, bool trans_b, uint32_t a, uint32_t b,
                    bool accumulate)
{
    emulated_current->mmas.push_back({d, columns, bf16, trans_b, accumulate, a, b});
}

void emulated_wgmma_commit(void)
{
    emulated_current->mma_groups.push_back(emulated_current->mmas);
    emulated_current->mmas.clear();
}

static uint32_t start_of(uint32_t descriptor)
{
    return (descriptor & 0x3fffu) << 4;
}

static float operand(const cta *c, uint32_t address, bool bf16)
{
    uint16_t bits = *(const uint16_t *)(c->shared + emulated_swizzle(address));

    return bf16 ? gemmar_from_bf16(bits) : gemmar_from_fp16(bits);
}

/* Row r of a K-major operand: eight rows every 1024 bytes. */
static uint32_t k_major(uint32_t start, uint32_t row, uint32_t k)
{
    return start + row / 8 * 1024 + row % 8 * 128 + k * 2;
}

/* Column n of an N-major operand: 64 columns every `box` bytes. */
static uint32_t n_major(uint32_t start, uint32_t box, uint32_t n, uint32_t k)
{
    return start + n / 64 * box + k / 8 * 1024 + k % 8 * 128 + n % 64 * 2;
}

/* Of a warpgroup: the tile's element in thread t's d. */
static uint32_t row_of(uint32_t t, uint32_t i)
{
    return t / 32 * 16 + t % 32 / 4 + (i >> 1 & 1) * 8;
}

static uint32_t column_of(uint32_t t, uint32_t i)
{
    return i / 4 * 8 + 2 * (t % 4) + (i & 1);
}

static float tile[MMA_ROWS][MOST_COLUMNS];

__attribute__((target_clones("avx2", "default"))) static void
multiply(const float (*x)[MMA_DEPTH], const float (*y)[MOST_COLUMNS], uint32_t columns)
{
    for (uint32_t r = 0; r < MMA_ROWS; r++) {
        for (uint32_t k = 0; k < MMA_DEPTH; k++) {
            for (uint32_t n = 0; n < columns; n++) {
                tile[r][n] += x[r][k] * y[k][n];
            }
        }
    }
}

static void run_mma(const cta *c, const mma &m)
{
    static float x[MMA_ROWS][MMA_DEPTH], y[MMA_DEPTH][MOST_COLUMNS];
    uint32_t a = start_of(m.a), b = start_of(m.b), box = (m.b >> 16 & 0x3fffu) << 4;

    for (uint32_t k = 0; k < MMA_DEPTH; k++) {
        for (uint32_t r = 0; r < MMA_ROWS; r++) {
            x[r][k] = operand(c, k_major(a, r, k), m.bf16);
        }
        for (uint32_t n = 0; n < m.columns; n++) {
            y[k][n] = operand(c, m.trans_b ? n_major(b, box, n, k) : k_major(b, n, k), m.bf16);
        }
    }
    if (!m.accumulate) {
        memset(tile, 0, sizeof(tile));
    }
    multiply(x, y, m.columns);
}

/* The oldest group of the warpgroup whose threads begin at `first`: d of every thread to the tile,
 * the products, and back. */
static void run_mma_group(const cta *c, uint32_t first)
{
    fiber *const *threads = &c->fibers[first];
    const std::vector<mma> work = threads[0]->mma_groups.front();
    uint32_t columns = work.front().columns;

    for (uint32_t t = 0; t < WARPGROUP; t++) {
        const float *d = threads[t]->mma_groups.front().front().d;

        for (uint32_t i = 0; i < columns / 2; i++) {
            tile[row_of(t, i)][column_of(t, i)] = d[i];
        }
    }
    for (const mma &m : work) {
        run_mma(c, m);
    }
    for (uint32_t t = 0; t < WARPGROUP; t++) {
        float *d = threads[t]->mma_groups.front().front().d;

        for (uint32_t i = 0; i < columns / 2; i++) {
            d[i] = tile[row_of(t, i)][column_of(t, i)];
        }
        threads[t]->mma_groups.pop_front();
    }
}

/* The last one that comes works for all. */
void emulated_wgmma_wait(uint32_t pending)
{
    cta *c = emulated_current->home;
    uint32_t group = emulated_current->thread / WARPGROUP;

    if (emulated_current->mma_groups.size() > pending &&
        emulated_meet(c->warpgroups[group], WARPGROUP, "a warpgroup")) {
        while (emulated_current->mma_groups.size() > pending) {
            run_mma_group(c, group * WARPGROUP);
        }
    }
}
