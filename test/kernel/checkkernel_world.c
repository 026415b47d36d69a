// SPDX-License-Identifier: Apache-2.0
// The ranks of checkkernel: devices, workspaces, operands, calls.
#include "test/kernel/checkkernel.h"

#include <stdlib.h>
#include <string.h>

struct rank ranks[MAX_RANKS];
uint32_t *gate;
static struct gemmar_layout layout;

void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "checkkernel: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

void must_blas(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        fprintf(stderr, "checkkernel: %s: cublas status %d\n", what, (int)status);
        exit(1);
    }
}

void use(const struct rank *r)
{
    must(cudaSetDevice(r->device), "device");
}

void *device_memory(size_t bytes)
{
    void *p;

    must(cudaMalloc(&p, bytes + 256), "allocate");
    return p;
}

int64_t row_length(int64_t columns, const struct call_kind *kind)
{
    return (columns + 7) / 8 * 8 + kind->pad;
}

/* Odd when bulk stores are not to be able to write it. */
int64_t row_length_of_c(const struct shape *s, const struct call_kind *kind)
{
    return row_length(s->n, kind) + (kind->copies == GEMMAR_COPIES_ALL);
}

uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

void open_ranks(void)
{
    int devices;

    if (cudaGetDeviceCount(&devices) != cudaSuccess) {
        fprintf(stderr, "checkkernel: no GPU\n");
        exit(77);
    }
    must(cudaHostAlloc((void **)&gate, 64, cudaHostAllocPortable | cudaHostAllocMapped), "gate");
    for (int i = 0; i < options.ranks; i++) {
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
        if (options.ranks > devices) {
            r->most /= (uint32_t)((options.ranks + devices - 1) / devices);
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
    uint64_t epoch = options.epoch;

    layout = gemmar_layout_make(capacity, 1, (uint32_t)options.ranks);
    for (int i = 0; i < options.ranks; i++) {
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

void want_workspaces(const struct gemmar_capacity *need)
{
    if (!gemmar_capacity_holds(&layout.capacity, need)) {
        struct gemmar_capacity both = gemmar_capacity_max(&layout.capacity, need);

        open_workspaces(&both);
    }
}

struct gemmar_plan make_plan(const struct shape *s, uint32_t locals, int strategy)
{
    struct gemmar_plan_facts facts = {.nodes = 1,
                                      .locals = locals,
                                      .sms = 132,
                                      .tile_m = options.tile_m,
                                      .tile_n = options.tile_n,
                                      .band = options.band,
                                      .lead = options.lead,
                                      .strategy = (uint32_t)strategy + 1};
    struct gemmar_plan plan;
    char why[256];

    for (int i = 0; i < options.ranks; i++) {
        facts.sms = ranks[i].most < facts.sms ? ranks[i].most : facts.sms;
    }
    if (gemmar_plan_make(s->m, s->n, s->k, GEMMAR_DTYPE_BF16, &facts, &plan, why, sizeof(why)) !=
        0) {
        fprintf(stderr, "checkkernel: %s\n", why);
        exit(1);
    }
    return plan;
}

void enqueue(int i, const struct shape *s, const struct call_kind *kind,
             const struct gemmar_plan *plan, bool alone)
{
    struct rank *r = &ranks[i];
    struct gemmar_target targets[MAX_RANKS];
    struct gemmar_call call = {.map = plan->map, .tensor = plan->tensor, .told = 7};
    struct gemmar_words *words = (struct gemmar_words *)(r->workspace + layout.words);

    call.place = (struct gemmar_place){
        .rank = alone ? 0 : (uint32_t)i,
        .ranks = alone ? 1 : (uint32_t)options.ranks,
        .nodes = 1,
        .local = alone ? 0 : (uint32_t)i,
        .locals = alone ? 1 : (uint32_t)options.ranks,
    };
    call.operands = (struct gemmar_operands){
        .a = r->a,
        .b = r->b,
        .c = r->c,
        .bias = kind->bias ? r->bias : NULL,
        .k = s->k,
        .lda = row_length(s->k, kind),
        .ldb = row_length(kind->trans_b ? s->k : s->n, kind),
        .ldc = row_length_of_c(s, kind),
        .alpha = kind->alpha,
        .beta = kind->beta,
        .trans_b = kind->trans_b,
        .dtype = kind->bf16 ? GEMMAR_DTYPE_BF16 : GEMMAR_DTYPE_FP16,
    };
    call.plan = gemmar_plan_local_gpu(plan, r->most, options.ctas);
    call.plan.senders = options.senders >= 0 ? (uint32_t)options.senders : call.plan.senders;
    for (int g = 0; g < options.ranks; g++) {
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
        .abort_word = r->abort_word, .trouble = r->trouble, .timeout_ns = options.timeout_ns};
    must(gemmar_sm90_launch_traced(&call, targets, r->trace, TRACE_ITEMS, r->stream), "launch");
}

void wait_all(void)
{
    for (int i = 0; i < options.ranks; i++) {
        use(&ranks[i]);
        must(cudaStreamSynchronize(ranks[i].stream), "synchronize");
        if (*(volatile uint64_t *)ranks[i].abort_word != 0) {
            const struct gemmar_trouble *t = ranks[i].trouble;

            fprintf(stderr,
                    "checkkernel: rank %d left: stage %u waits for rank %u slot %lu: %lu of %lu\n",
                    i, t->stage, t->rank, t->slot, t->seen, t->expected);
            exit(1);
        }
    }
}

void allocate(const struct shape *s, const struct call_kind *kind)
{
    int64_t rows = s->m + GUARD_ROWS;

    for (int i = 0; i < options.ranks; i++) {
        struct rank *r = &ranks[i];
        int64_t k = row_length(s->k, kind), n = row_length(s->n, kind);
        int64_t c = rows * row_length_of_c(s, kind);

        use(r);
        r->a = device_memory((size_t)(s->m * k) * 2);
        r->b = device_memory((size_t)(kind->trans_b ? s->n * k : s->k * n) * 2);
        r->c = device_memory((size_t)c * 2);
        r->before = kind->beta != 0 ? device_memory((size_t)c * 2) : NULL;
        r->bias = device_memory((size_t)n * 2);
    }
}

void release(void)
{
    for (int i = 0; i < options.ranks; i++) {
        struct rank *r = &ranks[i];

        use(r);
        must(cudaFree(r->a), "free");
        must(cudaFree(r->b), "free");
        must(cudaFree(r->c), "free");
        must(cudaFree(r->before), "free");
        must(cudaFree(r->bias), "free");
    }
}

void fill(const struct shape *s, const struct call_kind *kind, uint64_t seed)
{
    int64_t k = row_length(s->k, kind), n = row_length(s->n, kind);
    int64_t ldc = row_length_of_c(s, kind), c = (s->m + GUARD_ROWS) * ldc;

    for (int i = 0; i < options.ranks; i++) {
        struct rank *r = &ranks[i];
        uint64_t own = seed * 64 + (uint64_t)i * 2;

        use(r);
        must(oracle_fill(r->a, s->m * k, kind->bf16, !options.normal, own, r->stream), "fill");
        must(oracle_fill(r->b, kind->trans_b ? s->n * k : s->k * n, kind->bf16, !options.normal,
                         own + 1, r->stream),
             "fill");
        must(oracle_fill(r->bias, n, kind->bf16, !options.normal, seed * 64 + 62, r->stream),
             "fill");
        must(cudaMemsetAsync(r->c, POISON, (size_t)c * 2, r->stream), "poison");
        if (kind->beta != 0) {
            must(oracle_fill(r->c, s->m * ldc, kind->bf16, !options.normal, seed * 64 + 63,
                             r->stream),
                 "fill");
            must(cudaMemcpyAsync(r->before, r->c, (size_t)c * 2, cudaMemcpyDeviceToDevice,
                                 r->stream),
                 "keep");
        }
        must(cudaStreamSynchronize(r->stream), "synchronize");
    }
}
