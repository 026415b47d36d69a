// SPDX-License-Identifier: Apache-2.0
// Right results on every grid, for every shape and type, with both algorithms and signal modes.
#include <stdlib.h>
#include <string.h>

#include "test/protocol/problem.h"
#include "test/protocol/ranks.h"

struct grid {
    int nodes, per_node;
};

static const struct grid grids[] = {{2, 1}, {2, 2}, {3, 1}, {4, 2}, {1, 4}, {1, 1}};

/* A sanitizer sees the same chunks of shorter sums; one of these still has two blocks of K. */
#ifdef SANITIZED
#define K(plain, sanitized) (sanitized)
#else
#define K(plain, sanitized) (plain)
#endif

static const struct problem shapes[] = {
    {1, 1, 1, gemmarBfloat16, 0, 1},
    {128, 256, 64, gemmarFloat16, 0, 2},
    {129, 257, K(65, 265), gemmarFloat32, 0, 3},
    {0, 64, 64, gemmarBfloat16, 0, 4},
    {1000, 777, K(333, 9), gemmarBfloat16, 0, 5},
    {64, 0, 64, gemmarBfloat16, 0, 6},
    {64, 8192, K(512, 16), gemmarBfloat16, 0, 7},
    {64, 64, 0, gemmarFloat16, 0, 8},
    {5, 3000, K(40, 9), gemmarFloat32, 0, 9},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* One call, checked; its hash into the report. */
static void call(struct rank *rank, gemmarComm_t comm, const struct problem *shape, int index)
{
    struct problem p = *shape;
    struct operands o;
    gemmarResult_t result;
    int64_t wrong;

    p.ranks = rank->ranks;
    p.datatype = problem_type(p.datatype);
    o = problem_make(&p, rank->rank);
    result = gemmar_fused(o.a, o.b, o.c, p.m, p.n, p.k, p.datatype, comm, NULL);
    if (result != gemmarSuccess) {
        ranks_fail(rank, "shape %d: %d %s", index, result, gemmarGetLastError(comm));
    }
    wrong = rank->rank == 0 ? problem_wrong(&p, &o) : 0;
    if (wrong != 0) {
        ranks_fail(rank, "shape %d (%lld %lld %lld): %lld wrong", index, (long long)p.m,
                   (long long)p.n, (long long)p.k, (long long)wrong);
    }
    rank->report->number[index] = problem_hash(&o);
    problem_free(&o);
}

static void check_info(struct rank *rank, gemmarComm_t comm)
{
    gemmarCommInfo_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    struct problem p = {300, 700, 50, gemmarBfloat16, 0, 77};
    size_t bytes = 0;

    if (gemmarCommGetInfo(comm, &before) != gemmarSuccess) {
        ranks_fail(rank, "info: %s", gemmarGetLastError(comm));
    }
    call(rank, comm, &p, SHAPES);
    if (gemmarCommGetInfo(comm, &after) != gemmarSuccess) {
        ranks_fail(rank, "info: %s", gemmarGetLastError(comm));
    }
    if (after.wireBytes - before.wireBytes != after.wireBytesFormula) {
        ranks_fail(rank, "%llu bytes on the wire, %llu by formula",
                   (unsigned long long)(after.wireBytes - before.wireBytes),
                   (unsigned long long)after.wireBytesFormula);
    }
    if (after.epoch != before.epoch + 1 || after.nodes != rank->nodes) {
        ranks_fail(rank, "epoch %llu after %llu, nodes %d", (unsigned long long)after.epoch,
                   (unsigned long long)before.epoch, after.nodes);
    }
    /* the largest shape of the list decides */
    if (gemmarWorkspaceBytes(1000, 777, 333, gemmarBfloat16, after.nodes, after.localRanks,
                             &rank->config, &bytes) != gemmarSuccess ||
        bytes > after.workspaceBytes) {
        ranks_fail(rank, "workspace of %zu bytes by query, %llu in use: %s", bytes,
                   (unsigned long long)after.workspaceBytes, gemmarGetLastError(NULL));
    }
}

static void all_shapes(struct rank *rank)
{
    gemmarComm_t comm;

    if (rank->argument != NULL) {
        rank->config.algo = *(const gemmarAlgo_t *)rank->argument;
    }
    comm = ranks_create(rank);
    for (size_t i = 0; i < SHAPES; i++) {
        call(rank, comm, &shapes[i], (int)i);
    }
    check_info(rank, comm);
    ranks_destroy(rank, comm);
}

/* Bits are equal on all ranks. */
static void check_equal(const struct report *reports, int ranks)
{
    for (int r = 1; r < ranks; r++) {
        for (size_t i = 0; i <= SHAPES; i++) {
            ck_assert_msg(reports[r].number[i] == reports[0].number[i],
                          "shape %zu: rank %d has other bits than rank 0", i, r);
        }
    }
}

START_TEST(every_shape_on_every_grid)
{
    const struct grid *g = &grids[_i];

    check_equal(ranks_simple(g->nodes, g->per_node, all_shapes, NULL), g->nodes * g->per_node);
}
END_TEST

START_TEST(both_algorithms)
{
    static const gemmarAlgo_t algos[] = {gemmarAlgoDirect, gemmarAlgoTwoShot};
    const struct grid *g = &grids[_i / 2];

    check_equal(ranks_simple(g->nodes, g->per_node, all_shapes, &algos[_i % 2]),
                g->nodes * g->per_node);
}
END_TEST

START_TEST(signal_by_immediate)
{
    const struct grid *g = &grids[_i];

    ck_assert_int_eq(setenv("GEMMAR_SIGNAL", "imm", 1), 0);
    check_equal(ranks_simple(g->nodes, g->per_node, all_shapes, NULL), g->nodes * g->per_node);
}
END_TEST

START_TEST(two_runs_have_the_same_bits)
{
    uint64_t first[SHAPES];
    const struct report *reports = ranks_simple(2, 2, all_shapes, NULL);

    for (size_t i = 0; i < SHAPES; i++) {
        first[i] = reports[0].number[i];
    }
    reports = ranks_simple(2, 2, all_shapes, NULL);
    for (size_t i = 0; i < SHAPES; i++) {
        ck_assert_uint_eq(first[i], reports[3].number[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grid");
    TCase *all = tcase_create("grid");

    tcase_set_timeout(all, 2 * RANKS_SECONDS + 20);
    tcase_add_loop_test(all, every_shape_on_every_grid, 0, 6);
    tcase_add_loop_test(all, both_algorithms, 0, 6);
    tcase_add_loop_test(all, signal_by_immediate, 1, 3);
    tcase_add_test(all, two_runs_have_the_same_bits);
    suite_add_tcase(suite, all);
    return ranks_main(suite);
}
