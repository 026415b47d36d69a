// SPDX-License-Identifier: Apache-2.0
// Compares the results of both ways, and those of all ranks.
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "product.h"

struct memory {
    uint16_t *y[2], *product;
    uint16_t *factor; /* h, then W2 */
    float *partials, *row, *column;
};

static int to_host(void *host, const void *gpu, size_t count)
{
    return bad_cuda(cudaMemcpy(host, gpu, count * 2, cudaMemcpyDeviceToHost), "copy to the host");
}

static int take_memory(const struct layer *l, struct memory *m)
{
    size_t out = (size_t)(l->tokens * l->hidden);
    size_t rows = (size_t)(l->tokens > l->hidden ? l->tokens : l->hidden);

    m->y[0] = malloc(out * 2);
    m->y[1] = malloc(out * 2);
    m->product = malloc(out * 2);
    m->factor = malloc(rows * (size_t)l->inner * 2);
    m->partials = malloc(out * sizeof(float));
    m->row = calloc((size_t)l->tokens, sizeof(float));
    m->column = calloc((size_t)l->hidden, sizeof(float));
    if (m->y[0] == NULL || m->y[1] == NULL || m->product == NULL || m->factor == NULL ||
        m->partials == NULL || m->row == NULL || m->column == NULL) {
        say("no memory for the check");
        return 1;
    }
    return 0;
}

static void give_memory(struct memory *m)
{
    free(m->y[0]);
    free(m->y[1]);
    free(m->product);
    free(m->factor);
    free(m->partials);
    free(m->row);
    free(m->column);
}

/* This rank's h * W2_r, in absolute values; then their sum over all ranks. */
static int sum_partials(const struct layer *l, struct memory *m)
{
    size_t count = (size_t)(l->tokens * l->hidden);
    struct product product = {.handle = NULL};
    void *out = NULL;
    int failed = bad_cuda(cudaMalloc(&out, count * 2), "memory of a product") ||
                 product_open(&product, l->tokens, l->hidden, l->inner, false) ||
                 product_run(&product, l->h, l->w2, out, l->stream) || layer_wait(l, NULL) ||
                 to_host(m->product, out, count);

    product_close(&product);
    (void)cudaFree(out);
    for (size_t i = 0; !failed && i < count; i++) {
        m->partials[i] = from_bf16(m->product[i] & 0x7fff);
    }
    return failed || layer_reduce(l, m->partials, count, ncclFloat, ncclSum);
}

static int sum_squares(const struct layer *l, struct memory *m)
{
    size_t tokens = (size_t)l->tokens, hidden = (size_t)l->hidden, inner = (size_t)l->inner;

    if (to_host(m->factor, l->h, tokens * inner)) {
        return 1;
    }
    for (size_t i = 0; i < tokens; i++) {
        for (size_t k = 0; k < inner; k++) {
            float v = from_bf16(m->factor[i * inner + k]);

            m->row[i] += v * v;
        }
    }
    if (to_host(m->factor, l->w2, inner * hidden)) {
        return 1;
    }
    for (size_t k = 0; k < inner; k++) {
        for (size_t j = 0; j < hidden; j++) {
            float v = from_bf16(m->factor[k * hidden + j]);

            m->column[j] += v * v;
        }
    }
    return layer_reduce(l, m->row, tokens, ncclFloat, ncclSum) ||
           layer_reduce(l, m->column, hidden, ncclFloat, ncclSum);
}

/* Equal sums of y[1] on all ranks? The order of the elements counts. */
static int compare_ranks(const struct layer *l, const uint16_t *y, bool *out_equal)
{
    uint64_t hash = UINT64_C(14695981039346656037), least, most;

    for (size_t i = 0; i < (size_t)(l->tokens * l->hidden); i++) {
        hash = (hash ^ y[i]) * UINT64_C(1099511628211);
    }
    least = most = hash;
    if (layer_reduce(l, &least, 1, ncclUint64, ncclMin) ||
        layer_reduce(l, &most, 1, ncclUint64, ncclMax)) {
        return 1;
    }
    *out_equal = least == most;
    return 0;
}

static int compare(const struct layer *l, struct memory *m, int rank, bool *out_right)
{
    struct bound bound = {.rows = (size_t)l->tokens,
                          .columns = (size_t)l->hidden,
                          .depth = l->inner,
                          .ranks = l->ranks,
                          .row = m->row,
                          .column = m->column,
                          .partials = m->partials};
    struct difference d = check_compare(&bound, m->y[0], m->y[1]);
    bool equal = false;

    if (compare_ranks(l, m->y[1], &equal)) {
        return 1;
    }
    if (d.over != 0) {
        say("%zu of %zu elements are further apart than the bound", d.over,
            bound.rows * bound.columns);
    }
    if (rank == 0) {
        printf("largest difference %.2f of its bound; %.1f%% of the elements differ at all; "
               "%s: the same bits on all ranks: %s\n",
               d.worst, 100.0 * (double)d.unequal / (double)(bound.rows * bound.columns),
               after.name, equal ? "yes" : "NO");
    }
    *out_right = d.over == 0 && equal;
    return 0;
}

int layer_check(const struct layer *l, void *const y[2], bool *out_right)
{
    size_t count = (size_t)(l->tokens * l->hidden);
    struct memory m = {.product = NULL};
    int rank = 0;
    int failed = bad_nccl(ncclCommUserRank(l->nccl, &rank), l->nccl, "rank") ||
                 take_memory(l, &m) || to_host(m.y[0], y[0], count) ||
                 to_host(m.y[1], y[1], count) || sum_partials(l, &m) || sum_squares(l, &m) ||
                 compare(l, &m, rank, out_right);

    give_memory(&m);
    return failed;
}
