// SPDX-License-Identifier: Apache-2.0
// Bounds, ratios and the JSON of a shape's run on GPUs, which need no GPU.
#include "tools/gemmar_perf/gpu/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

static struct gemmar_perf_options options;
static struct gemmar_perf_gpu gpu;
static struct gemmar_perf_session session;
static struct gemmar_perf_gpu_result result;

/* 1000 x 2000 x 500 on two ranks: C has 4 MB. */
static void begin(void)
{
    options = (struct gemmar_perf_options){.dtype = gemmarBfloat16, .iters = 5};
    gpu = (struct gemmar_perf_gpu){.rates = {.copy = 1000, .nvlink = 100}, .nvls = "0"};
    session = (struct gemmar_perf_session){
        .o = &options, .ranks = 2, .nodes = 1, .ranks_per_node = 2, .gpu = &gpu};
    result = (struct gemmar_perf_gpu_result){.shape = {1000, 2000, 500}};
    for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
        result.us[way] = result.low[way] = result.high[way] = NAN;
    }
    result.us[GEMMAR_PERF_FUSED] = 60;
    result.host_us = 5;
}

START_TEST(bounds_are_those_of_the_design)
{
    struct gemmar_perf_gpu_bounds b;

    begin();
    result.us[GEMMAR_PERF_GEMM] = 30;
    b = gemmar_perf_gpu_bounds(&session, &result);
    ck_assert_double_eq_tol(b.gemm, 30, 1e-9);
    /* 2 (500,000 + 1,000,000 + 2,000,000) bytes at 1000 GB/s */
    ck_assert_double_eq_tol(b.hbm, 7, 1e-9);
    /* 2 (2 - 1) 4,000,000 / 2 bytes at 100 GB/s */
    ck_assert_double_eq_tol(b.nvlink, 40, 1e-9);
    ck_assert_double_eq_tol(b.largest, 40, 1e-9);
    options.plain = true;
    b = gemmar_perf_gpu_bounds(&session, &result);
    ck_assert_double_eq_tol(b.hbm, 15, 1e-9);
    session.ranks_per_node = session.ranks = 8;
    b = gemmar_perf_gpu_bounds(&session, &result);
    ck_assert_double_eq_tol(b.nvlink, 70, 1e-9);
}
END_TEST

/* Two nodes of one rank, then four: (N-1) S direct, 2 (N-1)/N S in two shots. */
START_TEST(nodes_have_a_bound_by_their_nic)
{
    struct gemmar_perf_gpu_bounds b;

    begin();
    session.nodes = 2;
    session.ranks_per_node = 1;
    gpu.rates.net = 50;
    b = gemmar_perf_gpu_bounds(&session, &result);
    ck_assert_double_eq_tol(b.net, 80, 1e-9);
    ck_assert_double_eq_tol(b.largest, 80, 1e-9);
    session.nodes = session.ranks = 4;
    ck_assert_double_eq_tol(gemmar_perf_gpu_bounds(&session, &result).net, 240, 1e-9);
    result.algo = gemmarAlgoTwoShot;
    ck_assert_double_eq_tol(gemmar_perf_gpu_bounds(&session, &result).net, 120, 1e-9);
    session.ranks_per_node = 2;
    ck_assert_double_eq_tol(gemmar_perf_gpu_bounds(&session, &result).net, 60, 1e-9);
    gpu.rates.net = NAN;
    ck_assert_double_eq_tol(gemmar_perf_gpu_bounds(&session, &result).largest, 40, 1e-9);
}
END_TEST

START_TEST(what_was_not_measured_is_left_out)
{
    struct gemmar_perf_gpu_bounds b;

    begin();
    gpu.rates = (struct gemmar_perf_gpu_rates){NAN, NAN, NAN, NAN, NAN};
    b = gemmar_perf_gpu_bounds(&session, &result);
    ck_assert(isnan(b.gemm) && isnan(b.hbm) && isnan(b.nvlink) && isnan(b.largest));
    gpu.rates.copy = 1000;
    b = gemmar_perf_gpu_bounds(&session, &result);
    ck_assert_double_eq_tol(b.largest, 7, 1e-9);
}
END_TEST

