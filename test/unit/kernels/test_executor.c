// SPDX-License-Identifier: Apache-2.0
// The protocol on threads: every rank of every node is a thread with an executor of its own, the
// network is a thread per rank that serves its FIFO by copying, with random delays. Results are
// compared for equality, over ranks and with the sum computed in one place.
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/plan.h"
#include "kernels/ref/reference.h"
#include "transport/fifo.h"
#include "transport/order.h"
#include "transport/wait.h"

#include MACHINE /* "executor_cpu.h" or "executor_gpu.h": what runs a call, and its memory */

#define MAX_RANKS 12
#define MAX_CALLS 12
#ifdef SANITIZED
#define EVERY 5 /* of the settings of a call, on each grid others */
#else
#define EVERY 1
#endif

struct shape {
    int64_t m, n, k;
};

/* Everything of one rank. Capacities are those of the largest shape of the test. */
struct rank {
    struct world *world;
    struct gemmar_place place;
    struct machine *machine;
    uint32_t ctas;
    char *partial, *out, *staging[2], *result[2], *recv[2];
    uint64_t *ready, *published, *arrival[2], *staged, *tiles_done;
    const void **recv_of[2];
    const uint64_t **arrival_of[2];
    uint64_t epoch, busy, ctas_done, ticket, heads[2], abort_word, left, tail_seen;
    struct gemmar_trouble trouble;
    struct gemmar_fifo fifo;
    pthread_t nic;
    uint64_t stop;
    uint64_t seed;
    uint64_t sent_bytes, formula_bytes;
    int rc;
};

struct world {
    uint32_t nodes, locals, ranks, algo, dtype;
    struct gemmar_capacity capacity;
    uint32_t rank_of[MAX_RANKS];
    struct rank rank[MAX_RANKS];
    const struct shape *shapes;
    int calls;
    float *want[MAX_CALLS]; /* the results of the calls */
    uint64_t first_epoch;
    bool skew;
    int mute; /* a rank whose network delivers nothing, or -1 */
    uint64_t timeout_ns;
};

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static float entry(uint32_t rank, int call, int what, int64_t i)
{
    uint64_t seed = (uint64_t)i * 6364136223846793005u + rank * 97u + (uint64_t)call * 7919u +
                    (uint64_t)what * 31u + 1;

    (void)next(&seed);
    return (float)((int)(next(&seed) % 3) - 1);
}

static uint64_t window(const struct world *w, uint32_t kind)
{
    return kind == GEMMAR_ROUTE_DIRECT ? w->capacity.slice_bytes : w->capacity.sub_bytes;
}

/* Where routes of a kind with node n arrive, in recv and in arrival (both by parity). */
static uint64_t sink_offset(const struct world *w, uint32_t kind, uint32_t node)
{
    uint64_t direct = w->nodes * w->capacity.slice_bytes, sub = w->capacity.sub_bytes;

    return kind == GEMMAR_ROUTE_DIRECT ? node * w->capacity.slice_bytes
                                       : direct + ((kind - 1) * w->nodes + node) * sub;
}

/* The NIC and the proxy of one rank: serve commands in order, after a random nap. */
static void *serve(void *argument)
{
    struct rank *r = argument;
    struct world *w = r->world;
    uint64_t last = w->first_epoch, seed = r->place.rank + 77;
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, 0);
    while (gemmar_load_acquire(&r->stop) == 0) {
        struct gemmar_fifo_request q;

        if ((int)r->place.rank == w->mute || !gemmar_fifo_peek(&r->fifo, 0, &q)) {
            (void)gemmar_wait_step(&wait);
            continue;
        }
        gemmar_wait_init(&wait, 0);
        if (w->skew && next(&seed) % 4 == 0) {
            (void)sched_yield();
        }
        uint32_t kind = q.route / w->nodes, node = q.route % w->nodes, parity = q.epoch & 1;
        struct rank *to = &w->rank[w->rank_of[node * w->locals + r->place.local]];
        const char *from = kind == GEMMAR_ROUTE_DIRECT ? r->staging[parity]
                           : kind == GEMMAR_ROUTE_SCATTER
                               ? r->staging[parity] + node * w->capacity.sub_bytes
                               : r->result[parity];

        ck_assert_uint_le(q.offset + q.length, window(w, kind));
        memcpy(to->recv[parity] + sink_offset(w, kind, r->place.node) + q.offset, from + q.offset,
               q.length);
        last += (uint64_t)(int64_t)(int32_t)(q.epoch - (uint32_t)last);
        gemmar_store_release(
            &to->arrival[parity][(kind * w->nodes + r->place.node) * w->capacity.slots + q.slot],
            last);
        r->sent_bytes += q.length;
        gemmar_fifo_advance(&r->fifo, 1);
        gemmar_fifo_retire(&r->fifo, r->fifo.head);
    }
    return NULL;
}

