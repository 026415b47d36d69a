// SPDX-License-Identifier: Apache-2.0
// Launch of the Hopper matrix product by itself: C = A * B, for checkkernel and for tuning.
#ifndef GEMMAR_KERNELS_GEMM_SM90_H
#define GEMMAR_KERNELS_GEMM_SM90_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

/* Kernel parameter, passed by value. Maps first: they are 64-byte aligned. */
struct gemmar_gemm_params {
    CUtensorMap a, b, c;
    int32_t k_blocks;  /* of 64 */
    int32_t tile_cols; /* columns of 256 */
    int32_t pair_rows; /* rows of 256: two tiles, one cluster */
    int32_t tiles;     /* pair_rows * tile_cols */
    int32_t band;      /* pair rows walked together */
    int32_t reserved[3];
};

/* What to multiply and which variant to use; all zero but the operands is the default. */
struct gemmar_gemm_request {
    const void *a; /* [m,k] row-major, 16-byte aligned, lda * 2 a multiple of 16 bytes */
    const void *b; /* [n,k] row-major with trans_b (the layout of weights), else [k,n] */
    void *c;       /* [m,n] row-major */
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements */
    int bf16;              /* 1: bf16, 0: fp16 */
    int trans_b;
    int variant; /* index of a compiled variant */
    int band;    /* 0: the default */
    int sms;     /* multiprocessors to use; even */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Number of compiled variants, and what each one is. */
int gemmar_gemm_variants(void);
const char *gemmar_gemm_variant_name(int variant);

/* Enqueue on `stream`; does not synchronise. Returns a CUDA error. */
cudaError_t gemmar_gemm_launch(const struct gemmar_gemm_request *request, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
