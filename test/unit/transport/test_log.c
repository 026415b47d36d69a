// SPDX-License-Identifier: Apache-2.0
// Log lines: the level filter, the length limit, whole lines on standard error.
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "transport/log.h"

static int lines;
static enum gemmar_log_level last_level;
static char last[2048];

static void keep(void *user, enum gemmar_log_level level, const char *text)
{
    ck_assert_ptr_eq(user, &lines);
    lines++;
    last_level = level;
    (void)snprintf(last, sizeof(last), "%s", text);
}

START_TEST(lines_above_the_level_are_dropped)
{
    struct gemmar_logger logger = {.sink = keep, .user = &lines, .level = GEMMAR_LOG_WARN};

    gemmar_info(&logger, "not %d", 1);
    ck_assert_int_eq(lines, 0);
    gemmar_warn(&logger, "ib_mr: %s %d", "fake0", 7);
    ck_assert_int_eq(lines, 1);
    ck_assert_int_eq(last_level, GEMMAR_LOG_WARN);
    ck_assert_str_eq(last, "ib_mr: fake0 7");
}
END_TEST

START_TEST(a_long_line_is_cut)
{
    struct gemmar_logger logger = {.sink = keep, .user = &lines, .level = GEMMAR_LOG_WARN};

    gemmar_warn(&logger, "%1500d", 5);
    ck_assert_uint_eq(strlen(last), 1023);
}
END_TEST

START_TEST(without_a_sink_a_line_goes_to_standard_error_in_one_write)
{
    struct gemmar_logger logger = {.level = GEMMAR_LOG_INFO};
    char text[2048], want[64];
    int ends[2], saved = dup(STDERR_FILENO);
    ssize_t n;

    ck_assert_int_eq(pipe2(ends, O_DIRECT), 0); /* packets: a read returns one write */
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    gemmar_info(&logger, "first %d", 1);
    gemmar_warn(&logger, "%1500d", 2);
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    n = read(ends[0], text, sizeof(text) - 1);
    ck_assert_int_gt(n, 0);
    text[n] = '\0';
    (void)snprintf(want, sizeof(want), "gemmar %d info first 1\n", (int)getpid());
    ck_assert_str_eq(text, want);
    n = read(ends[0], text, sizeof(text) - 1);
    ck_assert_int_gt(n, 1023);
    ck_assert_int_eq(text[n - 1], '\n');
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)close(saved);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, lines_above_the_level_are_dropped);
    tcase_add_test(tcase, a_long_line_is_cut);
    tcase_add_test(tcase, without_a_sink_a_line_goes_to_standard_error_in_one_write);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
