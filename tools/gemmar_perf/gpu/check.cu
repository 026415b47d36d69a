// SPDX-License-Identifier: Apache-2.0
// The check on the GPU: the sum over all ranks' operands, made again from their draws, against C.
#include "kernels/dtype.h"
#include "tools/gemmar_perf/draws.h"
#include "tools/gemmar_perf/gpu/kernels.h"

#define THREADS 256
#define BLOCKS  2048

/* Exact inputs: entries of a row of A of all ranks, 2^11 (fp16) at most. */
#define ENTRIES 2048
/* Columns that one thread looks at: they share a draw of B. */
#define NEIGHBOURS 4

/* Real-valued inputs: a block holds ROWS x COLUMNS sums, one thread a column. */
#define ROWS    4
#define COLUMNS 128
#define DEPTH   64

static __device__ void note(struct gemmar_perf_gpu_found *f, int64_t row, int64_t column,
                            double got, double want, double bound)
{
    double error = fabs(got - want);

    if (error != 0) { /* also when it is not a number, whose bits are the largest */
        unsigned long long bits = (unsigned long long)__double_as_longlong(error);

        if (bits > f->error_bits) { /* a stale value costs an atomic, no more */
            atomicMax(&f->error_bits, bits);
        }
    }
    if (!(error <= bound) && atomicAdd(&f->wrong, 1ull) == 0) {
        f->row = row;
        f->column = column;
        f->got = got;
        f->want = want;
    }
}

/* The entries of a row of A of every rank: the draw of B's row that they meet, and their sign. */
static __device__ int row_entries(const struct gemmar_perf_gpu_recipe &r, int64_t row,
                                  uint64_t *of_b, int8_t *sign)
{
    int filled = 0;

    for (uint32_t rank = 0; rank < r.ranks; rank++) {
        int count = (int)gemmar_perf_exact_count(r.limit, r.ranks, rank, r.k);
        uint64_t columns = gemmar_perf_draw(
            gemmar_perf_draw_key(r.seed, r.call, rank, GEMMAR_PERF_OF_A_COLUMN), (uint64_t)row);
        uint64_t signs = gemmar_perf_draw(
            gemmar_perf_draw_key(r.seed, r.call, rank, GEMMAR_PERF_OF_A_SIGN), (uint64_t)row);
        uint64_t key = gemmar_perf_draw_key(r.seed, r.call, rank, GEMMAR_PERF_OF_B);

        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            of_b[filled + i] =
                gemmar_perf_draw(key, (uint64_t)gemmar_perf_exact_column(columns, i, count, r.k));
            sign[filled + i] = (int8_t)gemmar_perf_exact_sign(signs, i);
        }
        filled += count;
    }
    return filled;
}

static __global__ void check_exact(struct gemmar_perf_gpu_recipe r, int64_t first, int64_t step,
                                   const void *c, struct gemmar_perf_gpu_found *found)
{
    __shared__ uint64_t of_b[ENTRIES];
    __shared__ int8_t sign[ENTRIES];
    int64_t row = first + (int64_t)blockIdx.x * step;
    int entries = row_entries(r, row, of_b, sign);

    __syncthreads();
    for (int64_t j = (int64_t)threadIdx.x * NEIGHBOURS; j < r.n;
         j += (int64_t)THREADS * NEIGHBOURS) {
        int sum[NEIGHBOURS] = {0, 0, 0, 0};

        for (int e = 0; e < entries; e++) {
            uint32_t bits = (uint32_t)(gemmar_perf_exact_signs(of_b[e], j & ~63ll) >> (j & 63));

            for (int i = 0; i < NEIGHBOURS; i++) {
                sum[i] += bits >> i & 1 ? sign[e] : -sign[e];
            }
        }
        for (int i = 0; i < NEIGHBOURS && j + i < r.n; i++) {
            note(found, row, j + i, gemmar_load_element(r.dtype, c, row * r.n + j + i), sum[i], 0);
        }
    }
}

/* An operand's element as the library reads it. */
static __device__ float rounded(uint32_t dtype, float x)
{
    return dtype == GEMMAR_DTYPE_BF16 ? gemmar_from_bf16(gemmar_to_bf16(x))
                                      : gemmar_from_fp16(gemmar_to_fp16(x));
}

/* fp64 sums of one element. */
struct sums {
    double node;      /* of the node at hand */
    double all;       /* of all ranks */
    double products;  /* sum of |a||b| over all ranks */
    double magnitude; /* sum of |partials| and |node sums|: what was rounded on the way */
};

/* The bound of docs/design.md, as in check.c. */
static __device__ double bound_of(const struct gemmar_perf_gpu_recipe &r, const struct sums &s)
{
    double u = r.dtype == GEMMAR_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    double tiny = (r.dtype == GEMMAR_DTYPE_FP16 ? 0x1p-25 : 0x1p-134) * (2.0 * r.ranks + 1);
    double steps = (double)r.k + 2.0 * r.ranks;

    return (steps * 0x1p-24 * s.products + u * (s.magnitude + fabs(s.all))) * 1.01 + tiny;
}

