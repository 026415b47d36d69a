// SPDX-License-Identifier: Apache-2.0
// The bound on the difference between two ways to the same sum of products in bf16.
//
// Each rank's product is wrong by at most depth * 2^-24 * sum |h| |w| from its fp32 sums, in both
// ways; by Cauchy and Schwarz the sum over terms and ranks is at most the root of (sum of h^2 in
// the row) * (sum of w^2 in the column), which takes a row and a column of numbers instead of a
// third product. Then everything is rounded to bf16, u = 2^-8: by ncclAllReduce each product once
// and each of ranks - 1 sums at most once, by gemmar product, node sum and result once each. To
// first order that is (ranks + 3) * u * sum |products|; one u more covers the higher orders.
#include "check.h"

#include <math.h>
#include <string.h>

float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return value;
}

uint16_t to_bf16(float value)
{
    uint32_t wide;

    memcpy(&wide, &value, sizeof(wide));
    return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

struct difference check_compare(const struct bound *b, const uint16_t *one, const uint16_t *other)
{
    double sums = 2 * (double)b->depth * ldexp(1, -24);
    double rounding = pow(1 + ldexp(1, -8), b->ranks + 4) - 1;
    struct difference d = {.worst = 0};

    for (size_t i = 0; i < b->rows; i++) {
        for (size_t j = 0; j < b->columns; j++) {
            size_t at = i * b->columns + j;
            double apart = fabs((double)from_bf16(one[at]) - (double)from_bf16(other[at]));
            double limit = sums * sqrt((double)b->row[i] * (double)b->column[j]) +
                           rounding * (double)b->partials[at];

            d.unequal += one[at] != other[at];
            d.over += !(apart <= limit);
            d.worst = limit > 0 && apart / limit > d.worst ? apart / limit : d.worst;
        }
    }
    return d;
}
