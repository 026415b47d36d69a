// SPDX-License-Identifier: Apache-2.0
// The report as text and as JSON.
#include <stdlib.h>
#include <string.h>

#include "test/unit/tools/tap.h"
#include "tools/gemmar_info/report.h"

static char *printed(void (*print)(const struct gemmar_info_report *, FILE *),
                     const struct gemmar_info_report *r)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    ck_assert_ptr_nonnull(out);
    print(r, out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

START_TEST(text_is_aligned)
{
    struct gemmar_info_report r = {0};
    char *text;

    gemmar_info_section(&r, "things", "Things");
    gemmar_info_flag(&r, "is_there", true);
    gemmar_info_row(&r);
    gemmar_info_text(&r, "name", "a");
    gemmar_info_detail(&r, "hidden", "no");
    gemmar_info_number(&r, "number", 1234567);
    gemmar_info_text(&r, "why", "%s", "");
    gemmar_info_row(&r);
    gemmar_info_text(&r, "name", "longer\x1b[2J");
    gemmar_info_detail(&r, "hidden", "no");
    gemmar_info_unknown(&r, "number");
    gemmar_info_text(&r, "why", "so");
    gemmar_info_note(&r, "A note.");
    gemmar_info_problem(&r, false, "mend it", "broken");
    ck_assert(!gemmar_info_report_stops(&r));
    gemmar_info_problem(&r, true, "mend that", "dead");
    ck_assert(gemmar_info_report_stops(&r));
    text = printed(gemmar_info_print_text, &r);
    ck_assert_str_eq(text, "Things\n"
                           "  is there  yes\n"
                           "  name        number   why\n"
                           "  a           1234567\n"
                           "  longer?[2J  -        so\n"
                           "  A note.\n"
                           "\n"
                           "Problems\n"
                           "  1. broken\n"
                           "     To do: mend it.\n"
                           "  2. dead (RDMA stops here)\n"
                           "     To do: mend that.\n"
                           "2 problems\n");
    free(text);
    gemmar_info_report_release(&r);
}
END_TEST

START_TEST(json_has_types_and_escapes)
{
    struct gemmar_info_report r = {0};
    char *text;

    gemmar_info_section(&r, "things", "Things");
    gemmar_info_flag(&r, "flag", false);
    gemmar_info_unknown(&r, "unknown");
    gemmar_info_row(&r);
    gemmar_info_detail(&r, "name", "\"\\\n\x01\xc3\xbc\xff\xc0\x80\xed\xa0\x80");
    gemmar_info_number(&r, "number", -1);
    gemmar_info_problem(&r, true, "mend it", "broken");
    text = printed(gemmar_info_print_json, &r);
    ck_assert_str_eq(
        text,
        "{\n"
        "  \"things\": {\"flag\": false, \"unknown\": null, \"rows\": [\n"
        "    {\"name\": "
        "\"\\\"\\\\\\u000a\\u0001\xc3\xbc\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\", "
        "\"number\": -1}], \"notes\": []},\n"
        "  \"problems\": [\n"
        "    {\"section\": \"things\", \"stops_rdma\": true, \"problem\": \"broken\", \"remedy\": "
        "\"mend it\"}],\n"
        "  \"problem_count\": 1,\n"
        "  \"rdma_usable\": false\n"
        "}\n");
    free(text);
    gemmar_info_report_release(&r);
}
END_TEST

START_TEST(an_empty_report_is_good)
{
    struct gemmar_info_report r = {0};
    char *text = printed(gemmar_info_print_text, &r);

    ck_assert_str_eq(text, "0 problems\n");
    free(text);
    text = printed(gemmar_info_print_json, &r);
    ck_assert_ptr_nonnull(strstr(text, "\"rdma_usable\": true"));
    free(text);
    gemmar_info_text(&r, "lost", "a value before any section");
    gemmar_info_report_release(&r);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {text_is_aligned, json_has_types_and_escapes,
                                  an_empty_report_is_good, NULL};

    return tap_run("report", tests);
}
