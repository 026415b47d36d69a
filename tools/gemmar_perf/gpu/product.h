// SPDX-License-Identifier: Apache-2.0
// The matrix product by cuBLASLt, in the fastest of the ways that its heuristics name.
#ifndef GEMMAR_PERF_GPU_PRODUCT_H
#define GEMMAR_PERF_GPU_PRODUCT_H

#include <cublasLt.h>

#include "tools/gemmar_perf/gpu/gpu.h"

#define GEMMAR_PERF_PRODUCT_WAYS 8

struct gemmar_perf_product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, result; /* in cuBLASLt's column-major words: B, A, C */
    cublasLtMatmulAlgo_t algo;
    void *workspace;
    size_t workspace_bytes;
    int ways; /* that were tried */
};

/* Once per run: the handle and the workspace. 0, or 1 after a sentence. */
int gemmar_perf_product_open(struct gemmar_perf_product *p);
void gemmar_perf_product_close(struct gemmar_perf_product *p);

/* For a shape: try the ways on these operands and keep the fastest. Waits for the stream. */
int gemmar_perf_product_choose(struct gemmar_perf_session *s, struct gemmar_perf_product *p,
                               const struct gemmar_perf_inputs *in,
                               const struct gemmar_perf_gpu_buffers *b, void *c);
void gemmar_perf_product_forget(struct gemmar_perf_product *p);

/* Enqueue one product into c. 0 or 1. */
int gemmar_perf_product_enqueue(struct gemmar_perf_product *p, const void *a, const void *b,
                                void *c, cudaStream_t stream);

#endif
