// SPDX-License-Identifier: Apache-2.0
// checkkernel: the GPU kernels against a reference, and with --bench against cuBLASLt.
//
// For each shape the product is computed by cuBLASLt (the best of its heuristics, measured) and by
// every variant; outputs are poisoned first and guard rows behind C must stay untouched. Times are
// medians of runs that alternate between the two.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm_sm90.h"

#define GUARD_ROWS 2
#define HEURISTICS 16

struct shape {
    int64_t m, n, k;
};

struct options {
    bool bench;
    int runs;
    int variant; /* -1: all */
    int band;
    int trans_b;
    int bf16;
    unsigned seed;
    const char *json;
};

struct bench {
    struct shape shape;
    struct options options;
    uint16_t *a, *b, *c, *expected;
    void *workspace;
    size_t workspace_bytes;
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulAlgo_t algo;
    int sms;
};

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "checkkernel: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

static void must_blas(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        fprintf(stderr, "checkkernel: %s: cublas status %d\n", what, (int)status);
        exit(1);
    }
}

static uint16_t to_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static float from_16(uint16_t v, int bf16)
{
    uint32_t u = (uint32_t)v << 16;
    float x;

    if (bf16) {
        memcpy(&x, &u, 4);
        return x;
    }
    int exponent = v >> 10 & 31, mantissa = v & 1023;
    x = exponent == 0 ? ldexpf((float)mantissa, -24)
                      : ldexpf((float)(mantissa | 1024), exponent - 25);
    if (exponent == 31) {
        x = mantissa ? NAN : INFINITY;
    }
    return v & 0x8000 ? -x : x;
}

/* Normal values; fp16 gets the bits of a value between -2 and 2 with its low bits random. */
static void fill(uint16_t *device, size_t count, unsigned seed, int bf16)
{
    size_t block = count < (1u << 22) ? count : (1u << 22);
    uint16_t *host = malloc(block * 2);
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;

    for (size_t i = 0; i < block; i++) {
        float u[2];

        for (int j = 0; j < 2; j++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            u[j] = ((float)(state >> 40) + 1.0f) / 16777217.0f;
        }
        float x = sqrtf(-2 * logf(u[0])) * cosf(6.2831853f * u[1]);
        host[i] =
            bf16 ? to_bf16(x) : (uint16_t)((state >> 20 & 0x8000) | 0x3400 | (state >> 30 & 0xbff));
    }
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block;

        must(cudaMemcpy(device + at, host, n * 2, cudaMemcpyHostToDevice), "copy inputs");
    }
    free(host);
}

static double median(float *ms, int n)
{
    for (int i = 1; i < n; i++) {
        for (int j = i; j > 0 && ms[j - 1] > ms[j]; j--) {
            float t = ms[j];

            ms[j] = ms[j - 1];
            ms[j - 1] = t;
        }
    }
    return ms[n / 2];
}

static void blas(struct bench *b, uint16_t *c, const cublasLtMatmulAlgo_t *algo)
{
    float one = 1, zero = 0;

    must_blas(cublasLtMatmul(b->lt, b->op, &one, b->b, b->la, b->a, b->lb, &zero, c, b->lc, c,
                             b->lc, algo, b->workspace, b->workspace_bytes, 0),
              "cublasLtMatmul");
}

static float timed(struct bench *b, int variant, const cublasLtMatmulAlgo_t *algo)
{
    static cudaEvent_t from, to;
    float ms;

    if (from == NULL) {
        must(cudaEventCreate(&from), "event");
        must(cudaEventCreate(&to), "event");
    }
    must(cudaEventRecord(from, 0), "record");
    if (variant < 0) {
        blas(b, b->expected, algo);
    } else {
        struct gemmar_gemm_request r = {
            .a = b->a,
            .b = b->b,
            .c = b->c,
            .m = b->shape.m,
            .n = b->shape.n,
            .k = b->shape.k,
            .lda = b->shape.k,
            .ldb = b->options.trans_b ? b->shape.k : b->shape.n,
            .ldc = b->shape.n,
            .bf16 = b->options.bf16,
            .trans_b = b->options.trans_b,
            .variant = variant,
            .band = b->options.band,
            .sms = b->sms,
        };
        must(gemmar_gemm_launch(&r, 0), "launch");
    }
    must(cudaEventRecord(to, 0), "record");
    must(cudaEventSynchronize(to), "synchronize");
    must(cudaEventElapsedTime(&ms, from, to), "elapsed");
    return ms;
}