/* Add one rank's products to `sum` and their sizes to `size`, a piece of K at a time. */
static __device__ void add_products(const struct gemmar_perf_gpu_recipe &r, uint32_t rank,
                                    const int64_t *rows, int64_t j, float (*a)[DEPTH], double *sum,
                                    double *size)
{
    uint64_t of_a = gemmar_perf_draw_key(r.seed, r.call, rank, GEMMAR_PERF_OF_A_NORMAL);
    uint64_t of_b = gemmar_perf_draw_key(r.seed, r.call, rank, GEMMAR_PERF_OF_B_NORMAL);

    for (int64_t base = 0; base < r.k; base += DEPTH) {
        int depth = r.k - base < DEPTH ? (int)(r.k - base) : DEPTH;

        __syncthreads();
        for (int at = threadIdx.x; at < ROWS * DEPTH; at += COLUMNS) {
            int64_t i = rows[at / DEPTH] * r.k + base + at % DEPTH;

            a[at / DEPTH][at % DEPTH] =
                at % DEPTH < depth ? rounded(r.dtype, gemmar_perf_draw_normal(of_a, i)) : 0.0f;
        }
        __syncthreads();
        for (int l = 0; l < depth; l++) {
            int64_t i = r.trans_b ? j * r.k + base + l : (base + l) * r.n + j;
            double b = rounded(r.dtype, r.b_scale * gemmar_perf_draw_normal(of_b, i));

            for (int row = 0; row < ROWS; row++) {
                double product = a[row][l] * b;

                sum[row] += product;
                size[row] += fabs(product);
            }
        }
    }
}

static __global__ void __launch_bounds__(COLUMNS)
    check_normal(struct gemmar_perf_gpu_recipe r, struct gemmar_perf_gpu_order order, int64_t first,
                 int64_t step, int64_t count, const void *c, struct gemmar_perf_gpu_found *found)
{
    __shared__ float a[ROWS][DEPTH];
    int64_t tiles = (r.n + COLUMNS - 1) / COLUMNS;
    int64_t j = blockIdx.x % tiles * COLUMNS + threadIdx.x, top = blockIdx.x / tiles * ROWS;
    struct sums s[ROWS] = {};
    int64_t rows[ROWS];

    for (int i = 0; i < ROWS; i++) { /* the last block looks at its last row several times */
        rows[i] = first + (top + i < count ? top + i : count - 1) * step;
    }
    for (uint32_t at = 0; at < r.ranks; at++) {
        double sum[ROWS] = {}, size[ROWS] = {};

        add_products(r, order.rank[at], rows, j, a, sum, size);
        for (int i = 0; i < ROWS; i++) {
            s[i].node += sum[i];
            s[i].products += size[i];
            s[i].magnitude += fabs(sum[i]);
            if (order.last[at]) {
                s[i].all += s[i].node;
                s[i].magnitude += fabs(s[i].node);
                s[i].node = 0;
            }
        }
    }
    for (int i = 0; i < ROWS && top + i < count && j < r.n; i++) {
        note(found, rows[i], j, gemmar_load_element(r.dtype, c, rows[i] * r.n + j), s[i].all,
             bound_of(r, s[i]));
    }
}

extern "C" cudaError_t gemmar_perf_gpu_check(const struct gemmar_perf_gpu_recipe *r,
                                             const struct gemmar_perf_gpu_order *order,
                                             int64_t first, int64_t step, int64_t count,
                                             const void *c, struct gemmar_perf_gpu_found *found,
                                             cudaStream_t stream)
{
    int64_t tiles = (r->n + COLUMNS - 1) / COLUMNS;

    if (count <= 0 || r->n <= 0) {
        return cudaSuccess;
    }
    if (r->exact) {
        check_exact<<<(unsigned)count, THREADS, 0, stream>>>(*r, first, step, c, found);
    } else {
        check_normal<<<(unsigned)((count + ROWS - 1) / ROWS * tiles), COLUMNS, 0, stream>>>(
            *r, *order, first, step, count, c, found);
    }
    return cudaGetLastError();
}

static __device__ void add_block(unsigned long long mine, unsigned long long *total)
{
    for (int lane = 16; lane > 0; lane /= 2) {
        mine += __shfl_xor_sync(0xffffffffu, mine, lane);
    }
    if (threadIdx.x % 32 == 0 && mine != 0) {
        atomicAdd(total, mine);
    }
}

static __global__ void count_changed(const uint8_t *base, int64_t bytes, uint8_t pattern,
                                     unsigned long long *changed)
{
    unsigned long long mine = 0;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < bytes;
         i += (int64_t)gridDim.x * THREADS) {
        mine += base[i] != pattern;
    }
    add_block(mine, changed);
}

static __global__ void sum_elements(const uint16_t *base, int64_t elements, unsigned long long *sum)
{
    unsigned long long mine = 0;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < elements;
         i += (int64_t)gridDim.x * THREADS) {
        mine += gemmar_perf_draw((uint64_t)i, base[i]);
    }
    add_block(mine, sum);
}

extern "C" cudaError_t gemmar_perf_gpu_guard(const void *base, int64_t bytes, uint8_t pattern,
                                             unsigned long long *changed, cudaStream_t stream)
{
    count_changed<<<256, THREADS, 0, stream>>>((const uint8_t *)base, bytes, pattern, changed);
    return cudaGetLastError();
}

extern "C" cudaError_t gemmar_perf_gpu_sum(const void *base, int64_t elements,
                                           unsigned long long *sum, cudaStream_t stream)
{
    sum_elements<<<BLOCKS, THREADS, 0, stream>>>((const uint16_t *)base, elements, sum);
    return cudaGetLastError();
}

extern "C" cudaError_t gemmar_perf_gpu_load_check(void)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, check_exact);

    if (error == cudaSuccess) {
        error = cudaFuncGetAttributes(&attributes, check_normal);
    }
    if (error == cudaSuccess) {
        error = cudaFuncGetAttributes(&attributes, count_changed);
    }
    return error == cudaSuccess ? cudaFuncGetAttributes(&attributes, sum_elements) : error;
}
