// SPDX-License-Identifier: Apache-2.0
// The plan: agreed by all ranks, within the limits of a FIFO command, capacities that hold.
#include <check.h>
#include <errno.h>
#include <string.h>

#include "kernels/plan.h"

static const int64_t sizes[] = {1, 16, 64, 65, 129, 256, 257, 1000, 8192, 28672};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#ifdef SANITIZED
#define STEPS 2 /* of M and of N from any size to its double */
#else
#define STEPS 5
#endif

static int make(int64_t m, int64_t n, uint32_t dtype, uint32_t nodes, uint32_t locals,
                struct gemmar_plan *plan)
{
    struct gemmar_plan_facts facts = {.nodes = nodes, .locals = locals};
    char why[160] = "";
    int rc = gemmar_plan_make(m, n, 0, dtype, &facts, plan, why, sizeof(why));

    ck_assert_int_eq(rc != 0, why[0] != '\0');
    return rc;
}

START_TEST(every_chunk_fits_a_command_in_every_type)
{
    for (uint32_t dtype = 0; dtype <= GEMMAR_DTYPE_FP32; dtype++) {
        for (size_t i = 0; i < SIZES * SIZES; i++) {
            struct gemmar_plan plan;

            ck_assert_int_eq(make(sizes[i / SIZES], sizes[i % SIZES], dtype, 4, 8, &plan), 0);
            ck_assert_uint_lt((uint64_t)plan.map.tile_m * plan.map.tile_n * plan.map.chunk_tiles *
                                  plan.map.element_bytes,
                              UINT64_C(1) << GEMMAR_FIFO_LENGTH_BITS);
        }
    }
}
END_TEST

/* Ranks that need different capacities would grow at different calls. */
START_TEST(a_capacity_holds_every_rank)
{
    for (size_t i = 0; i < SIZES * SIZES; i++) {
        struct gemmar_plan plan;
        struct gemmar_capacity c;

        ck_assert_int_eq(make(sizes[i / SIZES], sizes[i % SIZES], GEMMAR_DTYPE_BF16, 3, 5, &plan),
                         0);
        plan.algo = i % 2 ? GEMMAR_ALGO_DIRECT : GEMMAR_ALGO_TWO_SHOT;
        c = gemmar_plan_capacity(&plan);
        ck_assert_uint_eq(c.chunks, (uint64_t)plan.map.chunks);
        for (uint32_t g = 0; g < 5; g++) {
            int64_t first = gemmar_map_first(&plan.map, g),
                    end = gemmar_map_first(&plan.map, g + 1);

            ck_assert_uint_ge(c.slots, (uint64_t)(end - first));
            ck_assert_uint_ge(c.slice_bytes,
                              (uint64_t)gemmar_map_valid_bytes(&plan.map, first, end));
            for (uint32_t n = 0; plan.algo == GEMMAR_ALGO_TWO_SHOT && n < 3; n++) {
                int64_t sub = gemmar_map_sub_first(&plan.map, g, n);
                int64_t next = gemmar_map_sub_first(&plan.map, g, n + 1);

                ck_assert_uint_ge(c.sub_slots, (uint64_t)(next - sub));
                ck_assert_uint_ge(c.sub_bytes,
                                  (uint64_t)gemmar_map_valid_bytes(&plan.map, sub, next));
            }
        }
    }
}
END_TEST

START_TEST(the_maximum_of_two_capacities_holds_both)
{
    struct gemmar_plan wide, tall;
    struct gemmar_capacity a, b, both;

    ck_assert_int_eq(make(64, 8192, GEMMAR_DTYPE_FP32, 4, 2, &wide), 0);
    ck_assert_int_eq(make(8192, 64, GEMMAR_DTYPE_BF16, 4, 2, &tall), 0);
    tall.algo = GEMMAR_ALGO_TWO_SHOT;
    a = gemmar_plan_capacity(&wide);
    b = gemmar_plan_capacity(&tall);
    both = gemmar_capacity_max(&a, &b);
    ck_assert(gemmar_capacity_holds(&both, &a));
    ck_assert(gemmar_capacity_holds(&both, &b));
    ck_assert(!gemmar_capacity_holds(&a, &b));
}
END_TEST

