// SPDX-License-Identifier: Apache-2.0
// Launch of the tensor-core kernel: tensor maps, variants, grid.
#include "kernels/fused_sm90.h"

#include <string.h>

#include "kernels/fused_sm90.cuh"
#include "kernels/variants_sm90.h"

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static_assert(sizeof(gemmar_fused_params) <= 4096, "kernel parameters");

static const gemmar_variant *find_variant(bool bf16, uint32_t shape)
{
    return bf16 ? &gemmar_variants_bf16[shape] : &gemmar_variants_fp16[shape];
}

static cudaError_t find_encode(encode_fn *fn)
{
    static encode_fn found;

    if (found == NULL) {
        cudaDriverEntryPointQueryResult status;
        void *entry = NULL;
        cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                             12000, cudaEnableDefault, &status);

        if (error != cudaSuccess || entry == NULL) {
            return error != cudaSuccess ? error : cudaErrorSymbolNotFound;
        }
        found = (encode_fn)entry;
    }
    *fn = found;
    return cudaSuccess;
}

/* Map of a row-major matrix of 16-bit elements, in boxes of box_rows x 64 columns. */
static cudaError_t encode(CUtensorMap *map, const void *base, int64_t rows, int64_t columns,
                          int64_t ld, uint32_t box_rows, bool bf16)
{
    cuuint64_t dims[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    cuuint64_t strides[1] = {(cuuint64_t)ld * 2};
    cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
    encode_fn fn;
    cudaError_t error = find_encode(&fn);

    if (error != cudaSuccess) {
        return error;
    }
    CUresult result =
        fn(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
           (void *)base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t encode_all(const gemmar_call *call, const gemmar_target *targets,
                              const gemmar_variant *v, gemmar_fused_params *p)
{
    const gemmar_operands *o = &call->operands;
    int64_t m = call->map.m, n = call->map.n;
    bool bf16 = o->dtype == GEMMAR_DTYPE_BF16;
    cudaError_t error = cudaSuccess;

    if (o->k > 0) { /* else nothing is loaded */
        error = encode(&p->a, o->a, m, o->k, o->lda, v->a_rows, bf16);
        if (error == cudaSuccess) {
            error = o->trans_b ? encode(&p->b, o->b, n, o->k, o->ldb, v->b_rows, bf16)
                               : encode(&p->b, o->b, o->k, n, o->ldb, 64, bf16);
        }
    }
    for (uint32_t g = 0; error == cudaSuccess && g < call->place.locals; g++) {
        error = encode(&p->c[g], targets[g].base, m, n, targets[g].ld, 64, bf16);
    }
    return error;
}

extern "C" cudaError_t gemmar_sm90_load(uint32_t *most_ctas)
{
    int device, sms;
    cudaError_t error = cudaGetDevice(&device);
    int least = INT32_MAX;

    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    }
    for (int i = 0; error == cudaSuccess && i < GEMMAR_TILE_SHAPES * 4; i++) {
        const gemmar_variant *v = find_variant(i / 2 % 2 != 0, (uint32_t)i / 4);
        const void *kernel = v->kernel[i % 2];
        cudaLaunchConfig_t config = {};
        cudaLaunchAttribute cluster = {};
        int clusters = 0;

        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v->bytes);
        if (error != cudaSuccess) {
            break;
        }
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim.x = 2;
        cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
        config.gridDim = dim3((unsigned)sms & ~1u);
        config.blockDim = dim3(GEMMAR_SM90_THREADS);
        config.dynamicSmemBytes = (size_t)v->bytes;
        config.attrs = &cluster;
        config.numAttrs = 1;
        error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
        least = clusters < least ? clusters : least;
    }
    *most_ctas = error == cudaSuccess ? 2u * (uint32_t)least : 0;
    return error;
}

extern "C" cudaError_t gemmar_sm90_launch(const struct gemmar_call *call,
                                          const struct gemmar_target *targets, uint64_t *trace,
                                          uint32_t trace_items, cudaStream_t stream)
{
    const gemmar_variant *v =
        find_variant(call->operands.dtype == GEMMAR_DTYPE_BF16, call->tensor.shape);
    const void *kernel = v->kernel[!call->operands.trans_b];
    gemmar_fused_params p;
    void *arguments[] = {&p};
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute cooperative = {};
    cudaError_t error;

    memset(&p, 0, sizeof(p));
    p.call = *call;
    p.trace = trace;
    p.trace_items = trace_items;
    error = encode_all(call, targets, v, &p);
    if (error != cudaSuccess) {
        return error;
    }
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    config.gridDim = dim3(call->plan.ctas);
    config.blockDim = dim3(GEMMAR_SM90_THREADS);
    config.dynamicSmemBytes = (size_t)v->bytes;
    config.stream = stream;
    config.attrs = &cooperative;
    config.numAttrs = 1;
    return cudaLaunchKernelExC(&config, kernel, arguments);
}
