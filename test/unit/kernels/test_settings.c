// SPDX-License-Identifier: Apache-2.0
// The config over the knobs; what is refused.
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "kernels/settings.h"

static struct gemmar_settings settings;
static struct gemmar_error error;

static gemmarResult_t make(const gemmarConfig_t *config, const char *node)
{
    struct gemmar_logger log = {.level = GEMMAR_LOG_WARN};

    gemmar_error_clear(&error);
    return gemmar_settings_make(&settings, config, node, &log, &error);
}

START_TEST(config_wins_over_knob)
{
    gemmarConfig_t config = GEMMAR_CONFIG_INITIALIZER;

    ck_assert_int_eq(setenv("GEMMAR_ALGO", "two-shot", 1), 0);
    ck_assert_int_eq(setenv("GEMMAR_TIMEOUT", "2.5", 1), 0);
    ck_assert_int_eq(make(&config, NULL), gemmarSuccess);
    ck_assert_uint_eq(settings.algo, GEMMAR_ALGO_TWO_SHOT);
    ck_assert_uint_eq(settings.timeout_ns, 2500000000u);
    config.algo = gemmarAlgoDirect;
    config.timeoutMs = 7;
    config.tile_m = 32;
    ck_assert_int_eq(make(&config, NULL), gemmarSuccess);
    ck_assert_uint_eq(settings.algo, GEMMAR_ALGO_DIRECT);
    ck_assert_uint_eq(settings.timeout_ns, 7000000u);
    ck_assert_uint_eq(settings.tile_m, 32);
}
END_TEST

static void count_lines(void *user, enum gemmar_log_level level, const char *text)
{
    int *lines = user;

    (void)level;
    *lines += strstr(text, "GEMMAR_TIMOUT is not known") != NULL;
}

START_TEST(misspelt_variable_is_told)
{
    int lines = 0;
    struct gemmar_logger log = {.sink = count_lines, .user = &lines, .level = GEMMAR_LOG_WARN};

    ck_assert_int_eq(setenv("GEMMAR_TIMOUT", "3", 1), 0);
    gemmar_error_clear(&error);
    ck_assert_int_eq(gemmar_settings_make(&settings, NULL, NULL, &log, &error), gemmarSuccess);
    ck_assert_int_eq(lines, 1);
}
END_TEST

/* A caller of the first layout has other things behind its config. */
START_TEST(later_members_count_only_where_they_are)
{
    gemmarConfig_t config = GEMMAR_CONFIG_INITIALIZER;

    ck_assert_int_eq(setenv("GEMMAR_STRATEGY", "push", 1), 0);
    ck_assert_int_eq(setenv("GEMMAR_MAX_CTAS", "64", 1), 0);
    ck_assert_int_eq(make(&config, NULL), gemmarSuccess);
    ck_assert_uint_eq(settings.strategy, GEMMAR_STRATEGY_PUSH + 1);
    ck_assert_uint_eq(settings.max_ctas, 64);
    config.strategy = gemmarStrategyExchange;
    config.maxCtas = 32;
    config.deterministic = 1;
    ck_assert_int_eq(make(&config, NULL), gemmarSuccess);
    ck_assert_uint_eq(settings.strategy, GEMMAR_STRATEGY_EXCHANGE + 1);
    ck_assert_uint_eq(settings.max_ctas, 32);
    ck_assert_uint_eq(settings.deterministic, 1);
    config.size = 64;
    config.strategy = (gemmarStrategy_t)77;
    config.maxCtas = config.deterministic = config.reserved = 0xffffffffu;
    ck_assert_int_eq(make(&config, NULL), gemmarSuccess);
    ck_assert_uint_eq(settings.strategy, GEMMAR_STRATEGY_PUSH + 1);
    ck_assert_uint_eq(settings.max_ctas, 64);
    ck_assert_uint_eq(settings.deterministic, 0);
    config.size = sizeof(config);
    ck_assert_int_eq(make(&config, NULL), gemmarInvalidArgument);
    ck_assert_ptr_nonnull(strstr(error.text, "strategy 77"));
    config.strategy = gemmarStrategyAuto;
    ck_assert_int_eq(make(&config, NULL), gemmarInvalidArgument);
    ck_assert_ptr_nonnull(strstr(error.text, "maxCtas"));
}
END_TEST

