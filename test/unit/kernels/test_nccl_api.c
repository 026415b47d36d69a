// SPDX-License-Identifier: Apache-2.0
// What a library built with CUDA says of the process's NCCL, on a machine without a GPU.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>
#include <gemmar/gemmar.h>

static const char *library;

static void expect(const char *sentence)
{
    gemmarComm_t comm = NULL;
    int nothing;

    /* The communicator is not looked at before there is a library that it may be of. */
    ck_assert_int_eq(gemmarCommCreate(&comm, (ncclComm_t)(void *)&nothing, NULL),
                     gemmarInvalidUsage);
    ck_assert_msg(strstr(gemmarGetLastError(NULL), sentence) != NULL, "%s",
                  gemmarGetLastError(NULL));
    ck_assert_ptr_null(comm);
}

static void load(const char *version)
{
    ck_assert_int_eq(setenv("FAKE_NCCL_VERSION", version, 1), 0);
    ck_assert_ptr_nonnull(dlopen(library, RTLD_NOW | RTLD_LOCAL));
}

START_TEST(there_is_none)
{
    void *memory = NULL;

    expect("no NCCL in this process");
    ck_assert_int_eq(gemmarMemAlloc(&memory, 100), gemmarInvalidUsage);
    ck_assert_int_eq(gemmarMemFree(NULL), gemmarSuccess);
}
END_TEST

START_TEST(too_old)
{
    load("22706");
    expect("version 2.27.6: 2.28.0 or newer");
}
END_TEST

START_TEST(a_function_is_missing)
{
    load("22809");
    expect("NCCL 2.28.9 lacks nccl");
}
END_TEST

START_TEST(it_comes_later)
{
    expect("no NCCL in this process");
    load("22706");
    expect("version 2.27.6");
}
END_TEST

START_TEST(wrong_arguments)
{
    gemmarComm_t comm = NULL;

    ck_assert_int_eq(gemmarCommCreate(NULL, NULL, NULL), gemmarInvalidArgument);
    ck_assert_int_eq(gemmarCommCreate(&comm, NULL, NULL), gemmarInvalidArgument);
    ck_assert_int_eq(gemmarMemAlloc(NULL, 100), gemmarInvalidArgument);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("nccl_api");
    TCase *all = tcase_create("nccl_api");
    SRunner *runner;
    int failed;

    library = argc > 1 ? argv[1] : "libnccl.so.2";
    tcase_add_test(all, there_is_none);
    tcase_add_test(all, too_old);
    tcase_add_test(all, a_function_is_missing);
    tcase_add_test(all, it_comes_later);
    tcase_add_test(all, wrong_arguments);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