static void open_rank(struct world *w, uint32_t index)
{
    struct rank *r = &w->rank[index];
    const struct gemmar_capacity *c = &w->capacity;
    uint32_t routes = GEMMAR_ROUTE_KINDS * w->nodes;

    r->world = w;
    r->place = (struct gemmar_place){index,    w->ranks,          index / w->locals,
                                     w->nodes, index % w->locals, w->locals};
    r->ctas = index % 4 + 1; /* different local facts */
    r->seed = index + 1;
    r->epoch = w->first_epoch;
    r->partial = zeros(c->partial_bytes);
    r->out = zeros(c->partial_bytes);
    r->ready = zeros(8 * c->slots * w->locals);
    r->published = zeros(8 * c->chunks);
    r->staged = zeros(8 * c->slots);
    r->tiles_done = zeros(8 * c->chunks);
    for (int p = 0; p < 2; p++) {
        r->staging[p] = zeros(c->slice_bytes + w->nodes * c->sub_bytes);
        r->result[p] = zeros(c->sub_bytes);
        r->recv[p] = zeros(w->nodes * (c->slice_bytes + 2 * c->sub_bytes));
        r->arrival[p] = zeros(8 * routes * c->slots);
        r->recv_of[p] = zeros(routes * sizeof(void *));
        r->arrival_of[p] = zeros(routes * sizeof(void *));
        for (uint32_t i = 0; i < routes; i++) {
            r->recv_of[p][i] = r->recv[p] + sink_offset(w, i / w->nodes, i % w->nodes);
            r->arrival_of[p][i] = r->arrival[p] + i * c->slots;
        }
    }
    ck_assert_int_eq(gemmar_fifo_open(8, &r->fifo), 0);
    machine_map(r->fifo.ring.base, r->fifo.ring.bytes);
    r->machine = machine_open();
    ck_assert_int_eq(pthread_create(&r->nic, NULL, serve, r), 0);
}

static void close_rank(struct rank *r)
{
    gemmar_store_release(&r->stop, 1);
    (void)pthread_join(r->nic, NULL);
    machine_close(r->machine);
    machine_unmap(r->fifo.ring.base);
    gemmar_fifo_close(&r->fifo);
    for (int p = 0; p < 2; p++) {
        give(r->staging[p]);
        give(r->result[p]);
        give(r->recv[p]);
        give(r->arrival[p]);
        give(r->recv_of[p]);
        give(r->arrival_of[p]);
    }
    give(r->partial);
    give(r->out);
    give(r->ready);
    give(r->published);
    give(r->staged);
    give(r->tiles_done);
}

static struct gemmar_plan plan_of(const struct world *w, const struct shape *s)
{
    struct gemmar_plan_facts facts = {.nodes = w->nodes,
                                      .locals = w->locals,
                                      .algo = w->algo,
                                      .tile_m = 16,
                                      .tile_n = 32,
                                      .chunk_tiles = 2};
    struct gemmar_plan plan;
    char why[128];

    ck_assert_int_eq(gemmar_plan_make(s->m, s->n, s->k, w->dtype, &facts, &plan, why, sizeof(why)),
                     0);
    return plan;
}

