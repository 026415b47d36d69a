// SPDX-License-Identifier: Apache-2.0
// The layer with cuBLASLt and ncclAllReduce.
#include "layer.h"
#include "product.h"

static struct product first, second;
static ncclWindow_t window;
static void *y;

static int open_layer(const struct layer *l, void **out_y)
{
    size_t bytes = (size_t)(l->tokens * l->hidden) * 2;

    if (product_open(&first, l->tokens, l->inner, l->hidden, true) ||
        product_open(&second, l->tokens, l->hidden, l->inner, false) ||
        bad_nccl(ncclMemAlloc(&y, bytes), l->nccl, "memory of y") ||
        bad_nccl(ncclCommWindowRegister(l->nccl, y, bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
                 l->nccl, "registering y")) {
        return 1;
    }
    *out_y = y;
    return 0;
}

static int forward(const struct layer *l)
{
    return product_run(&first, l->x, l->w1, l->h, l->stream) ||
           product_run(&second, l->h, l->w2, y, l->stream) ||
           bad_nccl(ncclAllReduce(y, y, (size_t)(l->tokens * l->hidden), ncclBfloat16, ncclSum,
                                  l->nccl, l->stream),
                    l->nccl, "ncclAllReduce");
}

static int find_error(const struct layer *l)
{
    ncclResult_t error = ncclSuccess;

    return bad_nccl(ncclCommGetAsyncError(l->nccl, &error), l->nccl, "asking for errors") ||
           bad_nccl(error, l->nccl, "the communicator failed");
}

static int close_layer(const struct layer *l, bool healthy)
{
    int failed = 0;

    if (window != NULL && healthy) {
        failed |= bad_nccl(ncclCommWindowDeregister(l->nccl, window), l->nccl, "deregistering y");
    }
    if (y != NULL && healthy) {
        failed |= bad_nccl(ncclMemFree(y), l->nccl, "memory of y");
    }
    product_close(&second);
    product_close(&first);
    return failed;
}

const struct way before = {"cuBLASLt + ncclAllReduce", open_layer, forward, find_error,
                           close_layer};
