// SPDX-License-Identifier: Apache-2.0
// Knobs: out of range is an error that names the variable, and the files keep NCCL's order.
#include "transport/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_suite.h"

static struct gemmar_knobs knobs;
static char home[64], last_line[2048];
static int lines;

static void sink(void *user, enum gemmar_log_level level, const char *text)
{
    (void)user;
    (void)level;
    lines++;
    (void)snprintf(last_line, sizeof(last_line), "%s", text);
}

static struct gemmar_logger logger = {.sink = sink, .level = GEMMAR_LOG_WARN};

/* A home of its own, and none of the variables. */
static void setup(void)
{
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        ck_assert_int_eq(unsetenv(gemmar_knob_table()[i].variable), 0);
    }
    ck_assert_int_eq(unsetenv("NCCL_CONF_FILE"), 0);
    for (const struct gemmar_ignored *i = gemmar_ignored_table(); i->variable != NULL; i++) {
        ck_assert_int_eq(unsetenv(i->variable), 0);
    }
    (void)snprintf(home, sizeof(home), "/tmp/gemmar-env-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    ck_assert_int_eq(setenv("HOME", home, 1), 0);
    lines = 0;
    last_line[0] = '\0';
    logger.level = GEMMAR_LOG_WARN;
}

static void write_file(const char *name, const char *text)
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", home, name);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void teardown(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/.nccl.conf", home);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/other", home);
    (void)unlink(path);
    (void)rmdir(home);
}

static int read_all(void)
{
    return gemmar_knobs_read(&knobs, &logger);
}

START_TEST(every_default_parses)
{
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(knobs.ib_timeout, 20);
    ck_assert_int_eq(knobs.ib_gid_index, -1);
    ck_assert_int_eq(knobs.timeout, INT64_C(60000000000));
    ck_assert_int_eq(knobs.debug, GEMMAR_DEBUG_WARN);
    ck_assert_int_eq(knobs.epoch_start, 1);
    ck_assert_str_eq(knobs.ib_hca, "");
    ck_assert_int_eq(lines, 0);
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        ck_assert_int_eq(knobs.origin[i], GEMMAR_KNOB_DEFAULT);
    }
}
END_TEST

