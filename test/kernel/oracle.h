// SPDX-License-Identifier: Apache-2.0
// Inputs and expected results of the GPU checks, computed on the GPU in plain loops.
#ifndef GEMMAR_TEST_ORACLE_H
#define GEMMAR_TEST_ORACLE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#define ORACLE_MAX_RANKS 16

/* What a call should give. All pointers can be read by the device that checks. */
struct oracle {
    const void *a[ORACLE_MAX_RANKS], *b[ORACLE_MAX_RANKS]; /* [ranks] */
    const void *bias;                                      /* [n] or NULL */
    const void *before;                                    /* C before the call; beta != 0 */
    int64_t m, n, k, lda, ldb, ldc;
    int ranks, bf16, trans_b;
    int locals; /* ranks of a node, whose sum is rounded when there are several nodes */
    float alpha, beta;
    int64_t row_step; /* check every row_step-th row */
};

/* What inputs are made of, and with that how results are compared. */
enum oracle_numbers {
    ORACLE_SMALL,   /* few whole ones: as long as k * ranks is not too large, every partial sum is
                       exact in 16 bits; for equality */
    ORACLE_SPECIAL, /* the same with a few infinities and NaNs; for equality, or two NaNs */
    ORACLE_NORMAL,  /* about normally distributed; within the bound of docs/design.md, section 6 */
};

/* What the check found, in device memory, zeroed by the caller. */
struct oracle_verdict {
    unsigned long long wrong;
    unsigned long long hash;  /* of all checked elements */
    unsigned long long first; /* 1 + index of a wrong element */
    float worst;              /* error over bound */
};

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t oracle_fill(void *x, int64_t elements, int bf16, enum oracle_numbers numbers,
                        uint64_t seed, cudaStream_t stream);

/* Compare C with the expected result. */
cudaError_t oracle_check(const struct oracle *o, const void *c, enum oracle_numbers numbers,
                         struct oracle_verdict *verdict, cudaStream_t stream);

/* Count the 16-bit words of [from, from + words) that are not `pattern`. */
cudaError_t oracle_guard(const void *from, int64_t words, uint16_t pattern,
                         struct oracle_verdict *verdict, cudaStream_t stream);

/* Count the elements behind the columns of C's rows, [columns, ld), that are not `pattern`. */
cudaError_t oracle_padding(const void *c, int64_t rows, int64_t columns, int64_t ld,
                           uint16_t pattern, struct oracle_verdict *verdict, cudaStream_t stream);

/* Count the 16-bit words of `a` that are not those of `b`. */
cudaError_t oracle_same(const void *a, const void *b, int64_t words, struct oracle_verdict *verdict,
                        cudaStream_t stream);

/* Hold the stream until *gate (host memory) is `value`, at most about ten seconds; then spin for
 * `cycles`. */
cudaError_t oracle_gate(const uint32_t *gate, uint32_t value, int64_t cycles, cudaStream_t stream);

/* Load all of the above now. */
cudaError_t oracle_load(void);

#ifdef __cplusplus
}
#endif

#endif