/* Memory of old workspaces of a GPU stays: sequences that get longer may not fill it. */
START_TEST(shapes_that_creep_up_grow_a_workspace_seldom)
{
    struct gemmar_plan_facts facts = {.nodes = 1, .locals = 2, .sms = 132};
    struct gemmar_capacity have = {0};
    uint64_t growths = 0, kept = 0;
    char why[160];

    for (int64_t m = 1; m <= 4096; m++) {
        struct gemmar_plan plan;
        struct gemmar_capacity need;

        ck_assert_int_eq(
            gemmar_plan_make(m, 8192, 0, GEMMAR_DTYPE_BF16, &facts, &plan, why, sizeof(why)), 0);
        need = gemmar_plan_capacity(&plan);
        if (!gemmar_capacity_holds(&have, &need)) {
            have = gemmar_capacity_grown(&have, &need);
            ck_assert(gemmar_capacity_holds(&have, &need));
            kept += have.partial_bytes + have.out_bytes;
            growths++;
        }
    }
    ck_assert_uint_le(growths, 20);
    ck_assert_uint_le(kept, 4 * (have.partial_bytes + have.out_bytes));
}
END_TEST

/* An application reserves its largest shape and captures smaller ones, which cannot grow. */
START_TEST(what_is_reserved_holds_every_smaller_shape)
{
    static const int64_t most_m[] = {64, 384, 1024, 8192}, ks[] = {64, 1024, 8192};

    for (uint32_t locals = 1; locals <= 8; locals++) {
        for (size_t i = 0; i < sizeof(most_m) / sizeof(most_m[0]); i++) {
            struct gemmar_plan_facts facts = {.nodes = 1, .locals = locals, .sms = 132};
            struct gemmar_capacity have, need;
            struct gemmar_plan plan;
            char why[160];

            ck_assert_int_eq(gemmar_plan_make(most_m[i], 8192, 4096, GEMMAR_DTYPE_BF16, &facts,
                                              &plan, why, sizeof(why)),
                             0);
            have = gemmar_plan_capacity(&plan);
            for (int64_t m = 1; m <= most_m[i]; m += 1 + m / 64) {
                for (size_t j = 0; j < sizeof(ks) / sizeof(ks[0]) * 2; j++) {
                    ck_assert_int_eq(gemmar_plan_make(m, j % 2 == 0 ? 8192 : 1000, ks[j / 2],
                                                      GEMMAR_DTYPE_BF16, &facts, &plan, why,
                                                      sizeof(why)),
                                     0);
                    need = gemmar_plan_capacity(&plan);
                    ck_assert(gemmar_capacity_holds(&have, &need));
                    ck_assert_int_le(plan.map.chunks, (int64_t)need.chunks);
                    ck_assert_int_le(gemmar_map_first(&plan.map, locals) -
                                         gemmar_map_first(&plan.map, locals - 1),
                                     (int64_t)need.slots);
                    ck_assert_uint_le((uint64_t)plan.map.tile_m * plan.map.tile_n * 2 *
                                          (uint64_t)plan.map.chunks,
                                      need.partial_bytes);
                }
            }
        }
    }
}
END_TEST

