// SPDX-License-Identifier: Apache-2.0
// The checks of checkkernel: C of every rank, as its stream saw it behind the call, against plain
// loops, the bits of all ranks and of two runs, the rows behind C, and that nothing came later.
#include "test/kernel/checkkernel.h"

#include <string.h>

#include "transport/wait.h"

#ifndef START_NS
#define START_NS UINT64_C(500000000) /* of launches */
#endif

uint64_t failures;

/* What one rank has of one turn. */
static struct oracle_verdict verify(int i, int turn, const struct shape *s,
                                    const struct call_kind *kind)
{
    struct rank *r = &ranks[i];
    int64_t ldc = row_length_of_c(s, kind), at = turn * step_of_c(s, kind);
    struct oracle want = {.m = s->m,
                          .n = s->n,
                          .k = s->k,
                          .lda = row_length(s->k, kind),
                          .ldb = row_length(kind->trans_b ? s->k : s->n, kind),
                          .ldc = ldc,
                          .ranks = options.ranks,
                          .locals = options.locals,
                          .bf16 = kind->bf16,
                          .trans_b = kind->trans_b,
                          .alpha = kind->alpha,
                          .beta = kind->beta,
                          .bias = kind->bias ? r->bias : NULL,
                          .before = r->before + (r->before != NULL ? at : 0),
                          .row_step = options.row_step};
    struct oracle_verdict verdict;

    for (int g = 0; g < options.ranks; g++) {
        want.a[g] = ranks[g].a + turn * step_of_a(s, kind);
        want.b[g] = ranks[g].b;
    }
    if (options.row_step == 0) { /* about a second of plain loops */
        double work = (double)s->m * (double)s->n * (double)(s->k + 1) * options.ranks;

        want.row_step = 1 + (int64_t)(work / 4e10);
    }
    use(r);
    must(cudaMemsetAsync(r->verdict, 0, sizeof(*r->verdict), r->stream), "clear");
    must(oracle_check(&want, r->seen + at, options.numbers, r->verdict, r->stream), "check");
    must(oracle_guard(r->seen + at + s->m * ldc, GUARD_ROWS * ldc, POISON, r->verdict, r->stream),
         "guard");
    if (kind->beta == 0) { /* else it was filled */
        must(oracle_padding(r->seen + at, s->m, s->n, ldc, POISON, r->verdict, r->stream),
             "padding");
    }
    must(oracle_same(r->c + at, r->seen + at, step_of_c(s, kind), r->verdict, r->stream), "same");
    must(cudaMemcpyAsync(&verdict, r->verdict, sizeof(verdict), cudaMemcpyDeviceToHost, r->stream),
         "copy");
    must(cudaStreamSynchronize(r->stream), "synchronize");
    return verdict;
}

/* Every turn of every rank, one behind the other. */
static void call_all(const struct shape *s, const struct call_kind *kind,
                     const struct gemmar_plan *plan, uint64_t *random)
{
    for (int call = 0; call < options.turns * options.ranks; call++) {
        int turn = call / options.ranks, i = call % options.ranks;
        int64_t step = step_of_c(s, kind);

        use(&ranks[i]);
        if (options.skew > 0) {
            must(oracle_gate(gate, *gate,
                             (int64_t)(next_random(random) % (uint64_t)options.skew) * 1000,
                             ranks[i].stream),
                 "skew");
        }
        enqueue(i, s, kind, plan, false, turn);
        must(cudaMemcpyAsync(ranks[i].seen + turn * step, ranks[i].c + turn * step,
                             (size_t)step * 2, cudaMemcpyDeviceToDevice, ranks[i].stream),
             "what the stream sees");
    }
}

/* What came of all turns, of all ranks and of two runs. */
struct findings {
    uint64_t wrong, other_bits;
    unsigned long long first;
    float worst;
    unsigned long long hash[MAX_TURNS];
};

static void look(const struct shape *s, const struct call_kind *kind, bool again,
                 struct findings *found)
{
    for (int call = 0; call < options.turns * options.ranks; call++) {
        int turn = call / options.ranks, i = call % options.ranks;
        struct oracle_verdict v = verify(i, turn, s, kind);

        found->wrong += v.wrong;
        found->worst = v.worst > found->worst ? v.worst : found->worst;
        found->first = v.first > found->first ? v.first : found->first;
        if (i == 0 && !again) {
            found->hash[turn] = v.hash;
        }
        found->other_bits += v.hash != found->hash[turn];
    }
}

static const char *name_of(uint32_t algo)
{
    return algo == GEMMAR_ALGO_LOCAL ? "local" : algo == GEMMAR_ALGO_DIRECT ? "direct" : "two-shot";
}

static void report(const struct shape *s, const struct call_kind *kind,
                   const struct gemmar_plan *plan, const struct findings *found, uint64_t carried)
{
    printf("%6ld %6ld %6ld %s %s %s %s alpha %g beta %g bias %d pad %ld copies %u tile %ux%u: %lu "
           "wrong, %lu other bits, worst %.2f of the bound, first %lld, %lu of the network\n",
           s->m, s->n, s->k, kind->bf16 ? "bf16" : "fp16", kind->trans_b ? "nt" : "nn",
           gemmar_strategy_name(plan->tensor.strategy), name_of(plan->algo), kind->alpha,
           kind->beta, kind->bias, kind->pad, kind->copies, plan->map.tile_m, plan->map.tile_n,
           found->wrong, found->other_bits, options.numbers == ORACLE_NORMAL ? found->worst : 0.0,
           (long long)found->first - 1, carried);
    fflush(stdout);
}

