// SPDX-License-Identifier: Apache-2.0
// The stage trace's names, its path and its lines; with an argument: a made-up trace into that file
// (test/unit/tools/trace_text.sh).
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "kernels/call.h"
#include "kernels/trace.h"

#define CTAS  2
#define ITEMS 4

static const char *name(uint32_t algo, uint32_t strategy, uint32_t locals)
{
    static char way[GEMMAR_TRACE_WAY_BYTES];

    gemmar_trace_name(algo, strategy, locals, way);
    return way;
}

START_TEST(ways)
{
    ck_assert_str_eq(name(GEMMAR_ALGO_LOCAL, GEMMAR_STRATEGY_PUSH, 1), "gemm alone");
    ck_assert_str_eq(name(GEMMAR_ALGO_LOCAL, GEMMAR_STRATEGY_PUSH, 2), "push");
    ck_assert_str_eq(name(GEMMAR_ALGO_LOCAL, GEMMAR_STRATEGY_PULL, 2), "pull");
    ck_assert_str_eq(name(GEMMAR_ALGO_DIRECT, GEMMAR_STRATEGY_PUSH, 1), "direct");
    ck_assert_str_eq(name(GEMMAR_ALGO_TWO_SHOT, GEMMAR_STRATEGY_PULL, 1), "two-shot");
    ck_assert_str_eq(name(GEMMAR_ALGO_TWO_SHOT, GEMMAR_STRATEGY_PULL, 8), "two-shot pull");
    ck_assert_str_eq(name(77, 77, 8), "other other");
}
END_TEST

START_TEST(path_has_the_rank)
{
    char path[16] = "";

    ck_assert_int_eq(gemmar_trace_path("/tmp/a", 12, path, sizeof(path)), 0);
    ck_assert_str_eq(path, "/tmp/a");
    ck_assert_int_eq(gemmar_trace_path("%r/%d.%r%", 12, path, sizeof(path)), 0);
    ck_assert_str_eq(path, "12/%d.12%");
    ck_assert_int_eq(gemmar_trace_path("0123456789abc%r", 12, path, sizeof(path)), 0);
    ck_assert_str_eq(path, "0123456789abc12");
    ck_assert_int_eq(gemmar_trace_path("0123456789abcd%r", 12, path, sizeof(path)), -ENAMETOOLONG);
}
END_TEST

static uint64_t *item(uint64_t *events, uint32_t cta, uint32_t i)
{
    return &events[(cta * ITEMS + i) * GEMMAR_TRACE_EVENTS];
}

static void set(uint64_t *events, uint32_t cta, uint32_t i, uint64_t kind,
                const uint64_t times[GEMMAR_TRACE_STORED])
{
    memcpy(item(events, cta, i) + 1, times, GEMMAR_TRACE_STORED * sizeof(*times));
    item(events, cta, i)[GEMMAR_TRACE_KIND] = 1 + (kind << GEMMAR_TRACE_KIND_SHIFT);
}

/* Two CTAs with a product for somebody else, an own one and items of the network. */
static void make_up(uint64_t *events, uint64_t zero)
{
    for (uint32_t cta = 0; cta < CTAS; cta++) {
        uint64_t t = zero + cta * 1000;

        set(events, cta, 0, 0, (uint64_t[]){t, t + 50000, 0, t + 51000, t + 53000, t + 57000});
        set(events, cta, 1, 1,
            (uint64_t[]){t + 51000, t + 101000, t + 111000, t + 113000, t + 114000, t + 120000});
        set(events, cta, 2, 2,
            (uint64_t[]){t + 113000, t + 113000, t + 143000, t + 144000, t + 145000, t + 146000});
    }
    set(events, 1, 3, 3,
        (uint64_t[]){zero + 145000, zero + 145000, zero + 195000, zero + 197000, zero + 198000, 0});
}

static int append(const char *path, uint32_t rank, const uint64_t *events)
{
    struct gemmar_traced of = {.m = 512, .n = 1024, .k = 64, .rank = rank, .way = "two-shot push"};
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666), rc;

    rc = gemmar_trace_append(fd, &of, events, CTAS, ITEMS);
    (void)close(fd);
    return rc;
}

START_TEST(lines)
{
    char path[] = "/tmp/test_trace_XXXXXX", text[400] = "";
    uint64_t events[CTAS * ITEMS * GEMMAR_TRACE_EVENTS] = {0};
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    set(events, 0, 2, 2, (uint64_t[]){1, 2, 3, 4, 5, UINT64_MAX});
    set(events, 1, 0, 0, (uint64_t[]){7, 8, 0, 9, 10, 11});
    ck_assert_int_eq(append(path, 3, events), 0);
    memset(item(events, 0, 2), 0, sizeof(*events));
    ck_assert_int_eq(append(path, 4, events), 0);
    ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
    ck_assert_str_eq(text,
                     "512x1024x64 3 two-shot push 0 2 8589934593 1 2 3 4 5 18446744073709551615 0\n"
                     "512x1024x64 3 two-shot push 1 0 1 7 8 0 9 10 11 0\n"
                     "512x1024x64 4 two-shot push 1 0 1 7 8 0 9 10 11 0\n");
    (void)close(fd);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(errors)
{
    uint64_t events[CTAS * ITEMS * GEMMAR_TRACE_EVENTS] = {0};

    make_up(events, 1);
    ck_assert_int_eq(append("/dev/full", 0, events), -ENOSPC);
    ck_assert_int_eq(append("/", 0, events), -EBADF);
}
END_TEST

/* Rank 0 twice: what is there first is of a call before. */
static int write_example(const char *path)
{
    uint64_t events[CTAS * ITEMS * GEMMAR_TRACE_EVENTS] = {0};
    int rc;

    for (uint32_t cta = 0; cta < CTAS; cta++) {
        for (uint32_t i = 0; i < ITEMS; i++) {
            set(events, cta, i, 0, (uint64_t[]){1, 2, 0, 3, 4, 5});
        }
    }
    rc = append(path, 0, events);
    memset(events, 0, sizeof(events));
    make_up(events, 1000000);
    rc = rc == 0 ? append(path, 0, events) : rc;
    memset(events, 0, sizeof(events));
    make_up(events, 1002500);
    rc = rc == 0 ? append(path, 1, events) : rc;
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    Suite *s;
    TCase *t;
    SRunner *r;
    int failed;

    if (argc > 1) {
        return write_example(argv[1]);
    }
    s = suite_create("trace");
    t = tcase_create("trace");
    r = srunner_create(s);
    suite_add_tcase(s, t);
    tcase_add_test(t, ways);
    tcase_add_test(t, path_has_the_rank);
    tcase_add_test(t, lines);
    tcase_add_test(t, errors);
    srunner_set_tap(r, "-");
    srunner_run_all(r, CK_SILENT);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
