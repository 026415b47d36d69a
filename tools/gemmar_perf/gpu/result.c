// SPDX-License-Identifier: Apache-2.0
// What one shape's run on GPUs says.
#include "tools/gemmar_perf/gpu/result.h"

#include <errno.h>
#include <math.h>

#include "tools/gemmar_perf/report.h"

const char *gemmar_perf_way_name(enum gemmar_perf_way way)
{
    static const char *const names[GEMMAR_PERF_WAYS] = {
        "fused",     "fused_graph",  "baseline_eager", "baseline_graph",   "gemm",
        "allreduce", "plugin_eager", "plugin_graph",   "plugin_allreduce",
    };

    return names[way];
}

/* fmin and fmax leave out what is not a number. */
double gemmar_perf_gpu_time(const struct gemmar_perf_gpu_result *r)
{
    return fmin(r->us[GEMMAR_PERF_FUSED], r->us[GEMMAR_PERF_FUSED_GRAPH]);
}

double gemmar_perf_gpu_baseline(const struct gemmar_perf_gpu_result *r)
{
    return fmin(r->us[GEMMAR_PERF_BASE], r->us[GEMMAR_PERF_BASE_GRAPH]);
}

double gemmar_perf_gpu_plugin(const struct gemmar_perf_gpu_result *r)
{
    return fmin(r->us[GEMMAR_PERF_PLUGIN], r->us[GEMMAR_PERF_PLUGIN_GRAPH]);
}

double gemmar_perf_gpu_wire_least(const struct gemmar_perf_session *s,
                                  const struct gemmar_perf_gpu_result *r)
{
    double slice = 2 * (double)r->shape.m * (double)r->shape.n / s->ranks_per_node;
    double others = s->nodes - 1.0;

    return r->algo == gemmarAlgoTwoShot ? 2 * others / s->nodes * slice : others * slice;
}

struct gemmar_perf_gpu_bounds gemmar_perf_gpu_bounds(const struct gemmar_perf_session *s,
                                                     const struct gemmar_perf_gpu_result *r)
{
    const struct gemmar_perf_gpu_rates *rates = &s->gpu->rates;
    double m = (double)r->shape.m, n = (double)r->shape.n, k = (double)r->shape.k;
    double bytes = 2 * m * n, slice = bytes / s->ranks_per_node;
    struct gemmar_perf_gpu_bounds b = {
        .gemm = r->us[GEMMAR_PERF_GEMM],
        .hbm = 2 * (m * k + k * n + m * n) / rates->copy * 1e-3,
        .nvlink = 2 * (s->ranks_per_node - 1.0) * slice / rates->nvlink * 1e-3,
        .net = s->nodes > 1 ? gemmar_perf_gpu_wire_least(s, r) / rates->net * 1e-3 : 0,
    };

    if (s->o->plain) { /* the result is copied once more */
        b.hbm += 2 * bytes / rates->copy * 1e-3;
    }
    b.largest = fmax(fmax(b.gemm, b.hbm), fmax(b.nvlink, s->nodes > 1 ? b.net : NAN));
    return b;
}

static const char *window_name(const struct gemmar_perf_session *s)
{
    const struct gemmar_perf_gpu *g = s->gpu;

    return (g->builtin != NULL ? g->builtin_window : g->window) == NULL ? "none"
           : s->gpu->symmetric                                          ? "symmetric"
                                                                        : "plain";
}

/* Between nodes: what the NIC is, what it was found to reach, and how NCCL uses it. */
static void report_networks(const struct gemmar_perf_session *s, FILE *out)
{
    const struct gemmar_perf_gpu *g = s->gpu;
    const struct gemmar_perf_nccl_facts *n = &g->networks;

    (void)fprintf(out,
                  "# a rank's NIC: line rate %.2f GB/s per direction, measured %.2f GB/s and "
                  "%.2f us\n",
                  g->rates.net, g->rates.net_measured, g->rates.net_latency_us);
    if (g->sharing > 1) {
        (void)fprintf(out, "# %u ranks share a GPU\n", g->sharing);
    }
    if (g->builtin != NULL && g->networks_known) {
        (void)fprintf(out,
                      "# NCCL's log: %u of %u connections over its own IB transport have GPU "
                      "Direct RDMA (GDRDMA), %u of %u over the plugin, which is %sloaded\n",
                      n->builtin.direct, n->builtin.all, n->plugin.direct, n->plugin.all,
                      n->loaded ? "" : "not ");
    } else if (g->builtin != NULL) {
        (void)fprintf(out,
                      "# NCCL's log was not looked at: NCCL_DEBUG or NCCL_DEBUG_FILE is set\n");
    }
}

