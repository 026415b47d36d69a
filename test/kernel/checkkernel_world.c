// SPDX-License-Identifier: Apache-2.0
// The ranks of checkkernel: devices, workspaces, operands, calls.
#include "test/kernel/checkkernel.h"

#include <stdlib.h>
#include <string.h>

/* Pointers of struct rank.views. */
#define VIEWS (4 * GEMMAR_ROUTE_KINDS * MAX_RANKS)

struct rank ranks[MAX_RANKS];
uint32_t *gate;
static struct gemmar_layout layout;
static uint64_t epoch; /* of the next call of all ranks */

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

int64_t step_of_a(const struct shape *s, const struct call_kind *kind)
{
    return row_length(s->k, kind);
}

int64_t step_of_c(const struct shape *s, const struct call_kind *kind)
{
    return (s->m + GUARD_ROWS) * row_length_of_c(s, kind);
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
        if (options.nodes > 1) {
            r->views = device_memory(VIEWS * sizeof(*r->views));
            nic_allocate((uint32_t)i);
        }
        r->lt_workspace = device_memory(64u << 20);
        must_blas(cublasLtCreate(&r->lt), "create");
    }
}

/* Where what other nodes send to rank i arrives. */
static void fill_views(int i)
{
    uint32_t nodes = (uint32_t)options.nodes, routes = GEMMAR_ROUTE_KINDS * nodes;
    uint32_t me = (uint32_t)(i / options.locals);
    const void *views[VIEWS] = {NULL};
    char *base = ranks[i].workspace;

    for (uint32_t v = 0; v < 2 * routes; v++) {
        uint32_t parity = v / routes, kind = v % routes / nodes, node = v % nodes;

        if (node != me) {
            views[v] = base + layout.data + gemmar_layout_sink(&layout, parity, kind, me, node);
            views[2 * routes + v] =
                base + layout.stamps + gemmar_layout_stamps(&layout, parity, kind, me, node);
        }
    }
    must(cudaMemcpy(ranks[i].views, views, sizeof(views), cudaMemcpyHostToDevice), "views");
}

/* Workspaces for the capacity, with stamps of zero and the first epoch. */
static void open_workspaces(const struct gemmar_capacity *capacity)
{
    epoch = options.epoch;
    layout = gemmar_layout_make(capacity, (uint32_t)options.nodes, (uint32_t)options.locals);
    for (int i = 0; i < options.ranks; i++) {
        struct rank *r = &ranks[i];

        use(r);
        must(cudaFree(r->workspace), "free");
        r->workspace = device_memory(layout.bytes);
        must(cudaMemset(r->workspace, 0, layout.bytes), "clear");
        must(cudaMemset(r->workspace + layout.exchange, 0xff, 2 * capacity->exchange_bytes),
             "nothing has come");
        must(cudaMemcpy(&((struct gemmar_words *)(r->workspace + layout.words))->epoch, &epoch, 8,
                        cudaMemcpyHostToDevice),
             "epoch");
        if (options.nodes > 1) {
            fill_views(i);
        }
        must(cudaDeviceSynchronize(), "synchronize");
    }
    if (options.nodes > 1) {
        nic_reset();
    }
}

void want_workspaces(const struct gemmar_plan *plan)
{
    struct gemmar_capacity need = gemmar_plan_capacity(plan);

    if (!gemmar_capacity_holds(&layout.capacity, &need)) {
        struct gemmar_capacity both = gemmar_capacity_max(&layout.capacity, &need);

        open_workspaces(&both);
    }
}

void renew_workspaces(void)
{
    struct gemmar_capacity same = layout.capacity;

    for (int i = 0; i < options.ranks; i++) {
        memset(ranks[i].abort_word, 0, 256); /* and the trouble */
    }
    open_workspaces(&same);
}

bool can(int strategy)
{
    return strategy != GEMMAR_STRATEGY_EXCHANGE || (options.nodes == 1 && options.locals == 2);
}