/* Do the windows of the network have room for every chunk in whole tiles? */
static void check_windows(const struct gemmar_plan *plan, const struct gemmar_capacity *c)
{
    const struct gemmar_tile_map *map = &plan->map;
    uint64_t tile = (uint64_t)map->tile_m * map->tile_n * map->element_bytes;

    for (uint32_t g = 0; g < map->locals; g++) {
        uint64_t slots = (uint64_t)(gemmar_map_first(map, g + 1) - gemmar_map_first(map, g));

        ck_assert_uint_le(slots, c->slots);
        if (plan->algo == GEMMAR_ALGO_DIRECT) {
            ck_assert_uint_eq(c->direct, 1);
            ck_assert_uint_le(slots * tile, c->slice_bytes);
        }
        for (uint32_t n = 0; plan->algo == GEMMAR_ALGO_TWO_SHOT && n < map->nodes; n++) {
            slots =
                (uint64_t)(gemmar_map_sub_first(map, g, n + 1) - gemmar_map_sub_first(map, g, n));
            ck_assert_uint_le(slots, c->sub_slots);
            ck_assert_uint_le(slots * tile, c->sub_bytes);
        }
    }
}

/* The same between nodes, where smaller shapes may also go another way than the reserved one. */
START_TEST(what_is_reserved_holds_every_smaller_shape_on_nodes)
{
    static const int64_t most[][2] = {{64, 1024},   {4096, 4096}, {8192, 8192},
                                      {1, 2000000}, {2000000, 1}, {300, 40000}};
    static const uint32_t grids[][2] = {{2, 1}, {2, 2}, {3, 1},  {4, 1},
                                        {4, 8}, {7, 3}, {64, 2}, {256, 1}};

    for (size_t i = 0; i < 6 * 8; i++) {
        const int64_t *top = most[i / 8];
        struct gemmar_plan_facts facts = {.nodes = grids[i % 8][0],
                                          .locals = grids[i % 8][1],
                                          .sms = 132,
                                          .net_mbps = i % 2 == 0 ? 0 : 400000};
        struct gemmar_capacity have, need;
        struct gemmar_plan plan;
        char why[160];

        ck_assert_int_eq(gemmar_plan_make(top[0], top[1], 64, GEMMAR_DTYPE_BF16, &facts, &plan, why,
                                          sizeof(why)),
                         0);
        have = gemmar_plan_capacity(&plan);
        check_windows(&plan, &have);
        for (int64_t m = 1; m <= top[0]; m += 1 + m / STEPS) {
            for (int64_t n = 1; n <= top[1]; n += 1 + n / STEPS) {
                ck_assert_int_eq(gemmar_plan_make(m, n, 64 << (m % 7), GEMMAR_DTYPE_BF16, &facts,
                                                  &plan, why, sizeof(why)),
                                 0);
                need = gemmar_plan_capacity(&plan);
                check_windows(&plan, &need);
                ck_assert_msg(gemmar_capacity_holds(&have, &need),
                              "%u nodes x %u: %ldx%ld holds not %ldx%ld", facts.nodes, facts.locals,
                              top[0], top[1], m, n);
            }
        }
    }
}
END_TEST

/* On many nodes only shapes of a few tiles go direct, and every one of them costs N - 1 windows. */
START_TEST(direct_costs_little_memory_on_many_nodes)
{
    struct gemmar_plan_facts facts = {.nodes = 256, .locals = 1, .sms = 132, .net_mbps = 400000};
    struct gemmar_capacity c;
    struct gemmar_plan plan;
    char why[160];

    ck_assert_int_eq(
        gemmar_plan_make(32768, 32768, 64, GEMMAR_DTYPE_BF16, &facts, &plan, why, sizeof(why)), 0);
    c = gemmar_plan_capacity(&plan);
    ck_assert_uint_eq(c.direct, 1);
    ck_assert_uint_lt(c.slice_bytes, 2 << 20);
}
END_TEST