void gemmar_perf_gpu_report_head(const struct gemmar_perf_session *s, FILE *out)
{
    const struct gemmar_perf_gpu *g = s->gpu;
    bool nodes = s->nodes > 1;

    (void)fprintf(out, "# C %s, %s; copy %.0f GB/s, NVLink %.1f GB/s per direction\n",
                  s->o->plain ? "plain" : "registered",
                  s->o->graph ? "eager and replayed" : "eager", g->rates.copy, g->rates.nvlink);
    (void)fprintf(out, "# times: maximum over ranks of medians, in us; L2 not flushed, operands in "
                       "turn; fused and baseline: the better of eager (e) and graph (g)\n");
    if (s->o->baseline) {
        (void)fprintf(out, "# NCCL's window %s; NCCL_NVLS_ENABLE=%s\n", window_name(s), g->nvls);
    }
    if (nodes) {
        report_networks(s, out);
    }
    (void)fprintf(out, "#%6s %7s %7s %10s %10s %7s %5s", "M", "N", "K", "fused", "baseline",
                  "speedup", "NVLS");
    if (nodes) {
        (void)fprintf(out, " %10s %7s", "plugin", "speedup");
    }
    (void)fprintf(out, " %9s %9s %9s %9s %9s", "GEMM", "reduce", "T_gemm", "T_hbm", "T_nvl");
    if (nodes) {
        (void)fprintf(out, " %9s", "T_net");
    }
    (void)fprintf(out, " %7s %7s %6s", "x bound", "over us", "host");
    if (nodes) {
        (void)fprintf(out, " %8s %9s %7s", "algo", "wire KiB", "to text");
    }
    (void)fprintf(out, " %6s %9s\n", "wrong", "max error");
}

/* A number with its width, or a dash. */
static void cell(FILE *out, int width, int digits, double value, const char *suffix)
{
    if (isfinite(value)) {
        (void)fprintf(out, " %*.*f%s", width, digits, value, suffix);
    } else {
        (void)fprintf(out, " %*s%*s", width, "-", (int)(suffix[0] != '\0'), "");
    }
}

static const char *better(const struct gemmar_perf_gpu_result *r, enum gemmar_perf_way eager,
                          enum gemmar_perf_way graph)
{
    return r->us[graph] < r->us[eager] ? "g" : "e";
}

/* NaN: nothing is to be sent. */
static double to_textbook(const struct gemmar_perf_session *s,
                          const struct gemmar_perf_gpu_result *r)
{
    double least = gemmar_perf_gpu_wire_least(s, r);

    return least > 0 ? r->wire_mean / least : NAN;
}