struct gemmar_plan make_plan(const struct shape *s, uint32_t algo, uint32_t locals, int strategy)
{
    struct gemmar_plan_facts facts = {.nodes =
                                          algo == GEMMAR_ALGO_LOCAL ? 1 : (uint32_t)options.nodes,
                                      .locals = locals,
                                      .algo = algo,
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

/* The part of a call that is about the other nodes. */
static void fill_network(int i, struct gemmar_call *call)
{
    struct rank *r = &ranks[i];
    struct gemmar_words *words = (struct gemmar_words *)(r->workspace + layout.words);
    uint32_t routes = GEMMAR_ROUTE_KINDS * (uint32_t)options.nodes;
    char *data = r->workspace + layout.data;

    for (uint32_t parity = 0; parity < 2; parity++) {
        call->net.staging[parity] = data + layout.staging[parity];
        call->net.result[parity] = data + layout.result[parity];
        call->net.recv[parity] = r->views + parity * routes;
        call->net.arrival[parity] = (const uint64_t *const *)(r->views + (2 + parity) * routes);
    }
    call->net.staging_stride = layout.staging_stride;
    call->net.ring = nic_ring((uint32_t)i);
    call->net.ticket = &words->ticket;
    call->net.heads = words->heads;
    call->net.room = words->room;
    call->net.tail_seen = &words->tail_seen;
}

/* Rank g of the node as rank i sees it, and its C. */
static void fill_local(int i, uint32_t g, const struct call_kind *kind, int64_t c,
                       struct gemmar_call *call, struct gemmar_target *target)
{
    int other = i - (int)call->place.local + (int)g;
    char *base = ranks[other].workspace;

    call->locals[g] = (struct gemmar_local_view){
        .partial = base + layout.partial,
        .out = base + layout.out,
        .ready = (uint64_t *)(base + layout.ready),
        .published = (uint64_t *)(base + layout.published),
        .told = (uint64_t *)(base + layout.told),
    };
    *target = (struct gemmar_target){ranks[other].c + c, call->operands.ldc};
    if (kind->copies == GEMMAR_COPIES_ALL ||
        (kind->copies == GEMMAR_COPIES_FOREIGN && other != i)) {
        *target = (struct gemmar_target){base + layout.out, call->out_ld};
    }
}

static struct gemmar_place place_of(int i, bool alone)
{
    struct gemmar_place place = {.ranks = 1, .nodes = 1, .locals = 1};