void check(const struct shape *s, const struct call_kind *kind, uint32_t algo, int strategy,
           uint64_t seed)
{
    struct gemmar_plan plan = make_plan(s, algo, (uint32_t)options.locals, strategy);
    struct findings found = {0};
    uint64_t random = seed * 77 + 1, carried = 0, failed;
    struct call_kind called = *kind;

    kind = &called;
    if (s->n % 8 != 0) { /* bulk stores cannot write such rows */
        called.copies = GEMMAR_COPIES_ALL;
    }
    if (plan.map.chunks == 0) {
        return;
    }
    want_workspaces(&plan);
    allocate(s, kind);
    for (int run = 0; run < 2; run++) {
        fill(s, kind, seed);
        network_start(&plan, NIC_RUNS);
        call_all(s, kind, &plan, &random);
        wait_all();
        carried += network_stop();
        look(s, kind, run == 1, &found);
    }
    release();
    failed = found.wrong + found.other_bits + carried;
    failures += failed;
    if (failed != 0 || options.random == 0) {
        report(s, kind, &plan, &found, carried);
    }
}

/* Has rank i left its call because the network stood still, and in time? */
static bool left_right(int i, uint64_t took_ns)
{
    const struct gemmar_trouble *t = ranks[i].trouble;
    bool named = t->stage == GEMMAR_STAGE_ARRIVAL && t->rank != (uint32_t)i &&
                 t->rank % (uint32_t)options.locals == (uint32_t)(i % options.locals);

    if (options.hold == NIC_HOLDS_RING) {
        named |= t->stage == GEMMAR_STAGE_FIFO_PUSH && t->rank == (uint32_t)i;
    }
    return *ranks[i].abort_word != 0 && named && took_ns < options.timeout_ns + START_NS;
}

void check_hold(const struct shape *s, const struct call_kind *kind)
{
    uint32_t algo = options.algo != 0 ? options.algo : GEMMAR_ALGO_DIRECT;
    int strategy = options.strategy > 0 ? options.strategy : GEMMAR_STRATEGY_PUSH;
    struct gemmar_plan plan = make_plan(s, algo, (uint32_t)options.locals, strategy);
    uint64_t random = options.seed, took;

    want_workspaces(&plan);
    allocate(s, kind);
    fill(s, kind, options.seed);
    network_start(&plan, options.hold);
    took = gemmar_now_ns();
    call_all(s, kind, &plan, &random);
    synchronize_all();
    took = gemmar_now_ns() - took;
    (void)network_stop();
    for (int i = 0; i < options.ranks; i++) {
        const struct gemmar_trouble *t = ranks[i].trouble;
        bool right = left_right(i, took);

        printf("%ldx%ldx%ld %s held: rank %d %s: stage %u waited %.2f s for rank %u slot %lu: %lu "
               "of %lu\n",
               s->m, s->n, s->k, name_of(algo), i, right ? "left as it should" : "is WRONG",
               t->stage, (double)t->waited_ns * 1e-9, t->rank, t->slot, t->seen, t->expected);
        failures += !right;
    }
    release();
    renew_workspaces();
    check(s, kind, algo, strategy, options.seed);
}

/* Of [0, end); 0 when there is nothing to draw from. */
static int64_t draw(uint64_t *state, int64_t end)
{
    return end > 0 ? (int64_t)(next_random(state) % (uint64_t)end) : 0;
}

void check_random(void)
{
    uint64_t state = options.seed * 2654435761u + 88172645463325252u;

    for (int i = 0; i < options.random; i++) {
        int64_t rows = gemmar_min64(options.most.m, i % 3 == 0 ? 200 : INT64_MAX);
        int64_t n = 1 + draw(&state, options.most.n);
        struct shape s = {1 + draw(&state, rows),
                          i % 2 == 0 ? gemmar_align_up(n, 8) : n, /* what bulk stores can write */
                          draw(&state, options.most.k + 1)};
        static const float alphas[] = {1, 2, -1}; /* -1: results that are -0 */
        struct call_kind kind = {.alpha = alphas[next_random(&state) % 3],
                                 .beta = (float)(next_random(&state) % 2),
                                 .bias = next_random(&state) % 2,
                                 .trans_b = next_random(&state) % 2,
                                 .bf16 = next_random(&state) % 2,
                                 .pad = (int64_t)(next_random(&state) % 3) * 8,
                                 .copies = (uint32_t)(next_random(&state) % 3)};
        int strategies = can(GEMMAR_STRATEGY_EXCHANGE) ? 3 : 2;
        int strategy =
            options.strategy >= 0 ? options.strategy : (int)(next_random(&state) % strategies);
        uint32_t algo = options.nodes == 1  ? GEMMAR_ALGO_LOCAL
                        : options.algo != 0 ? options.algo
                                            : GEMMAR_ALGO_DIRECT + (uint32_t)(i % 2);

        check(&s, &kind, algo, strategy, options.seed + (uint64_t)i);
    }
    printf("%d random shapes, seed %lu: %lu failures\n", options.random, options.seed, failures);
    fflush(stdout);
}
