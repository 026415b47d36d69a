// SPDX-License-Identifier: Apache-2.0
// Which row strides a GPU call is refused for, and what becomes of the stride of a single row.
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "kernels/strides.h"

#define TMA_MOST  ((INT64_C(1) << 39) - 8)
#define COPY_MOST ((INT64_C(1) << 30) - 8)

/* Only addresses: nothing is read. */
static const void *aligned(void)
{
    return (const void *)(uintptr_t)4096;
}

static const void *odd(void)
{
    return (const void *)(uintptr_t)4098;
}

static gemmarFusedArgs_t good(void)
{
    gemmarFusedArgs_t args = {
        .size = sizeof(args),
        .A = aligned(),
        .B = aligned(),
        .C = (void *)(uintptr_t)8192,
        .M = 2,
        .N = 16,
        .K = 8,
        .datatype = gemmarBfloat16,
        .alpha = 1.0f,
    };

    return args;
}

static void taken(const gemmarFusedArgs_t *args)
{
    struct gemmar_error error = {.result = gemmarSuccess};

    ck_assert_msg(gemmar_strides_check(args, &error) == gemmarSuccess, "%s", error.text);
}

static void refused(const gemmarFusedArgs_t *args, const char *part)
{
    struct gemmar_error error = {.result = gemmarSuccess};

    ck_assert_int_eq(gemmar_strides_check(args, &error), gemmarInvalidArgument);
    ck_assert_msg(strstr(error.text, part) != NULL, "'%s' does not say '%s'", error.text, part);
}

START_TEST(limit_of_a_tensor_map)
{
    gemmarFusedArgs_t args = good();

    taken(&args);
    args.lda = args.ldb = args.ldc = TMA_MOST;
    taken(&args);
    args.lda = TMA_MOST + 8;
    refused(&args, "ldA 549755813888: a GPU takes at most 549755813880");
    args.lda = 0;
    args.ldb = TMA_MOST + 8;
    refused(&args, "ldB");
    args.ldb = 0;
    args.ldc = TMA_MOST + 8;
    refused(&args, "ldC");
}
END_TEST

START_TEST(limit_of_a_copy)
{
    gemmarFusedArgs_t args = good();

    args.lda = COPY_MOST + 8; /* aligned: not copied */
    taken(&args);
    args.A = odd();
    refused(&args, "ldA 1073741824: a GPU takes at most 1073741816 where base");
    args.lda = COPY_MOST;
    taken(&args);
    args.A = aligned();
    args.lda = COPY_MOST + 1;
    refused(&args, "ldA 1073741817");
    args.lda = 0;
    args.K = COPY_MOST + 1; /* dense rows of A; B's are short */
    refused(&args, "ldA 1073741817");
    args.K = 8;
    args.C = (char *)args.C + 2; /* never copied so */
    args.ldc = COPY_MOST + 8;
    taken(&args);
}
END_TEST

START_TEST(matrices_without_a_second_row)
{
    gemmarFusedArgs_t args = good();

    args.M = 1;
    args.lda = args.ldc = INT64_C(1) << 50;
    taken(&args);
    args.A = odd();
    taken(&args);
    args.K = 1;
    args.ldb = INT64_C(1) << 50;
    taken(&args);
    args.transB = 1; /* N rows now */
    refused(&args, "ldB");
    args.N = 1;
    taken(&args);
    args.K = 0;
    args.N = 16;
    taken(&args);
    args.K = 8;
    args.M = 0;
    taken(&args);
}
END_TEST

static struct gemmar_operands operands(int64_t k, uint32_t trans_b)
{
    struct gemmar_operands o = {.k = k, .lda = 1001, .ldb = 1002, .ldc = 1003, .trans_b = trans_b};

    return o;
}

START_TEST(single_rows_get_aligned_strides)
{
    struct gemmar_operands o = operands(9, 0);

    gemmar_strides_of_one_row(&o, 2, 17, 2);
    ck_assert(o.lda == 1001 && o.ldb == 1002 && o.ldc == 1003);
    gemmar_strides_of_one_row(&o, 1, 17, 2);
    ck_assert(o.lda == 16 && o.ldb == 1002 && o.ldc == 24);
    o = operands(1, 0); /* B is one row of N */
    gemmar_strides_of_one_row(&o, 2, 17, 2);
    ck_assert(o.lda == 1001 && o.ldb == 24 && o.ldc == 1003);
    o = operands(9, 1); /* B is one row of K */
    gemmar_strides_of_one_row(&o, 2, 1, 2);
    ck_assert(o.lda == 1001 && o.ldb == 16 && o.ldc == 1003);
}
END_TEST

START_TEST(stores_end_at_whole_units)
{
    const char *aligned = (const char *)4096;

    ck_assert(gemmar_strides_storable(aligned, 24, 32, 2));
    ck_assert(!gemmar_strides_storable(aligned, 23, 32, 2));
    ck_assert(!gemmar_strides_storable(aligned, 1, 8, 2));
    ck_assert(!gemmar_strides_storable(aligned, 24, 33, 2));
    ck_assert(!gemmar_strides_storable(aligned + 8, 24, 32, 2));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("strides");
    TCase *all = tcase_create("strides");
    SRunner *runner;
    int failed;

    tcase_add_test(all, limit_of_a_tensor_map);
    tcase_add_test(all, limit_of_a_copy);
    tcase_add_test(all, matrices_without_a_second_row);
    tcase_add_test(all, single_rows_get_aligned_strides);
    tcase_add_test(all, stores_end_at_whole_units);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