static const struct {
    const char *variable, *value;
    int64_t want; /* -1: an error, -1000: the value -1 */
    size_t offset;
} cases[] = {
#define MEMBER(m) offsetof(struct gemmar_knobs, m)
    {"NCCL_IB_TIMEOUT", "0", 0, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "31", 31, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "0x10", 16, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "32", -1, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "-1", -1, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "20x", -1, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "20 ", -1, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", " ", -1, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "2e1", -1, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "99999999999999999999", -1, MEMBER(ib_timeout)},
    {"NCCL_IB_TIMEOUT", "", 20, MEMBER(ib_timeout)},
    {"GEMMAR_EPOCH_START", "4294967293", 4294967293, MEMBER(epoch_start)},
    {"GEMMAR_EPOCH_START", "0", -1, MEMBER(epoch_start)},
    {"GEMMAR_EPOCH_START", "140737488355327", 140737488355327, MEMBER(epoch_start)},
    {"GEMMAR_EPOCH_START", "140737488355328", -1, MEMBER(epoch_start)},
    {"GEMMAR_EPOCH_START", "9223372036854775807", -1, MEMBER(epoch_start)},
    {"GEMMAR_TIMEOUT", "0.5", 500000000, MEMBER(timeout)},
    {"GEMMAR_TIMEOUT", "86400", INT64_C(86400000000000), MEMBER(timeout)},
    {"GEMMAR_TIMEOUT", "0", -1, MEMBER(timeout)},
    {"GEMMAR_TIMEOUT", "86401", -1, MEMBER(timeout)},
    {"GEMMAR_TIMEOUT", "-1", -1, MEMBER(timeout)},
    {"GEMMAR_TIMEOUT", "nan", -1, MEMBER(timeout)},
    {"GEMMAR_TIMEOUT", "inf", -1, MEMBER(timeout)},
    {"GEMMAR_TIMEOUT", "1e999", -1, MEMBER(timeout)},
    {"GEMMAR_TIMEOUT", "5s", -1, MEMBER(timeout)},
    {"GEMMAR_SIGNAL", "imm", 1, MEMBER(signal)},
    {"GEMMAR_SIGNAL", "IMM", 1, MEMBER(signal)},
    {"GEMMAR_SIGNAL", "im", -1, MEMBER(signal)},
    {"GEMMAR_SIGNAL", "imms", -1, MEMBER(signal)},
    {"GEMMAR_SIGNAL", "stamp|imm", -1, MEMBER(signal)},
    {"GEMMAR_DEBUG", "none", GEMMAR_DEBUG_NONE, MEMBER(debug)},
    {"GEMMAR_DEBUG", "trace", GEMMAR_DEBUG_TRACE, MEMBER(debug)},
    {"GEMMAR_ALGO", "two-shot", 2, MEMBER(algo)},
    {"NCCL_IB_AR_THRESHOLD", "-2", -2, MEMBER(ib_ar_threshold)},
    {"NCCL_IB_AR_THRESHOLD", "-3", -1, MEMBER(ib_ar_threshold)},
    {"NCCL_IB_AR_THRESHOLD", "", 8192, MEMBER(ib_ar_threshold)},
    {"NCCL_IB_ADAPTIVE_ROUTING", "", -2, MEMBER(ib_adaptive_routing)},
    {"NCCL_IB_ADAPTIVE_ROUTING", "1", 1, MEMBER(ib_adaptive_routing)},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", "", 0, MEMBER(ib_split_data)},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", "2", -1, MEMBER(ib_split_data)},
    {"NCCL_IB_FIFO_TC", "256", -1, MEMBER(ib_fifo_tc)},
    {"NCCL_IB_FIFO_TC", "", -1000, MEMBER(ib_fifo_tc)},
    {"NCCL_IB_MERGE_VFS", "", 1, MEMBER(ib_merge_vfs)},
    {"NCCL_IB_MERGE_NICS", "0", 0, MEMBER(ib_merge_nics)},
    {"NCCL_IB_RETURN_ASYNC_EVENTS", "", 1, MEMBER(ib_async_events)},
    {"NCCL_GDR_FLUSH_DISABLE", "1", 1, MEMBER(gdr_flush_disable)},
    {"NCCL_IB_RESILIENCY_PORT_FAILOVER", "", 0, MEMBER(port_failover)},
    {"NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE", "11", -1,
     MEMBER(port_recovery_batch)},
    {"GEMMAR_NET_FAILOVER", "", 1, MEMBER(net_failover)},
    {"GEMMAR_RING_ENTRIES", "128", 128, MEMBER(ring_entries)},
    {"GEMMAR_RING_ENTRIES", "1048577", -1, MEMBER(ring_entries)},
#undef MEMBER
};

START_TEST(value_is_taken_or_refused)
{
    int64_t got;

    ck_assert_int_eq(setenv(cases[_i].variable, cases[_i].value, 1), 0);
    if (cases[_i].want == -1) {
        ck_assert_int_eq(read_all(), -EINVAL);
        ck_assert_int_eq(lines, 1);
        ck_assert_ptr_nonnull(strstr(last_line, cases[_i].variable));
        ck_assert_ptr_nonnull(strstr(last_line, cases[_i].value));
        return;
    }
    ck_assert_int_eq(read_all(), 0);
    memcpy(&got, (char *)&knobs + cases[_i].offset, sizeof(got));
    ck_assert_int_eq(got, cases[_i].want == -1000 ? -1 : cases[_i].want);
    ck_assert_int_eq(lines, 0);
}
END_TEST

START_TEST(text_of_4_kib_is_refused_and_one_less_is_taken)
{
    static char text[GEMMAR_KNOB_TEXT_BYTES + 1];

    memset(text, 'a', GEMMAR_KNOB_TEXT_BYTES);
    ck_assert_int_eq(setenv("NCCL_IB_HCA", text, 1), 0);
    ck_assert_int_eq(read_all(), -EINVAL);
    text[GEMMAR_KNOB_TEXT_BYTES - 1] = '\0';
    ck_assert_int_eq(setenv("NCCL_IB_HCA", text, 1), 0);
    ck_assert_int_eq(read_all(), 0);
    ck_assert_str_eq(knobs.ib_hca, text);
}
END_TEST