void gemmar_perf_gpu_report_line(const struct gemmar_perf_session *s, FILE *out,
                                 const struct gemmar_perf_gpu_result *r)
{
    struct gemmar_perf_gpu_bounds b = gemmar_perf_gpu_bounds(s, r);
    double time = gemmar_perf_gpu_time(r), baseline = gemmar_perf_gpu_baseline(r);
    bool nodes = s->nodes > 1;

    (void)fprintf(out, "%7lld %7lld %7lld", (long long)r->shape.m, (long long)r->shape.n,
                  (long long)r->shape.k);
    cell(out, 9, 1, time, better(r, GEMMAR_PERF_FUSED, GEMMAR_PERF_FUSED_GRAPH));
    cell(out, 9, 1, baseline, better(r, GEMMAR_PERF_BASE, GEMMAR_PERF_BASE_GRAPH));
    cell(out, 7, 3, baseline / time, "");
    (void)fprintf(out, " %5s", s->gpu->nvls);
    if (nodes) {
        double plugin = gemmar_perf_gpu_plugin(r);

        cell(out, 9, 1, plugin, better(r, GEMMAR_PERF_PLUGIN, GEMMAR_PERF_PLUGIN_GRAPH));
        cell(out, 7, 3, plugin / time, "");
    }
    cell(out, 9, 1, r->us[GEMMAR_PERF_GEMM], "");
    cell(out, 9, 1, r->us[GEMMAR_PERF_REDUCE], "");
    cell(out, 9, 1, b.gemm, "");
    cell(out, 9, 1, b.hbm, "");
    cell(out, 9, 1, b.nvlink, "");
    if (nodes) {
        cell(out, 9, 1, b.net, "");
    }
    cell(out, 7, 3, time / b.largest, "");
    cell(out, 7, 1, time - b.largest, "");
    cell(out, 6, 1, r->host_us, "");
    if (nodes) {
        (void)fprintf(out, " %8s", gemmar_perf_algo_name(r->algo));
        cell(out, 9, 1, (double)r->wire_bytes / 1024, "");
        cell(out, 7, 4, to_textbook(s, r), "");
    }
    if (r->checked) {
        (void)fprintf(out, " %6llu %9.3g%s", (unsigned long long)r->wrong, r->max_abs_err,
                      r->identical ? "" : " bits differ");
    } else {
        (void)fprintf(out, " %6s %9s", "-", "-");
    }
    (void)fputc('\n', out);
    (void)fflush(out);
}
static void json_bool(FILE *out, const char *key, bool known, bool value)
{
    (void)fprintf(out, ", \"%s\": %s", key, !known ? "null" : value ? "true" : "false");
}

static void json_count(FILE *out, const char *key, bool known, uint64_t value)
{
    if (known) {
        (void)fprintf(out, ", \"%s\": %llu", key, (unsigned long long)value);
    } else {
        (void)fprintf(out, ", \"%s\": null", key);
    }
}

static void json_text(FILE *out, const char *key, const char *text)
{
    (void)fprintf(out, ", \"%s\": ", key);
    gemmar_perf_json_text(out, text);
}

static void json_way(FILE *out, const char *name, const char *what, double value)
{
    char key[48];

    (void)snprintf(key, sizeof(key), "%s_%s", name, what);
    gemmar_perf_json_number(out, key, value);
}

static void json_times(const struct gemmar_perf_session *s, FILE *out,
                       const struct gemmar_perf_gpu_result *r)
{
    struct gemmar_perf_gpu_bounds b = gemmar_perf_gpu_bounds(s, r);
    double time = gemmar_perf_gpu_time(r), baseline = gemmar_perf_gpu_baseline(r);
    double products = (double)r->shape.m * (double)r->shape.n * (double)r->shape.k;
    double algbw = 2 * (double)r->shape.m * (double)r->shape.n / (time * 1e3);

    gemmar_perf_json_number(out, "time_us", time);
    gemmar_perf_json_number(out, "gflops", 2 * products / (time * 1e3));
    gemmar_perf_json_number(out, "algbw", algbw);
    gemmar_perf_json_number(out, "busbw", algbw * 2 * (s->ranks - 1.0) / s->ranks);
    for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
        const char *name = gemmar_perf_way_name((enum gemmar_perf_way)way);

        json_way(out, name, "us", r->us[way]);
        json_way(out, name, "p10_us", r->low[way]);
        json_way(out, name, "p90_us", r->high[way]);
    }
    gemmar_perf_json_number(out, "host_us", r->host_us);
    gemmar_perf_json_number(out, "baseline_us", baseline);
    gemmar_perf_json_number(out, "speedup", baseline / time);
    gemmar_perf_json_number(out, "bound_gemm_us", b.gemm);
    gemmar_perf_json_number(out, "bound_hbm_us", b.hbm);
    gemmar_perf_json_number(out, "bound_nvlink_us", b.nvlink);
    gemmar_perf_json_number(out, "bound_net_us", b.net);
    gemmar_perf_json_number(out, "bound_us", b.largest);
    gemmar_perf_json_number(out, "bound_ratio", time / b.largest);
    gemmar_perf_json_number(out, "over_bound_us", time - b.largest);
    gemmar_perf_json_number(out, "copy_gbs", s->gpu->rates.copy);
    gemmar_perf_json_number(out, "nvlink_gbs", s->gpu->rates.nvlink);
}

