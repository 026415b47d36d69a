// SPDX-License-Identifier: Apache-2.0
// The times of checkkernel: cuBLASLt, the product alone and the fused call, alternating; and the
// trace of one call.
#include "test/kernel/checkkernel.h"

#include <stdlib.h>

FILE *json;

static int by_size(const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;

    return (a > b) - (a < b);
}

static float median(float *ms, int n)
{
    qsort(ms, (size_t)n, sizeof(*ms), by_size);
    return ms[n / 2];
}

/* Row-major in cuBLASLt's column-major words. */
static void blas(struct rank *r, const struct shape *s, const struct call_kind *kind, bool choose)
{
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t la, lb, lc;
    cudaDataType_t type = kind->bf16 ? CUDA_R_16BF : CUDA_R_16F;
    cublasOperation_t t = kind->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
    float one = 1, zero = 0;
    size_t bytes = 64u << 20;

    must_blas(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
    must_blas(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof(t)), "t");
    must_blas(cublasLtMatrixLayoutCreate(&la, type, kind->trans_b ? k : n, kind->trans_b ? n : k,
                                         kind->trans_b ? s->k : s->n),
              "layout");
    must_blas(cublasLtMatrixLayoutCreate(&lb, type, k, m, s->k), "layout");
    must_blas(cublasLtMatrixLayoutCreate(&lc, type, n, m, s->n), "layout");
    if (choose) {
        cublasLtMatmulPreference_t preference;
        cublasLtMatmulHeuristicResult_t found[16];
        float best = 1e30f;
        int count;

        must_blas(cublasLtMatmulPreferenceCreate(&preference), "preference");
        must_blas(cublasLtMatmulPreferenceSetAttribute(
                      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
                  "workspace");
        must_blas(cublasLtMatmulAlgoGetHeuristic(r->lt, op, la, lb, lc, lc, preference, 16, found,
                                                 &count),
                  "heuristic");
        for (int i = 0; i < count; i++) {
            float ms[5];

            for (int j = 0; j < 5; j++) {
                must(cudaEventRecord(r->from, r->stream), "record");
                must_blas(cublasLtMatmul(r->lt, op, &one, r->b, la, r->a, lb, &zero, r->c, lc, r->c,
                                         lc, &found[i].algo, r->lt_workspace, bytes, r->stream),
                          "cublasLtMatmul");
                must(cudaEventRecord(r->to, r->stream), "record");
                must(cudaEventSynchronize(r->to), "synchronize");
                must(cudaEventElapsedTime(&ms[j], r->from, r->to), "elapsed");
            }
            if (median(ms, 5) < best) {
                best = ms[2];
                r->algo = found[i].algo;
            }
        }
        must_blas(cublasLtMatmulPreferenceDestroy(preference), "destroy");
    } else {
        must_blas(cublasLtMatmul(r->lt, op, &one, r->b, la, r->a, lb, &zero, r->c, lc, r->c, lc,
                                 &r->algo, r->lt_workspace, bytes, r->stream),
                  "cublasLtMatmul");
    }
    must_blas(cublasLtMatrixLayoutDestroy(la), "destroy");
    must_blas(cublasLtMatrixLayoutDestroy(lb), "destroy");
    must_blas(cublasLtMatrixLayoutDestroy(lc), "destroy");
    must_blas(cublasLtMatmulDescDestroy(op), "destroy");
}

enum way { WAY_BLAS, WAY_ALONE, WAY_PUSH, WAY_PULL, WAY_EXCHANGE, WAYS };
static const char *const way_names[WAYS] = {"cublaslt", "gemm alone", "push", "pull", "exchange"};

static float timed(enum way way, const struct shape *s, const struct call_kind *kind,
                   const struct gemmar_plan *plan)
{
    static uint32_t round;
    float worst = 0;

    round++;
    for (int i = 0; i < options.ranks; i++) {
        struct rank *r = &ranks[i];

        use(r);
        must(oracle_gate(gate, round, 0, r->stream), "gate");
        must(cudaEventRecord(r->from, r->stream), "record");
        if (way == WAY_BLAS) {
            blas(r, s, kind, false);
        } else {
            enqueue(i, s, kind, plan, way == WAY_ALONE, 0);
        }
        must(cudaEventRecord(r->to, r->stream), "record");
    }
    *(volatile uint32_t *)gate = round;
    wait_all();
    for (int i = 0; i < options.ranks; i++) {
        float ms;

        must(cudaEventElapsedTime(&ms, ranks[i].from, ranks[i].to), "elapsed");
        worst = ms > worst ? ms : worst;
    }
    return worst;
}

/* One more call of each way, with its events in a file. */
static void trace(const struct shape *s, const struct call_kind *kind,
                  const struct gemmar_plan *plans, const bool *used)
{
    size_t words = (size_t)TRACE_CTAS * TRACE_ITEMS * GEMMAR_TRACE_EVENTS;
    struct gemmar_traced of = {.m = s->m, .n = s->n, .k = s->k};
    uint64_t *host = malloc(words * 8);
    FILE *file = fopen(options.trace, "a");

    for (int w = WAY_ALONE; w < WAYS; w++) {
        if (!used[w] || w == WAY_PULL) {
            continue;
        }
        for (int i = 0; i < options.ranks; i++) {
            use(&ranks[i]);
            ranks[i].trace = device_memory(words * 8);
            must(cudaMemset(ranks[i].trace, 0, words * 8), "clear");
            must(cudaDeviceSynchronize(), "synchronize");
        }
        (void)timed((enum way)w, s, kind, &plans[w]);
        (void)snprintf(of.way, sizeof(of.way), "%s", way_names[w]);
        for (int i = 0; i < options.ranks; i++) {
            use(&ranks[i]);
            must(cudaMemcpy(host, ranks[i].trace, words * 8, cudaMemcpyDeviceToHost), "copy");
            must(cudaFree(ranks[i].trace), "free");
            ranks[i].trace = NULL;
            of.rank = (uint32_t)i;
            gemmar_trace_print(file, &of, host, TRACE_CTAS, TRACE_ITEMS);
        }
    }
    fclose(file);
    free(host);
}

static bool can_bench(const struct shape *s, int strategy)
{
    return strategy != GEMMAR_STRATEGY_EXCHANGE ||
           gemmar_plan_can_exchange(s->m, s->n, (uint32_t)options.nodes, (uint32_t)options.locals);
}

void bench(const struct shape *s, const struct call_kind *kind)
{
    static const int strategies[WAYS] = {[WAY_PUSH] = GEMMAR_STRATEGY_PUSH,
                                         [WAY_PULL] = GEMMAR_STRATEGY_PULL,
                                         [WAY_EXCHANGE] = GEMMAR_STRATEGY_EXCHANGE};
    static float ms[WAYS][MAX_RUNS];
    struct gemmar_plan plans[WAYS] = {[WAY_ALONE] =
                                          make_plan(s, GEMMAR_ALGO_LOCAL, 1, GEMMAR_STRATEGY_PUSH)};
    bool used[WAYS] = {true, true};
    int first = WAY_PUSH; /* of those used */

    for (int w = WAY_PUSH; w < WAYS; w++) {
        used[w] =
            options.strategy < 0 ? can_bench(s, strategies[w]) : options.strategy == strategies[w];
        if (used[w]) {
            plans[w] = make_plan(s, GEMMAR_ALGO_LOCAL, (uint32_t)options.locals, strategies[w]);
        }
    }
    while (!used[first]) {
        first++;
    }
    for (int w = WAY_ALONE; w < WAYS; w++) {
        if (used[w]) {
            want_workspaces(&plans[w]);
        }
    }
    allocate(s, kind);
    fill(s, kind, 1);
    for (int i = 0; i < options.ranks; i++) {
        use(&ranks[i]);
        blas(&ranks[i], s, kind, true);
    }
    for (int run = -4; run < options.runs; run++) {
        for (int w = 0; w < WAYS; w++) {
            if (used[w]) {
                ms[w][run < 0 ? 0 : run] = timed((enum way)w, s, kind, &plans[w]);
            }
        }
    }
    if (options.trace != NULL) {
        trace(s, kind, plans, used);
    }
    release();
    printf("%6ld %6ld %6ld %s %s tile %ux%u", s->m, s->n, s->k, kind->bf16 ? "bf16" : "fp16",
           kind->trans_b ? "nt" : "nn", plans[first].map.tile_m, plans[first].map.tile_n);
    if (json != NULL) {
        fprintf(
            json,
            "{\"m\":%ld,\"n\":%ld,\"k\":%ld,\"dtype\":\"%s\",\"layout\":\"%s\",\"tile\":\"%ux%u\"",
            s->m, s->n, s->k, kind->bf16 ? "bf16" : "fp16", kind->trans_b ? "nt" : "nn",
            plans[first].map.tile_m, plans[first].map.tile_n);
    }
    for (int w = 0; w < WAYS; w++) {
        if (used[w]) {
            float m = median(ms[w], options.runs);

            printf("  %s %.4f", way_names[w], m);
            if (json != NULL) {
                fprintf(json, ",\"%s ms\":%.5f,\"%s least\":%.5f", way_names[w], m, way_names[w],
                        ms[w][0]);
            }
            if (w == WAY_ALONE) {
                printf(" (%.3f)", median(ms[WAY_BLAS], options.runs) / m);
            }
        }
    }
    printf("\n");
    fflush(stdout);
    if (json != NULL) {
        fprintf(json, "}\n");
        fflush(json);
    }
}