START_TEST(file_sets_what_the_environment_does_not)
{
    write_file(".nccl.conf", "# NCCL_IB_TC=7\n"
                             "NCCL_IB_TIMEOUT=18\r\n"
                             "\n"
                             "NCCL_IB_TIMEOUT=17\n"
                             "NCCL_IB_RETRY_CNT=\n"
                             "NCCL_DEBUG=INFO\n"
                             "no equals sign\n"
                             "=\n"
                             "NCCL_IB_HCA==mlx5_1:1\n"
                             "NCCL_IB_SL=3\n"
                             "NCCL_IB_QPS_PER_CONNECTION=4");
    ck_assert_int_eq(setenv("NCCL_IB_SL", "5", 1), 0);
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(knobs.ib_tc, -1);
    ck_assert_int_eq(knobs.ib_timeout, 18);
    ck_assert_int_eq(knobs.origin[GEMMAR_KNOB_ib_timeout], GEMMAR_KNOB_FILE);
    ck_assert_int_eq(knobs.ib_retry_count, 7);
    ck_assert_str_eq(knobs.ib_hca, "=mlx5_1:1");
    ck_assert_int_eq(knobs.ib_sl, 5);
    ck_assert_int_eq(knobs.origin[GEMMAR_KNOB_ib_sl], GEMMAR_KNOB_ENVIRONMENT);
    ck_assert_int_eq(knobs.ib_qps, 4);
}
END_TEST

START_TEST(named_file_replaces_the_one_of_the_user)
{
    char path[128];

    write_file(".nccl.conf", "NCCL_IB_TIMEOUT=18\nNCCL_IB_TC=9\n");
    write_file("other", "NCCL_IB_TIMEOUT=19\n");
    (void)snprintf(path, sizeof(path), "%s/other", home);
    ck_assert_int_eq(setenv("NCCL_CONF_FILE", path, 1), 0);
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(knobs.ib_timeout, 19);
    ck_assert_int_eq(knobs.ib_tc, -1);
}
END_TEST

START_TEST(bad_value_in_a_file_is_an_error)
{
    write_file(".nccl.conf", "NCCL_IB_TIMEOUT=many\n");
    ck_assert_int_eq(read_all(), -EINVAL);
    ck_assert_ptr_nonnull(strstr(last_line, "NCCL_IB_TIMEOUT"));
}
END_TEST

/* A user mends all of them in one go. */
START_TEST(every_bad_value_is_told)
{
    write_file(".nccl.conf", "NCCL_IB_TIMEOUT=many\nNCCL_IB_SL=99\nNCCL_IB_TC=8\n");
    ck_assert_int_eq(setenv("NCCL_IB_RETRY_CNT", "8", 1), 0);
    ck_assert_int_eq(read_all(), -EINVAL);
    ck_assert_int_eq(lines, 3);
    ck_assert_ptr_nonnull(strstr(last_line, "NCCL_IB_RETRY_CNT"));
    ck_assert_int_eq(knobs.ib_tc, 8);
    ck_assert_int_eq(knobs.ib_retry_count, 7);
    ck_assert_int_eq(knobs.origin[GEMMAR_KNOB_ib_retry_count], GEMMAR_KNOB_DEFAULT);
}
END_TEST

/* A line longer than any value was once read as two, the second one with a life of its own. */
START_TEST(long_line_is_one_line)
{
    static char text[3 * GEMMAR_KNOB_TEXT_BYTES];
    size_t at = 4223;

    memset(text, 'x', at);
    (void)snprintf(text + at, sizeof(text) - at, "NCCL_IB_TIMEOUT=3\nNCCL_IB_TC=8\n");
    write_file(".nccl.conf", text);
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(knobs.ib_timeout, 20);
    ck_assert_int_eq(knobs.ib_tc, 8);
}
END_TEST

START_TEST(debug_knob_sets_the_level)
{
    ck_assert_int_eq(setenv("GEMMAR_DEBUG", "info", 1), 0);
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(logger.level, GEMMAR_LOG_INFO);
    gemmar_info(&logger, "env: shown");
    ck_assert_int_eq(lines, 1);
    gemmar_log(&logger, GEMMAR_LOG_TRACE, "env: dropped");
    ck_assert_int_eq(lines, 1);
}
END_TEST

static const struct {
    const char *nccl, *own;
    enum gemmar_debug want;
} levels[] = {
    {"VERSION", "", GEMMAR_DEBUG_WARN},    {"WARN", "", GEMMAR_DEBUG_WARN},
    {"INFO", "", GEMMAR_DEBUG_INFO},       {"info", "", GEMMAR_DEBUG_INFO},
    {"ABORT", "", GEMMAR_DEBUG_INFO},      {"TRACE", "", GEMMAR_DEBUG_TRACE},
    {"nonsense", "", GEMMAR_DEBUG_WARN},   {"", "", GEMMAR_DEBUG_WARN},
    {"TRACE", "warn", GEMMAR_DEBUG_WARN},  {"INFO", "none", GEMMAR_DEBUG_NONE},
    {"WARN", "trace", GEMMAR_DEBUG_TRACE},
};

