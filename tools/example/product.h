// SPDX-License-Identifier: Apache-2.0
// A row-major matrix product C [m,n] = A [m,k] * B [k,n] of bf16 by cuBLASLt.
#ifndef EXAMPLE_PRODUCT_H
#define EXAMPLE_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include <cublasLt.h>

struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    void *workspace;
};

/* Begin with zeros. With `gelu` the result is gelu(A * B). Both return 0, or 1 after a message. */
int product_open(struct product *p, int64_t m, int64_t n, int64_t k, bool gelu);
int product_run(const struct product *p, const void *a, const void *b, void *c,
                cudaStream_t stream);

/* Whatever product_open() got to. */
void product_close(struct product *p);

#endif
