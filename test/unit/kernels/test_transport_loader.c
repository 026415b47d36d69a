// SPDX-License-Identifier: Apache-2.0
// A transport that is not there, or not one, is refused with a sentence.
#include <string.h>

#include <check.h>

#include "kernels/transport_loader.h"

static const struct gemmar_logger quiet = {.level = (enum gemmar_log_level)0};

static void refused(const char *path, const char *part)
{
    struct gemmar_transport_library library = {0};
    struct gemmar_error error = {.result = gemmarSuccess};

    ck_assert_int_eq(gemmar_transport_library_open(path, &quiet, &library, &error),
                     gemmarSystemError);
    ck_assert_msg(strstr(error.text, part) != NULL, "'%s' does not say '%s'", error.text, part);
    ck_assert_ptr_null(library.handle);
    ck_assert_ptr_null(library.table);
}

START_TEST(a_path_that_leads_nowhere)
{
    refused("/nonexistent/libnccl-net-gemmar.so", "/nonexistent/");
}
END_TEST

START_TEST(a_library_of_somebody_else)
{
    refused("libm.so.6", "no symbol gemmarTransport_v1");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("transport_loader");
    TCase *all = tcase_create("transport_loader");
    SRunner *runner;
    int failed;

    tcase_add_test(all, a_path_that_leads_nowhere);
    tcase_add_test(all, a_library_of_somebody_else);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
