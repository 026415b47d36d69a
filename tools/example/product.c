// SPDX-License-Identifier: Apache-2.0
// A matrix product by cuBLASLt, in the way that its heuristic puts first.
#include "product.h"

#include "layer.h"

#define WORKSPACE_BYTES ((size_t)32 << 20)

static int bad(cublasStatus_t status, const char *doing)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        say("cuBLASLt: %s: %s", doing, cublasLtGetStatusName(status));
        return 1;
    }
    return 0;
}

static int choose(struct product *p)
{
    cublasLtMatmulHeuristicResult_t found;
    cublasLtMatmulPreference_t preference;
    size_t bytes = WORKSPACE_BYTES;
    int failed, count = 0;

    if (bad(cublasLtMatmulPreferenceCreate(&preference), "preference")) {
        return 1;
    }
    failed = bad(cublasLtMatmulPreferenceSetAttribute(
                     preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
                 "workspace") ||
             bad(cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->b, p->a, p->c, p->c,
                                                preference, 1, &found, &count),
                 "heuristic");
    (void)cublasLtMatmulPreferenceDestroy(preference);
    if (!failed && count == 0) {
        say("cuBLASLt knows no way to do this product");
        return 1;
    }
    p->algo = found.algo;
    return failed;
}

/* cuBLASLt counts in columns, so it is told C' = B' A'. */
int product_open(struct product *p, int64_t m, int64_t n, int64_t k, bool gelu)
{
    cublasLtEpilogue_t epilogue = gelu ? CUBLASLT_EPILOGUE_GELU : CUBLASLT_EPILOGUE_DEFAULT;
    uint64_t rows = (uint64_t)m, columns = (uint64_t)n, depth = (uint64_t)k;

    return bad(cublasLtCreate(&p->handle), "handle") ||
           bad(cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "product") ||
           bad(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                              &epilogue, sizeof(epilogue)),
               "epilogue") ||
           bad(cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, columns, depth, n), "B") ||
           bad(cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, depth, rows, k), "A") ||
           bad(cublasLtMatrixLayoutCreate(&p->c, CUDA_R_16BF, columns, rows, n), "C") ||
           bad_cuda(cudaMalloc(&p->workspace, WORKSPACE_BYTES), "workspace") || choose(p);
}

int product_run(const struct product *p, const void *a, const void *b, void *c, cudaStream_t stream)
{
    float one = 1, zero = 0;

    return bad(cublasLtMatmul(p->handle, p->operation, &one, b, p->b, a, p->a, &zero, c, p->c, c,
                              p->c, &p->algo, p->workspace, WORKSPACE_BYTES, stream),
               "product");
}

void product_close(struct product *p)
{
    cublasLtMatrixLayout_t layout[] = {p->a, p->b, p->c};

    for (int i = 0; i < 3; i++) {
        if (layout[i] != NULL) {
            (void)cublasLtMatrixLayoutDestroy(layout[i]);
        }
    }
    if (p->operation != NULL) {
        (void)cublasLtMatmulDescDestroy(p->operation);
    }
    if (p->handle != NULL) {
        (void)cublasLtDestroy(p->handle);
    }
    (void)cudaFree(p->workspace);
    *p = (struct product){.handle = NULL};
}
