// SPDX-License-Identifier: Apache-2.0
// Inputs and expected results of the GPU checks.
#include "test/kernel/oracle.h"

#include "kernels/ptx/ld_st.cuh"
#include "test/kernel/oracle_element.h"

#define THREADS 256

static __global__ void fill(uint16_t *x, int64_t elements, int bf16, enum oracle_numbers numbers,
                            uint64_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements;
         i += (int64_t)gridDim.x * blockDim.x) {
        x[i] = oracle_input(i, bf16, numbers, seed);
    }
}

static __global__ void check(const struct oracle o, const uint16_t *c, enum oracle_numbers numbers,
                             struct oracle_verdict *verdict)
{
    int64_t col = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    unsigned long long hash = 0;

    if (col >= o.n) {
        return;
    }
    for (int64_t row = (int64_t)blockIdx.y * o.row_step; row < o.m;
         row += (int64_t)gridDim.y * o.row_step) {
        float of_bound;
        uint64_t part;

        if (!oracle_judge(&o, c, row, col, numbers, &of_bound, &part)) {
            atomicAdd(&verdict->wrong, 1);
            atomicMax(&verdict->first, (unsigned long long)(row * o.n + col) + 1);
        }
        hash += part;
        atomicMax((int *)&verdict->worst, __float_as_int(of_bound));
    }
    atomicAdd(&verdict->hash, hash);
}

static __global__ void guard(const uint16_t *from, int64_t words, uint16_t pattern,
                             struct oracle_verdict *verdict)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < words;
         i += (int64_t)gridDim.x * blockDim.x) {
        if (from[i] != pattern) {
            atomicAdd(&verdict->wrong, 1);
        }
    }
}

static __global__ void padding(const uint16_t *c, int64_t rows, int64_t columns, int64_t ld,
                               uint16_t pattern, struct oracle_verdict *verdict)
{
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        for (int64_t i = columns + threadIdx.x; i < ld; i += blockDim.x) {
            if (c[r * ld + i] != pattern) {
                atomicAdd(&verdict->wrong, 1);
            }
        }
    }
}

static __global__ void same(const uint16_t *a, const uint16_t *b, int64_t words,
                            struct oracle_verdict *verdict)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < words;
         i += (int64_t)gridDim.x * blockDim.x) {
        if (a[i] != b[i]) {
            atomicAdd(&verdict->wrong, 1);
        }
    }
}

static __global__ void gate(const uint32_t *word, uint32_t value, int64_t cycles)
{
    uint64_t end = gemmar_globaltimer() + 10000000000ULL;

    while (*(const volatile uint32_t *)word != value && gemmar_globaltimer() < end) {
    }
    for (int64_t began = clock64(); clock64() - began < cycles;) {
    }
}

extern "C" cudaError_t oracle_fill(void *x, int64_t elements, int bf16, enum oracle_numbers numbers,
                                   uint64_t seed, cudaStream_t stream)
{
    fill<<<1024, THREADS, 0, stream>>>((uint16_t *)x, elements, bf16, numbers, seed);
    return cudaGetLastError();
}

extern "C" cudaError_t oracle_check(const struct oracle *o, const void *c,
                                    enum oracle_numbers numbers, struct oracle_verdict *verdict,
                                    cudaStream_t stream)
{
    int64_t rows = (o->m + o->row_step - 1) / o->row_step;
    dim3 grid((unsigned)((o->n + THREADS - 1) / THREADS), (unsigned)(rows < 4096 ? rows : 4096));

    check<<<grid, THREADS, 0, stream>>>(*o, (const uint16_t *)c, numbers, verdict);
    return cudaGetLastError();
}

extern "C" cudaError_t oracle_guard(const void *from, int64_t words, uint16_t pattern,
                                    struct oracle_verdict *verdict, cudaStream_t stream)
{
    guard<<<256, THREADS, 0, stream>>>((const uint16_t *)from, words, pattern, verdict);
    return cudaGetLastError();
}

extern "C" cudaError_t oracle_padding(const void *c, int64_t rows, int64_t columns, int64_t ld,
                                      uint16_t pattern, struct oracle_verdict *verdict,
                                      cudaStream_t stream)
{
    padding<<<256, 32, 0, stream>>>((const uint16_t *)c, rows, columns, ld, pattern, verdict);
    return cudaGetLastError();
}

extern "C" cudaError_t oracle_same(const void *a, const void *b, int64_t words,
                                   struct oracle_verdict *verdict, cudaStream_t stream)
{
    same<<<1024, THREADS, 0, stream>>>((const uint16_t *)a, (const uint16_t *)b, words, verdict);
    return cudaGetLastError();
}

extern "C" cudaError_t oracle_gate(const uint32_t *word, uint32_t value, int64_t cycles,
                                   cudaStream_t stream)
{
    gate<<<1, 1, 0, stream>>>(word, value, cycles);
    return cudaGetLastError();
}

extern "C" cudaError_t oracle_load(void)
{
    const void *all[] = {(const void *)fill,    (const void *)check, (const void *)guard,
                         (const void *)padding, (const void *)same,  (const void *)gate};
    cudaError_t error = cudaSuccess;

    for (int i = 0; error == cudaSuccess && i < (int)(sizeof(all) / sizeof(all[0])); i++) {
        struct cudaFuncAttributes attributes;

        error = cudaFuncGetAttributes(&attributes, all[i]);
    }
    return error;
}