START_TEST(the_better_of_eager_and_graph_counts)
{
    begin();
    ck_assert_double_eq_tol(gemmar_perf_gpu_time(&result), 60, 1e-9);
    ck_assert(isnan(gemmar_perf_gpu_baseline(&result)));
    result.us[GEMMAR_PERF_FUSED_GRAPH] = 58;
    result.us[GEMMAR_PERF_BASE] = 90;
    result.us[GEMMAR_PERF_BASE_GRAPH] = 95;
    ck_assert_double_eq_tol(gemmar_perf_gpu_time(&result), 58, 1e-9);
    ck_assert_double_eq_tol(gemmar_perf_gpu_baseline(&result), 90, 1e-9);
    ck_assert(isnan(gemmar_perf_gpu_plugin(&result)));
    result.us[GEMMAR_PERF_PLUGIN_GRAPH] = 80;
    ck_assert_double_eq_tol(gemmar_perf_gpu_plugin(&result), 80, 1e-9);
    ck_assert_double_eq_tol(gemmar_perf_gpu_baseline(&result), 90, 1e-9);
}
END_TEST

/* The table and its JSON say what the wire had, and how NCCL was connected. */
START_TEST(nodes_are_reported_with_wire_and_networks)
{
    static const char *const wanted[] = {
        "2 of 3 connections over its own IB transport",
        "4 of 4 over the plugin, which is loaded",
        "line rate 50.00 GB/s",
        "T_net",
        "\"plugin_us\": 120",
        "\"plugin_speedup\": 2",
        "\"wire_bytes\": 4000000, \"wire_bytes_formula\": 4000000",
        "\"wire_to_textbook\": 1,",
        "\"builtin_links\": 3, \"builtin_links_gpu_direct\": 2",
        "\"bound_net_us\": 80",
        "\"net_measured_gbs\": 48.5",
    };
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    begin();
    ck_assert_ptr_nonnull(out);
    session.nodes = 2;
    session.ranks_per_node = 1;
    gpu.rates.net = 50;
    gpu.rates.net_measured = 48.5;
    gpu.builtin = (ncclComm_t)(void *)&gpu; /* only compared */
    gpu.networks_known = true;
    gpu.networks = (struct gemmar_perf_nccl_facts){{3, 2}, {4, 4}, true};
    result.us[GEMMAR_PERF_PLUGIN] = 120;
    result.wire_bytes = result.wire_formula = 4000000;
    result.wire_mean = 4000000;
    gemmar_perf_gpu_report_head(&session, out);
    gemmar_perf_gpu_report_line(&session, out, &result);
    ck_assert_int_eq(gemmar_perf_gpu_report_json(&session, out, &result), 0);
    (void)fclose(out);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        ck_assert_msg(strstr(text, wanted[i]) != NULL, "no '%s' in %s", wanted[i], text);
    }
    free(text);
}
END_TEST

START_TEST(json_has_every_figure_and_null_for_the_rest)
{
    static const char *const wanted[] = {
        "\"m\": 1000, \"n\": 2000, \"k\": 500",
        "\"device\": \"cuda\"",
        "\"time_us\": 60",
        "\"speedup\": 1.5",
        "\"fused_p90_us\": 70",
        "\"gemm_p10_us\": null",
        "\"baseline_graph_us\": null",
        "\"bound_us\": 40",
        "\"bound_ratio\": 1.5",
        "\"over_bound_us\": 20",
        "\"bound_net_us\": 0",
        "\"nccl_nvls_enable\": \"0\"",
        "\"wrong\": null",
        "\"host_us\": 5",
        "\"machine\": \"",
        "\"commit\": \"",
    };
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    begin();
    result.us[GEMMAR_PERF_BASE] = 90;
    result.high[GEMMAR_PERF_FUSED] = 70;
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(gemmar_perf_gpu_report_json(&session, out, &result), 0);
    (void)fclose(out);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        ck_assert_msg(strstr(text, wanted[i]) != NULL, "no '%s' in %s", wanted[i], text);
    }
    ck_assert_int_eq(text[0], '{');
    ck_assert_str_eq(text + bytes - 2, "}\n");
    free(text);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {bounds_are_those_of_the_design,
                                  nodes_have_a_bound_by_their_nic,
                                  what_was_not_measured_is_left_out,
                                  the_better_of_eager_and_graph_counts,
                                  nodes_are_reported_with_wire_and_networks,
                                  json_has_every_figure_and_null_for_the_rest,
                                  NULL};

    return tap_run("gpu-result", tests);
}
