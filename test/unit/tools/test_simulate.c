// SPDX-License-Identifier: Apache-2.0
// Forecasts: what must hold of them on any machine, and where somebody has measured.
#include <math.h>
#include <string.h>

#include "kernels/parts.h"
#include "test/unit/tools/tap.h"
#include "tools/gemmar_perf/simulate_bounds.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct gemmar_sim_machine machine;

static struct gemmar_sim_result run_call(const struct gemmar_sim_machine *m,
                                         const struct gemmar_sim_call *call)
{
    struct gemmar_sim_result r;
    char why[256] = "";

    ck_assert_msg(gemmar_sim_run(m, call, &r, why, sizeof(why)) == 0, "%s", why);
    return r;
}

static struct gemmar_sim_result run(const struct gemmar_sim_machine *m, int64_t rows, int64_t cols,
                                    int64_t k, uint32_t nodes, uint32_t locals, uint32_t algo)
{
    struct gemmar_sim_call call = {.m = rows,
                                   .n = cols,
                                   .k = k,
                                   .dtype = GEMMAR_DTYPE_BF16,
                                   .nodes = nodes,
                                   .locals = locals,
                                   .algo = algo};

    return run_call(m, &call);
}

static const struct shape {
    int64_t m, n, k;
} shapes[] = {
    {8192, 8192, 512}, {2048, 2048, 2048}, {1000, 3000, 700}, {128, 8192, 4096}, {16, 4096, 64},
};

static const struct grid {
    uint32_t nodes, locals;
} grids[] = {{1, 1}, {1, 2}, {1, 8}, {2, 1}, {2, 8}, {3, 4}, {16, 8}};

static const uint32_t algos[] = {GEMMAR_ALGO_DIRECT, GEMMAR_ALGO_TWO_SHOT};

typedef void one(const struct shape *s, const struct grid *g, uint32_t algo);

static void every(one *check)
{
    machine = gemmar_sim_machine_default();
    for (size_t i = 0; i < COUNT(shapes); i++) {
        for (size_t j = 0; j < COUNT(grids); j++) {
            for (size_t a = 0; a < COUNT(algos); a++) {
                check(&shapes[i], &grids[j], algos[a]);
            }
        }
    }
}

static struct gemmar_sim_result run_one(const struct gemmar_sim_machine *m, const struct shape *s,
                                        const struct grid *g, uint32_t algo)
{
    return run(m, s->m, s->n, s->k, g->nodes, g->locals, algo);
}

/* The rank that sends most sends what the formula gives for the one that has most to send. */
static void bytes_of(const struct shape *s, const struct grid *g, uint32_t algo)
{
    struct gemmar_sim_result r = run_one(&machine, s, g, algo);
    const struct gemmar_tile_map *map = &r.plan.map;
    double links = 0, whole = (double)gemmar_parts_tile_bytes(map);
    uint64_t wire = 0;

    for (uint32_t local = 0; local < g->locals; local++) {
        int64_t first = gemmar_map_first(map, local), end = gemmar_map_first(map, local + 1);
        uint64_t mine =
            gemmar_parts_wire_bytes(map, algo == GEMMAR_ALGO_TWO_SHOT, g->nodes - 1, local);

        wire = mine > wire ? mine : wire;
        links = fmax(links, (double)(map->chunks - (end - first)) * whole +
                                (double)gemmar_map_valid_bytes(map, first, end) * (g->locals - 1));
    }
    if (r.plan.tensor.strategy == GEMMAR_STRATEGY_EXCHANGE) { /* all whole tiles, once */
        links = (double)map->chunks * whole;
    }
    wire = g->nodes == 1 ? 0 : wire;
    ck_assert_uint_eq(r.wire_bytes, wire);
    ck_assert_uint_eq(g->nodes == 1 ? 0 : r.wire_formula, wire);
    ck_assert_double_eq(r.nvlink_bytes, g->locals == 1 ? 0 : links);
    if (s->m % 256 == 0 && s->n % 256 == 0 && g->nodes > 1) {
        ck_assert_uint_eq(r.wire_formula,
                          (uint64_t)gemmar_map_wire_bytes(map, algo == GEMMAR_ALGO_TWO_SHOT,
                                                          g->nodes - 1, g->locals - 1));
    }
}

START_TEST(bytes_equal_the_formula)
{
    every(bytes_of);
}
END_TEST

static void above_bounds(const struct shape *s, const struct grid *g, uint32_t algo)
{
    struct gemmar_sim_call call = {s->m, s->n, s->k, GEMMAR_DTYPE_BF16, g->nodes, g->locals,
                                   algo, 0,    0};
    struct gemmar_sim_bounds b = gemmar_sim_bounds(&machine, &call, algo);
    double time = run_one(&machine, s, g, algo).time_us;

    ck_assert_double_gt(b.gemm, 0);
    ck_assert_double_ge(time, b.gemm);
    ck_assert_double_ge(time, b.hbm);
    ck_assert_double_ge(time, b.nvlink);
    ck_assert_double_ge(time, b.net);
    ck_assert_double_eq(b.largest, fmax(fmax(b.gemm, b.hbm), fmax(b.nvlink, b.net)));
}