START_TEST(one_large_shape_grows_a_workspace_to_what_it_needs)
{
    struct gemmar_plan_facts facts = {.nodes = 1, .locals = 2, .sms = 132};
    struct gemmar_plan small, large;
    struct gemmar_capacity have, need, got;
    char why[160];

    ck_assert_int_eq(
        gemmar_plan_make(64, 1024, 0, GEMMAR_DTYPE_BF16, &facts, &small, why, sizeof(why)), 0);
    ck_assert_int_eq(
        gemmar_plan_make(8192, 8192, 0, GEMMAR_DTYPE_BF16, &facts, &large, why, sizeof(why)), 0);
    have = gemmar_plan_capacity(&small);
    need = gemmar_plan_capacity(&large);
    got = gemmar_capacity_grown(&have, &need);
    ck_assert(gemmar_capacity_holds(&need, &got));
    got = gemmar_capacity_grown(&need, &have);
    ck_assert(gemmar_capacity_holds(&need, &got));
}
END_TEST

START_TEST(the_algorithm_follows_nodes_and_size)
{
    struct gemmar_plan plan;

    ck_assert_int_eq(make(8192, 8192, GEMMAR_DTYPE_BF16, 1, 8, &plan), 0);
    ck_assert_uint_eq(plan.algo, GEMMAR_ALGO_LOCAL);
    ck_assert_int_eq(make(8192, 8192, GEMMAR_DTYPE_BF16, 2, 8, &plan), 0);
    ck_assert_uint_eq(plan.algo, GEMMAR_ALGO_DIRECT);
    ck_assert_int_eq(make(8192, 8192, GEMMAR_DTYPE_BF16, 4, 8, &plan), 0);
    ck_assert_uint_eq(plan.algo, GEMMAR_ALGO_TWO_SHOT);
    ck_assert_int_eq(make(16, 8192, GEMMAR_DTYPE_BF16, 4, 8, &plan), 0);
    ck_assert_uint_eq(plan.algo, GEMMAR_ALGO_DIRECT);
}
END_TEST

START_TEST(what_cannot_run_says_why_and_leaves_the_plan)
{
    struct gemmar_plan_facts facts = {
        .nodes = 2, .locals = 1, .tile_m = 128, .tile_n = 256, .chunk_tiles = 256};
    struct gemmar_plan plan = {.algo = 77};
    char why[160] = "";

    ck_assert_int_eq(make(-1, 5, GEMMAR_DTYPE_BF16, 2, 1, &plan), -EINVAL);
    ck_assert_int_eq(make(INT64_C(1) << 40, INT64_C(1) << 40, GEMMAR_DTYPE_BF16, 2, 1, &plan),
                     -EOVERFLOW);
    /* 256 tiles of 128 KiB fp32: 32 MiB. */
    ck_assert_int_eq(
        gemmar_plan_make(1000, 1000, 0, GEMMAR_DTYPE_FP32, &facts, &plan, why, sizeof(why)),
        -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "chunk"));
    facts.chunk_tiles = 1;
    facts.tile_m = facts.tile_n = 1;
    ck_assert_int_eq(
        gemmar_plan_make(2049, 1025, 0, GEMMAR_DTYPE_BF16, &facts, &plan, why, sizeof(why)),
        -EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(why, "slots"));
    ck_assert_uint_eq(plan.algo, 77);
}
END_TEST

/* A stage without CTAs never runs; the others would wait for it until the watchdog. */
START_TEST(every_stage_has_a_cta)
{
    struct gemmar_plan plan;

    ck_assert_int_eq(make(1000, 1000, GEMMAR_DTYPE_BF16, 2, 2, &plan), 0);
    for (uint32_t ctas = 0; ctas < 40; ctas++) {
        struct gemmar_local_plan p = gemmar_plan_local(&plan, ctas);
        const struct gemmar_range *range[] = {&p.compute, &p.intra, &p.inter, &p.copy};

        ck_assert_uint_ge(p.ctas, 1);
        for (int i = 0; i < 4; i++) {
            ck_assert_uint_ge(range[i]->count, 1);
            ck_assert_uint_le(range[i]->first + range[i]->count, p.ctas);
        }
    }
}
END_TEST