START_TEST(level_follows_nccl_unless_it_is_set)
{
    ck_assert_int_eq(setenv("NCCL_DEBUG", levels[_i].nccl, 1), 0);
    ck_assert_int_eq(setenv("GEMMAR_DEBUG", levels[_i].own, 1), 0);
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(knobs.debug, levels[_i].want);
    ck_assert_int_eq(logger.level, levels[_i].want);
    ck_assert_int_eq(lines, 0);
}
END_TEST

START_TEST(level_of_the_file_counts_too)
{
    write_file(".nccl.conf", "NCCL_DEBUG=INFO\n");
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(logger.level, GEMMAR_LOG_INFO);
}
END_TEST

START_TEST(ignored_variable_is_told_once_with_the_reason)
{
    static struct gemmar_knobs again;
    const struct gemmar_ignored *row = &gemmar_ignored_table()[_i];

    ck_assert_ptr_nonnull(row->variable);
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        ck_assert_str_ne(row->variable, gemmar_knob_table()[i].variable);
    }
    ck_assert_int_eq(setenv(row->variable, "1", 1), 0);
    ck_assert_int_eq(read_all(), 0);
    gemmar_knobs_report_others(&knobs, &logger); /* at level warn it is not told, nor forgotten */
    ck_assert_int_eq(lines, 0);
    logger.level = GEMMAR_LOG_INFO;
    gemmar_knobs_report_others(&knobs, &logger);
    ck_assert_int_eq(lines, 1);
    ck_assert_ptr_nonnull(strstr(last_line, row->variable));
    ck_assert_ptr_nonnull(strstr(last_line, row->reason));
    gemmar_knobs_report_others(&knobs, &logger);
    ck_assert_int_eq(gemmar_knobs_read(&again, &logger), 0);
    logger.level = GEMMAR_LOG_INFO;
    gemmar_knobs_report_others(&again, &logger);
    ck_assert_int_eq(lines, 1);
}
END_TEST

/* All that NCCL 2.28.9 or 2.30.7 reads, behind NCCL_IB_. */
static const char *const of_nccl[] = {"ADAPTIVE_ROUTING",
                                      "ADDR_FAMILY",
                                      "ADDR_RANGE",
                                      "AR_THRESHOLD",
                                      "DATA_DIRECT",
                                      "DEVICE_PCI_ORDER",
                                      "DISABLE",
                                      "ECE_ENABLE",
                                      "FIFO_TC",
                                      "GID_INDEX",
                                      "HCA",
                                      "MERGE_NICS",
                                      "MERGE_VFS",
                                      "MQP_RETRY_ALL",
                                      "MQP_RETRY_CNT",
                                      "MQP_RETRY_SLEEP_MSEC",
                                      "OOO_RQ",
                                      "PCI_RELAXED_ORDERING",
                                      "PKEY",
                                      "PREPOST_RECEIVE_WORK_REQUESTS",
                                      "QPS_PER_CONNECTION",
                                      "QUERY_PORT_SPEED",
                                      "RECEIVER_SIDE_MATCHING_SCHEME",
                                      "RESILIENCY_PORT_FAILOVER",
                                      "RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS",
                                      "RESILIENCY_PORT_FAILOVER_PROBE_DELAY",
                                      "RESILIENCY_PORT_RECOVERY",
                                      "RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT",
                                      "RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL",
                                      "RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE",
                                      "RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE",
                                      "RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT",
                                      "RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX",
                                      "RESILIENCY_PORT_RECOVERY_START_DELAY",
                                      "RETRY_CNT",
                                      "RETURN_ASYNC_EVENTS",
                                      "ROCE_VERSION_NUM",
                                      "ROUTABLE_FLID_GID_INDEX",
                                      "SL",
                                      "SPLIT_DATA_ON_QPS",
                                      "SUBNET_AWARE_ROUTING",
                                      "SUBNET_PREFIX_LEN",
                                      "TC",
                                      "TIMEOUT",
                                      "USE_INLINE",
                                      "WARN_RAIL_LOCAL"};

START_TEST(no_variable_of_nccl_is_unknown)
{
    char name[GEMMAR_KNOB_NAME_BYTES];

    logger.level = GEMMAR_LOG_WARN;
    (void)snprintf(name, sizeof(name), "NCCL_IB_%s", of_nccl[_i]);
    ck_assert_int_eq(setenv(name, "1", 1), 0);
    (void)read_all(); /* 1 is no valid value of some */
    lines = 0;
    gemmar_knobs_report_others(&knobs, &logger);
    ck_assert_int_eq(lines, 0);
}
END_TEST

