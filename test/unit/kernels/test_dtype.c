// SPDX-License-Identifier: Apache-2.0
// Conversions of all 65,536 values of each 16-bit type, and rounding between them.
#include <check.h>
#include <math.h>

#include "kernels/dtype.h"

START_TEST(every_bf16_survives_the_way_through_fp32)
{
    for (uint32_t v = 0; v < 65536; v++) {
        float x = gemmar_from_bf16((uint16_t)v);

        if (isnan(x)) {
            ck_assert(isnan(gemmar_from_bf16(gemmar_to_bf16(x))));
        } else {
            ck_assert_uint_eq(gemmar_to_bf16(x), v);
        }
    }
}
END_TEST

START_TEST(every_fp16_survives_the_way_through_fp32)
{
    for (uint32_t v = 0; v < 65536; v++) {
        float x = gemmar_from_fp16((uint16_t)v);
        int exponent = (int)(v >> 10 & 31);

        if (exponent == 31 && (v & 1023) != 0) {
            ck_assert(isnan(x));
            ck_assert(isnan(gemmar_from_fp16(gemmar_to_fp16(x))));
            continue;
        }
        double want = exponent == 31  ? INFINITY
                      : exponent == 0 ? ldexp(v & 1023, -24)
                                      : ldexp((v & 1023) | 1024, exponent - 25);
        ck_assert_double_eq(x, v & 0x8000 ? -want : want);
        ck_assert_uint_eq(gemmar_to_fp16(x), v);
    }
}
END_TEST

/* The value half way between two neighbours goes to the even one, everything else to the nearer. */
static void check_rounding(uint32_t dtype, uint32_t last)
{
    for (uint32_t v = 0; v < last; v++) {
        uint16_t low = (uint16_t)v, high = (uint16_t)(v + 1);
        double a = gemmar_load_element(dtype, &low, 0), b = gemmar_load_element(dtype, &high, 0);
        float half = (float)((a + b) / 2);
        uint16_t got;

        gemmar_store_element(dtype, &got, 0, half);
        ck_assert_uint_eq(got, v & 1 ? high : low);
        gemmar_store_element(dtype, &got, 0, nextafterf(half, 0.0f));
        ck_assert_uint_eq(got, low);
        gemmar_store_element(dtype, &got, 0, nextafterf(half, INFINITY));
        ck_assert_uint_eq(got, high);
    }
}

START_TEST(rounding_is_to_nearest_even)
{
    check_rounding(GEMMAR_DTYPE_FP16, 0x7bff);
    check_rounding(GEMMAR_DTYPE_BF16, 0x7f7f);
}
END_TEST

START_TEST(overflow_becomes_infinity)
{
    ck_assert_uint_eq(gemmar_to_fp16(65519.996f), 0x7bff);
    ck_assert_uint_eq(gemmar_to_fp16(65520.0f), 0x7c00);
    ck_assert_uint_eq(gemmar_to_fp16(-1e30f), 0xfc00);
    ck_assert_uint_eq(gemmar_to_bf16(3.4e38f), 0x7f80);
    ck_assert_uint_eq(gemmar_to_bf16(-INFINITY), 0xff80);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dtype");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_bf16_survives_the_way_through_fp32);
    tcase_add_test(tests, every_fp16_survives_the_way_through_fp32);
    tcase_add_test(tests, rounding_is_to_nearest_even);
    tcase_add_test(tests, overflow_becomes_infinity);
    suite_add_tcase(suite, tests);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
