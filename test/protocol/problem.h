// SPDX-License-Identifier: Apache-2.0
// One matrix product whose sums are exact in every type, so that the check is equality.
#ifndef GEMMAR_TEST_PROTOCOL_PROBLEM_H
#define GEMMAR_TEST_PROTOCOL_PROBLEM_H

#include <stdint.h>

#include <gemmar/gemmar.h>

struct problem {
    int64_t m, n, k;
    gemmarDataType_t datatype;
    int ranks;
    uint64_t seed;
};

/* The type, or where ranks take no fp32 (PROTOCOL_NO_FP32) fp16 in its place. */
gemmarDataType_t problem_type(gemmarDataType_t datatype);

/* The operands of one rank, filled, and a C full of NaNs. */
struct operands {
    void *a, *b, *c;
    uint64_t bytes_c;
};

struct operands problem_make(const struct problem *problem, int rank);
void problem_free(struct operands *operands);

/* Elements of C that are not what the sum over all ranks is. */
int64_t problem_wrong(const struct problem *problem, const struct operands *operands);

/* Equal for equal bits. */
uint64_t problem_hash(const struct operands *operands);

#endif
