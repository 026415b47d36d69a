// SPDX-License-Identifier: Apache-2.0
// main() of a test program with one suite: TAP on standard output.
#ifndef GEMMAR_TEST_TOOLS_TAP_H
#define GEMMAR_TEST_TOOLS_TAP_H

#include <check.h>

static inline int tap_run(const char *name, const TTest *const *tests)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    SRunner *runner;
    int failed;

    for (; *tests != NULL; tests++) {
        tcase_add_test(tcase, *tests);
    }
    tcase_set_timeout(tcase, 30);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