static struct gemmar_plan plan_gpu(int64_t m, int64_t n, int64_t k,
                                   const struct gemmar_plan_facts *facts)
{
    struct gemmar_plan plan;
    char why[200] = "";
    int rc = gemmar_plan_make(m, n, k, GEMMAR_DTYPE_BF16, facts, &plan, why, sizeof(why));

    ck_assert_msg(rc == 0, "%lld x %lld x %lld: %s", (long long)m, (long long)n, (long long)k, why);
    return plan;
}

/* What was fastest of the tiles that were measured on 2 H200, where it mattered. */
START_TEST(the_model_finds_the_measured_tiles)
{
    static const struct {
        int64_t m, n, k;
        uint32_t shape, strategy, senders; /* 0: all */
    } best[] = {
        {8192, 8192, 4096, GEMMAR_TILE_256X256, GEMMAR_STRATEGY_PUSH, 32},
        {8192, 8192, 1024, GEMMAR_TILE_256X256, GEMMAR_STRATEGY_PUSH, 32},
        {8192, 8192, 512, GEMMAR_TILE_256X256, GEMMAR_STRATEGY_PUSH, 32},
        {4096, 8192, 3584, GEMMAR_TILE_256X256, GEMMAR_STRATEGY_PUSH, 32},
        {4096, 4096, 2048, GEMMAR_TILE_256X256, GEMMAR_STRATEGY_PUSH, 32},
        {1024, 8192, 2048, GEMMAR_TILE_256X128, GEMMAR_STRATEGY_PUSH, 64},
        {512, 16384, 2048, GEMMAR_TILE_256X128, GEMMAR_STRATEGY_PUSH, 64},
        {2048, 2048, 1024, GEMMAR_TILE_256X128, GEMMAR_STRATEGY_EXCHANGE, 64},
        {512, 8192, 4096, GEMMAR_TILE_256X128, GEMMAR_STRATEGY_EXCHANGE, 64},
        {128, 8192, 4096, GEMMAR_TILE_128X128, GEMMAR_STRATEGY_EXCHANGE, 0},
    };
    struct gemmar_plan_facts facts = {.nodes = 1, .locals = 2, .sms = 132, .resident = 132};

    for (size_t i = 0; i < sizeof(best) / sizeof(best[0]); i++) {
        struct gemmar_plan plan = plan_gpu(best[i].m, best[i].n, best[i].k, &facts);

        ck_assert_msg(plan.tensor.shape == best[i].shape, "%lld x %lld x %lld: tile %u",
                      (long long)best[i].m, (long long)best[i].n, (long long)best[i].k,
                      plan.tensor.shape);
        ck_assert_msg(plan.tensor.strategy == best[i].strategy, "%lld x %lld x %lld: strategy %u",
                      (long long)best[i].m, (long long)best[i].n, (long long)best[i].k,
                      plan.tensor.strategy);
        ck_assert_uint_eq(gemmar_plan_local_gpu(&plan, 132, 0).senders, best[i].senders);
    }
}
END_TEST

/* Where the NIC is the bound, a smaller first wave lets it begin earlier, as long as there are not
 * too many commands for it; where the product is, the tile is that of one node. */
START_TEST(the_model_knows_the_network)
{
    struct gemmar_plan_facts facts = {.nodes = 2, .locals = 1, .sms = 132, .resident = 132};
    struct gemmar_plan plan;

    ck_assert_uint_eq(plan_gpu(8192, 8192, 4096, &facts).tensor.shape, GEMMAR_TILE_256X256);
    facts.net_mbps = 400000;
    plan = plan_gpu(8192, 8192, 4096, &facts);
    ck_assert_uint_eq(plan.tensor.shape, GEMMAR_TILE_256X256); /* a wave sooner is 1% here */
    ck_assert_uint_eq(plan.tensor.order.together, 1);
    ck_assert_uint_eq(plan.algo, GEMMAR_ALGO_DIRECT);
    ck_assert_uint_eq(plan_gpu(8192, 8192, 32768, &facts).tensor.shape, GEMMAR_TILE_256X256);
    /* one short wave, in messages of four tiles */
    plan = plan_gpu(128, 8192, 4096, &facts);
    ck_assert_uint_eq(plan.tensor.shape, GEMMAR_TILE_128X128);
    ck_assert_uint_eq(plan.tensor.order.together, 4);
    ck_assert_uint_eq(plan_gpu(64, 8192, 4096, &facts).tensor.order.together, 8);
    ck_assert_uint_eq(plan_gpu(2048, 2048, 2048, &facts).tensor.shape, GEMMAR_TILE_256X128);
    facts.net_mbps = 4000; /* what a tile's product takes does not matter */
    ck_assert_uint_eq(plan_gpu(2048, 2048, 2048, &facts).tensor.shape, GEMMAR_TILE_256X256);
}
END_TEST

