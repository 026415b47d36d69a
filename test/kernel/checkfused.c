// SPDX-License-Identifier: Apache-2.0
// checkfused: the tensor-core kernel with all its ranks in one process, rank r on GPU r % count.
//
// Checks C of every rank against plain loops (test/kernel/oracle.h), that all ranks and two runs
// have the same bits, and the rows behind C. With --bench it times the product alone, cuBLASLt and
// the fused call, alternating; all ranks start behind one gate, a time is the maximum over ranks.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fused_sm90.h"
#include "kernels/layout.h"
#include "kernels/plan.h"
#include "test/kernel/oracle.h"

#define MAX_RANKS   GEMMAR_MAX_LOCAL_RANKS
#define GUARD_ROWS  3
#define POISON      0xffff
#define MAX_RUNS    101
#define TRACE_ITEMS 64u

struct shape {
    int64_t m, n, k;
};

struct options {
    int ranks;
    uint32_t ctas, tile_m, tile_n, band, lead;
    int strategy; /* enum gemmar_strategy, -1: both */
    int senders;  /* -1: the plan's */
    bool trans_b, bf16, bench, normal;
    int random, runs, mix, skew;
    int64_t row_step;
    uint64_t seed, epoch;
    const char *json, *trace;
};

/* One rank: its device, its workspace and the operands of the current shape. */
struct rank {
    int device;
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *workspace;
    uint32_t *rank_of;
    uint16_t *a, *b, *c, *before, *bias, *expected;
    struct oracle_verdict *verdict;
    uint64_t *abort_word;
    struct gemmar_trouble *trouble;
    uint32_t most;
    uint64_t *trace; /* NULL: none */
    cublasLtHandle_t lt;
    void *lt_workspace;
    cublasLtMatmulAlgo_t algo;
};

struct call_kind {
    float alpha, beta;
    bool bias, trans_b, bf16;
    int64_t pad;     /* elements between rows of every matrix, a multiple of 8 */
    uint32_t copies; /* enum gemmar_copies: can others, can a bulk store write into C? */
};

static struct rank ranks[MAX_RANKS];
static struct options o;
static uint32_t *gate;
static struct gemmar_layout layout;
static uint64_t failures;
static FILE *json;

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "checkfused: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

static void must_blas(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        fprintf(stderr, "checkfused: %s: cublas status %d\n", what, (int)status);
        exit(1);
    }
}

static void use(const struct rank *r)
{
    must(cudaSetDevice(r->device), "device");
}

/* Elements from row to row of C: odd when bulk stores are not to be able to write it. */
static int64_t ld_of_c(const struct shape *s, const struct call_kind *kind)
{
    return (s->n + 7) / 8 * 8 + kind->pad + (kind->copies == GEMMAR_COPIES_ALL);
}

