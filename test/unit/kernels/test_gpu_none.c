// SPDX-License-Identifier: Apache-2.0
// A library built without CUDA answers for the GPU's functions, and a CPU communicator registers
// nothing.
#include <string.h>

#include <check.h>
#include <gemmar/gemmar.h>

static int gather_alone(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    memcpy(all, mine, bytes);
    return 0;
}

START_TEST(says_so)
{
    gemmarComm_t comm = NULL;
    void *memory = NULL;

    ck_assert_int_eq(gemmarCommCreate(&comm, NULL, NULL), gemmarInvalidUsage);
    ck_assert_str_eq(gemmarGetLastError(NULL),
                     "gemmarCommCreate: this libgemmar was built without CUDA");
    ck_assert_int_eq(gemmarMemAlloc(&memory, 1), gemmarInvalidUsage);
    ck_assert_int_eq(gemmarMemFree(memory), gemmarInvalidUsage);
}
END_TEST

START_TEST(registers_nothing)
{
    gemmarHostBootstrap_t b = {.size = sizeof(b), .nranks = 1, .allGather = gather_alone};
    gemmarComm_t comm = NULL;
    void *handle = NULL;

    ck_assert_int_eq(gemmarCommCreateHost(&comm, &b, NULL), gemmarSuccess);
    ck_assert_int_eq(gemmarCommRegister(comm, &b, sizeof(b), &handle), gemmarInvalidUsage);
    ck_assert_int_eq(gemmarCommDeregister(comm, handle), gemmarInvalidUsage);
    ck_assert_int_eq(gemmarCommDestroy(comm), gemmarSuccess);
    ck_assert_int_eq(gemmarCommRegister(NULL, &b, sizeof(b), &handle), gemmarInvalidArgument);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_none");
    TCase *all = tcase_create("gpu_none");
    SRunner *runner;
    int failed;

    tcase_add_test(all, says_so);
    tcase_add_test(all, registers_nothing);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
