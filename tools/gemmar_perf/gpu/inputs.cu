// SPDX-License-Identifier: Apache-2.0
// Operands on the GPU: the numbers of inputs.c, bit for bit.
#include "kernels/dtype.h"
#include "tools/gemmar_perf/draws.h"
#include "tools/gemmar_perf/gpu/kernels.h"

#define THREADS 256
#define BLOCKS  2048

static __device__ int64_t first_index(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ int64_t stride(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Over entries of rows of a matrix of zeros. */
static __global__ void fill_exact_a(struct gemmar_perf_gpu_recipe r, uint32_t rank, void *a)
{
    int64_t count = gemmar_perf_exact_count(r.limit, r.ranks, rank, r.k);
    uint64_t of_columns = gemmar_perf_draw_key(r.seed, r.call, rank, GEMMAR_PERF_OF_A_COLUMN);
    uint64_t of_signs = gemmar_perf_draw_key(r.seed, r.call, rank, GEMMAR_PERF_OF_A_SIGN);

    for (int64_t at = first_index(); at < r.m * count; at += stride()) {
        int64_t row = at / count, i = at % count;
        uint64_t columns = gemmar_perf_draw(of_columns, (uint64_t)row);
        uint64_t signs = gemmar_perf_draw(of_signs, (uint64_t)row);

        gemmar_store_element(r.dtype, a,
                             row * r.k + gemmar_perf_exact_column(columns, i, count, r.k),
                             (float)gemmar_perf_exact_sign(signs, i));
    }
}

static __global__ void fill_exact_b(struct gemmar_perf_gpu_recipe r, uint32_t rank, void *b)
{
    uint64_t key = gemmar_perf_draw_key(r.seed, r.call, rank, GEMMAR_PERF_OF_B);

    for (int64_t at = first_index(); at < r.k * r.n; at += stride()) {
        int64_t l = r.trans_b ? at % r.k : at / r.n, j = r.trans_b ? at / r.k : at % r.n;
        uint64_t bits = gemmar_perf_exact_signs(gemmar_perf_draw(key, (uint64_t)l), j & ~63ll);

        gemmar_store_element(r.dtype, b, at, bits >> (j & 63) & 1 ? 1.0f : -1.0f);
    }
}

static __global__ void fill_normal(uint64_t key, float scale, uint32_t dtype, int64_t count,
                                   void *out)
{
    for (int64_t at = first_index(); at < count; at += stride()) {
        gemmar_store_element(dtype, out, at, scale * gemmar_perf_draw_normal(key, at));
    }
}

extern "C" cudaError_t gemmar_perf_gpu_fill(const struct gemmar_perf_gpu_recipe *r, uint32_t rank,
                                            void *a, void *b, cudaStream_t stream)
{
    cudaError_t error;

    if (!r->exact) {
        fill_normal<<<BLOCKS, THREADS, 0, stream>>>(
            gemmar_perf_draw_key(r->seed, r->call, rank, GEMMAR_PERF_OF_A_NORMAL), 1.0f, r->dtype,
            r->m * r->k, a);
        fill_normal<<<BLOCKS, THREADS, 0, stream>>>(
            gemmar_perf_draw_key(r->seed, r->call, rank, GEMMAR_PERF_OF_B_NORMAL), r->b_scale,
            r->dtype, r->k * r->n, b);
        return cudaGetLastError();
    }
    error = cudaMemsetAsync(a, 0, (size_t)(r->m * r->k) * 2, stream);
    if (error != cudaSuccess) {
        return error;
    }
    fill_exact_a<<<BLOCKS, THREADS, 0, stream>>>(*r, rank, a);
    fill_exact_b<<<BLOCKS, THREADS, 0, stream>>>(*r, rank, b);
    return cudaGetLastError();
}

extern "C" cudaError_t gemmar_perf_gpu_load_inputs(void)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, fill_exact_a);

    if (error == cudaSuccess) {
        error = cudaFuncGetAttributes(&attributes, fill_exact_b);
    }
    return error == cudaSuccess ? cudaFuncGetAttributes(&attributes, fill_normal) : error;
}
