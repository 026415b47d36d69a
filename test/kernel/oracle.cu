// SPDX-License-Identifier: Apache-2.0
// Inputs and expected results of the GPU checks.
#include "test/kernel/oracle.h"

#include "kernels/dtype.h"
#include "kernels/ptx/ld_st.cuh"

#define THREADS 256

static __device__ uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static __global__ void fill(uint16_t *x, int64_t elements, int bf16, int exact, uint64_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t r = mix(seed * 0x9e3779b97f4a7c15ULL + (uint64_t)i);
        float value;

        if (exact) { /* mostly zeros: sums stay small */
            value = (r & 15) < 13 ? 0.0f : (float)((int)(r >> 8 & 1) * 2 - 1);
        } else { /* the sum of four uniform numbers, variance 1 */
            value = ((float)(r & 0xffff) + (float)(r >> 16 & 0xffff) + (float)(r >> 32 & 0xffff) +
                     (float)(r >> 48)) /
                        65536.0f * 1.7320508f -
                    3.4641016f;
        }
        x[i] = bf16 ? gemmar_to_bf16(value) : gemmar_to_fp16(value);
    }
}

static __device__ float value_at(const void *x, int64_t i, int bf16)
{
    return gemmar_load_element(bf16 ? GEMMAR_DTYPE_BF16 : GEMMAR_DTYPE_FP16, x, i);
}

static __device__ uint16_t to_16(float x, int bf16)
{
    return bf16 ? gemmar_to_bf16(x) : gemmar_to_fp16(x);
}

/* Result and the error that is allowed for it: one rounding of each partial, of each node's sum
 * where there are several, and of the result, and fp32 sums in any order. */
static __device__ float expect(const struct oracle &o, int64_t row, int64_t col, float *bound)
{
    float unit = o.bf16 ? 0x1p-8f : 0x1p-11f, sum = 0, roundings = 0, sizes = 0;
    float node = 0;

    for (int r = 0; r < o.ranks; r++) {
        float partial = 0;

        for (int64_t k = 0; k < o.k; k++) {
            float x = value_at(o.a[r], row * o.lda + k, o.bf16);
            float y = value_at(o.b[r], o.trans_b ? col * o.ldb + k : k * o.ldb + col, o.bf16);

            partial += x * y;
            sizes += fabsf(x * y);
        }
        sum += partial;
        node += partial;
        roundings += fabsf(partial);
        if ((r + 1) % o.locals == 0) {
            roundings += o.locals < o.ranks ? fabsf(node) : 0;
            node = 0;
        }
    }
    sum *= o.alpha;
    if (o.beta != 0) {
        sum += o.beta * value_at(o.before, row * o.ldc + col, o.bf16);
    }
    if (o.bias != NULL) {
        sum += value_at(o.bias, col, o.bf16);
    }
    *bound = fabsf(o.alpha) * (2.0f * (float)o.k * 0x1p-24f * sizes + unit * roundings) +
             unit * fabsf(sum) + 1e-6f;
    return sum;
}

static __global__ void check(const struct oracle o, const uint16_t *c, int exact,
                             struct oracle_verdict *verdict)
{
    int64_t col = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    unsigned long long hash = 0;

    if (col >= o.n) {
        return;
    }
    for (int64_t row = (int64_t)blockIdx.y * o.row_step; row < o.m;
         row += (int64_t)gridDim.y * o.row_step) {
        float bound, want = expect(o, row, col, &bound), got;
        uint16_t bits = c[row * o.ldc + col];
        bool good;

        got = value_at(c, row * o.ldc + col, o.bf16);
        good = exact ? bits == to_16(want, o.bf16) || (got == 0.0f && want == 0.0f)
                     : fabsf(got - want) <= bound;
        hash += mix((uint64_t)(row * o.n + col) << 16 | bits);
        if (!good) {
            atomicAdd(&verdict->wrong, 1);
            atomicMax(&verdict->first, (unsigned long long)(row * o.n + col) + 1);
        }
        atomicMax((int *)&verdict->worst, __float_as_int(fabsf(got - want) / bound));
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

static __global__ void gate(const uint32_t *word, uint32_t value, int64_t cycles)
{
    uint64_t end = gemmar_globaltimer() + 10000000000ULL;

    while (*(const volatile uint32_t *)word != value && gemmar_globaltimer() < end) {
    }
    for (int64_t began = clock64(); clock64() - began < cycles;) {
    }
}

extern "C" cudaError_t oracle_fill(void *x, int64_t elements, int bf16, int exact, uint64_t seed,
                                   cudaStream_t stream)
{
    fill<<<1024, THREADS, 0, stream>>>((uint16_t *)x, elements, bf16, exact, seed);
    return cudaGetLastError();
}

extern "C" cudaError_t oracle_check(const struct oracle *o, const void *c, int exact,
                                    struct oracle_verdict *verdict, cudaStream_t stream)
{
    int64_t rows = (o->m + o->row_step - 1) / o->row_step;
    dim3 grid((unsigned)((o->n + THREADS - 1) / THREADS), (unsigned)(rows < 4096 ? rows : 4096));

    check<<<grid, THREADS, 0, stream>>>(*o, (const uint16_t *)c, exact, verdict);
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

extern "C" cudaError_t oracle_gate(const uint32_t *word, uint32_t value, int64_t cycles,
                                   cudaStream_t stream)
{
    gate<<<1, 1, 0, stream>>>(word, value, cycles);
    return cudaGetLastError();
}

extern "C" cudaError_t oracle_load(void)
{
    const void *all[] = {(const void *)fill, (const void *)check, (const void *)guard,
                         (const void *)padding, (const void *)gate};
    cudaError_t error = cudaSuccess;

    for (int i = 0; error == cudaSuccess && i < 5; i++) {
        struct cudaFuncAttributes attributes;

        error = cudaFuncGetAttributes(&attributes, all[i]);
    }
    return error;
}
