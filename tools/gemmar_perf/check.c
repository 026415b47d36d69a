// SPDX-License-Identifier: Apache-2.0
// Is a result right? The reference here shares nothing with the library but the element types.
#include "tools/gemmar_perf/check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/options.h"

struct gemmar_perf_rows gemmar_perf_rows_share(const struct gemmar_perf_inputs *in, uint32_t rank,
                                               uint64_t budget)
{
    int64_t first = in->m * rank / in->ranks, last = in->m * (rank + 1) / in->ranks;
    struct gemmar_perf_rows rows = {first, 1, last - first};
    double products = (double)in->n * (double)in->k * in->ranks;
    double most = (double)budget / (products > 1 ? products : 1);

    if (rows.count > 1 && most < (double)rows.count) {
        int64_t keep = most < 1 ? 1 : (int64_t)most;

        rows.step = (rows.count + keep - 1) / keep;
        rows.count = (rows.count + rows.step - 1) / rows.step;
    }
    return rows;
}

uint64_t gemmar_perf_checksum(uint64_t state, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t word;

    for (; bytes >= 8; p += 8, bytes -= 8) {
        memcpy(&word, p, 8);
        state = gemmar_perf_mix(state, word);
    }
    word = bytes;
    memcpy(&word, p, bytes);
    return gemmar_perf_mix(state, word ^ (uint64_t)bytes << 56);
}

static void note(struct gemmar_perf_verdict *v, int64_t row, int64_t column, double got,
                 double want, double bound)
{
    double err = fabs(got - want);

    if (err > v->max_abs_err || isnan(err)) {
        v->max_abs_err = err;
    }
    if (!(err <= bound)) { /* also when it is not a number */
        if (v->wrong++ == 0) {
            v->row = row;
            v->column = column;
            v->got = got;
            v->want = want;
        }
    }
}

static int no_memory(char *why, size_t why_bytes)
{
    (void)snprintf(why, why_bytes, "no memory for the reference product");
    return -ENOMEM;
}

/* For loops over memory that is the calling thread's own: ThreadSanitizer has nothing to see in
 * them and makes them 20 times slower. */
#define NOT_SHARED __attribute__((no_sanitize("thread")))

static NOT_SHARED void add_exact(const struct gemmar_perf_inputs *in,
                                 const struct gemmar_perf_rows *rows, uint32_t rank, int8_t *b,
                                 struct gemmar_perf_sparse_row *row, int32_t *sum)
{
    for (int64_t l = 0; l < in->k; l++) {
        gemmar_perf_exact_b_row(in, rank, l, b + l * in->n);
    }
    for (int64_t i = 0; i < rows->count && in->k != 0; i++) {
        int32_t *to = sum + i * in->n;

        gemmar_perf_exact_a_row(in, rank, rows->first + i * rows->step, row);
        for (uint32_t e = 0; e < row->count; e++) {
            const int8_t *from = b + row->column[e] * in->n;
            int32_t sign = row->sign[e];

            for (int64_t j = 0; j < in->n; j++) {
                to[j] += sign * from[j];
            }
        }
    }
}

static int check_exact(const struct gemmar_perf_inputs *in, const struct gemmar_perf_rows *rows,
                       const void *c, struct gemmar_perf_verdict *v, char *why, size_t why_bytes)
{
    struct gemmar_perf_sparse_row *row = malloc(sizeof(*row));
    int8_t *b = malloc((size_t)(in->k * in->n) + 1);
    int32_t *sum = calloc((size_t)(rows->count * in->n) + 1, sizeof(*sum));
    int rc = 0;

    if (row == NULL || b == NULL || sum == NULL) {
        rc = no_memory(why, why_bytes);
    } else {
        for (uint32_t r = 0; r < in->ranks; r++) {
            add_exact(in, rows, r, b, row, sum);
        }
        for (int64_t i = 0; i < rows->count; i++) {
            int64_t at = rows->first + i * rows->step;

            for (int64_t j = 0; j < in->n; j++) {
                note(v, at, j, gemmar_perf_load(in->dtype, c, at * in->n + j), sum[i * in->n + j],
                     0);
            }
        }
    }
    free(sum);
    free(b);
    free(row);
    return rc;
}

/* fp64 sums of the rows under check, all [count * n]. */
struct sums {
    double *rank, *magnitude; /* of the rank at hand: its product, and its sum of |a||b| */
    double *node;             /* of the node at hand */
    double *all;              /* of all ranks */
    double *products;         /* sum of |a||b| over all ranks */
    double *rounded;          /* sum of |partials| and |node sums|: what was rounded on the way */
    int64_t count;
};

static int sums_init(struct sums *s, int64_t count)
{
    double *base = calloc((size_t)count * 6 + 1, sizeof(*base));

    if (base == NULL) {
        return -ENOMEM;
    }
    *s = (struct sums){
        base, base + count, base + 2 * count, base + 3 * count, base + 4 * count, base + 5 * count,
        count};
    return 0;
}