/* Describe the row-major product in cuBLASLt's column-major words and pick its fastest way. */
static void choose_blas(struct bench *b)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[HEURISTICS];
    cudaDataType_t type = b->options.bf16 ? CUDA_R_16BF : CUDA_R_16F;
    cublasOperation_t t = b->options.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, n = CUBLAS_OP_N;
    uint64_t m = (uint64_t)b->shape.m, cols = (uint64_t)b->shape.n, k = (uint64_t)b->shape.k;
    int count = 0;
    double best = 1e30;

    must_blas(cublasLtMatmulDescCreate(&b->op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
    must_blas(cublasLtMatmulDescSetAttribute(b->op, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof(t)),
              "t");
    must_blas(cublasLtMatmulDescSetAttribute(b->op, CUBLASLT_MATMUL_DESC_TRANSB, &n, sizeof(n)),
              "n");
    if (b->options.trans_b) {
        must_blas(cublasLtMatrixLayoutCreate(&b->la, type, k, cols, b->shape.k), "layout");
    } else {
        must_blas(cublasLtMatrixLayoutCreate(&b->la, type, cols, k, b->shape.n), "layout");
    }
    must_blas(cublasLtMatrixLayoutCreate(&b->lb, type, k, m, b->shape.k), "layout");
    must_blas(cublasLtMatrixLayoutCreate(&b->lc, type, cols, m, b->shape.n), "layout");
    must_blas(cublasLtMatmulPreferenceCreate(&preference), "preference");
    must_blas(cublasLtMatmulPreferenceSetAttribute(preference,
                                                   CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &b->workspace_bytes, sizeof(b->workspace_bytes)),
              "workspace");
    must_blas(cublasLtMatmulAlgoGetHeuristic(b->lt, b->op, b->la, b->lb, b->lc, b->lc, preference,
                                             HEURISTICS, found, &count),
              "heuristic");
    for (int i = 0; i < count; i++) {
        float ms[5];

        for (int r = 0; r < 5; r++) {
            ms[r] = timed(b, -1, &found[i].algo);
        }
        double t_i = median(ms, 5);
        if (t_i < best) {
            best = t_i;
            b->algo = found[i].algo;
        }
    }
    cublasLtMatmulPreferenceDestroy(preference);
}

/* Elements of C that differ from cuBLASLt's by more than one unit in the last place of 16 bits plus
 * the fp32 reordering bound, and guard elements that were touched. */
static int64_t wrong_elements(struct bench *b)
{
    size_t elements = (size_t)b->shape.m * (size_t)b->shape.n;
    size_t guard = GUARD_ROWS * (size_t)b->shape.n;
    uint16_t *got = malloc((elements + guard) * 2), *want = malloc(elements * 2);
    double unit = b->options.bf16 ? 1.0 / 128 : 1.0 / 1024, slack = 1e-4 * sqrt((double)b->shape.k);
    int64_t wrong = 0;

    must(cudaMemcpy(got, b->c, (elements + guard) * 2, cudaMemcpyDeviceToHost), "copy result");
    must(cudaMemcpy(want, b->expected, elements * 2, cudaMemcpyDeviceToHost), "copy reference");
    for (size_t i = 0; i < elements; i++) {
        double g = from_16(got[i], b->options.bf16), w = from_16(want[i], b->options.bf16);

        wrong += !(fabs(g - w) <= unit * fabs(w) + slack);
    }
    for (size_t i = 0; i < guard; i++) {
        wrong += got[elements + i] != 0xffff;
    }
    free(got);
    free(want);
    return wrong;
}

static int64_t run_variant(struct bench *b, int variant, FILE *json)
{
    size_t bytes = (size_t)(b->shape.m + GUARD_ROWS) * (size_t)b->shape.n * 2;
    int runs = b->options.bench ? b->options.runs : 1;
    float ours[64], theirs[64];

    must(cudaMemset(b->c, 0xff, bytes), "poison");
    for (int i = 0; b->options.bench && i < 5; i++) {
        (void)timed(b, -1, &b->algo);
        (void)timed(b, variant, NULL);
    }
    for (int i = 0; i < runs; i++) {
        theirs[i] = timed(b, -1, &b->algo);
        ours[i] = timed(b, variant, NULL);
    }
    int64_t wrong = wrong_elements(b);
    double t_ours = median(ours, runs), t_theirs = median(theirs, runs);
    double tflops =
        2.0 * (double)b->shape.m * (double)b->shape.n * (double)b->shape.k / t_ours / 1e9;

    printf("%6ld %6ld %6ld  %s %s  %-40s  %8.4f ms  %6.1f TF  cublas %8.4f ms  ratio %.3f  wrong "
           "%ld\n",
           b->shape.m, b->shape.n, b->shape.k, b->options.bf16 ? "bf16" : "fp16",
           b->options.trans_b ? "NT" : "NN", gemmar_gemm_variant_name(variant), t_ours, tflops,
           t_theirs, t_theirs / t_ours, wrong);
    if (json != NULL) {
        fprintf(
            json,
            "{\"m\":%ld,\"n\":%ld,\"k\":%ld,\"dtype\":\"%s\",\"layout\":\"%s\",\"variant\":\"%s\","
            "\"band\":%d,\"time_us\":%.2f,\"tflops\":%.1f,\"cublas_us\":%.2f,\"ratio\":%.4f,"
            "\"wrong\":%ld}\n",
            b->shape.m, b->shape.n, b->shape.k, b->options.bf16 ? "bf16" : "fp16",
            b->options.trans_b ? "NT" : "NN", gemmar_gemm_variant_name(variant), b->options.band,
            t_ours * 1e3, tflops, t_theirs * 1e3, t_theirs / t_ours, wrong);
        fflush(json);
    }
    return wrong;
}

static int64_t run_shape(struct shape shape, const struct options *options, FILE *json)
{
    struct bench b = {.shape = shape, .options = *options, .workspace_bytes = 64u << 20};
    size_t a = (size_t)(shape.m * shape.k), bb = (size_t)(shape.n * shape.k);
    size_t c = (size_t)((shape.m + GUARD_ROWS) * shape.n);
    int64_t wrong = 0;

    must(cudaDeviceGetAttribute(&b.sms, cudaDevAttrMultiProcessorCount, 0), "attribute");
    b.sms &= ~1;
    must(cudaMalloc((void **)&b.a, a * 2), "allocate");
    must(cudaMalloc((void **)&b.b, bb * 2), "allocate");
    must(cudaMalloc((void **)&b.c, c * 2), "allocate");
    must(cudaMalloc((void **)&b.expected, c * 2), "allocate");
    must(cudaMalloc(&b.workspace, b.workspace_bytes), "allocate");
    fill(b.a, a, options->seed, options->bf16);
    fill(b.b, bb, options->seed + 1, options->bf16);
    must_blas(cublasLtCreate(&b.lt), "create");
    choose_blas(&b);
    for (int v = 0; v < gemmar_gemm_variants(); v++) {
        if (options->variant < 0 || options->variant == v) {
            wrong += run_variant(&b, v, json);
        }
    }
    cublasLtMatrixLayoutDestroy(b.la);
    cublasLtMatrixLayoutDestroy(b.lb);
    cublasLtMatrixLayoutDestroy(b.lc);
    cublasLtMatmulDescDestroy(b.op);
    cublasLtDestroy(b.lt);
    cudaFree(b.a);
    cudaFree(b.b);
    cudaFree(b.c);
    cudaFree(b.expected);
    cudaFree(b.workspace);
    return wrong;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: checkkernel [--bench] [--runs N] [--variant V] [--band B] [--nn] [--fp16]"
            " [--seed S] [--json FILE] MxNxK...\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"bench", no_argument, NULL, 'b'},
        {"runs", required_argument, NULL, 'r'},
        {"variant", required_argument, NULL, 'v'},
        {"band", required_argument, NULL, 'B'},
        {"nn", no_argument, NULL, 'n'},
        {"fp16", no_argument, NULL, 'h'},
        {"seed", required_argument, NULL, 's'},
        {"json", required_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    struct options o = {.runs = 15, .variant = -1, .trans_b = 1, .bf16 = 1, .seed = 1};
    int64_t wrong = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'b': o.bench = true; break;
        case 'r': o.runs = atoi(optarg) < 64 ? atoi(optarg) : 63; break;
        case 'v': o.variant = atoi(optarg); break;
        case 'B': o.band = atoi(optarg); break;
        case 'n': o.trans_b = 0; break;
        case 'h': o.bf16 = 0; break;
        case 's': o.seed = (unsigned)atoi(optarg); break;
        case 'j': o.json = optarg; break;
        default: return usage();
        }
    }
    FILE *json = o.json != NULL ? fopen(o.json, "a") : NULL;
    for (int i = optind; i < argc; i++) {
        struct shape s;

        if (sscanf(argv[i], "%ldx%ldx%ld", &s.m, &s.n, &s.k) != 3) {
            return usage();
        }
        wrong += run_shape(s, &o, json);
    }
    if (json != NULL) {
        fclose(json);
    }
    printf("%ld wrong\n", wrong);
    return wrong != 0;
}
