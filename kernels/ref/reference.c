// SPDX-License-Identifier: Apache-2.0
// The unfused result in plain loops: bit by bit, and in fp64 with an error bound.
#include "kernels/ref/reference.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/dtype.h"

#define UNIT_FP32 0x1p-24

static float element_a(const struct gemmar_ref_problem *p, uint32_t rank, int64_t row, int64_t k)
{
    return gemmar_load_element(p->dtype, p->a[rank], row * p->lda + k);
}

static float element_b(const struct gemmar_ref_problem *p, uint32_t rank, int64_t k, int64_t col)
{
    return gemmar_load_element(p->dtype, p->b[rank],
                               p->trans_b ? col * p->ldb + k : k * p->ldb + col);
}

static float rounded(uint32_t dtype, float x)
{
    char room[sizeof(float)];

    gemmar_store_element(dtype, room, 0, x);
    return gemmar_load_element(dtype, room, 0);
}

/* One row of one rank's product, summed in the order of k, rounded to the wire type. */
static void partial_row(const struct gemmar_ref_problem *p, uint32_t rank, int64_t row, float *out)
{
    for (int64_t c = 0; c < p->n; c++) {
        out[c] = 0.0f;
    }
    for (int64_t k = 0; k < p->k; k++) {
        float x = element_a(p, rank, row, k);

        for (int64_t c = 0; c < p->n; c++) {
            float product = x * element_b(p, rank, k, c);

            out[c] += product;
        }
    }
    for (int64_t c = 0; c < p->n; c++) {
        out[c] = rounded(p->dtype, out[c]);
    }
}

static float epilogue(const struct gemmar_ref_problem *p, int64_t row, int64_t col, float sum)
{
    float x = sum;

    if (p->alpha != 1.0f) {
        x *= p->alpha;
    }
    if (p->beta != 0.0f) {
        float old = p->beta * gemmar_load_element(p->dtype, p->old_c, row * p->ldc + col);

        x += old;
    }
    if (p->bias != NULL) {
        x += gemmar_load_element(p->dtype, p->bias, col);
    }
    return x;
}

/* On one node the sum of the local ranks is the result and is not rounded before the epilogue. */
static void protocol_row(const struct gemmar_ref_problem *p, int64_t row, float *partial,
                         float *node, float *sum)
{
    for (int64_t c = 0; c < p->n; c++) {
        sum[c] = 0.0f;
    }
    for (uint32_t i = 0; i < p->nodes; i++) {
        for (int64_t c = 0; c < p->n; c++) {
            node[c] = 0.0f;
        }
        for (uint32_t g = 0; g < p->locals; g++) {
            partial_row(p, i * p->locals + g, row, partial);
            for (int64_t c = 0; c < p->n; c++) {
                node[c] += partial[c];
            }
        }
        for (int64_t c = 0; c < p->n; c++) {
            sum[c] += p->nodes > 1 ? rounded(p->dtype, node[c]) : node[c];
        }
    }
}

int gemmar_ref_protocol(const struct gemmar_ref_problem *p, void *c)
{
    float *rows = calloc(3 * (size_t)p->n + 1, sizeof(float));

    if (rows == NULL) {
        return -ENOMEM;
    }
    for (int64_t row = 0; row < p->m; row++) {
        float *sum = rows + 2 * p->n;

        protocol_row(p, row, rows, rows + p->n, sum);
        for (int64_t col = 0; col < p->n; col++) {
            gemmar_store_element(p->dtype, c, row * p->ldc + col, epilogue(p, row, col, sum[col]));
        }
    }
    free(rows);
    return 0;
}

/* Relative error of one rounding to nearest, and the absolute one below the normal numbers. */
static double unit_of(uint32_t dtype)
{
    return dtype == GEMMAR_DTYPE_BF16 ? 0x1p-8 : dtype == GEMMAR_DTYPE_FP16 ? 0x1p-11 : UNIT_FP32;
}

static double tiny_of(uint32_t dtype)
{
    return dtype == GEMMAR_DTYPE_FP16 ? 0x1p-25 : 0x1p-133;
}

struct sums {
    double value;    /* of all products */
    double products; /* absolute values of the products */
    double partials; /* absolute values of the ranks' sums */
    double nodes;    /* absolute values of the nodes' sums */
};

static struct sums sum_element(const struct gemmar_ref_problem *p, int64_t row, int64_t col)
{
    struct sums s = {0, 0, 0, 0};

    for (uint32_t i = 0; i < p->nodes; i++) {
        double node = 0;

        for (uint32_t g = 0; g < p->locals; g++) {
            uint32_t rank = i * p->locals + g;
            double partial = 0;

            for (int64_t k = 0; k < p->k; k++) {
                double product =
                    (double)element_a(p, rank, row, k) * (double)element_b(p, rank, k, col);

                partial += product;
                s.products += fabs(product);
            }
            node += partial;
            s.partials += fabs(partial);
        }
        s.value += node;
        s.nodes += fabs(node);
    }
    return s;
}

/*
 * One rounding per stage, to first order; the factor at the end covers the second order. The
 * additions of the two reductions are in fp32 and cost (ranks of a node + nodes) units of it.
 */
static void exact_element(const struct gemmar_ref_problem *p, int64_t row, int64_t col,
                          double *value, double *bound)
{
    struct sums s = sum_element(p, row, col);
    double unit = unit_of(p->dtype), alpha = fabs((double)p->alpha);
    double old = p->beta != 0.0f ? (double)p->beta * (double)gemmar_load_element(p->dtype, p->old_c,
                                                                                 row * p->ldc + col)
                                 : 0;
    double bias = p->bias != NULL ? (double)gemmar_load_element(p->dtype, p->bias, col) : 0;
    double steps = (double)p->k + p->locals + p->nodes;
    double error;

    *value = (double)p->alpha * s.value + old + bias;
    error = alpha * (steps * UNIT_FP32 * s.products + unit * (s.partials + s.nodes));
    error += 3 * UNIT_FP32 * (alpha * s.nodes + fabs(old) + fabs(bias));
    error += unit * fabs(*value);
    error += (alpha * (p->nodes * p->locals + p->nodes) + 1) * tiny_of(p->dtype);
    *bound = error * (1 + 4 * unit);
}

void gemmar_ref_exact(const struct gemmar_ref_problem *p, double *value, double *bound)
{
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t col = 0; col < p->n; col++) {
            exact_element(p, row, col, &value[row * p->n + col], &bound[row * p->n + col]);
        }
    }
}
