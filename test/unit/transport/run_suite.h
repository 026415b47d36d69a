// SPDX-License-Identifier: Apache-2.0
// main() of a unit test: run one test case as TAP.
#ifndef RUN_SUITE_H
#define RUN_SUITE_H

#include <check.h>

static inline int run_suite(const char *name, TCase *tests, int seconds)
{
    Suite *suite = suite_create(name);
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tests, seconds);
    suite_add_tcase(suite, tests);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