START_TEST(no_time_is_below_a_bound)
{
    every(above_bounds);
}
END_TEST

/* Every rate doubled, every latency halved, with the same tile: never slower, but for an order on a
 * link that turns out worse, which costs tiles and not waves. */
static void faster_machines(const struct shape *s, const struct grid *g, uint32_t algo)
{
    static const char *const faster[] = {
        "product=2",    "nvlink_gbs=776", "sm_store_gbs=102", "nic_gbits=800",
        "nic_share=1",  "nics=2",         "nic_us=1",         "handover_us=1",
        "message_us=0", "start_us=3",     "source_us=0.7",    "tile_us=0.3",
        "store_us=0.5", "nvlink_us=0.7",  "hbm_gbs=8360",     "end_us=1"};
    struct gemmar_sim_result base = run_one(&machine, s, g, algo);
    struct gemmar_sim_call call = {.m = s->m,
                                   .n = s->n,
                                   .k = s->k,
                                   .dtype = GEMMAR_DTYPE_BF16,
                                   .nodes = g->nodes,
                                   .locals = g->locals,
                                   .algo = algo,
                                   .tile_m = base.plan.map.tile_m,
                                   .tile_n = base.plan.map.tile_n};
    double before = base.time_us;

    for (size_t i = 0; i < COUNT(faster); i++) {
        struct gemmar_sim_machine other = machine;
        char why[256];
        double after;

        ck_assert_int_eq(gemmar_sim_machine_parse(faster[i], &other, why, sizeof(why)), 0);
        after = run_call(&other, &call).time_us;
        ck_assert_msg(after <= 1.01 * before, "%lldx%lldx%lld %ux%u algo %u %s: %f, before %f",
                      (long long)s->m, (long long)s->n, (long long)s->k, g->nodes, g->locals, algo,
                      faster[i], after, before);
    }
}

START_TEST(a_faster_machine_is_not_slower)
{
    every(faster_machines);
}
END_TEST

START_TEST(every_rate_has_its_effect)
{
    static const char *const slower[] = {
        "product=0.1",     "nvlink_gbs=100", "nic_gbits=100", "nic_share=0.4", "nic_us=200",
        "handover_us=200", "message_us=50",  "start_us=70",   "source_us=14",  "tile_us=20",
        "store_us=50",     "nvlink_us=50",   "end_us=50",     "sms=16",        "sm_store_gbs=0.5"};

    machine = gemmar_sim_machine_default();
    for (size_t i = 0; i < COUNT(slower); i++) {
        double before = run(&machine, 4096, 4096, 1024, 2, 4, GEMMAR_ALGO_DIRECT).time_us;
        struct gemmar_sim_machine other = machine;
        char why[256];

        ck_assert_int_eq(gemmar_sim_machine_parse(slower[i], &other, why, sizeof(why)), 0);
        ck_assert_msg(run(&other, 4096, 4096, 1024, 2, 4, GEMMAR_ALGO_DIRECT).time_us >
                          1.05 * before,
                      "%s", slower[i]);
    }
}
END_TEST

/* One tile on one GPU, then on two nodes: every step is in the open. */
START_TEST(one_tile_takes_the_sum_of_its_steps)
{
    struct gemmar_sim_result r;
    double flop_per_us, share, product, wire;

    machine = gemmar_sim_machine_default();
    r = run(&machine, 128, 128, 65536, 1, 1, GEMMAR_ALGO_DIRECT);
    ck_assert_int_eq(r.plan.map.chunks, 1);
    gemmar_plan_tile_rates(r.plan.tensor.shape, &flop_per_us, &share);
    product = 2.0 * r.plan.map.tile_m * r.plan.map.tile_n * 65536 / flop_per_us;
    product += machine.start_us + machine.tile_us + machine.store_us + machine.end_us;
    ck_assert_double_eq_tol(r.time_us, product, 1e-6);

    r = run(&machine, 128, 128, 65536, 2, 1, GEMMAR_ALGO_DIRECT);
    wire = (double)r.wire_bytes / gemmar_sim_wire_rate(&machine);
    ck_assert_double_eq_tol(r.time_us,
                            product + machine.handover_us + wire + machine.nic_us +
                                machine.source_us + machine.tile_us + machine.store_us,
                            1e-6);
}
END_TEST

