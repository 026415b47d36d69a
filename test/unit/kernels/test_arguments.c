// SPDX-License-Identifier: Apache-2.0
// Which argument lists are refused, and with what sentence.
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "kernels/arguments.h"
#include "kernels/dtype.h"

static uint16_t memory[4096];

static gemmarFusedArgs_t good(void)
{
    gemmarFusedArgs_t args = {
        .size = sizeof(args),
        .A = memory,
        .B = memory + 1024,
        .C = memory + 2048,
        .M = 8,
        .N = 16,
        .K = 4,
        .datatype = gemmarBfloat16,
        .alpha = 1.0f,
    };

    return args;
}

static void refused(const gemmarFusedArgs_t *args, const char *part)
{
    struct gemmar_operands o = {.k = 77};
    struct gemmar_error error = {.result = gemmarSuccess};

    ck_assert_int_eq(gemmar_arguments_check(args, &o, &error), gemmarInvalidArgument);
    ck_assert_msg(strstr(error.text, part) != NULL, "'%s' does not say '%s'", error.text, part);
    ck_assert_int_eq(o.k, 77); /* untouched */
}

static void taken(const gemmarFusedArgs_t *args)
{
    struct gemmar_operands o;
    struct gemmar_error error = {.result = gemmarSuccess};

    ck_assert_msg(gemmar_arguments_check(args, &o, &error) == gemmarSuccess, "%s", error.text);
}

START_TEST(dense_strides_are_filled_in)
{
    gemmarFusedArgs_t args = good();
    struct gemmar_operands o;
    struct gemmar_error error = {.result = gemmarSuccess};

    args.transB = 1;
    ck_assert_int_eq(gemmar_arguments_check(&args, &o, &error), gemmarSuccess);
    ck_assert_int_eq(o.lda, 4);
    ck_assert_int_eq(o.ldb, 4);
    ck_assert_int_eq(o.ldc, 16);
    ck_assert_uint_eq(o.dtype, GEMMAR_DTYPE_BF16);
}
END_TEST

START_TEST(bad_values)
{
    gemmarFusedArgs_t args = good();

    refused(NULL, "args is NULL");
    args.size = 8;
    refused(&args, "size 8");
    args = good();
    args.M = -1;
    refused(&args, "negative size: M -1");
    args = good();
    args.K = INT64_MAX;
    refused(&args, "at most");
    args = good();
    args.datatype = (gemmarDataType_t)2;
    refused(&args, "datatype 2");
    args = good();
    args.lda = 3;
    refused(&args, "ldA 3");
    args = good();
    args.ldc = -16;
    refused(&args, "negative stride");
    args = good();
    args.B = NULL;
    refused(&args, "B is NULL");
    args = good();
    args.A = (const char *)memory + 1;
    refused(&args, "not aligned");
    args = good();
    args.lda = INT64_MAX / 2;
    refused(&args, "too large");
}
END_TEST

START_TEST(overlap_of_one_byte)
{
    gemmarFusedArgs_t args = good();

    args.A = memory + 2048 + 8 * 16 - 1; /* the last element of C */
    refused(&args, "C overlaps A");
    args.A = memory + 2048 + 8 * 16;
    taken(&args);
    args = good();
    args.B = memory + 2048 - 4 * 16 + 1;
    refused(&args, "C overlaps B");
    args.B = memory + 2048 - 4 * 16;
    taken(&args);
    args = good();
    args.bias = memory + 2048 - 15;
    refused(&args, "C overlaps bias");
}
END_TEST

START_TEST(empty_operands_may_be_null)
{
    gemmarFusedArgs_t args = good();

    args.K = 0;
    args.A = args.B = NULL;
    taken(&args);
    args = good();
    args.M = 0;
    args.A = args.C = NULL;
    taken(&args);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arguments");
    TCase *all = tcase_create("arguments");
    SRunner *runner;
    int failed;

    tcase_add_test(all, dense_strides_are_filled_in);
    tcase_add_test(all, bad_values);
    tcase_add_test(all, overlap_of_one_byte);
    tcase_add_test(all, empty_operands_may_be_null);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