/* 4 nodes: two shots save 1.5 of 3 slices. At 50 GB/s a hop's 10 us are worth 333 KB. */
START_TEST(the_algorithm_follows_the_rate_of_the_nic)
{
    struct gemmar_plan_facts facts = {
        .nodes = 4, .locals = 1, .sms = 132, .resident = 132, .net_mbps = 400000};

    ck_assert_uint_eq(plan_gpu(128, 1024, 64, &facts).algo, GEMMAR_ALGO_DIRECT);   /* 262 KB */
    ck_assert_uint_eq(plan_gpu(128, 1536, 64, &facts).algo, GEMMAR_ALGO_TWO_SHOT); /* 393 KB */
    facts.net_mbps = 3200000;
    ck_assert_uint_eq(plan_gpu(128, 1536, 64, &facts).algo, GEMMAR_ALGO_DIRECT);
    facts.net_mbps = 0;
    ck_assert_uint_eq(plan_gpu(128, 1024, 64, &facts).algo, GEMMAR_ALGO_DIRECT);
    ck_assert_uint_eq(plan_gpu(128, 1152, 64, &facts).algo, GEMMAR_ALGO_TWO_SHOT); /* 256 KiB */
    facts.net_mbps = 400000; /* a row travels as 64, a column as 64 at least */
    ck_assert_uint_eq(plan_gpu(1, 2048, 64, &facts).algo, GEMMAR_ALGO_DIRECT);
    ck_assert_uint_eq(plan_gpu(1, 8192, 64, &facts).algo, GEMMAR_ALGO_TWO_SHOT);
    ck_assert_uint_eq(plan_gpu(8192, 1, 64, &facts).algo, GEMMAR_ALGO_TWO_SHOT);
    facts.nodes = 2;
    ck_assert_uint_eq(plan_gpu(8192, 8192, 64, &facts).algo, GEMMAR_ALGO_DIRECT);
    facts.algo = GEMMAR_ALGO_TWO_SHOT;
    ck_assert_uint_eq(plan_gpu(128, 1024, 64, &facts).algo, GEMMAR_ALGO_TWO_SHOT);
}
END_TEST

START_TEST(settings_go_before_the_table_and_that_before_the_model)
{
    static struct gemmar_tuning table;
    struct gemmar_tuning_entry entry = {
        .m = 4096,
        .n = 512,
        .k = 64,
        .dtype = GEMMAR_DTYPE_BF16,
        .locals = 2,
        .how = {GEMMAR_TILE_128X256, GEMMAR_STRATEGY_PULL, 3, 1 << 19, 5}};
    struct gemmar_plan_facts facts = {
        .nodes = 1, .locals = 2, .sms = 132, .resident = 100, .tuning = &table};
    struct gemmar_plan plan;

    ck_assert_int_eq(gemmar_tuning_put(&table, &entry), 0);
    plan = plan_gpu(4096, 512, 64, &facts);
    ck_assert_uint_eq(plan.tensor.shape, GEMMAR_TILE_128X256);
    ck_assert_uint_eq(plan.tensor.strategy, GEMMAR_STRATEGY_PULL);
    ck_assert_uint_eq(plan.tensor.order.lead, 3);
    ck_assert_uint_eq(plan.tensor.order.band, 5);
    ck_assert_uint_eq(plan.tensor.order.block, 50);
    ck_assert_uint_eq(gemmar_plan_local_gpu(&plan, 100, 0).senders, 32); /* parts of 16 KiB */
    facts.strategy = GEMMAR_STRATEGY_PUSH + 1;
    facts.tile_m = 256;
    facts.lead = 1;
    plan = plan_gpu(4096, 512, 64, &facts);
    ck_assert_uint_eq(plan.map.tile_m, 256);
    ck_assert_uint_eq(plan.tensor.strategy, GEMMAR_STRATEGY_PUSH);
    ck_assert_uint_eq(plan.tensor.order.lead, 1);
    plan = plan_gpu(4096, 512, 65, &facts); /* another K: the model's */
    ck_assert_uint_eq(plan.tensor.order.band, 8);
}
END_TEST

