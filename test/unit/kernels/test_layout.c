// SPDX-License-Identifier: Apache-2.0
// No two things of a workspace share memory, and its size keeps the bound.
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "kernels/dtype.h"
#include "kernels/fabric_shm.h"
#include "kernels/layout.h"
#include "kernels/plan.h"

#define SPANS 4096

struct span {
    uint64_t first, end;
};

static struct span spans[SPANS];
static int used;

static void add(uint64_t offset, uint64_t bytes)
{
    if (bytes != 0) {
        ck_assert_int_lt(used, SPANS);
        spans[used++] = (struct span){offset, offset + bytes};
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

static void check_apart(uint64_t bytes)
{
    qsort(spans, (size_t)used, sizeof(spans[0]), by_offset);
    for (int i = 0; i < used; i++) {
        ck_assert_uint_le(spans[i].end, i + 1 < used ? spans[i + 1].first : bytes);
    }
}

static struct gemmar_capacity capacity_of(int64_t m, int64_t n, uint32_t dtype, uint32_t nodes,
                                          uint32_t locals, uint32_t algo)
{
    struct gemmar_plan_facts facts = {.nodes = nodes, .locals = locals, .algo = algo};
    struct gemmar_plan plan;
    char why[256];

    ck_assert_int_eq(gemmar_plan_make(m, n, 0, dtype, &facts, &plan, why, sizeof(why)), 0);
    return gemmar_plan_capacity(&plan);
}

/* All stamps and words of one node; data windows of the kinds that one call uses. */
static void add_all(const struct gemmar_layout *l, uint32_t node, const uint32_t *kinds, int count)
{
    const struct gemmar_capacity *c = &l->capacity;

    used = 0;
    add(0, sizeof(struct gemmar_control));
    add(l->words, sizeof(struct gemmar_words));
    add(l->tiles_done, 8 * c->chunks);
    add(l->staged, 8 * c->slots);
    add(l->ready, 8 * c->slots * l->locals * c->parts);
    add(l->published, 8 * c->chunks * c->parts);
    add(l->told, 8 * l->locals);
    add(l->partial, c->partial_bytes);
    add(l->out, c->out_bytes);
    for (uint32_t parity = 0; l->nodes > 1 && parity < 2; parity++) {
        add(l->data + l->staging[parity],
            kinds[0] == GEMMAR_ROUTE_DIRECT ? c->slice_bytes : l->nodes * l->staging_stride);
        add(l->data + l->result[parity], c->sub_bytes);
        for (uint32_t from = 0; from < l->nodes; from++) {
            for (uint32_t k = 0; from != node && k < GEMMAR_ROUTE_KINDS; k++) {
                add(l->stamps + gemmar_layout_stamps(l, parity, k, node, from),
                    8 * gemmar_layout_slots(l, k));
            }
            for (int k = 0; from != node && k < count; k++) {
                add(l->data + gemmar_layout_sink(l, parity, kinds[k], node, from),
                    gemmar_layout_window(l, kinds[k]));
            }
        }
    }
    check_apart(l->bytes);
}

START_TEST(nothing_overlaps)
{
    static const uint32_t direct[] = {GEMMAR_ROUTE_DIRECT};
    static const uint32_t two_shot[] = {GEMMAR_ROUTE_SCATTER, GEMMAR_ROUTE_GATHER};
    static const uint32_t grids[][2] = {{1, 4}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {8, 3}};

    for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
        uint32_t nodes = grids[i][0], locals = grids[i][1];
        struct gemmar_capacity a = capacity_of(1000, 777, GEMMAR_DTYPE_BF16, nodes, locals,
                                               GEMMAR_ALGO_DIRECT),
                               b = capacity_of(2000, 333, GEMMAR_DTYPE_FP32, nodes, locals,
                                               GEMMAR_ALGO_TWO_SHOT),
                               both = gemmar_capacity_max(&a, &b);
        struct gemmar_layout l = gemmar_layout_make(&both, nodes, locals);

        for (uint32_t node = 0; node < nodes; node++) {
            add_all(&l, node, direct, 1);
            add_all(&l, node, two_shot, 2);
        }
    }
}
END_TEST

/* Also where M is a little more than a row of tiles: the rows are spread evenly over the tiles. */
START_TEST(two_nodes_keep_the_bound)
{
    static const int64_t sizes[] = {1, 7, 64, 129, 140, 257, 1000, 4096, 16384, 147619};

    for (int i = 0; i < 10 * 10 * 3 * 4; i++) {
        int64_t m = sizes[i % 10], n = sizes[i / 10 % 10];
        uint32_t dtype = (uint32_t)(i / 100 % 3), locals = 1u << (i / 300);
        struct gemmar_capacity c = capacity_of(m, n, dtype, 2, locals, 0);
        uint64_t output = (uint64_t)(m * n) * gemmar_dtype_bytes(dtype);
        uint64_t slice = output / locals;
        uint64_t limit = 2 * (output + 3 * slice) + (8 << 20);
        uint64_t bytes = gemmar_layout_make(&c, 2, locals).bytes;

        ck_assert_msg(bytes <= limit, "%lld x %lld: %llu of %llu bytes", (long long)m, (long long)n,
                      (unsigned long long)bytes, (unsigned long long)limit);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *all = tcase_create("layout");
    SRunner *runner;
    int failed;

    tcase_add_test(all, nothing_overlaps);
    tcase_add_test(all, two_nodes_keep_the_bound);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
