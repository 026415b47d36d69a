// SPDX-License-Identifier: Apache-2.0
// Derived figures, and JSON that stays JSON.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/tools/tap.h"
#include "tools/gemmar_perf/report.h"

static struct gemmar_perf_result result = {
    .shape = {1000, 2000, 500},
    .dtype = gemmarBfloat16,
    .algo = gemmarAlgoTwoShot,
    .nodes = 4,
    .ranks_per_node = 2,
    .iters = 3,
    .time_us = 1000,
    .wire_bytes = 3000000,
    .wire_bytes_formula = 3000000,
    .wire_mean = 3000000,
    .timed = true,
};

START_TEST(bandwidths_are_those_of_nccl_tests)
{
    ck_assert_double_eq_tol(gemmar_perf_gflops(&result), 2000, 1e-6);
    ck_assert_double_eq_tol(gemmar_perf_algbw(&result), 4, 1e-9);
    ck_assert_double_eq_tol(gemmar_perf_busbw(&result), 4 * 2 * 7.0 / 8, 1e-9);
    /* S = 4 MB / 2 ranks; two-shot: 2 * 3/4 * S */
    ck_assert_double_eq_tol(gemmar_perf_wire_ratio(&result), 1, 1e-9);
    result.algo = gemmarAlgoDirect;
    result.wire_mean = 6000000;
    ck_assert_double_eq_tol(gemmar_perf_wire_ratio(&result), 1, 1e-9);
}
END_TEST

static char *json(const char *command)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    ck_assert_int_eq(gemmar_perf_report_json(out, &result, "a machine", command), 0);
    (void)fclose(out);
    return text;
}

START_TEST(json_has_every_key_in_order)
{
    static const char *const keys[] = {"m",
                                       "n",
                                       "k",
                                       "dtype",
                                       "layout",
                                       "nodes",
                                       "ranks_per_node",
                                       "device",
                                       "algo",
                                       "strategy",
                                       "iters",
                                       "time_us",
                                       "gflops",
                                       "algbw",
                                       "busbw",
                                       "wire_bytes",
                                       "wire_bytes_formula",
                                       "wrong",
                                       "max_abs_err",
                                       "baseline",
                                       "baseline_us",
                                       "speedup",
                                       "gemm_us",
                                       "bound_us",
                                       "bound_ratio",
                                       "commit",
                                       "machine",
                                       "command"};
    char *text = json("gemmar_perf");
    const char *at = text;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char key[40];

        (void)snprintf(key, sizeof(key), "\"%s\": ", keys[i]);
        at = strstr(at, key);
        ck_assert_msg(at != NULL, "%s is missing or out of order: %s", keys[i], text);
    }
    ck_assert_ptr_nonnull(strstr(text, "\"wrong\": null"));
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);
}
END_TEST

START_TEST(json_escapes_and_has_no_nan)
{
    char *text;

    result.checked = true;
    result.max_abs_err = NAN;
    text = json("a \"quoted\" back\\slash\ttab \xff");
    ck_assert_ptr_nonnull(strstr(text, "a \\\"quoted\\\" back\\\\slash\\u0009tab \\u00ff"));
    ck_assert_ptr_nonnull(strstr(text, "\"max_abs_err\": null"));
    free(text);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {bandwidths_are_those_of_nccl_tests, json_has_every_key_in_order,
                                  json_escapes_and_has_no_nan, NULL};

    return tap_run("report", tests);
}