/* No tile, no M and no K may let a plan fail, whatever was measured. */
START_TEST(every_shape_has_a_plan_on_a_gpu)
{
    for (size_t i = 0; i < SIZES * SIZES * SIZES; i++) {
        struct gemmar_plan_facts facts = {
            .nodes = 1, .locals = 1 + i % 8, .sms = 2 + i % 131, .resident = 2 + i % 3};
        int64_t m = sizes[i % SIZES], n = sizes[i / SIZES % SIZES], k = sizes[i / SIZES / SIZES];
        struct gemmar_plan plan = plan_gpu(m, n, k, &facts);

        ck_assert_uint_ge(plan.tensor.order.block, 1);
        ck_assert(plan.tensor.strategy != GEMMAR_STRATEGY_EXCHANGE || facts.locals == 2);
    }
}
END_TEST

static int plan_exchange(int64_t m, int64_t n, const struct gemmar_plan_facts *facts,
                         struct gemmar_plan *plan, char *why, size_t bytes)
{
    return gemmar_plan_make(m, n, 64, GEMMAR_DTYPE_BF16, facts, plan, why, bytes);
}

START_TEST(an_exchange_is_for_two_gpus_and_no_large_result)
{
    struct gemmar_plan_facts facts = {
        .nodes = 1, .locals = 2, .sms = 132, .strategy = GEMMAR_STRATEGY_EXCHANGE + 1};
    struct gemmar_plan plan;
    char why[200] = "";

    ck_assert_int_eq(plan_exchange(1, 1, &facts, &plan, why, sizeof(why)), 0);
    ck_assert_uint_eq(plan.tensor.strategy, GEMMAR_STRATEGY_EXCHANGE);
    ck_assert_int_eq(plan_exchange(4096, 8192, &facts, &plan, why, sizeof(why)), 0);
    ck_assert_uint_eq(gemmar_plan_capacity(&plan).exchange_bytes, 64 << 20);
    ck_assert_int_eq(plan_exchange(4097, 8192, &facts, &plan, why, sizeof(why)), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "64 MiB"));
    facts.locals = 3;
    ck_assert_int_eq(plan_exchange(1, 1, &facts, &plan, why, sizeof(why)), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "not 1 nodes of 3"));
    facts.locals = 2;
    facts.nodes = 2;
    ck_assert_int_eq(plan_exchange(1, 1, &facts, &plan, why, sizeof(why)), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "not 2 nodes of 2"));
    facts.sms = 0; /* a CPU has no strategies */
    ck_assert_int_eq(plan_exchange(1, 1, &facts, &plan, why, sizeof(why)), 0);
}
END_TEST