START_TEST(one_node_has_no_network)
{
    machine = gemmar_sim_machine_default();
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct grid g = {1, 8};
        struct gemmar_sim_result a = run_one(&machine, &shapes[i], &g, GEMMAR_ALGO_DIRECT);
        struct gemmar_sim_result b = run_one(&machine, &shapes[i], &g, GEMMAR_ALGO_TWO_SHOT);
        struct gemmar_sim_machine other = machine;

        other.nic_gbits = 1;
        other.nic_us = other.handover_us = 1000;
        ck_assert_uint_eq(a.plan.algo, GEMMAR_ALGO_LOCAL);
        ck_assert_uint_eq(a.wire_bytes, 0);
        ck_assert_double_eq(a.arrived_us, 0);
        ck_assert_double_eq(a.time_us, b.time_us);
        ck_assert_double_eq(a.time_us, run_one(&other, &shapes[i], &g, GEMMAR_ALGO_DIRECT).time_us);
    }
}
END_TEST

START_TEST(two_shot_is_flat_where_chunks_go_round)
{
    double first, direct, bytes = 2.0 * 16384 * 16384 * 2; /* twice the slice */

    machine = gemmar_sim_machine_default();
    first = run(&machine, 16384, 16384, 512, 16, 1, GEMMAR_ALGO_TWO_SHOT).time_us;
    direct = run(&machine, 16384, 16384, 512, 16, 1, GEMMAR_ALGO_DIRECT).time_us;
    for (uint32_t nodes = 32; nodes <= 1024; nodes *= 2) {
        double time = run(&machine, 16384, 16384, 512, nodes, 1, GEMMAR_ALGO_TWO_SHOT).time_us;
        double next = run(&machine, 16384, 16384, 512, nodes, 1, GEMMAR_ALGO_DIRECT).time_us;

        /* bytes grow from 15/8 to 2 times the slice */
        ck_assert_msg(time <= 1.10 * first, "%u nodes: %f us, 16: %f", nodes, time, first);
        ck_assert_double_le(time, 1.10 * bytes / gemmar_sim_line_rate(&machine));
        ck_assert_double_ge(next, 1.9 * direct);
        direct = next;
    }
}
END_TEST

/* Clusters publish results in about the order in which they come. */
START_TEST(two_shot_ends_soon_after_the_last_arrival)
{
    machine = gemmar_sim_machine_default();
    for (uint32_t nodes = 8; nodes <= 128; nodes *= 4) {
        struct gemmar_sim_result r =
            run(&machine, 16384, 16384, 1024, nodes, 8, GEMMAR_ALGO_TWO_SHOT);

        ck_assert_msg(r.time_us <= 1.1 * r.arrived_us, "%u nodes: %f us, arrived %f", nodes,
                      r.time_us, r.arrived_us);
    }
}
END_TEST

/* Medians on two H200: with push of commit b286e47, and of an exchange. */
START_TEST(one_node_meets_what_was_measured)
{
    static const struct point {
        int64_t m, n, k;
        double us;
    } points[] = {{8192, 8192, 512, 396.5},     {8192, 8192, 4096, 774.3},
                  {16384, 16384, 8192, 5980.9}, {4096, 4096, 2048, 133.7},
                  {2048, 2048, 1024, 44.4},     {128, 8192, 4096, 36.4},
                  {512, 16384, 2048, 79.6},     {8192, 3584, 1792, 199.4}};

    machine = gemmar_sim_machine_default();
    for (size_t i = 0; i < COUNT(points); i++) {
        const struct point *p = &points[i];
        double time = run(&machine, p->m, p->n, p->k, 1, 2, GEMMAR_ALGO_LOCAL).time_us;

        ck_assert_msg(fabs(time / p->us - 1) < 0.05, "%lldx%lldx%lld: %f us, measured %f",
                      (long long)p->m, (long long)p->n, (long long)p->k, time, p->us);
    }
}
END_TEST

static uint32_t draw(uint32_t *state, uint32_t most)
{
    *state = *state * 1664525u + 1013904223u;
    return 1 + (*state >> 8) % most;
}

/* With any number of clusters no item waits for ever, and the bytes are right: run_call() fails
 * when the lists of the ranks and nodes wait for each other. */
START_TEST(every_order_of_visits_ends)
{
    uint32_t state = 1;

    for (uint32_t i = 0; i < 400; i++) {
        struct shape s = {draw(&state, 3000), draw(&state, 3000), 64};
        struct grid g = {draw(&state, 12), draw(&state, 8)};
        uint32_t algo = algos[i % 2];

        machine = gemmar_sim_machine_default();
        machine.sms = 1 + draw(&state, i % 3 == 0 ? 5 : 131);
        bytes_of(&s, &g, algo);
    }
}
END_TEST

