// SPDX-License-Identifier: Apache-2.0
// Lists, ranges and the models' shapes.
#include <errno.h>
#include <string.h>

#include "test/unit/tools/tap.h"
#include "tools/gemmar_perf/models.h"
#include "tools/gemmar_perf/shapes.h"

static char why[512];
static struct gemmar_perf_sizes sizes;
static struct gemmar_perf_shapes shapes;

static void expect(const char *text, size_t count, int64_t first, int64_t last)
{
    ck_assert_int_eq(gemmar_perf_sizes_parse(text, &sizes, why, sizeof(why)), 0);
    ck_assert_uint_eq(sizes.count, count);
    ck_assert_int_eq(sizes.value[0], first);
    ck_assert_int_eq(sizes.value[count - 1], last);
}

START_TEST(lists_and_ranges)
{
    expect("1,2,3", 3, 1, 3);
    expect("0", 1, 0, 0);
    expect("2048:32768:x2", 5, 2048, 32768);
    expect("2048:32767:x2", 4, 2048, 16384);
    expect("1:10:+3", 4, 1, 10);
    expect("8:11", 4, 8, 11);
    expect("5:5:x2", 1, 5, 5);
    expect("1,4:16:x2,7", 5, 1, 7);
    expect("4K", 1, 4096, 4096);
    expect("1:1024G:x1024", 5, 1, INT64_C(1) << 40);
}
END_TEST

START_TEST(bad_sizes_are_refused_with_a_sentence)
{
    static const char *const bad[] = {"",       "-1",   "1,",     ",1",     "1:0",
                                      "1:2:x1", "1:2:", "0:4:x2", "1:9:+0", "1:2:y2",
                                      "x",      "1 2",  "1:",     "1025G",  "99999999999999999999",
                                      "1:9:x"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        sizes.count = 77;
        why[0] = '\0';
        ck_assert_msg(gemmar_perf_sizes_parse(bad[i], &sizes, why, sizeof(why)) == -EINVAL,
                      "'%s' was taken", bad[i]);
        ck_assert_uint_eq(sizes.count, 77);
        ck_assert_ptr_nonnull(strstr(why, bad[i]));
    }
    ck_assert_int_eq(gemmar_perf_sizes_parse("1:1000", &sizes, why, sizeof(why)), -EINVAL);
}
END_TEST

START_TEST(shapes_are_spanned_with_m_outermost)
{
    struct gemmar_perf_sizes m = {2, {1, 2}}, n = {1, {3}}, k = {2, {4, 5}};

    shapes.count = 0;
    ck_assert_int_eq(gemmar_perf_shapes_parse("1x1x1,128x256x64", &shapes, why, sizeof(why)), 0);
    ck_assert_int_eq(gemmar_perf_shapes_span(&m, &n, &k, &shapes, why, sizeof(why)), 0);
    ck_assert_uint_eq(shapes.count, 6);
    ck_assert_int_eq(shapes.shape[1].n, 256);
    ck_assert_int_eq(shapes.shape[2].m, 1);
    ck_assert_int_eq(shapes.shape[3].k, 5);
    ck_assert_int_eq(shapes.shape[5].m, 2);
    ck_assert_int_eq(gemmar_perf_shapes_parse("1x1", &shapes, why, sizeof(why)), -EINVAL);
    ck_assert_int_eq(gemmar_perf_shapes_parse("1x1x1,", &shapes, why, sizeof(why)), -EINVAL);
    ck_assert_int_eq(gemmar_perf_shapes_parse("1x1x-1", &shapes, why, sizeof(why)), -EINVAL);
    ck_assert_int_eq(gemmar_perf_shapes_parse("1x1x1x1", &shapes, why, sizeof(why)), -EINVAL);
    ck_assert_uint_eq(shapes.count, 6);
}
END_TEST

START_TEST(models_split_k_over_the_ranks)
{
    struct gemmar_perf_sizes m = {2, {1, 4096}};

    shapes.count = 0;
    ck_assert_int_eq(gemmar_perf_models_span("llama-3-70b", &m, 8, &shapes, why, sizeof(why)), 0);
    ck_assert_uint_eq(shapes.count, 4);
    ck_assert_int_eq(shapes.shape[3].m, 4096);
    ck_assert_int_eq(shapes.shape[3].n, 8192);
    ck_assert_int_eq(shapes.shape[3].k, 3584);
    ck_assert_int_eq(
        gemmar_perf_models_span("Llama-3-70B:attn-out", &m, 8, &shapes, why, sizeof(why)), 0);
    ck_assert_uint_eq(shapes.count, 6);
    ck_assert_int_eq(gemmar_perf_models_span("Llama-3-70B", &m, 7, &shapes, why, sizeof(why)),
                     -EINVAL);
    ck_assert_int_eq(gemmar_perf_models_span("Llama", &m, 8, &shapes, why, sizeof(why)), -EINVAL);
    ck_assert_int_eq(gemmar_perf_models_span("Llama-3-70B:none", &m, 8, &shapes, why, sizeof(why)),
                     -EINVAL);
    ck_assert_uint_eq(shapes.count, 6);
}
END_TEST

START_TEST(random_shapes_are_ragged_and_the_seed_s)
{
    static struct gemmar_perf_shapes again, other;
    uint32_t ragged = 0, small = 0, large = 0;

    shapes.count = again.count = other.count = 0;
    ck_assert_int_eq(gemmar_perf_shapes_random(7, 200, 1000, &shapes, why, sizeof(why)), 0);
    ck_assert_int_eq(gemmar_perf_shapes_random(7, 200, 1000, &again, why, sizeof(why)), 0);
    ck_assert_int_eq(gemmar_perf_shapes_random(8, 200, 1000, &other, why, sizeof(why)), 0);
    ck_assert_uint_eq(shapes.count, 200);
    ck_assert_int_eq(memcmp(&shapes, &again, sizeof(shapes)), 0);
    ck_assert_int_ne(memcmp(&shapes, &other, sizeof(shapes)), 0);
    for (size_t i = 0; i < shapes.count; i++) {
        const struct gemmar_perf_shape *s = &shapes.shape[i];

        ck_assert(s->m >= 1 && s->m <= 1000 && s->n >= 1 && s->n <= 1000 && s->k >= 1 &&
                  s->k <= 1000);
        ragged += s->m % 8 != 0 || s->n % 8 != 0 || s->k % 8 != 0;
        small += s->m < 64;
        large += s->m > 500;
    }
    ck_assert(ragged > 150 && small > 20 && large > 40);
    ck_assert_int_eq(gemmar_perf_shapes_random(7, 4000, 9, &shapes, why, sizeof(why)), -EINVAL);
    ck_assert_uint_eq(shapes.count, 200);
    ck_assert_int_eq(gemmar_perf_shapes_random(7, 50, 1, &shapes, why, sizeof(why)), 0);
    ck_assert_int_eq(shapes.shape[249].k, 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {lists_and_ranges,
                                  bad_sizes_are_refused_with_a_sentence,
                                  shapes_are_spanned_with_m_outermost,
                                  models_split_k_over_the_ranks,
                                  random_shapes_are_ragged_and_the_seed_s,
                                  NULL};

    return tap_run("shapes", tests);
}