START_TEST(deterministic_leaves_the_table_out)
{
    static const struct gemmar_tuning table;

    ck_assert_int_eq(make(NULL, NULL), gemmarSuccess);
    settings.table = &table;
    ck_assert_ptr_eq(gemmar_settings_facts(&settings, 1, 2).tuning, &table);
    ck_assert_int_eq(setenv("GEMMAR_DETERMINISTIC", "1", 1), 0);
    ck_assert_int_eq(make(NULL, NULL), gemmarSuccess);
    settings.table = &table;
    ck_assert_ptr_null(gemmar_settings_facts(&settings, 1, 2).tuning);
}
END_TEST

START_TEST(paths_are_taken)
{
    ck_assert_int_eq(make(NULL, NULL), gemmarSuccess);
    ck_assert_str_eq(settings.trace, "");
    ck_assert_str_eq(settings.tuning, "");
    ck_assert_int_eq(setenv("GEMMAR_TRACE", "/tmp/trace.%r", 1), 0);
    ck_assert_int_eq(setenv("GEMMAR_TUNING", "/tmp/table", 1), 0);
    ck_assert_int_eq(make(NULL, NULL), gemmarSuccess);
    ck_assert_str_eq(settings.trace, "/tmp/trace.%r");
    ck_assert_str_eq(settings.tuning, "/tmp/table");
}
END_TEST

START_TEST(node_text)
{
    char text[300];

    ck_assert_int_eq(setenv("NCCL_HOSTID", "from-knob", 1), 0);
    ck_assert_int_eq(make(NULL, "given"), gemmarSuccess);
    ck_assert_str_eq(settings.node, "given");
    ck_assert_int_eq(make(NULL, NULL), gemmarSuccess);
    ck_assert_str_eq(settings.node, "from-knob");
    ck_assert_int_eq(unsetenv("NCCL_HOSTID"), 0);
    ck_assert_int_eq(make(NULL, NULL), gemmarSuccess);
    ck_assert_uint_gt(strlen(settings.node), 1);
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(make(NULL, text), gemmarInvalidArgument);
}
END_TEST

START_TEST(bad_configs)
{
    gemmarConfig_t config = GEMMAR_CONFIG_INITIALIZER;

    config.magic = 1;
    ck_assert_int_eq(make(&config, NULL), gemmarInvalidArgument);
    config = (gemmarConfig_t)GEMMAR_CONFIG_INITIALIZER;
    config.algo = (gemmarAlgo_t)9;
    ck_assert_int_eq(make(&config, NULL), gemmarInvalidArgument);
    ck_assert_ptr_nonnull(strstr(error.text, "algo 9"));
    config = (gemmarConfig_t)GEMMAR_CONFIG_INITIALIZER;
    config.tile_n = 1025;
    ck_assert_int_eq(make(&config, NULL), gemmarInvalidArgument);
    config = (gemmarConfig_t)GEMMAR_CONFIG_INITIALIZER;
    config.version = 20000;
    ck_assert_int_eq(make(&config, NULL), gemmarInvalidArgument);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settings");
    TCase *all = tcase_create("settings");
    SRunner *runner;
    int failed;

    tcase_add_test(all, config_wins_over_knob);
    tcase_add_test(all, misspelt_variable_is_told);
    tcase_add_test(all, later_members_count_only_where_they_are);
    tcase_add_test(all, deterministic_leaves_the_table_out);
    tcase_add_test(all, paths_are_taken);
    tcase_add_test(all, node_text);
    tcase_add_test(all, bad_configs);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
