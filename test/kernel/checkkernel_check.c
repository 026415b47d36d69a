// SPDX-License-Identifier: Apache-2.0
// The checks of checkkernel: C of every rank against plain loops, the bits of all ranks and of two
// runs, and the rows behind C.
#include "test/kernel/checkkernel.h"

#include <string.h>

uint64_t failures;

/* One checked call. */
static struct oracle_verdict verify(int i, const struct shape *s, const struct call_kind *kind)
{
    struct rank *r = &ranks[i];
    int64_t ldc = row_length_of_c(s, kind);
    struct oracle want = {.m = s->m,
                          .n = s->n,
                          .k = s->k,
                          .lda = row_length(s->k, kind),
                          .ldb = row_length(kind->trans_b ? s->k : s->n, kind),
                          .ldc = ldc,
                          .ranks = options.ranks,
                          .bf16 = kind->bf16,
                          .trans_b = kind->trans_b,
                          .alpha = kind->alpha,
                          .beta = kind->beta,
                          .bias = kind->bias ? r->bias : NULL,
                          .before = r->before,
                          .row_step = options.row_step};
    struct oracle_verdict verdict;

    for (int g = 0; g < options.ranks; g++) {
        want.a[g] = ranks[g].a;
        want.b[g] = ranks[g].b;
    }
    if (options.row_step == 0) { /* about a second of plain loops */
        double work = (double)s->m * (double)s->n * (double)(s->k + 1) * options.ranks;

        want.row_step = 1 + (int64_t)(work / 4e10);
    }
    use(r);
    must(cudaMemsetAsync(r->verdict, 0, sizeof(*r->verdict), r->stream), "clear");
    must(oracle_check(&want, r->c, !options.normal, r->verdict, r->stream), "check");
    must(oracle_guard(r->c + s->m * ldc, GUARD_ROWS * ldc, POISON, r->verdict, r->stream), "guard");
    must(cudaMemcpyAsync(&verdict, r->verdict, sizeof(verdict), cudaMemcpyDeviceToHost, r->stream),
         "copy");
    must(cudaStreamSynchronize(r->stream), "synchronize");
    return verdict;
}

static void call_all(const struct shape *s, const struct call_kind *kind,
                     const struct gemmar_plan *plan, uint64_t *random)
{
    for (int i = 0; i < options.ranks; i++) {
        use(&ranks[i]);
        if (options.skew > 0) {
            must(oracle_gate(gate, *gate,
                             (int64_t)(next_random(random) % (uint64_t)options.skew) * 1000,
                             ranks[i].stream),
                 "skew");
        }
        enqueue(i, s, kind, plan, false);
    }
}

void check(const struct shape *s, const struct call_kind *kind, int strategy, uint64_t seed)
{
    struct gemmar_plan plan = make_plan(s, (uint32_t)options.ranks, strategy);
    struct gemmar_capacity need = gemmar_plan_capacity(&plan);
    struct oracle_verdict first = {0}, again = {0};
    uint64_t random = seed * 77 + 1, wrong = 0;
    float worst = 0;

    if (plan.map.chunks == 0) {
        return;
    }
    want_workspaces(&need);
    allocate(s, kind);
    for (int run = 0; run < 2; run++) {
        fill(s, kind, seed);
        call_all(s, kind, &plan, &random);
        wait_all();
        for (int i = 0; i < options.ranks; i++) {
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
    if (wrong + again.wrong != 0 || options.random == 0) {
        printf("%6ld %6ld %6ld %s %s %s alpha %g beta %g bias %d pad %ld copies %u tile %ux%u: %lu "
               "wrong, %llu "
               "other bits, worst %.2f of the bound, first %lld\n",
               s->m, s->n, s->k, kind->bf16 ? "bf16" : "fp16", kind->trans_b ? "nt" : "nn",
               strategy == GEMMAR_STRATEGY_PULL ? "pull" : "push", kind->alpha, kind->beta,
               kind->bias, kind->pad, kind->copies, plan.map.tile_m, plan.map.tile_n, wrong,
               again.wrong, options.normal ? worst : 0.0, (long long)first.first - 1);
        fflush(stdout);
    }
}

void check_random(void)
{
    uint64_t state = options.seed * 2654435761u + 88172645463325252u;

    for (int i = 0; i < options.random; i++) {
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
        int strategy = options.strategy >= 0 ? options.strategy : (int)(next_random(&state) % 2);

        check(&s, &kind, strategy, options.seed + (uint64_t)i);
    }
    printf("%d random shapes, seed %lu: %lu failures\n", options.random, options.seed, failures);
    fflush(stdout);
}
