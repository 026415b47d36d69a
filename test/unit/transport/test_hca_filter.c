// SPDX-License-Identifier: Apache-2.0
// NCCL_IB_HCA: adapter 1 must not select 10 to 17 when exact, and text that is not understood must
// never mean "all devices".
#include "transport/hca_filter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "run_suite.h"

#define DEVICES 18

/* mlx5_0 to mlx5_17, with a second port on mlx5_2 alone: the names that pass, separated by blanks
 * (a port other than 1 behind a slash). */
static const char *selected(const char *text)
{
    static char list[1024];
    struct gemmar_hca_filter filter;
    char why[128] = "";
    size_t at = 0;
    int rc = gemmar_hca_filter_parse(text, &filter, why, sizeof(why));

    list[0] = '\0';
    if (rc != 0) {
        ck_assert_int_eq(rc, -EINVAL);
        ck_assert_uint_gt(strlen(why), 0);
        return "error";
    }
    for (int d = 0; d < DEVICES; d++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "mlx5_%d", d);
        for (int port = 1; port <= (d == 2 ? 2 : 1); port++) {
            if (gemmar_hca_filter_match(&filter, name, port)) {
                at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%d%s", at ? " " : "", d,
                                       port == 2 ? "/2" : "");
            }
        }
    }
    return list;
}

static const struct {
    const char *text, *want;
} cases[] = {
    {"", "0 1 2 2/2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"},
    {"mlx5_1", "1 10 11 12 13 14 15 16 17"},
    {"=mlx5_1", "1"},
    {"^mlx5_1", "0 2 2/2 3 4 5 6 7 8 9"},
    {"^=mlx5_1", "0 2 2/2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"},
    {"=mlx5_2:2", "2/2"},
    {"^=mlx5_2:2", "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"},
    {"mlx5_2:1,mlx5_5", "2 5"},
    {"mlx5_2:1:0:1", "2"},
    {"=mlx5_17,mlx5_0", "0 17"},
    {"=mlx5_3,", "3"},
    {"=mlx5_3,,mlx5_4", "3 4"},
    {"=mlx5", ""},
    {"=", "error"},
    {"^", "error"},
    {"^=", "error"},
    {",", "error"},
    {"=,", "error"},
    {"=^mlx5_1", "error"},
    {"^=mlx5_8,^=mlx5_14", "error"},
    {"=mlx5_8,=mlx5_14", "error"},
    {"mlx5_2:", "error"},
    {"mlx5_2:0", "error"},
    {"mlx5_2:256", "error"},
    {"mlx5_2:99999999999", "error"},
    {"mlx5_2:1:0:1:2", "error"},
    {"mlx5_2:-1", "error"},
    {"mlx5_2:one", "error"},
    {"mlx5 2", "error"},
    {":1", "error"},
    {"mlx5_1;mlx5_2", "error"},
    {"\xff\xfe", "error"},
};

/* D-01: prefixes, = exact, ^ exclude, as NCCL reads them. */
START_TEST(text_selects_exactly_these_devices)
{
    ck_assert_msg(strcmp(selected(cases[_i].text), cases[_i].want) == 0, "'%s': %s, not %s",
                  cases[_i].text, selected(cases[_i].text), cases[_i].want);
}
END_TEST

START_TEST(long_text_is_an_error_not_all_devices)
{
    static char text[4097];

    memset(text, 'm', 4096);
    ck_assert_str_eq(selected(text), "error");
    for (int i = 0; i < 4096; i += 8) {
        memcpy(text + i, &"=mlx5_1,"[i > 0], 8 - (i > 0));
        text[i + 7] = ',';
    }
    ck_assert_str_eq(selected(text), "error");
    memset(text, ',', 4096);
    ck_assert_str_eq(selected(text), "error");
}
END_TEST

START_TEST(entries_and_names_up_to_the_limits_are_taken)
{
    char text[8 * GEMMAR_HCA_FILTER_ENTRIES + 16], name[GEMMAR_HCA_NAME_BYTES + 1], why[64];
    struct gemmar_hca_filter filter;
    size_t at = 0;

    text[at++] = '=';
    for (int i = 0; i < GEMMAR_HCA_FILTER_ENTRIES; i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "d%d,", i);
    }
    ck_assert_int_eq(gemmar_hca_filter_parse(text, &filter, why, sizeof(why)), 0);
    ck_assert_int_eq(filter.count, GEMMAR_HCA_FILTER_ENTRIES);
    ck_assert(gemmar_hca_filter_match(&filter, "d63", 1));
    (void)snprintf(text + at, sizeof(text) - at, "d64");
    ck_assert_int_eq(gemmar_hca_filter_parse(text, &filter, why, sizeof(why)), -EINVAL);
    memset(name, 'n', sizeof(name));
    name[GEMMAR_HCA_NAME_BYTES] = '\0';
    ck_assert_int_eq(gemmar_hca_filter_parse(name, &filter, why, sizeof(why)), -EINVAL);
    name[GEMMAR_HCA_NAME_BYTES - 1] = '\0';
    ck_assert_int_eq(gemmar_hca_filter_parse(name, &filter, why, sizeof(why)), 0);
    ck_assert(gemmar_hca_filter_match(&filter, name, 1));
}
END_TEST

START_TEST(a_failed_parse_leaves_the_filter_alone)
{
    struct gemmar_hca_filter filter, before;
    char why[64];

    memset(&filter, 0x5a, sizeof(filter));
    memcpy(&before, &filter, sizeof(filter));
    ck_assert_int_eq(gemmar_hca_filter_parse("=mlx5_1,mlx5_2:x", &filter, why, sizeof(why)),
                     -EINVAL);
    ck_assert_mem_eq(&before, &filter, sizeof(filter));
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");

    tcase_add_loop_test(tests, text_selects_exactly_these_devices, 0,
                        (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(tests, long_text_is_an_error_not_all_devices);
    tcase_add_test(tests, entries_and_names_up_to_the_limits_are_taken);
    tcase_add_test(tests, a_failed_parse_leaves_the_filter_alone);
    return run_suite("hca_filter", tests, 60);
}