static void json_networks(const struct gemmar_perf_session *s, FILE *out,
                          const struct gemmar_perf_gpu_result *r)
{
    const struct gemmar_perf_gpu *g = s->gpu;
    const struct gemmar_perf_nccl_facts *n = &g->networks;
    double plugin = gemmar_perf_gpu_plugin(r);

    gemmar_perf_json_number(out, "plugin_us", plugin);
    gemmar_perf_json_number(out, "plugin_speedup", plugin / gemmar_perf_gpu_time(r));
    gemmar_perf_json_number(out, "net_gbs", g->rates.net);
    gemmar_perf_json_number(out, "net_measured_gbs", g->rates.net_measured);
    gemmar_perf_json_number(out, "net_measured_latency_us", g->rates.net_latency_us);
    json_count(out, "ranks_on_a_gpu", true, g->sharing);
    json_count(out, "builtin_links", g->networks_known, n->builtin.all);
    json_count(out, "builtin_links_gpu_direct", g->networks_known, n->builtin.direct);
    json_count(out, "plugin_links", g->networks_known, n->plugin.all);
    json_count(out, "plugin_links_gpu_direct", g->networks_known, n->plugin.direct);
    json_count(out, "wire_bytes", s->nodes > 1, r->wire_bytes);
    json_count(out, "wire_bytes_formula", s->nodes > 1, r->wire_formula);
    gemmar_perf_json_number(out, "wire_to_textbook", to_textbook(s, r));
}

int gemmar_perf_gpu_report_json_end(const struct gemmar_perf_session *s, FILE *out)
{
    json_text(out, "nccl_nvls_enable", s->gpu->nvls);
    json_text(out, "commit", gemmar_perf_commit());
    json_text(out, "build", gemmarGetBuildId());
    json_text(out, "versions", s->gpu->versions);
    json_text(out, "machine", s->machine);
    json_text(out, "command", s->command);
    (void)fprintf(out, "}\n");
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}

int gemmar_perf_gpu_report_json(const struct gemmar_perf_session *s, FILE *out,
                                const struct gemmar_perf_gpu_result *r)
{
    const struct gemmar_perf_options *o = s->o;

    (void)fprintf(out,
                  "{\"m\": %lld, \"n\": %lld, \"k\": %lld, \"dtype\": \"%s\", \"layout\": \"%s\", "
                  "\"nodes\": %u, \"ranks_per_node\": %u, \"device\": \"cuda\", \"algo\": \"%s\", "
                  "\"output\": \"%s\", \"iters\": %u, \"warmup\": %u, \"operand_sets\": %u",
                  (long long)r->shape.m, (long long)r->shape.n, (long long)r->shape.k,
                  gemmar_perf_dtype_name(o->dtype), o->trans_b ? "nt" : "nn", s->nodes,
                  s->ranks_per_node, gemmar_perf_algo_name(r->algo),
                  o->plain ? "plain" : "registered", o->iters, o->warmup, r->sets);
    json_times(s, out, r);
    json_networks(s, out, r);
    json_text(out, "baseline",
              "cuBLASLt, the fastest of 8 heuristics with 32 MiB of workspace, then ncclAllReduce "
              "in place, eager or in a graph");
    json_text(out, "nccl_window", window_name(s));
    json_count(out, "wrong", r->checked, r->wrong);
    gemmar_perf_json_number(out, "max_abs_err", r->checked ? r->max_abs_err : NAN);
    json_bool(out, "bit_identical", r->checked, r->identical);
    json_count(out, "checked_runs", r->checked, r->runs);
    json_count(out, "baseline_wrong", r->checked_baseline, r->baseline_wrong);
    json_count(out, "workspace_bytes", true, r->workspace_bytes);
    json_count(out, "chunks", true, r->chunks);
    json_count(out, "seed", true, o->seed);
    json_count(out, "skew_us", true, o->skew_us);
    return gemmar_perf_gpu_report_json_end(s, out);
}