static void fill_call(struct rank *r, const struct gemmar_plan *plan, struct gemmar_call *call)
{
    struct world *w = r->world;

    memset(call, 0, sizeof(*call));
    call->map = plan->map;
    call->algo = plan->algo;
    call->place = r->place;
    call->plan = gemmar_plan_local(plan, r->ctas);
    call->rank_of = w->rank_of;
    for (uint32_t g = 0; g < w->locals; g++) {
        struct rank *peer = &w->rank[r->place.node * w->locals + g];

        call->locals[g] = (struct gemmar_local_view){peer->partial, peer->out, peer->ready,
                                                     peer->published, NULL};
    }
    for (int p = 0; p < 2; p++) {
        call->net.staging[p] = r->staging[p];
        call->net.result[p] = r->result[p];
        call->net.recv[p] = r->recv_of[p];
        call->net.arrival[p] = r->arrival_of[p];
    }
    call->net.staging_stride = w->capacity.sub_bytes;
    call->net.ring = r->fifo.ring;
    call->net.ticket = &r->ticket;
    call->net.heads = r->heads;
    call->net.tail_seen = &r->tail_seen;
    call->words = (struct gemmar_rank_words){
        .epoch = &r->epoch,
        .busy = &r->busy,
        .tiles_done = r->tiles_done,
        .staged = r->staged,
        .ctas_done = &r->ctas_done,
        .left = &r->left,
    };
    call->watch = (struct gemmar_watch){
        .abort_word = &r->abort_word, .trouble = &r->trouble, .timeout_ns = w->timeout_ns};
}

/* Element j of the result of a call. */
static float expected(uint32_t ranks, int call, const struct shape *s, int64_t j)
{
    float sum = 0;

    for (uint32_t q = 0; q < ranks; q++) {
        for (int64_t k = 0; k < s->k; k++) {
            sum += entry(q, call, 0, j / s->n * s->k + k) * entry(q, call, 1, k * s->n + j % s->n);
        }
    }
    return sum;
}

/* Once for all ranks: it takes longer than the calls. */
static void compute_wanted(struct world *w)
{
    for (int i = 0; i < w->calls; i++) {
        const struct shape *s = &w->shapes[i];

        w->want[i] = malloc((size_t)(s->m * s->n) * sizeof(float) + 1);
        ck_assert_ptr_nonnull(w->want[i]);
        for (int64_t j = 0; j < s->m * s->n; j++) {
            w->want[i][j] = expected(w->ranks, i, s, j);
        }
    }
}

static void *run_rank(void *argument)
{
    struct rank *r = argument;
    struct world *w = r->world;
    uint32_t bytes = gemmar_dtype_bytes(w->dtype);

    for (int i = 0; i < w->calls && r->rc == 0; i++) {
        const struct shape *s = &w->shapes[i];
        struct gemmar_plan plan = plan_of(w, s);
        struct gemmar_call call;
        char *a = zeros((uint64_t)(s->m * s->k) * bytes),
             *b = zeros((uint64_t)(s->k * s->n) * bytes);
        char *c = zeros((uint64_t)(s->m * s->n) * bytes);

        for (int64_t j = 0; j < s->m * s->k; j++) {
            gemmar_store_element(w->dtype, a, j, entry(r->place.rank, i, 0, j));
        }
        for (int64_t j = 0; j < s->k * s->n; j++) {
            gemmar_store_element(w->dtype, b, j, entry(r->place.rank, i, 1, j));
        }
        fill_call(r, &plan, &call);
        call.operands = (struct gemmar_operands){.a = a,
                                                 .b = b,
                                                 .c = c,
                                                 .k = s->k,
                                                 .lda = s->k,
                                                 .ldb = s->n,
                                                 .ldc = s->n,
                                                 .alpha = 1,
                                                 .dtype = w->dtype};
        if (w->skew && next(&r->seed) % 3 == 0) {
            struct timespec nap = {.tv_nsec = (long)(next(&r->seed) % 2000000)};

            (void)nanosleep(&nap, NULL);
        }
        if (plan.map.chunks > 0) {
            r->rc = machine_run(r->machine, &call);
            r->formula_bytes += (uint64_t)gemmar_map_wire_bytes(
                &plan.map, plan.algo == GEMMAR_ALGO_TWO_SHOT, r->place.node, r->place.local);
        }
        for (int64_t j = 0; r->rc == 0 && j < s->m * s->n; j++) {
            if (gemmar_load_element(w->dtype, c, j) != w->want[i][j]) {
                r->rc = -1000 - i;
            }
        }
        give(a);
        give(b);
        give(c);
    }
    return NULL;
}

