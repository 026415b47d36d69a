// SPDX-License-Identifier: Apache-2.0
// Is a result right? Equality for exact inputs, the stated error bound for others, and the bits of
// all ranks against each other.
#ifndef GEMMAR_PERF_CHECK_H
#define GEMMAR_PERF_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "tools/gemmar_perf/inputs.h"

/* Rows first, first + step, ... of the result. */
struct gemmar_perf_rows {
    int64_t first, step, count;
};

struct gemmar_perf_verdict {
    uint64_t wrong;     /* elements of these rows */
    double max_abs_err; /* against the sum in fp64 */
    /* The first wrong element, when there is one. */
    int64_t row, column;
    double got, want;
};

/* The share of the rows that `rank` looks at, so that all ranks together see every row; thinned
 * out evenly when the reference product of the share would take more than `budget` products. */
struct gemmar_perf_rows gemmar_perf_rows_share(const struct gemmar_perf_inputs *in, uint32_t rank,
                                               uint64_t budget);

/* Compare rows of c [m,n] (dense, dtype) with the sum over all ranks. `node_of_rank` [ranks] is for
 * the bound. 0, or a negative errno with a sentence. */
int gemmar_perf_check(const struct gemmar_perf_inputs *in, const uint32_t *node_of_rank,
                      const struct gemmar_perf_rows *rows, const void *c,
                      struct gemmar_perf_verdict *out_verdict, char *why, size_t why_bytes);

/* 64-bit checksum of `bytes` bytes, continuing from `state`. */
uint64_t gemmar_perf_checksum(uint64_t state, const void *data, size_t bytes);

#endif