START_TEST(unknown_variable_is_a_warning_once)
{
    ck_assert_int_eq(setenv("NCCL_IB_TIMOUT", "22", 1), 0);
    ck_assert_int_eq(setenv("NCCL_IB_EMPTY", "", 1), 0);
    ck_assert_int_eq(setenv("NCCL_IB_TIMEOUT", "22", 1), 0);
    ck_assert_int_eq(setenv("NCCL_ALGO", "Ring", 1), 0);
    write_file(".nccl.conf", "NCCL_IB_TIMOUT=1\nNCCL_BUFFSIZE=8\n");
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(lines, 0);
    gemmar_knobs_report_others(&knobs, &logger);
    ck_assert_int_eq(lines, 1);
    ck_assert_str_eq(last_line, "env: NCCL_IB_TIMOUT is not known and has no effect");
    gemmar_knobs_report_others(&knobs, &logger);
    ck_assert_int_eq(lines, 1);
}
END_TEST

START_TEST(unknown_variable_of_ours_is_a_warning)
{
    ck_assert_int_eq(setenv("GEMMAR_TIMOUT", "3", 1), 0);
    ck_assert_int_eq(setenv("GEMMAR_TIMEOUT", "3", 1), 0);
    ck_assert_int_eq(setenv("GEMMAR_PERF_RANK", "0", 1), 0);
    ck_assert_int_eq(setenv("GEMMAR_LIB", "libgemmar.so.0", 1), 0);
    write_file(".nccl.conf", "GEMMAR_LIBS=1\n");
    ck_assert_int_eq(read_all(), 0);
    ck_assert_int_eq(knobs.others, 2);
    gemmar_knobs_report_others(&knobs, &logger);
    ck_assert_int_eq(lines, 2);
    ck_assert_str_eq(last_line, "env: GEMMAR_TIMOUT is not known and has no effect");
}
END_TEST

START_TEST(more_unknown_variables_than_room_are_dropped)
{
    char name[2 * GEMMAR_KNOB_NAME_BYTES];

    (void)snprintf(name, sizeof(name), "NCCL_IB_%0*d", GEMMAR_KNOB_NAME_BYTES - 8, 0);
    ck_assert_int_eq(setenv(name, "1", 1), 0);
    for (int i = 0; i < GEMMAR_KNOB_OTHERS + 8; i++) {
        (void)snprintf(name, sizeof(name), "NCCL_IB_X%d", i);
        ck_assert_int_eq(setenv(name, "1", 1), 0);
    }
    ck_assert_int_eq(read_all(), 0);
    gemmar_knobs_report_others(&knobs, &logger);
    ck_assert_int_eq(lines, GEMMAR_KNOB_OTHERS);
}
END_TEST

START_TEST(log_line_is_cut_at_1023_characters)
{
    char text[2000];

    memset(text, 'y', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    gemmar_warn(&logger, "%s", text);
    ck_assert_uint_eq(strlen(last_line), 1023);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    int ignored = 0;

    while (gemmar_ignored_table()[ignored].variable != NULL) {
        ignored++;
    }
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, every_default_parses);
    tcase_add_loop_test(tests, value_is_taken_or_refused, 0,
                        (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(tests, text_of_4_kib_is_refused_and_one_less_is_taken);
    tcase_add_test(tests, file_sets_what_the_environment_does_not);
    tcase_add_test(tests, named_file_replaces_the_one_of_the_user);
    tcase_add_test(tests, bad_value_in_a_file_is_an_error);
    tcase_add_test(tests, every_bad_value_is_told);
    tcase_add_test(tests, long_line_is_one_line);
    tcase_add_test(tests, debug_knob_sets_the_level);
    tcase_add_loop_test(tests, level_follows_nccl_unless_it_is_set, 0,
                        (int)(sizeof(levels) / sizeof(levels[0])));
    tcase_add_test(tests, level_of_the_file_counts_too);
    tcase_add_loop_test(tests, ignored_variable_is_told_once_with_the_reason, 0, ignored);
    tcase_add_loop_test(tests, no_variable_of_nccl_is_unknown, 0,
                        (int)(sizeof(of_nccl) / sizeof(of_nccl[0])));
    tcase_add_test(tests, unknown_variable_is_a_warning_once);
    tcase_add_test(tests, unknown_variable_of_ours_is_a_warning);
    tcase_add_test(tests, more_unknown_variables_than_room_are_dropped);
    tcase_add_test(tests, log_line_is_cut_at_1023_characters);
    return run_suite("env", tests, 60);
}
