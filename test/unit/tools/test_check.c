// SPDX-License-Identifier: Apache-2.0
// The inputs keep their promise, and the check finds one wrong element.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/tools/tap.h"
#include "tools/gemmar_perf/check.h"
#include "tools/gemmar_perf/options.h"

#define M 13
#define N 70
#define K 300
#define R 3

static char why[512];
static uint16_t a[M * K], b[K * N], c[M * N];
static float wide[R][M * N];
static const uint32_t nodes[R] = {0, 0, 1};

static struct gemmar_perf_inputs inputs(enum gemmar_perf_kind kind)
{
    return (struct gemmar_perf_inputs){.kind = kind,
                                       .dtype = gemmarBfloat16,
                                       .seed = 5,
                                       .call = 9,
                                       .ranks = R,
                                       .m = M,
                                       .n = N,
                                       .k = K};
}

/* The result, rounded once per stage as the library does; returns the largest partial sum. */
static float make_result(const struct gemmar_perf_inputs *in)
{
    float largest = 0;

    memset(wide, 0, sizeof(wide));
    for (uint32_t r = 0; r < R; r++) {
        ck_assert_int_eq(gemmar_perf_inputs_fill(in, r, a, b, why, sizeof(why)), 0);
        for (int i = 0; i < M; i++) {
            for (int j = 0; j < N; j++) {
                float sum = 0, size = 0;

                for (int l = 0; l < K; l++) {
                    int at = in->trans_b ? j * K + l : l * N + j;
                    float x = gemmar_perf_load(in->dtype, a, i * K + l) *
                              gemmar_perf_load(in->dtype, b, at);

                    sum += x;
                    size += fabsf(x);
                }
                largest = fmaxf(largest, size);
                wide[r][i * N + j] = sum;
            }
        }
    }
    for (int i = 0; i < M * N; i++) {
        float sum = 0;

        for (int r = 0; r < R; r++) {
            gemmar_perf_store(in->dtype, c, i, wide[r][i]);
            sum += gemmar_perf_load(in->dtype, c, i);
        }
        gemmar_perf_store(in->dtype, c, i, sum);
    }
    return largest;
}

static uint64_t wrong(const struct gemmar_perf_inputs *in)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < R; r++) {
        struct gemmar_perf_rows rows = gemmar_perf_rows_share(in, r, UINT64_MAX);
        struct gemmar_perf_verdict v;

        ck_assert_int_eq(gemmar_perf_check(in, nodes, &rows, c, &v, why, sizeof(why)), 0);
        sum += v.wrong;
    }
    return sum;
}

START_TEST(exact_inputs_give_an_exact_sum)
{
    for (int trans = 0; trans < 2; trans++) {
        struct gemmar_perf_inputs in = inputs(GEMMAR_PERF_EXACT);

        in.trans_b = trans;
        ck_assert(make_result(&in) * R <= 256);
        ck_assert_uint_eq(wrong(&in), 0);
    }
}
END_TEST

START_TEST(one_wrong_element_is_found_in_any_row)
{
    struct gemmar_perf_inputs in = inputs(GEMMAR_PERF_EXACT);

    (void)make_result(&in);
    for (int i = 0; i < M; i++) {
        uint16_t was = c[i * N + i];

        c[i * N + i] ^= 1;
        ck_assert_uint_eq(wrong(&in), 1);
        c[i * N + i] = was;
    }
    c[7] = 0x7fc0; /* not a number */
    ck_assert_uint_eq(wrong(&in), 1);
}
END_TEST

START_TEST(rounded_results_keep_the_bound_and_others_do_not)
{
    struct gemmar_perf_inputs in = inputs(GEMMAR_PERF_NORMAL);
    float x;

    (void)make_result(&in);
    ck_assert_uint_eq(wrong(&in), 0);
    x = gemmar_perf_load(in.dtype, c, 50);
    gemmar_perf_store(in.dtype, c, 50, x + 0.5f);
    ck_assert_uint_eq(wrong(&in), 1);
    in.call++; /* the results of another call */
    ck_assert_uint_gt(wrong(&in), M * N / 2);
}
END_TEST

START_TEST(shares_cover_every_row_once)
{
    struct gemmar_perf_inputs in = inputs(GEMMAR_PERF_NORMAL);
    int seen[M] = {0};

    for (uint32_t r = 0; r < R; r++) {
        struct gemmar_perf_rows rows = gemmar_perf_rows_share(&in, r, UINT64_MAX);

        for (int64_t i = 0; i < rows.count; i++) {
            seen[rows.first + i * rows.step]++;
        }
        rows = gemmar_perf_rows_share(&in, r, 1); /* no budget: one row at least */
        ck_assert_int_ge(rows.count, 1);
        ck_assert_int_lt(rows.first + (rows.count - 1) * rows.step, M);
    }
    for (int i = 0; i < M; i++) {
        ck_assert_int_eq(seen[i], 1);
    }
}
END_TEST

START_TEST(checksum_sees_every_byte)
{
    uint8_t data[19] = {0};
    uint64_t zero = gemmar_perf_checksum(1, data, sizeof(data));

    ck_assert_uint_ne(zero, gemmar_perf_checksum(1, data, sizeof(data) - 1));
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = 1;
        ck_assert_uint_ne(zero, gemmar_perf_checksum(1, data, sizeof(data)));
        data[i] = 0;
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {exact_inputs_give_an_exact_sum,
                                  one_wrong_element_is_found_in_any_row,
                                  rounded_results_keep_the_bound_and_others_do_not,
                                  shares_cover_every_row_once,
                                  checksum_sees_every_byte,
                                  NULL};

    return tap_run("check", tests);
}