START_TEST(two_runs_are_the_same)
{
    struct gemmar_sim_result a, b;

    machine = gemmar_sim_machine_default();
    a = run(&machine, 3000, 5000, 300, 5, 4, GEMMAR_ALGO_TWO_SHOT);
    b = run(&machine, 3000, 5000, 300, 5, 4, GEMMAR_ALGO_TWO_SHOT);
    ck_assert_double_eq(a.time_us, b.time_us);
    ck_assert_double_eq(a.arrived_us, b.arrived_us);
    ck_assert_uint_eq(a.wire_bytes, b.wire_bytes);
}
END_TEST

START_TEST(shapes_without_output_and_bad_tiles)
{
    struct gemmar_sim_call call = {0, 128, 128, GEMMAR_DTYPE_BF16, 2, 8, GEMMAR_ALGO_DIRECT, 0, 0};
    struct gemmar_sim_result r;
    char why[256] = "";

    machine = gemmar_sim_machine_default();
    ck_assert_int_eq(gemmar_sim_run(&machine, &call, &r, why, sizeof(why)), 0);
    ck_assert_double_eq(r.time_us, 0);
    call.m = 128;
    call.tile_m = 77;
    ck_assert_int_lt(gemmar_sim_run(&machine, &call, &r, why, sizeof(why)), 0);
    ck_assert_ptr_nonnull(strstr(why, "77"));
}
END_TEST

START_TEST(unfused_ring_and_tree)
{
    struct gemmar_sim_call call = {8192, 8192, 512, GEMMAR_DTYPE_BF16, 1, 2, GEMMAR_ALGO_LOCAL,
                                   0,    0};
    struct gemmar_sim_unfused u;

    machine = gemmar_sim_machine_default();
    machine.nccl_gbs = 224; /* measured: 598 us and 96.5 us */
    u = gemmar_sim_unfused(&machine, &call);
    ck_assert_double_eq_tol(u.ring, 598, 15);
    ck_assert_double_eq_tol(u.gemm, 96.5, 5);
    ck_assert_double_eq_tol(u.total, u.gemm + u.ring, 1e-9);
    call.locals = 1;
    ck_assert_double_eq(gemmar_sim_unfused(&machine, &call).ring, 0);
    /* 128 MiB once each way over one NIC */
    call.nodes = 2;
    u = gemmar_sim_unfused(&machine, &call);
    ck_assert_double_eq_tol(u.tree, 134217728 / 48500.0 + 8 + 2 * 4, 1e-6);
    ck_assert_double_eq_tol(u.ring, u.tree, 1e-6);
    call.nodes = 1024;
    u = gemmar_sim_unfused(&machine, &call);
    ck_assert_double_gt(u.ring, u.tree);
}
END_TEST

START_TEST(a_machine_is_what_was_said)
{
    struct gemmar_sim_machine m = gemmar_sim_machine_default(), before = m;
    char why[256] = "";

    ck_assert_int_eq(
        gemmar_sim_machine_parse("nic_gbits=200,nics=2,nic_us=5", &m, why, sizeof(why)), 0);
    ck_assert_double_eq(m.nic_gbits, 200);
    ck_assert_double_eq(m.nic_us, 5);
    ck_assert_double_eq(gemmar_sim_line_rate(&m), 50000);
    before = m;
    ck_assert_int_lt(gemmar_sim_machine_parse("nic_us=1,nic=3", &m, why, sizeof(why)), 0);
    ck_assert_ptr_nonnull(strstr(why, "'nic=3'"));
    ck_assert_int_lt(gemmar_sim_machine_parse("nic_us=", &m, why, sizeof(why)), 0);
    ck_assert_int_lt(gemmar_sim_machine_parse("nic_us=1x", &m, why, sizeof(why)), 0);
    ck_assert_int_lt(gemmar_sim_machine_parse("nic_gbits=0", &m, why, sizeof(why)), 0);
    ck_assert_int_lt(gemmar_sim_machine_parse("nic_us=nan", &m, why, sizeof(why)), 0);
    ck_assert_int_lt(gemmar_sim_machine_parse("nic_us=1,", &m, why, sizeof(why)), 0);
    ck_assert_mem_eq(&m, &before, sizeof(m));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {bytes_equal_the_formula,
                                  no_time_is_below_a_bound,
                                  a_faster_machine_is_not_slower,
                                  every_rate_has_its_effect,
                                  one_tile_takes_the_sum_of_its_steps,
                                  one_node_has_no_network,
                                  two_shot_is_flat_where_chunks_go_round,
                                  two_shot_ends_soon_after_the_last_arrival,
                                  one_node_meets_what_was_measured,
                                  every_order_of_visits_ends,
                                  two_runs_are_the_same,
                                  shapes_without_output_and_bad_tiles,
                                  unfused_ring_and_tree,
                                  a_machine_is_what_was_said,
                                  NULL};

    return tap_run("simulate", tests);
}