static void *device_memory(size_t bytes)
{
    void *p;

    must(cudaMalloc(&p, bytes + 256), "allocate");
    return p;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* ---- the world ------------------------------------------------------------------------------ */

static void open_ranks(void)
{
    int devices;

    must(cudaGetDeviceCount(&devices), "count devices");
    must(cudaHostAlloc((void **)&gate, 64, cudaHostAllocPortable | cudaHostAllocMapped), "gate");
    for (int i = 0; i < o.ranks; i++) {
        struct rank *r = &ranks[i];
        uint32_t rank_of[MAX_RANKS];

        r->device = i % devices;
        use(r);
        for (int d = 0; d < devices && i < devices; d++) {
            if (d != r->device) {
                must(cudaDeviceEnablePeerAccess(d, 0), "peer access");
            }
        }
        must(oracle_load(), "load");
        must(gemmar_sm90_load(&r->most), "load");
        if (o.ranks > devices) {
            r->most /= (uint32_t)((o.ranks + devices - 1) / devices);
        }
        must(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "stream");
        must(cudaEventCreate(&r->from), "event");
        must(cudaEventCreate(&r->to), "event");
        for (uint32_t j = 0; j < MAX_RANKS; j++) {
            rank_of[j] = j;
        }
        r->rank_of = device_memory(sizeof(rank_of));
        must(cudaMemcpy(r->rank_of, rank_of, sizeof(rank_of), cudaMemcpyHostToDevice), "copy");
        r->verdict = device_memory(sizeof(*r->verdict));
        must(cudaHostAlloc((void **)&r->abort_word, 256,
                           cudaHostAllocPortable | cudaHostAllocMapped),
             "abort word");
        memset(r->abort_word, 0, 256);
        r->trouble = (struct gemmar_trouble *)(r->abort_word + 8);
        r->lt_workspace = device_memory(64u << 20);
        must_blas(cublasLtCreate(&r->lt), "create");
    }
}

/* Workspaces for the capacity, with stamps of zero and the first epoch. */
static void open_workspaces(const struct gemmar_capacity *capacity)
{
    uint64_t epoch = o.epoch;

    layout = gemmar_layout_make(capacity, 1, (uint32_t)o.ranks);
    for (int i = 0; i < o.ranks; i++) {
        struct rank *r = &ranks[i];

        use(r);
        must(cudaFree(r->workspace), "free");
        r->workspace = device_memory(layout.bytes);
        must(cudaMemset(r->workspace, 0, layout.bytes), "clear");
        must(cudaMemcpy(&((struct gemmar_words *)(r->workspace + layout.words))->epoch, &epoch, 8,
                        cudaMemcpyHostToDevice),
             "epoch");
        must(cudaDeviceSynchronize(), "synchronize");
    }
}

static struct gemmar_plan make_plan(const struct shape *s, uint32_t locals, int strategy)
{
    struct gemmar_plan_facts facts = {.nodes = 1,
                                      .locals = locals,
                                      .sms = 132,
                                      .tile_m = o.tile_m,
                                      .tile_n = o.tile_n,
                                      .band = o.band,
                                      .lead = o.lead,
                                      .strategy = (uint32_t)strategy + 1};
    struct gemmar_plan plan;
    char why[256];

    for (int i = 0; i < o.ranks; i++) {
        facts.sms = ranks[i].most < facts.sms ? ranks[i].most : facts.sms;
    }
    if (gemmar_plan_make(s->m, s->n, s->k, GEMMAR_DTYPE_BF16, &facts, &plan, why, sizeof(why)) !=
        0) {
        fprintf(stderr, "checkfused: %s\n", why);
        exit(1);
    }
    return plan;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* alone: the rank's own product, without the others. */
static void enqueue(int i, const struct shape *s, const struct call_kind *kind,
                    const struct gemmar_plan *plan, bool alone)
{
    struct rank *r = &ranks[i];
    struct gemmar_target targets[MAX_RANKS];
    struct gemmar_call call = {.map = plan->map, .tensor = plan->tensor, .told = 7};
    struct gemmar_words *words = (struct gemmar_words *)(r->workspace + layout.words);

    call.place = (struct gemmar_place){
        .rank = alone ? 0 : (uint32_t)i,
        .ranks = alone ? 1 : (uint32_t)o.ranks,
        .nodes = 1,
        .local = alone ? 0 : (uint32_t)i,
        .locals = alone ? 1 : (uint32_t)o.ranks,
    };
    call.operands = (struct gemmar_operands){
        .a = r->a,
        .b = r->b,
        .c = r->c,
        .bias = kind->bias ? r->bias : NULL,
        .k = s->k,
        .lda = (s->k + 7) / 8 * 8 + kind->pad,
        .ldb = ((kind->trans_b ? s->k : s->n) + 7) / 8 * 8 + kind->pad,
        .ldc = ld_of_c(s, kind),
        .alpha = kind->alpha,
        .beta = kind->beta,
        .trans_b = kind->trans_b,
        .dtype = kind->bf16 ? GEMMAR_DTYPE_BF16 : GEMMAR_DTYPE_FP16,
    };
    call.plan = gemmar_plan_local_gpu(plan, r->most, o.ctas);
    call.plan.senders = o.senders >= 0 ? (uint32_t)o.senders : call.plan.senders;
    for (int g = 0; g < o.ranks; g++) {
        char *base = ranks[g].workspace;

        call.locals[g] = (struct gemmar_local_view){
            .partial = base + layout.partial,
            .out = base + layout.out,
            .ready = (uint64_t *)(base + layout.ready),
            .published = (uint64_t *)(base + layout.published),
            .told = (uint64_t *)(base + layout.told),
        };
        targets[g] = (struct gemmar_target){ranks[alone ? i : g].c, call.operands.ldc};
        if (kind->copies == GEMMAR_COPIES_ALL ||
            (kind->copies == GEMMAR_COPIES_FOREIGN && g != i)) {
            targets[g] = (struct gemmar_target){base + layout.out, gemmar_plan_out_ld(s->n)};
        }
    }
    call.copies = kind->copies;
    call.out_ld = gemmar_plan_out_ld(s->n);
    call.rank_of = r->rank_of;
    call.words.epoch = &words->epoch;
    call.words.busy = &words->busy;
    call.words.ctas_done = &words->ctas_done;
    call.words.turn_next = &words->turn_next;
    call.words.turn_done = &words->turn_done;
    call.words.copy_next = words->copy_next;
    call.watch = (struct gemmar_watch){
        .abort_word = r->abort_word, .trouble = r->trouble, .timeout_ns = UINT64_C(3000000000)};
    must(gemmar_sm90_launch_traced(&call, targets, r->trace, TRACE_ITEMS, r->stream), "launch");
}

static void wait_all(void)
{
    for (int i = 0; i < o.ranks; i++) {
        use(&ranks[i]);
        must(cudaStreamSynchronize(ranks[i].stream), "synchronize");
        if (*(volatile uint64_t *)ranks[i].abort_word != 0) {
            const struct gemmar_trouble *t = ranks[i].trouble;

            fprintf(stderr,
                    "checkfused: rank %d left: stage %u waits for rank %u slot %lu: %lu of %lu\n",
                    i, t->stage, t->rank, t->slot, t->seen, t->expected);
            exit(1);
        }
    }
}

static void allocate(const struct shape *s, const struct call_kind *kind)
{
    int64_t rows = s->m + GUARD_ROWS;

    for (int i = 0; i < o.ranks; i++) {
        struct rank *r = &ranks[i];
        int64_t k = (s->k + 7) / 8 * 8 + kind->pad, n = (s->n + 7) / 8 * 8 + kind->pad;
        int64_t c = rows * ld_of_c(s, kind);

        use(r);
        r->a = device_memory((size_t)(s->m * k) * 2);
        r->b = device_memory((size_t)(kind->trans_b ? s->n * k : s->k * n) * 2);
        r->c = device_memory((size_t)c * 2);
        r->before = kind->beta != 0 ? device_memory((size_t)c * 2) : NULL;
        r->bias = device_memory((size_t)n * 2);
    }
}

static void release(void)
{
    for (int i = 0; i < o.ranks; i++) {
        struct rank *r = &ranks[i];

        use(r);
        must(cudaFree(r->a), "free");
        must(cudaFree(r->b), "free");
        must(cudaFree(r->c), "free");
        must(cudaFree(r->before), "free");
        must(cudaFree(r->bias), "free");
    }
}

static void fill(const struct shape *s, const struct call_kind *kind, uint64_t seed)
{
    int64_t k = (s->k + 7) / 8 * 8 + kind->pad, n = (s->n + 7) / 8 * 8 + kind->pad;
    int64_t ldc = ld_of_c(s, kind), c = (s->m + GUARD_ROWS) * ldc;

    for (int i = 0; i < o.ranks; i++) {
        struct rank *r = &ranks[i];
        uint64_t own = seed * 64 + (uint64_t)i * 2;

        use(r);
        must(oracle_fill(r->a, s->m * k, kind->bf16, !o.normal, own, r->stream), "fill");
        must(oracle_fill(r->b, kind->trans_b ? s->n * k : s->k * n, kind->bf16, !o.normal, own + 1,
                         r->stream),
             "fill");
        must(oracle_fill(r->bias, n, kind->bf16, !o.normal, seed * 64 + 62, r->stream), "fill");
        must(cudaMemsetAsync(r->c, POISON, (size_t)c * 2, r->stream), "poison");
        if (kind->beta != 0) {
            must(oracle_fill(r->c, s->m * ldc, kind->bf16, !o.normal, seed * 64 + 63, r->stream),
                 "fill");
            must(cudaMemcpyAsync(r->before, r->c, (size_t)c * 2, cudaMemcpyDeviceToDevice,
                                 r->stream),
                 "keep");
        }
        must(cudaStreamSynchronize(r->stream), "synchronize");
    }
}

/* One checked call. */
static struct oracle_verdict verify(int i, const struct shape *s, const struct call_kind *kind)
{
    struct rank *r = &ranks[i];
    int64_t ldc = ld_of_c(s, kind);
    struct oracle want = {.m = s->m,
                          .n = s->n,
                          .k = s->k,
                          .lda = (s->k + 7) / 8 * 8 + kind->pad,
                          .ldb = ((kind->trans_b ? s->k : s->n) + 7) / 8 * 8 + kind->pad,
                          .ldc = ldc,
                          .ranks = o.ranks,
                          .bf16 = kind->bf16,
                          .trans_b = kind->trans_b,
                          .alpha = kind->alpha,
                          .beta = kind->beta,
                          .bias = kind->bias ? r->bias : NULL,
                          .before = r->before,
                          .row_step = o.row_step};
    struct oracle_verdict verdict;

    for (int g = 0; g < o.ranks; g++) {
        want.a[g] = ranks[g].a;
        want.b[g] = ranks[g].b;
    }
    if (o.row_step == 0) { /* about a second of plain loops */
        double work = (double)s->m * (double)s->n * (double)(s->k + 1) * o.ranks;

        want.row_step = 1 + (int64_t)(work / 4e10);
    }
    use(r);
    must(cudaMemsetAsync(r->verdict, 0, sizeof(*r->verdict), r->stream), "clear");
    must(oracle_check(&want, r->c, !o.normal, r->verdict, r->stream), "check");
    must(oracle_guard(r->c + s->m * ldc, GUARD_ROWS * ldc, POISON, r->verdict, r->stream), "guard");
    must(cudaMemcpyAsync(&verdict, r->verdict, sizeof(verdict), cudaMemcpyDeviceToHost, r->stream),
         "copy");
    must(cudaStreamSynchronize(r->stream), "synchronize");
    return verdict;
}

static void call_all(const struct shape *s, const struct call_kind *kind,
                     const struct gemmar_plan *plan, uint64_t *random)
{
    for (int i = 0; i < o.ranks; i++) {
        use(&ranks[i]);
        if (o.skew > 0) {
            must(oracle_gate(gate, *gate, (int64_t)(next_random(random) % (uint64_t)o.skew) * 1000,
                             ranks[i].stream),
                 "skew");
        }
        enqueue(i, s, kind, plan, false);
    }
}

static void check(const struct shape *s, const struct call_kind *kind, int strategy, uint64_t seed)
{
    struct gemmar_plan plan = make_plan(s, (uint32_t)o.ranks, strategy);
    struct gemmar_capacity need = gemmar_plan_capacity(&plan);
    struct oracle_verdict first = {0}, again = {0};
    uint64_t random = seed * 77 + 1, wrong = 0;
    float worst = 0;

    if (plan.map.chunks == 0) {
        return;
    }
    if (!gemmar_capacity_holds(&layout.capacity, &need)) {
        need = gemmar_capacity_max(&layout.capacity, &need);
        open_workspaces(&need);
    }
    allocate(s, kind);
    for (int run = 0; run < 2; run++) {
        fill(s, kind, seed);
        call_all(s, kind, &plan, &random);
        wait_all();
        for (int i = 0; i < o.ranks; i++) {
            struct oracle_verdict v = verify(i, s, kind);

            wrong += v.wrong;
            worst = v.worst > worst ? v.worst : worst;
            if (i == 0 && run == 0) {
                first = v;
            }
            again.wrong += v.hash != first.hash;
            first.first = v.first > first.first ? v.first : first.first;
        }
    }
    release();
    failures += wrong + again.wrong;
    if (wrong + again.wrong != 0 || o.random == 0) {
        printf("%6ld %6ld %6ld %s %s %s alpha %g beta %g bias %d pad %ld copies %u tile %ux%u: %lu "
               "wrong, %llu "
               "other bits, worst %.2f of the bound, first %lld\n",
               s->m, s->n, s->k, kind->bf16 ? "bf16" : "fp16", kind->trans_b ? "nt" : "nn",
               strategy == GEMMAR_STRATEGY_PULL ? "pull" : "push", kind->alpha, kind->beta,
               kind->bias, kind->pad, kind->copies, plan.map.tile_m, plan.map.tile_n, wrong,
               again.wrong, o.normal ? worst : 0.0, (long long)first.first - 1);
        fflush(stdout);
    }
}

/* ---- times ---------------------------------------------------------------------------------- */

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

enum way { WAY_BLAS, WAY_ALONE, WAY_PUSH, WAY_PULL, WAYS };
static const char *const way_names[WAYS] = {"cublaslt", "gemm alone", "push", "pull"};

static float timed(enum way way, const struct shape *s, const struct call_kind *kind,
                   const struct gemmar_plan *plan)
{
    static uint32_t round;
    float worst = 0;

    round++;
    for (int i = 0; i < o.ranks; i++) {
        struct rank *r = &ranks[i];

        use(r);
        must(oracle_gate(gate, round, 0, r->stream), "gate");
        must(cudaEventRecord(r->from, r->stream), "record");
        if (way == WAY_BLAS) {
            blas(r, s, kind, false);
        } else {
            enqueue(i, s, kind, plan, way == WAY_ALONE);
        }
        must(cudaEventRecord(r->to, r->stream), "record");
    }
    *(volatile uint32_t *)gate = round;
    wait_all();
    for (int i = 0; i < o.ranks; i++) {
        float ms;

        must(cudaEventElapsedTime(&ms, ranks[i].from, ranks[i].to), "elapsed");
        worst = ms > worst ? ms : worst;
    }
    return worst;
}

/* One more call of each way, with its events in a file: GPU, way, CTA, tile, then the events. */
static void trace(const struct shape *s, const struct call_kind *kind,
                  const struct gemmar_plan *plans)
{
    size_t words = (size_t)132 * TRACE_ITEMS * GEMMAR_TRACE_EVENTS;
    uint64_t *host = malloc(words * 8);
    FILE *file = fopen(o.trace, "a");

    for (int w = WAY_ALONE; w <= WAY_PUSH; w++) {
        for (int i = 0; i < o.ranks; i++) {
            use(&ranks[i]);
            ranks[i].trace = device_memory(words * 8);
            must(cudaMemset(ranks[i].trace, 0, words * 8), "clear");
            must(cudaDeviceSynchronize(), "synchronize");
        }
        (void)timed((enum way)w, s, kind, &plans[w]);
        for (int i = 0; i < o.ranks; i++) {
            use(&ranks[i]);
            must(cudaMemcpy(host, ranks[i].trace, words * 8, cudaMemcpyDeviceToHost), "copy");
            must(cudaFree(ranks[i].trace), "free");
            ranks[i].trace = NULL;
            for (size_t at = 0; at < words; at += GEMMAR_TRACE_EVENTS) {
                if (host[at] == 0) {
                    continue;
                }
                fprintf(file, "%ldx%ldx%ld %d %s %zu %zu", s->m, s->n, s->k, i, way_names[w],
                        at / GEMMAR_TRACE_EVENTS / TRACE_ITEMS,
                        at / GEMMAR_TRACE_EVENTS % TRACE_ITEMS);
                for (int e = 0; e < GEMMAR_TRACE_EVENTS; e++) {
                    fprintf(file, " %lu", host[at + (size_t)e]);
                }
                fprintf(file, "\n");
            }
        }
    }
    fclose(file);
    free(host);
}

static void bench(const struct shape *s, const struct call_kind *kind)
{
    struct gemmar_plan plans[WAYS] = {
        [WAY_ALONE] = make_plan(s, 1, GEMMAR_STRATEGY_PUSH),
        [WAY_PUSH] = make_plan(s, (uint32_t)o.ranks, GEMMAR_STRATEGY_PUSH),
        [WAY_PULL] = make_plan(s, (uint32_t)o.ranks, GEMMAR_STRATEGY_PULL),
    };
    struct gemmar_capacity need = layout.capacity;
    static float ms[WAYS][MAX_RUNS];
    bool used[WAYS] = {true, true, o.strategy != GEMMAR_STRATEGY_PULL,
                       o.strategy != GEMMAR_STRATEGY_PUSH};

    for (int w = WAY_ALONE; w < WAYS; w++) {
        struct gemmar_capacity c = gemmar_plan_capacity(&plans[w]);

        need = gemmar_capacity_max(&need, &c);
    }
    if (!gemmar_capacity_holds(&layout.capacity, &need)) {
        open_workspaces(&need);
    }
    allocate(s, kind);
    fill(s, kind, 1);
    for (int i = 0; i < o.ranks; i++) {
        use(&ranks[i]);
        blas(&ranks[i], s, kind, true);
    }
    for (int run = -4; run < o.runs; run++) {
        for (int w = 0; w < WAYS; w++) {
            if (used[w]) {
                ms[w][run < 0 ? 0 : run] = timed((enum way)w, s, kind, &plans[w]);
            }
        }
    }
    if (o.trace != NULL) {
        trace(s, kind, plans);
    }
    release();
    printf("%6ld %6ld %6ld %s %s tile %ux%u", s->m, s->n, s->k, kind->bf16 ? "bf16" : "fp16",
           kind->trans_b ? "nt" : "nn", plans[WAY_PUSH].map.tile_m, plans[WAY_PUSH].map.tile_n);
    if (json != NULL) {
        fprintf(
            json,
            "{\"m\":%ld,\"n\":%ld,\"k\":%ld,\"dtype\":\"%s\",\"layout\":\"%s\",\"tile\":\"%ux%u\"",
            s->m, s->n, s->k, kind->bf16 ? "bf16" : "fp16", kind->trans_b ? "nt" : "nn",
            plans[WAY_PUSH].map.tile_m, plans[WAY_PUSH].map.tile_n);
    }
    for (int w = 0; w < WAYS; w++) {
        if (used[w]) {
            float m = median(ms[w], o.runs);

            printf("  %s %.4f", way_names[w], m);
            if (json != NULL) {
                fprintf(json, ",\"%s ms\":%.5f,\"%s least\":%.5f", way_names[w], m, way_names[w],
                        ms[w][0]);
            }
            if (w == WAY_ALONE) {
                printf(" (%.3f)", median(ms[WAY_BLAS], o.runs) / m);
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

/* ---- the program ---------------------------------------------------------------------------- */

static void check_random(void)
{
    uint64_t state = o.seed * 2654435761u + 88172645463325252u;

    for (int i = 0; i < o.random; i++) {
        struct shape s = {1 + (int64_t)(next_random(&state) % (i % 3 == 0 ? 200 : 1500)),
                          1 + (int64_t)(next_random(&state) % 1500),
                          (int64_t)(next_random(&state) % 700)};
        struct call_kind kind = {.alpha = (float)(1 + next_random(&state) % 2),
                                 .beta = (float)(next_random(&state) % 2),
                                 .bias = next_random(&state) % 2,
                                 .trans_b = next_random(&state) % 2,
                                 .bf16 = next_random(&state) % 2,
                                 .pad = (int64_t)(next_random(&state) % 3) * 8,
                                 .copies = (uint32_t)(next_random(&state) % 3)};
        int strategy = o.strategy >= 0 ? o.strategy : (int)(next_random(&state) % 2);

        check(&s, &kind, strategy, o.seed + (uint64_t)i);
    }
    printf("%d random shapes, seed %lu: %lu failures\n", o.random, o.seed, failures);
    fflush(stdout);
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: checkfused [--ranks R] [--ctas N] [--strategy push|pull] [--tile MxN] [--band B]"
        " [--nn] [--fp16] [--normal] [--random N] [--seed S] [--epoch E] [--skew KCYCLES]"
        " [--row-step N] [--bench] [--runs N] [--json FILE] [--trace FILE] [--senders N] [--lead "
        "N] "
        "[MxNxK]...\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"ranks", required_argument, NULL, 'r'},
        {"ctas", required_argument, NULL, 'c'},
        {"strategy", required_argument, NULL, 's'},
        {"tile", required_argument, NULL, 't'},
        {"band", required_argument, NULL, 'B'},
        {"nn", no_argument, NULL, 'n'},
        {"fp16", no_argument, NULL, 'h'},
        {"normal", no_argument, NULL, 'N'},
        {"random", required_argument, NULL, 'R'},
        {"seed", required_argument, NULL, 'S'},
        {"epoch", required_argument, NULL, 'e'},
        {"skew", required_argument, NULL, 'k'},
        {"row-step", required_argument, NULL, 'w'},
        {"bench", no_argument, NULL, 'b'},
        {"runs", required_argument, NULL, 'u'},
        {"json", required_argument, NULL, 'j'},
        {"trace", required_argument, NULL, 'T'},
        {"senders", required_argument, NULL, 'x'},
        {"lead", required_argument, NULL, 'l'},
        {"copies", required_argument, NULL, 'C'},
        {NULL, 0, NULL, 0},
    };
    struct call_kind kind = {.alpha = 1};
    int c;

    o = (struct options){.ranks = 2,
                         .strategy = -1,
                         .senders = -1,
                         .trans_b = true,
                         .bf16 = true,
                         .runs = 15,
                         .seed = 1,
                         .epoch = 1};
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'r': o.ranks = atoi(optarg); break;
        case 'c': o.ctas = (uint32_t)atoi(optarg); break;
        case 's': o.strategy = strcmp(optarg, "pull") == 0; break;
        case 't':
            if (sscanf(optarg, "%ux%u", &o.tile_m, &o.tile_n) != 2) {
                return usage();
            }
            break;
        case 'B': o.band = (uint32_t)atoi(optarg); break;
        case 'n': o.trans_b = false; break;
        case 'h': o.bf16 = false; break;
        case 'N': o.normal = true; break;
        case 'R': o.random = atoi(optarg); break;
        case 'S': o.seed = strtoull(optarg, NULL, 0); break;
        case 'e': o.epoch = strtoull(optarg, NULL, 0); break;
        case 'k': o.skew = atoi(optarg); break;
        case 'w': o.row_step = atoi(optarg); break;
        case 'b': o.bench = true; break;
        case 'u': o.runs = atoi(optarg) < MAX_RUNS ? atoi(optarg) : MAX_RUNS; break;
        case 'j': o.json = optarg; break;
        case 'T': o.trace = optarg; break;
        case 'l': o.lead = (uint32_t)atoi(optarg); break;
        case 'C': kind.copies = (uint32_t)atoi(optarg); break;
        case 'x': o.senders = atoi(optarg); break;
        default: return usage();
        }
    }
    if (o.ranks < 1 || o.ranks > MAX_RANKS) {
        return usage();
    }
    json = o.json != NULL ? fopen(o.json, "a") : NULL;
    open_ranks();
    kind.trans_b = o.trans_b;
    kind.bf16 = o.bf16;
    if (o.random > 0) {
        check_random();
    }
    for (int i = optind; i < argc; i++) {
        struct shape s;

        if (sscanf(argv[i], "%ldx%ldx%ld", &s.m, &s.n, &s.k) != 3) {
            return usage();
        }
        if (o.bench) {
            bench(&s, &kind);
            continue;
        }
        for (int strategy = 0; strategy < 2; strategy++) {
            if (o.strategy < 0 || o.strategy == strategy) {
                check(&s, &kind, strategy, o.seed);
            }
        }
    }
    if (json != NULL) {
        fclose(json);
    }
    printf("%lu failures\n", failures);
    return failures != 0;
}