    if (!alone) {
        place = (struct gemmar_place){
            .rank = (uint32_t)i,
            .ranks = (uint32_t)options.ranks,
            .node = (uint32_t)(i / options.locals),
            .nodes = (uint32_t)options.nodes,
            .local = (uint32_t)(i % options.locals),
            .locals = (uint32_t)options.locals,
        };
    }
    return place;
}

void enqueue(int i, const struct shape *s, const struct call_kind *kind,
             const struct gemmar_plan *plan, bool alone, int turn)
{
    struct rank *r = &ranks[i];
    struct gemmar_target targets[MAX_RANKS];
    struct gemmar_call call = {.map = plan->map, .tensor = plan->tensor, .told = 7};
    struct gemmar_words *words = (struct gemmar_words *)(r->workspace + layout.words);
    int64_t c = turn * step_of_c(s, kind);

    call.algo = plan->algo;
    call.place = place_of(i, alone);
    call.operands = (struct gemmar_operands){
        .a = r->a + turn * step_of_a(s, kind),
        .b = r->b,
        .c = r->c + c,
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
    call.copies = kind->copies;
    call.out_ld = gemmar_plan_out_ld(s->n);
    for (uint32_t g = 0; g < call.place.locals; g++) {
        fill_local(i, g, kind, c, &call, &targets[g]);
    }
    if (call.place.locals == 2) {
        char *other = ranks[i ^ 1].workspace;

        call.exchange = (struct gemmar_exchange_view){
            .mine = r->workspace + layout.exchange,
            .peers = other + layout.exchange,
            .bytes = layout.capacity.exchange_bytes,
        };
    }
    call.rank_of = r->rank_of;
    call.words = (struct gemmar_rank_words){
        .epoch = &words->epoch,
        .busy = &words->busy,
        .tiles_done = (uint64_t *)(r->workspace + layout.tiles_done),
        .staged = (uint64_t *)(r->workspace + layout.staged),
        .ctas_done = &words->ctas_done,
        .turn_next = &words->turn_next,
        .turn_done = &words->turn_done,
        .copy_next = words->copy_next,
        .left = &words->left,
    };
    if (plan->algo != GEMMAR_ALGO_LOCAL) {
        fill_network(i, &call);
    }
    if (plan->algo == GEMMAR_ALGO_TWO_SHOT) {
        call.tensor.order.first_node = (call.place.node + 1) % call.place.nodes;
    }
    call.watch = (struct gemmar_watch){
        .abort_word = r->abort_word, .trouble = r->trouble, .timeout_ns = options.timeout_ns};
    must(gemmar_sm90_launch(&call, targets, r->trace, TRACE_ITEMS, r->stream), "launch");
}

void network_start(const struct gemmar_plan *plan, enum nic_mode mode)
{
    if (options.nodes > 1) {
        nic_start(&layout, plan, epoch, (uint64_t)options.turns, mode);
    }
    epoch += (uint64_t)options.turns;
}

uint64_t network_stop(void)
{
    uint64_t tickets[MAX_RANKS];

    if (options.nodes == 1) {
        return 0;
    }
    for (int i = 0; i < options.ranks; i++) {
        struct gemmar_words *words = (struct gemmar_words *)(ranks[i].workspace + layout.words);

        must(cudaMemcpy(&tickets[i], &words->ticket, 8, cudaMemcpyDeviceToHost), "ticket");
    }
    return nic_stop(tickets);
}

void synchronize_all(void)
{
    for (int i = 0; i < options.ranks; i++) {
        use(&ranks[i]);
        must(cudaStreamSynchronize(ranks[i].stream), "synchronize");
    }
}

void wait_all(void)
{
    synchronize_all();
    for (int i = 0; i < options.ranks; i++) {
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
    for (int i = 0; i < options.ranks; i++) {
        struct rank *r = &ranks[i];
        int64_t k = row_length(s->k, kind), n = row_length(s->n, kind);
        int64_t c = options.turns * step_of_c(s, kind);

        use(r);
        r->a = device_memory((size_t)((s->m + options.turns) * k) * 2);
        r->b = device_memory((size_t)(kind->trans_b ? s->n * k : s->k * n) * 2);
        r->c = device_memory((size_t)c * 2);
        r->seen = device_memory((size_t)c * 2);
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
        must(cudaFree(r->seen), "free");
        must(cudaFree(r->before), "free");
        must(cudaFree(r->bias), "free");
    }
}

/* C of one turn. */
static void fill_c(struct rank *r, const struct shape *s, const struct call_kind *kind,
                   uint64_t seed, int turn)
{
    int64_t step = step_of_c(s, kind);
    uint16_t *c = r->c + turn * step;

    must(cudaMemsetAsync(c, POISON, (size_t)step * 2, r->stream), "poison");
    if (kind->beta != 0) {
        must(oracle_fill(c, s->m * row_length_of_c(s, kind), kind->bf16, options.numbers,
                         seed * 64 + 63, r->stream),
             "fill");
        must(cudaMemcpyAsync(r->before + turn * step, c, (size_t)step * 2, cudaMemcpyDeviceToDevice,
                             r->stream),
             "keep");
    }
}

void fill(const struct shape *s, const struct call_kind *kind, uint64_t seed)
{
    int64_t k = row_length(s->k, kind), n = row_length(s->n, kind);

    for (int i = 0; i < options.ranks; i++) {
        struct rank *r = &ranks[i];
        uint64_t own = seed * 64 + (uint64_t)i * 2;

        use(r);
        must(oracle_fill(r->a, (s->m + options.turns) * k, kind->bf16, options.numbers, own,
                         r->stream),
             "fill");
        must(oracle_fill(r->b, kind->trans_b ? s->n * k : s->k * n, kind->bf16, options.numbers,
                         own + 1, r->stream),
             "fill");
        must(oracle_fill(r->bias, n, kind->bf16, options.numbers, seed * 64 + 62, r->stream),
             "fill");
        for (int turn = 0; turn < options.turns; turn++) {
            fill_c(r, s, kind, seed, turn);
        }
        must(cudaStreamSynchronize(r->stream), "synchronize");
    }
}