/* A table's exchange is for the ranks and the size that can; memory for it is there only then. */
START_TEST(a_table_does_not_make_ranks_exchange_that_cannot)
{
    static struct gemmar_tuning table;
    struct gemmar_tuning_entry entry = {
        .m = 4096,
        .n = 8192,
        .k = 64,
        .dtype = GEMMAR_DTYPE_BF16,
        .locals = 2,
        .how = {GEMMAR_TILE_256X256, GEMMAR_STRATEGY_EXCHANGE, 1, 1 << 20, 8}};
    struct gemmar_plan_facts facts = {.nodes = 1, .locals = 2, .sms = 132, .tuning = &table};
    struct gemmar_plan plan;

    ck_assert_int_eq(gemmar_tuning_put(&table, &entry), 0);
    plan = plan_gpu(4096, 8192, 64, &facts);
    ck_assert_uint_eq(plan.tensor.strategy, GEMMAR_STRATEGY_EXCHANGE);
    plan = plan_gpu(5000, 8192, 64, &facts);
    ck_assert_uint_eq(plan.tensor.strategy, GEMMAR_STRATEGY_PUSH);
    ck_assert_uint_eq(gemmar_plan_capacity(&plan).exchange_bytes, 64 << 20); /* a smaller C may */
    facts.nodes = 2;
    plan = plan_gpu(4096, 8192, 64, &facts);
    ck_assert_uint_eq(plan.tensor.strategy, GEMMAR_STRATEGY_PUSH);
    ck_assert_uint_eq(gemmar_plan_capacity(&plan).exchange_bytes, 0);
    facts.nodes = 1;
    facts.locals = 4;
    plan = plan_gpu(4096, 8192, 64, &facts);
    ck_assert_uint_eq(gemmar_plan_capacity(&plan).exchange_bytes, 0);
}
END_TEST

START_TEST(too_few_resident_ctas_are_refused)
{
    struct gemmar_plan_facts facts = {.nodes = 1, .locals = 2, .sms = 132, .resident = 3};
    struct gemmar_plan plan;
    char why[200] = "";

    (void)plan_gpu(100, 100, 100, &facts);
    facts.strategy = GEMMAR_STRATEGY_PULL + 1;
    ck_assert_int_eq(
        gemmar_plan_make(100, 100, 100, GEMMAR_DTYPE_BF16, &facts, &plan, why, sizeof(why)),
        -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "pull needs 4"));
    facts.strategy = 0;
    facts.resident = 1;
    ck_assert_int_eq(
        gemmar_plan_make(100, 100, 100, GEMMAR_DTYPE_BF16, &facts, &plan, why, sizeof(why)),
        -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "exchange needs 2"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_chunk_fits_a_command_in_every_type);
    tcase_add_test(tests, a_capacity_holds_every_rank);
    tcase_add_test(tests, shapes_that_creep_up_grow_a_workspace_seldom);
    tcase_add_test(tests, what_is_reserved_holds_every_smaller_shape);
    tcase_add_test(tests, what_is_reserved_holds_every_smaller_shape_on_nodes);
    tcase_add_test(tests, direct_costs_little_memory_on_many_nodes);
    tcase_add_test(tests, one_large_shape_grows_a_workspace_to_what_it_needs);
    tcase_add_test(tests, the_maximum_of_two_capacities_holds_both);
    tcase_add_test(tests, the_algorithm_follows_nodes_and_size);
    tcase_add_test(tests, what_cannot_run_says_why_and_leaves_the_plan);
    tcase_add_test(tests, every_stage_has_a_cta);
    tcase_add_test(tests, the_model_finds_the_measured_tiles);
    tcase_add_test(tests, the_model_knows_the_network);
    tcase_add_test(tests, the_algorithm_follows_the_rate_of_the_nic);
    tcase_add_test(tests, settings_go_before_the_table_and_that_before_the_model);
    tcase_add_test(tests, every_shape_has_a_plan_on_a_gpu);
    tcase_add_test(tests, an_exchange_is_for_two_gpus_and_no_large_result);
    tcase_add_test(tests, a_table_does_not_make_ranks_exchange_that_cannot);
    tcase_add_test(tests, too_few_resident_ctas_are_refused);
    suite_add_tcase(suite, tests);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