static void drain_and_close(struct world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        /* A finished call does not mean finished sends. */
        struct gemmar_wait wait;

        gemmar_wait_init(&wait, UINT64_C(5000000000));
        while (w->mute < 0 && gemmar_load_acquire(w->rank[i].fifo.retired) < w->rank[i].ticket &&
               gemmar_wait_step(&wait)) {
        }
    }
    for (uint32_t i = 0; i < w->ranks; i++) {
        close_rank(&w->rank[i]);
    }
}

static void run_world(struct world *w, uint32_t nodes, uint32_t locals, uint32_t algo,
                      const struct shape *shapes, int calls)
{
    pthread_t thread[MAX_RANKS];

    w->nodes = nodes;
    w->locals = locals;
    w->ranks = nodes * locals;
    w->algo = algo;
    w->shapes = shapes;
    w->calls = calls;
    w->first_epoch = w->first_epoch != 0 ? w->first_epoch : 1;
    w->timeout_ns = w->timeout_ns != 0 ? w->timeout_ns : UINT64_C(60000000000);
    ck_assert_int_le(calls, MAX_CALLS);
    compute_wanted(w);
    memset(&w->capacity, 0, sizeof(w->capacity));
    for (int i = 0; i < calls; i++) {
        struct gemmar_plan plan = plan_of(w, &shapes[i]);
        struct gemmar_capacity need = gemmar_plan_capacity(&plan);

        w->capacity = gemmar_capacity_max(&w->capacity, &need);
    }
    for (uint32_t i = 0; i < w->ranks; i++) {
        w->rank_of[i] = i;
        memset(&w->rank[i], 0, sizeof(w->rank[i]));
        open_rank(w, i);
    }
    for (uint32_t i = 0; i < w->ranks; i++) {
        ck_assert_int_eq(pthread_create(&thread[i], NULL, run_rank, &w->rank[i]), 0);
    }
    for (uint32_t i = 0; i < w->ranks; i++) {
        (void)pthread_join(thread[i], NULL);
    }
    drain_and_close(w);
    for (int i = 0; i < calls; i++) {
        free(w->want[i]);
    }
}

/* One call of each rank with operands that do round, an epilogue and padded rows. */
#define PAD 3

struct rounded {
    struct rank *rank;
    struct gemmar_plan plan;
    struct gemmar_ref_problem problem;
    char *a, *b, *c;
    int rc;
};

static char *random_matrix(uint32_t dtype, int64_t rows, int64_t ld, uint64_t seed)
{
    char *p = zeros((uint64_t)(rows * ld) * gemmar_dtype_bytes(dtype));
    uint64_t state = seed * 2654435761u + 1;

    for (int64_t i = 0; i < rows * ld; i++) {
        gemmar_store_element(dtype, p, i, (float)((int)(next(&state) % 2001) - 1000) / 700.0f);
    }
    return p;
}

static void *run_rounded(void *argument)
{
    struct rounded *t = argument;
    const struct gemmar_ref_problem *p = &t->problem;
    struct gemmar_call call;

    fill_call(t->rank, &t->plan, &call);
    call.operands = (struct gemmar_operands){.a = t->a,
                                             .b = t->b,
                                             .c = t->c,
                                             .bias = p->bias,
                                             .k = p->k,
                                             .lda = p->lda,
                                             .ldb = p->ldb,
                                             .ldc = p->ldc,
                                             .alpha = p->alpha,
                                             .beta = p->beta,
                                             .trans_b = p->trans_b,
                                             .dtype = p->dtype};
    t->rc = machine_run(t->rank->machine, &call);
    return NULL;
}

