// SPDX-License-Identifier: Apache-2.0
// A tensor-parallel MLP layer, y = sum over ranks r of gelu(x * W1_r) * W2_r, in two ways.
#ifndef EXAMPLE_LAYER_H
#define EXAMPLE_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>
#include <gemmar/gemmar.h>
#include <nccl.h>

#include "job.h"

/* All matrices are bf16, row-major and dense. W1 is split by columns and W2 by rows, so that the
 * only communication is the sum at the end. */
struct layer {
    int64_t tokens, hidden, inner; /* inner: this rank's columns of W1 and rows of W2 */
    int ranks;
    void *x;  /* [tokens, hidden], the same on all ranks */
    void *w1; /* [hidden, inner] */
    void *w2; /* [inner, hidden] */
    void *h;  /* [tokens, inner], gelu(x * W1_r) */
    ncclComm_t nccl;
    cudaStream_t stream;
};

/* One way to do it. All functions are collective but error() and return 0, or 1 after a message. */
struct way {
    const char *name;
    /* Set up; *out_y [tokens, hidden] is where results appear. */
    int (*open)(const struct layer *l, void **out_y);
    /* Enqueue one forward pass on the layer's stream. */
    int (*forward)(const struct layer *l);
    /* Has something gone wrong since? Does not wait. */
    int (*error)(const struct layer *l);
    /* Whatever open() got to; with !healthy without waiting for the other ranks. */
    int (*close)(const struct layer *l, bool healthy);
};

extern const struct way before; /* cuBLASLt, then ncclAllReduce */
extern const struct way after;  /* gemmar_fused */

/* Each returns 0, or 1 after a message. */
int bad_cuda(cudaError_t error, const char *doing);
int bad_nccl(ncclResult_t result, ncclComm_t comm, const char *doing);
int bad_gemmar(gemmarResult_t result, gemmarComm_t comm, const char *doing);

/* Wait until the layer's stream is empty, at most a minute, with an eye on `way` (or NULL). */
int layer_wait(const struct layer *l, const struct way *way);

/* All-reduce `count` elements of host memory. */
int layer_reduce(const struct layer *l, void *data, size_t count, ncclDataType_t type,
                 ncclRedOp_t op);

/* Is the result of both ways the same within the bound, and y[1] the same on all ranks? */
int layer_check(const struct layer *l, void *const y[2], bool *out_right);

/* Mean time of a forward pass in us, the largest of all ranks': [way][0] launched one by one,
 * [way][1] from a graph of one pass. The ways take turns, so that clocks and heat are alike for
 * both. */
int layer_time(const struct layer *l, const struct way *const ways[2], int calls,
               float out_us[2][2]);

#endif
