// SPDX-License-Identifier: Apache-2.0
// Launch of the Hopper matrix product by itself: tensor maps, variants, grid.
#include "kernels/gemm_sm90.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

template <bool BF16> static __device__ __forceinline__ uint32_t gemmar_pack16(float low, float high)
{
    uint32_t packed;

    if constexpr (BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    }
    return packed;
}

#include "kernels/gemm_sm90.cuh"

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Map of a row-major matrix of 16-bit elements, in boxes of box_rows x 64 columns. */
static cudaError_t encode(CUtensorMap *map, const void *base, int64_t rows, int64_t columns,
                          int64_t ld, uint32_t box_rows, int bf16)
{
    static encode_fn fn;
    cuuint64_t dims[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    cuuint64_t strides[1] = {(cuuint64_t)ld * 2};
    cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};

    if (fn == NULL) {
        cudaDriverEntryPointQueryResult found;
        void *entry = NULL;
        cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                             12000, cudaEnableDefault, &found);

        if (error != cudaSuccess || entry == NULL) {
            return error != cudaSuccess ? error : cudaErrorSymbolNotFound;
        }
        fn = (encode_fn)entry;
    }
    CUresult result =
        fn(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
           (void *)base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <int STAGES, int STAGING_COLUMNS, bool BF16, int TRANS_B, int LAG>
static cudaError_t launch(const gemmar_gemm_params &p, int sms, cudaStream_t stream)
{
    size_t bytes = sizeof(gemmar_gemm_shared<STAGES, STAGING_COLUMNS>) + 1024;
    auto kernel = gemmar_gemm_kernel<STAGES, STAGING_COLUMNS, BF16, TRANS_B, LAG>;
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

    if (error != cudaSuccess) {
        return error;
    }
    int grid = 2 * p.tiles < sms ? 2 * p.tiles : sms;
    kernel<<<grid, GEMMAR_GEMM_THREADS, bytes, stream>>>(p);
    return cudaGetLastError();
}

struct variant {
    const char *name;
    cudaError_t (*launch[2][2])(const gemmar_gemm_params &, int,
                                cudaStream_t); /* [bf16][n-major] */
};

#define VARIANT(stages, columns, lag)                                                              \
    {                                                                                              \
#stages " stages, staging of " #columns " columns, lag " #lag,                             \
        {                                                                                          \
            {launch<stages, columns, false, 0, lag>, launch<stages, columns, false, 1, lag>},      \
            {                                                                                      \
                launch<stages, columns, true, 0, lag>, launch<stages, columns, true, 1, lag>       \
            }                                                                                      \
        }                                                                                          \
    }

static const variant variants[] = {
    VARIANT(4, 128, 0),
    VARIANT(4, 128, 1),
    VARIANT(3, 256, 0),
};

extern "C" int gemmar_gemm_variants(void)
{
    return (int)(sizeof(variants) / sizeof(variants[0]));
}

extern "C" const char *gemmar_gemm_variant_name(int index)
{
    return variants[index].name;
}

extern "C" cudaError_t gemmar_gemm_launch(const struct gemmar_gemm_request *r, cudaStream_t stream)
{
    gemmar_gemm_params p;
    int n_major = !r->trans_b;
    cudaError_t error;

    memset(&p, 0, sizeof(p));
    error = encode(&p.a, r->a, r->m, r->k, r->lda, GEMMAR_GEMM_BM, r->bf16);
    if (error == cudaSuccess) {
        error = n_major ? encode(&p.b, r->b, r->k, r->n, r->ldb, 64, r->bf16)
                        : encode(&p.b, r->b, r->n, r->k, r->ldb, GEMMAR_GEMM_BN / 2, r->bf16);
    }
    if (error == cudaSuccess) {
        error = encode(&p.c, r->c, r->m, r->n, r->ldc, 64, r->bf16);
    }
    if (error != cudaSuccess) {
        return error;
    }
    p.k_blocks = (int32_t)((r->k + GEMMAR_GEMM_BK - 1) / GEMMAR_GEMM_BK);
    p.tile_cols = (int32_t)((r->n + GEMMAR_GEMM_BN - 1) / GEMMAR_GEMM_BN);
    p.pair_rows = (int32_t)((r->m + 2 * GEMMAR_GEMM_BM - 1) / (2 * GEMMAR_GEMM_BM));
    p.tiles = p.pair_rows * p.tile_cols;
    p.band = r->band > 0 ? r->band : 8;
    return variants[r->variant].launch[r->bf16][n_major](p, r->sms, stream);
}
