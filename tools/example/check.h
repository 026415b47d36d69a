// SPDX-License-Identifier: Apache-2.0
// How far two ways to the same sum of products may be apart. Nothing here needs a GPU.
#ifndef EXAMPLE_CHECK_H
#define EXAMPLE_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* What the bound of a layer is made of, sums over all ranks. */
struct bound {
    size_t rows, columns;
    int64_t depth; /* terms of one rank's products */
    int ranks;
    const float *row;      /* [rows] squares in a row of the first factor */
    const float *column;   /* [columns] squares in a column of the second factor */
    const float *partials; /* [rows, columns] absolute values of the ranks' products */
};

struct difference {
    size_t over;    /* elements beyond their bound, NaN included */
    size_t unequal; /* elements that differ at all */
    double worst;   /* largest part of its bound that a difference takes */
};

struct difference check_compare(const struct bound *b, const uint16_t *one, const uint16_t *other);

/* bf16 is the upper half of a float. */
float from_bf16(uint16_t bits);
uint16_t to_bf16(float value);

#endif