static void check_rounded(const struct gemmar_ref_problem *p, struct rounded *t, uint32_t ranks)
{
    uint64_t bytes = (uint64_t)(p->m * p->ldc) * gemmar_dtype_bytes(p->dtype);
    double *value = zeros(sizeof(double) * (uint64_t)(p->m * p->n));
    double *bound = zeros(sizeof(double) * (uint64_t)(p->m * p->n));
    char *want = zeros(bytes);

    memcpy(want, p->old_c, bytes); /* what pads the rows stays */
    ck_assert_int_eq(gemmar_ref_protocol(p, want), 0);
    gemmar_ref_exact(p, value, bound);
    for (uint32_t i = 0; i < ranks; i++) {
        ck_assert_int_eq(t[i].rc, 0);
        ck_assert_mem_eq(t[i].c, MACHINE_ADDS_IN_ORDER ? want : t[0].c, bytes);
    }
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double got = gemmar_load_element(p->dtype, t[0].c, i / p->n * p->ldc + i % p->n);

        ck_assert_double_le(got - value[i], bound[i]);
        ck_assert_double_le(value[i] - got, bound[i]);
    }
    give(value);
    give(bound);
    give(want);
}

static void run_rounded_world(struct world *w, const struct shape *s, bool plain)
{
    struct rounded t[MAX_RANKS];
    const void *a[MAX_RANKS], *b[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    struct gemmar_plan plan = plan_of(w, s);
    uint32_t trans = plain ? 0 : 1;
    int64_t ldb = (trans ? s->k : s->n) + PAD;
    char *old = random_matrix(w->dtype, s->m, s->n + PAD, 5);
    char *bias = random_matrix(w->dtype, 1, s->n, 6);
    struct gemmar_ref_problem p = {s->m,
                                   s->n,
                                   s->k,
                                   s->k + PAD,
                                   ldb,
                                   s->n + PAD,
                                   w->dtype,
                                   trans,
                                   w->nodes,
                                   w->locals,
                                   plain ? 1.0f : 0.7f,
                                   plain ? 0.0f : 0.3f,
                                   a,
                                   b,
                                   plain ? NULL : bias,
                                   old};
    uint64_t bytes = (uint64_t)(p.m * p.ldc) * gemmar_dtype_bytes(w->dtype);

    w->capacity = gemmar_plan_capacity(&plan);
    for (uint32_t i = 0; i < w->ranks; i++) {
        w->rank_of[i] = i;
        open_rank(w, i);
        t[i] = (struct rounded){.rank = &w->rank[i], .plan = plan, .problem = p};
        a[i] = t[i].a = random_matrix(w->dtype, s->m, p.lda, 10 + i);
        b[i] = t[i].b = random_matrix(w->dtype, trans ? s->n : s->k, ldb, 40 + i);
        t[i].c = zeros(bytes);
        memcpy(t[i].c, old, bytes);
    }
    for (uint32_t i = 0; i < w->ranks; i++) {
        ck_assert_int_eq(pthread_create(&thread[i], NULL, run_rounded, &t[i]), 0);
    }
    for (uint32_t i = 0; i < w->ranks; i++) {
        (void)pthread_join(thread[i], NULL);
    }
    drain_and_close(w);
    check_rounded(&p, t, w->ranks);
    for (uint32_t i = 0; i < w->ranks; i++) {
        give(t[i].a);
        give(t[i].b);
        give(t[i].c);
    }
    give(old);
    give(bias);
}

static const struct shape mixed[] = {{1, 1, 1},   {40, 70, 9}, {33, 65, 17}, {64, 128, 32},
                                     {0, 5, 3},   {7, 200, 5}, {100, 3, 0},  {130, 40, 12},
                                     {16, 32, 1}, {17, 33, 4}, {90, 90, 2},  {5, 0, 5}};
#define CALLS ((int)(sizeof(mixed) / sizeof(mixed[0])))

static const struct {
    uint32_t nodes, locals;
} grids[] = {{1, 1}, {1, 4}, {2, 1}, {2, 2}, {3, 1}, {4, 2}};

static void check_grid(int index, uint32_t dtype, uint64_t first_epoch, bool skew)
{
    static const uint32_t algos[] = {GEMMAR_ALGO_DIRECT, GEMMAR_ALGO_TWO_SHOT};

    for (int a = 0; a < (grids[index].nodes > 1 ? 2 : 1); a++) {
        struct world *w = zeros(sizeof(*w));

        w->dtype = dtype;
        w->first_epoch = first_epoch;
        w->skew = skew;
        w->mute = -1;
        run_world(w, grids[index].nodes, grids[index].locals, algos[a], mixed, CALLS);
        for (uint32_t i = 0; i < w->ranks; i++) {
            ck_assert_int_eq(w->rank[i].rc, 0);
            ck_assert_uint_eq(w->rank[i].sent_bytes, w->rank[i].formula_bytes);
        }
        give(w);
    }
}

START_TEST(mixed_shapes_are_exact_on_every_grid)
{
    check_grid(_i, GEMMAR_DTYPE_BF16, 1, false);
}
END_TEST

START_TEST(a_slow_rank_is_never_overtaken)
{
    check_grid(_i, GEMMAR_DTYPE_FP32, 1, true);
}
END_TEST

START_TEST(epochs_cross_2_to_the_31_and_32)
{
    check_grid(3, GEMMAR_DTYPE_FP16, (UINT64_C(1) << 31) - 3, true);
    check_grid(5, GEMMAR_DTYPE_FP16, (UINT64_C(1) << 32) - 3, true);
}
END_TEST

/* The ranks have different CTA counts: the bits may depend on nothing but the agreed plan. */
START_TEST(results_round_as_the_reference_does)
{
    static const struct shape shapes[] = {{1, 1, 1}, {40, 70, 300}, {65, 129, 33}, {9, 20, 0}};

    for (int i = _i % EVERY; i < 4 * 3 * 2 * 2; i += EVERY) {
        struct world *w = zeros(sizeof(*w));

        w->nodes = grids[_i].nodes;
        w->locals = grids[_i].locals;
        w->ranks = w->nodes * w->locals;
        w->dtype = (uint32_t)i / 4 % 3;
        w->algo = i / 12 % 2 ? GEMMAR_ALGO_DIRECT : GEMMAR_ALGO_TWO_SHOT;
        w->first_epoch = 1;
        w->mute = -1;
        w->timeout_ns = UINT64_C(60000000000);
        run_rounded_world(w, &shapes[i % 4], i / 24 == 0);
        give(w);
    }
}
END_TEST

START_TEST(a_silent_peer_ends_in_an_error_that_names_it)
{
    struct world *w = zeros(sizeof(*w));

    w->dtype = GEMMAR_DTYPE_BF16;
    w->mute = 1;
    w->timeout_ns = UINT64_C(300000000);
    run_world(w, 2, 1, GEMMAR_ALGO_DIRECT, mixed, 2);
    ck_assert_int_eq(w->rank[0].rc, -EIO);
    ck_assert_uint_eq(w->rank[0].trouble.complete, 1);
    ck_assert_uint_eq(w->rank[0].trouble.stage, GEMMAR_STAGE_ARRIVAL);
    ck_assert_uint_eq(w->rank[0].trouble.rank, 1);
    give(w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("executor");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int count = (int)(sizeof(grids) / sizeof(grids[0]));

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, mixed_shapes_are_exact_on_every_grid, 0, count);
    tcase_add_loop_test(tests, a_slow_rank_is_never_overtaken, 0, count);
    tcase_add_loop_test(tests, results_round_as_the_reference_does, 0, count);
    tcase_add_test(tests, epochs_cross_2_to_the_31_and_32);
    tcase_add_test(tests, a_silent_peer_ends_in_an_error_that_names_it);
    suite_add_tcase(suite, tests);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
