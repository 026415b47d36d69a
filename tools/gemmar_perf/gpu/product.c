// SPDX-License-Identifier: Apache-2.0
// The matrix product by cuBLASLt.
#include "tools/gemmar_perf/gpu/product.h"

#include "tools/gemmar_perf/say.h"

#define WORKSPACE_BYTES (UINT64_C(32) << 20)
#define TRIES           4 /* of each way; the first does not count */

static bool bad(cublasStatus_t status, const char *doing)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        gemmar_perf_say("cuBLASLt: %s: %s", doing, cublasLtGetStatusName(status));
    }
    return status != CUBLAS_STATUS_SUCCESS;
}

int gemmar_perf_product_open(struct gemmar_perf_product *p)
{
    *p = (struct gemmar_perf_product){.workspace_bytes = WORKSPACE_BYTES};
    return bad(cublasLtCreate(&p->handle), "cannot begin") ||
           gemmar_perf_gpu_bad(cudaMalloc(&p->workspace, p->workspace_bytes),
                               "no memory for cuBLASLt's workspace");
}

void gemmar_perf_product_close(struct gemmar_perf_product *p)
{
    gemmar_perf_product_forget(p);
    if (p->handle != NULL) {
        (void)cublasLtDestroy(p->handle); /* the process ends next */
    }
    (void)cudaFree(p->workspace);
    *p = (struct gemmar_perf_product){.handle = NULL};
}

void gemmar_perf_product_forget(struct gemmar_perf_product *p)
{
    if (p->first != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->first);
    }
    if (p->second != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->second);
    }
    if (p->result != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->result);
    }
    if (p->operation != NULL) {
        (void)cublasLtMatmulDescDestroy(p->operation);
    }
    p->first = p->second = p->result = NULL;
    p->operation = NULL;
}

/* Row-major C = A B is column-major C' = B' A'. */
static int describe(struct gemmar_perf_product *p, const struct gemmar_perf_inputs *in)
{
    cudaDataType_t type = in->dtype == gemmarBfloat16 ? CUDA_R_16BF : CUDA_R_16F;
    cublasOperation_t turned = in->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint64_t m = (uint64_t)in->m, n = (uint64_t)in->n, k = (uint64_t)in->k;

    return bad(cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "product") ||
           bad(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
                                              sizeof(turned)),
               "layout of B") ||
           bad(in->trans_b ? cublasLtMatrixLayoutCreate(&p->first, type, k, n, in->k)
                           : cublasLtMatrixLayoutCreate(&p->first, type, n, k, in->n),
               "B") ||
           bad(cublasLtMatrixLayoutCreate(&p->second, type, k, m, in->k), "A") ||
           bad(cublasLtMatrixLayoutCreate(&p->result, type, n, m, in->n), "C");
}

static int ask(struct gemmar_perf_product *p, cublasLtMatmulHeuristicResult_t *found,
               int *out_count)
{
    cublasLtMatmulPreference_t preference;
    int failed;

    if (bad(cublasLtMatmulPreferenceCreate(&preference), "preference")) {
        return 1;
    }
    failed = bad(cublasLtMatmulPreferenceSetAttribute(
                     preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &p->workspace_bytes,
                     sizeof(p->workspace_bytes)),
                 "workspace") ||
             bad(cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->first, p->second,
                                                p->result, p->result, preference,
                                                GEMMAR_PERF_PRODUCT_WAYS, found, out_count),
                 "no way to multiply");
    (void)cublasLtMatmulPreferenceDestroy(preference);
    return failed;
}

/* The fastest of a few products in one way, in ms. */
static int try_way(struct gemmar_perf_product *p, const struct gemmar_perf_gpu_buffers *b, void *c,
                   cudaStream_t stream, cudaEvent_t *event, float *out_ms)
{
    float ms;

    for (int i = 0; i < TRIES; i++) {
        if (gemmar_perf_gpu_bad(cudaEventRecord(event[0], stream), "event") ||
            gemmar_perf_product_enqueue(p, b->a, b->b, c, stream) != 0 ||
            gemmar_perf_gpu_bad(cudaEventRecord(event[1], stream), "event") ||
            gemmar_perf_gpu_bad(cudaEventSynchronize(event[1]), "product") ||
            gemmar_perf_gpu_bad(cudaEventElapsedTime(&ms, event[0], event[1]), "event")) {
            return 1;
        }
        *out_ms = i == 1 || (i > 1 && ms < *out_ms) ? ms : *out_ms;
    }
    return 0;
}

int gemmar_perf_product_choose(struct gemmar_perf_session *s, struct gemmar_perf_product *p,
                               const struct gemmar_perf_inputs *in,
                               const struct gemmar_perf_gpu_buffers *b, void *c)
{
    cublasLtMatmulHeuristicResult_t found[GEMMAR_PERF_PRODUCT_WAYS];
    cudaEvent_t event[2] = {NULL, NULL};
    float best = 0, ms = 0;
    int status, fastest = 0;

    gemmar_perf_product_forget(p);
    p->ways = 0;
    status = describe(p, in) != 0 || ask(p, found, &p->ways) != 0 ||
             gemmar_perf_gpu_bad(cudaEventCreate(&event[0]), "event") ||
             gemmar_perf_gpu_bad(cudaEventCreate(&event[1]), "event");
    if (status == 0 && p->ways == 0) {
        gemmar_perf_say("cuBLASLt knows no way to multiply %lld x %lld x %lld", (long long)in->m,
                        (long long)in->n, (long long)in->k);
        status = 1;
    }
    for (int i = 0; i < p->ways && status == 0; i++) {
        p->algo = found[i].algo;
        status = try_way(p, b, c, s->gpu->stream, event, &ms);
        if (i == 0 || ms < best) {
            best = ms;
            fastest = i;
        }
    }
    if (status == 0) {
        p->algo = found[fastest].algo;
    }
    for (int i = 0; i < 2; i++) {
        if (event[i] != NULL) {
            (void)cudaEventDestroy(event[i]);
        }
    }
    return status;
}

int gemmar_perf_product_enqueue(struct gemmar_perf_product *p, const void *a, const void *b,
                                void *c, cudaStream_t stream)
{
    float one = 1, zero = 0;

    return bad(cublasLtMatmul(p->handle, p->operation, &one, b, p->first, a, p->second, &zero, c,
                              p->result, c, p->result, &p->algo, p->workspace, p->workspace_bytes,
                              stream),
               "cannot multiply");
}
