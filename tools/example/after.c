// SPDX-License-Identifier: Apache-2.0
// The layer with gemmar_fused.
#include "layer.h"
#include "product.h"

static struct product first;
static gemmarComm_t comm;
static void *handle;
static void *y;

static int open_layer(const struct layer *l, void **out_y)
{
    size_t bytes = (size_t)(l->tokens * l->hidden) * 2;

    if (product_open(&first, l->tokens, l->inner, l->hidden, true) ||
        bad_gemmar(gemmarCommCreate(&comm, l->nccl, NULL), comm, "communicator") ||
        bad_gemmar(gemmarCommReserve(comm, l->tokens, l->hidden, l->inner, gemmarBfloat16), comm,
                   "workspace") ||
        bad_gemmar(gemmarMemAlloc(&y, bytes), NULL, "memory of y") ||
        bad_gemmar(gemmarCommRegister(comm, y, bytes, &handle), comm, "registering y")) {
        return 1;
    }
    *out_y = y;
    return 0;
}

static int forward(const struct layer *l)
{
    return product_run(&first, l->x, l->w1, l->h, l->stream) ||
           bad_gemmar(gemmar_fused(l->h, l->w2, y, l->tokens, l->hidden, l->inner, gemmarBfloat16,
                                   comm, l->stream),
                      comm, "gemmar_fused");
}

static int find_error(const struct layer *l)
{
    gemmarResult_t error = gemmarSuccess;

    (void)l;
    return bad_gemmar(gemmarCommGetAsyncError(comm, &error), comm, "asking for errors") ||
           bad_gemmar(error, comm, "the communicator failed");
}

static int close_layer(const struct layer *l, bool healthy)
{
    int failed = 0;

    (void)l;
    if (comm != NULL && !healthy) {
        (void)gemmarCommAbort(comm); /* so that destroying it waits for nobody */
    }
    if (handle != NULL && healthy) {
        failed |= bad_gemmar(gemmarCommDeregister(comm, handle), comm, "deregistering y");
    }
    failed |= bad_gemmar(gemmarCommDestroy(comm), NULL, "destroying the communicator") && healthy;
    if (y != NULL && healthy) {
        failed |= bad_gemmar(gemmarMemFree(y), NULL, "memory of y");
    }
    product_close(&first);
    return failed;
}

const struct way after = {"gemmar_fused", open_layer, forward, find_error, close_layer};
