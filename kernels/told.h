// SPDX-License-Identifier: Apache-2.0
// What the local ranks of a call on GPUs must pass alike.
#ifndef GEMMAR_KERNELS_TOLD_H
#define GEMMAR_KERNELS_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include <gemmar/fifo.h>

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

/* Both epoch << 16 | hash, `seen` of my epoch or a later one: does the other rank make another call
 * than I do? Not when it is in a later one: in an exchange it needs nothing of me once it has my
 * parts, so it may be there before I look, and it has compared what I told. */
GEMMAR_HD bool gemmar_told_differs(uint64_t seen, uint64_t mine)
{
    return seen >> 16 == mine >> 16 && seen != mine;
}

#endif
