// SPDX-License-Identifier: Apache-2.0
// Operands: a pure function of seed, call, rank and place in the matrix, so that every rank can
// make every other rank's rows again for the check.
#ifndef GEMMAR_PERF_INPUTS_H
#define GEMMAR_PERF_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include <gemmar/gemmar.h>

enum gemmar_perf_kind {
    /* Entries of B are +-1, a row of A has at most limit / ranks entries of +-1, where limit is
     * 2^8 (bf16), 2^11 (fp16) or 2^12 (fp32): every partial sum of any stage is a whole number
     * that the type holds exactly, whatever the order, so the result must be equal. */
    GEMMAR_PERF_EXACT,
    GEMMAR_PERF_NORMAL, /* about normal: A with deviation 1, B with 1 / sqrt(K) */
    GEMMAR_PERF_FILES,  /* read from .npy files */
};

struct gemmar_perf_inputs {
    enum gemmar_perf_kind kind;
    gemmarDataType_t dtype;
    uint64_t seed;
    uint64_t call; /* other numbers, other inputs */
    uint32_t ranks;
    bool trans_b;
    int64_t m, n, k;
    const char *file_a, *file_b; /* GEMMAR_PERF_FILES; NULL: as GEMMAR_PERF_NORMAL */
};

/* Most entries of a row of A that are not zero, with GEMMAR_PERF_EXACT. */
#define GEMMAR_PERF_EXACT_MOST 4096

struct gemmar_perf_sparse_row {
    uint32_t count;
    int64_t column[GEMMAR_PERF_EXACT_MOST];
    int8_t sign[GEMMAR_PERF_EXACT_MOST];
};

void gemmar_perf_exact_a_row(const struct gemmar_perf_inputs *in, uint32_t rank, int64_t row,
                             struct gemmar_perf_sparse_row *out_row);
/* signs[n] of row `row` of B. */
void gemmar_perf_exact_b_row(const struct gemmar_perf_inputs *in, uint32_t rank, int64_t row,
                             int8_t *signs);

/* The operands of a rank as the library takes them: a [m,k], b [k,n] or with trans_b [n,k], in
 * `dtype`. 0, or a negative errno with a sentence in `why`. */
int gemmar_perf_inputs_fill(const struct gemmar_perf_inputs *in, uint32_t rank, void *a, void *b,
                            char *why, size_t why_bytes);

/* Element i of a buffer in `dtype`, and the way back. */
float gemmar_perf_load(gemmarDataType_t dtype, const void *base, int64_t i);
void gemmar_perf_store(gemmarDataType_t dtype, void *base, int64_t i, float x);

/* GEMMAR_PERF_EXACT: most entries of one row of A of all ranks together. */
uint32_t gemmar_perf_exact_limit(gemmarDataType_t dtype);
/* GEMMAR_PERF_NORMAL: deviation of B. */
float gemmar_perf_b_scale(const struct gemmar_perf_inputs *in);

/* A hash of two numbers: every random draw of the tool. */
uint64_t gemmar_perf_mix(uint64_t a, uint64_t b);

#endif
