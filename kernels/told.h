// SPDX-License-Identifier: Apache-2.0
// What the local ranks of a call on GPUs must pass alike.
#ifndef GEMMAR_KERNELS_TOLD_H
#define GEMMAR_KERNELS_TOLD_H

#include <stdint.h>

/* Where C lies for the peers; all zeros when they do not write it. */
struct gemmar_told_c {
    uint64_t registration; /* its number */
    uint64_t offset;       /* from the registered buffer, in bytes */
    int64_t ld;
};

/* Hashed as bytes: no member may leave room behind it. */
struct gemmar_told {
    int64_t m, n, k;
    struct gemmar_told_c c;
    uint32_t dtype, bias; /* bias 1: there is one */
    float alpha, beta;
};

/* For struct gemmar_call: 16 bits. Equal for equal calls; for others almost always another. */
uint32_t gemmar_told_hash(const struct gemmar_told *told);

#endif