/* One rank's product of the rows, in fp64; operands widened to fp32 without loss. */
static NOT_SHARED void multiply(const struct gemmar_perf_inputs *in,
                                const struct gemmar_perf_rows *rows, const void *a, const float *b,
                                struct sums *s)
{
    memset(s->rank, 0, (size_t)s->count * sizeof(double));
    memset(s->magnitude, 0, (size_t)s->count * sizeof(double));
    for (int64_t i = 0; i < rows->count; i++) {
        int64_t at = (rows->first + i * rows->step) * in->k;
        double *restrict to = s->rank + i * in->n, *restrict size = s->magnitude + i * in->n;

        for (int64_t l = 0; l < in->k; l++) {
            double x = (double)gemmar_perf_load(in->dtype, a, at + l);
            const float *from = b + l * in->n;

            for (int64_t j = 0; j < in->n; j++) {
                double product = x * (double)from[j];

                to[j] += product;
                size[j] += fabs(product);
            }
        }
    }
}

static void widen_b(const struct gemmar_perf_inputs *in, const void *b, float *out)
{
    for (int64_t l = 0; l < in->k; l++) {
        for (int64_t j = 0; j < in->n; j++) {
            out[l * in->n + j] =
                gemmar_perf_load(in->dtype, b, in->trans_b ? j * in->k + l : l * in->n + j);
        }
    }
}

static void add_rank(struct sums *s)
{
    for (int64_t i = 0; i < s->count; i++) {
        s->node[i] += s->rank[i];
        s->products[i] += s->magnitude[i];
        s->rounded[i] += fabs(s->rank[i]);
    }
}

static void add_node(struct sums *s)
{
    for (int64_t i = 0; i < s->count; i++) {
        s->all[i] += s->node[i];
        s->rounded[i] += fabs(s->node[i]);
        s->node[i] = 0;
    }
}

static int sum_ranks(const struct gemmar_perf_inputs *in, const uint32_t *node_of_rank,
                     const struct gemmar_perf_rows *rows, struct sums *s, char *why,
                     size_t why_bytes)
{
    size_t element = gemmar_perf_dtype_bytes(in->dtype);
    void *a = malloc((size_t)(in->m * in->k) * element + 1);
    void *b = malloc((size_t)(in->k * in->n) * element + 1);
    float *wide = malloc((size_t)(in->k * in->n) * sizeof(float) + 1);
    uint32_t nodes = 0;
    int rc = a == NULL || b == NULL || wide == NULL ? no_memory(why, why_bytes) : 0;

    for (uint32_t r = 0; r < in->ranks; r++) {
        nodes = node_of_rank[r] + 1 > nodes ? node_of_rank[r] + 1 : nodes;
    }
    for (uint32_t node = 0; node < nodes && rc == 0; node++) {
        for (uint32_t r = 0; r < in->ranks && rc == 0; r++) {
            if (node_of_rank[r] == node) {
                rc = gemmar_perf_inputs_fill(in, r, a, b, why, why_bytes);
                if (rc == 0) {
                    widen_b(in, b, wide);
                    multiply(in, rows, a, wide, s);
                    add_rank(s);
                }
            }
        }
        add_node(s);
    }
    free(wide);
    free(b);
    free(a);
    return rc;
}

/* The bound of docs/design.md: K 2^-24 sum|a||b| + u (sum|partials| + sum|node sums| + |C|), half a
 * step of the type's subnormals for each rounding, and 1% for what is of second order. */
static int check_bound(const struct gemmar_perf_inputs *in, const uint32_t *node_of_rank,
                       const struct gemmar_perf_rows *rows, const void *c,
                       struct gemmar_perf_verdict *v, char *why, size_t why_bytes)
{
    double u = in->dtype == gemmarBfloat16  ? 0x1p-8
               : in->dtype == gemmarFloat16 ? 0x1p-11
                                            : 0x1p-24;
    double tiny = (in->dtype == gemmarFloat16 ? 0x1p-25 : 0x1p-134) * (2.0 * in->ranks + 1);
    struct sums s;
    int rc;

    if (sums_init(&s, rows->count * in->n) != 0) {
        return no_memory(why, why_bytes);
    }
    rc = sum_ranks(in, node_of_rank, rows, &s, why, why_bytes);
    for (int64_t i = 0; rc == 0 && i < rows->count; i++) {
        int64_t at = rows->first + i * rows->step;

        for (int64_t j = 0; j < in->n; j++) {
            int64_t e = i * in->n + j;
            double got = (double)gemmar_perf_load(in->dtype, c, at * in->n + j);
            /* one fp32 addition per rank and node comes on top of the K of a product */
            double steps = (double)in->k + 2.0 * in->ranks;
            double bound = steps * 0x1p-24 * s.products[e] + u * (s.rounded[e] + fabs(s.all[e]));

            note(v, at, j, got, s.all[e], bound * 1.01 + tiny);
        }
    }
    free(s.rank);
    return rc;
}

int gemmar_perf_check(const struct gemmar_perf_inputs *in, const uint32_t *node_of_rank,
                      const struct gemmar_perf_rows *rows, const void *c,
                      struct gemmar_perf_verdict *out_verdict, char *why, size_t why_bytes)
{
    struct gemmar_perf_verdict v = {.wrong = 0};
    int rc = 0;

    if (rows->count > 0 && in->n > 0) {
        rc = in->kind == GEMMAR_PERF_EXACT
                 ? check_exact(in, rows, c, &v, why, why_bytes)
                 : check_bound(in, node_of_rank, rows, c, &v, why, why_bytes);
    }
    if (rc == 0) {
        *out_verdict = v;
    }
    return rc;
}
