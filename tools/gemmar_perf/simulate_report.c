// SPDX-License-Identifier: Apache-2.0
// A forecast as a line of a table and as a JSON object.
#include "tools/gemmar_perf/simulate_report.h"

#include <errno.h>
#include <stdlib.h>

#include "tools/gemmar_perf/report.h"

int gemmar_sim_forecast(const struct gemmar_sim_machine *machine,
                        const struct gemmar_sim_call *call, struct gemmar_sim_forecast *out,
                        char *why, size_t why_bytes)
{
    struct gemmar_sim_forecast f = {.call = *call};
    int rc = gemmar_sim_run(machine, call, &f.result, why, why_bytes);

    if (rc != 0) {
        return rc;
    }
    f.bounds = gemmar_sim_bounds(machine, call, f.result.plan.algo);
    f.unfused = gemmar_sim_unfused(machine, call);
    *out = f;
    return 0;
}

const char *gemmar_sim_algo_name(uint32_t algo)
{
    return algo == GEMMAR_ALGO_DIRECT     ? "direct"
           : algo == GEMMAR_ALGO_TWO_SHOT ? "two-shot"
                                          : "none";
}

void gemmar_sim_report_head(FILE *out, const struct gemmar_sim_forecast *f)
{
    const struct gemmar_tile_map *map = &f->result.plan.map;

    (void)fprintf(out, "# FORECAST %lld x %lld x %lld, %s, %u ranks a node; * the plan's choice\n",
                  (long long)map->m, (long long)map->n, (long long)f->call.k,
                  f->call.dtype == GEMMAR_DTYPE_BF16 ? "bf16" : "fp16", map->locals);
    (void)fprintf(out, "#%5s %11s %10s %11s %10s %10s %10s %10s %6s %6s %8s %7s\n", "nodes",
                  "direct us", "MB/rank", "two-shot us", "MB/rank", "ring us", "tree us",
                  "bound us", "", "ratio", "speed-up", "tile");
}

static void print_way(FILE *out, const struct gemmar_sim_forecast *f)
{
    (void)fprintf(out, " %10.1f%c %10.2f", f->result.time_us, f->chosen ? '*' : ' ',
                  (double)f->result.wire_bytes / 1e6);
}

void gemmar_sim_report_line(FILE *out, const struct gemmar_sim_forecast *direct,
                            const struct gemmar_sim_forecast *two_shot)
{
    const struct gemmar_sim_forecast *best = direct->chosen ? direct : two_shot;
    const struct gemmar_sim_unfused *u = &best->unfused;
    double time = best->result.time_us > 0 ? best->result.time_us : 1;

    (void)fprintf(out, "%6u", best->call.nodes);
    print_way(out, direct);
    print_way(out, two_shot);
    (void)fprintf(out, " %10.1f %10.1f %10.1f %6s %6.2f %8.2f %3ux%u\n", u->gemm + u->ring,
                  u->gemm + u->tree, best->bounds.largest, best->bounds.which,
                  best->bounds.largest > 0 ? best->result.time_us / best->bounds.largest : 0,
                  u->total / time, best->result.plan.map.tile_m, best->result.plan.map.tile_n);
}

static void json_machine(FILE *out, const struct gemmar_sim_machine *machine)
{
    char *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);

    if (memory != NULL) {
        gemmar_sim_machine_print(memory, machine, ",");
        (void)fclose(memory); /* text is NULL when there was no memory */
    }
    (void)fprintf(out, ", \"machine\": ");
    gemmar_perf_json_text(out, text != NULL ? text : "");
    free(text);
}

static void json_times(FILE *out, const struct gemmar_sim_forecast *f)
{
    const struct gemmar_sim_result *r = &f->result;

    gemmar_perf_json_number(out, "time_us", r->time_us);
    gemmar_perf_json_number(out, "product_us", r->product_us);
    gemmar_perf_json_number(out, "sums_us", r->sums_us);
    gemmar_perf_json_number(out, "arrived_us", r->arrived_us);
    gemmar_perf_json_number(out, "nvlink_bytes", r->nvlink_bytes);
    (void)fprintf(out, ", \"wire_bytes\": %llu, \"wire_bytes_formula\": %llu",
                  (unsigned long long)r->wire_bytes, (unsigned long long)r->wire_formula);
    gemmar_perf_json_number(out, "gemm_us", f->unfused.gemm);
    gemmar_perf_json_number(out, "ring_us", f->unfused.ring);
    gemmar_perf_json_number(out, "tree_us", f->unfused.tree);
    gemmar_perf_json_number(out, "unfused_us", f->unfused.total);
    gemmar_perf_json_number(out, "speedup", f->unfused.total / r->time_us);
    gemmar_perf_json_number(out, "bound_gemm_us", f->bounds.gemm);
    gemmar_perf_json_number(out, "bound_hbm_us", f->bounds.hbm);
    gemmar_perf_json_number(out, "bound_nvlink_us", f->bounds.nvlink);
    gemmar_perf_json_number(out, "bound_net_us", f->bounds.net);
    gemmar_perf_json_number(out, "bound_us", f->bounds.largest);
    gemmar_perf_json_number(out, "bound_ratio", r->time_us / f->bounds.largest);
}

int gemmar_sim_report_json(FILE *out, const struct gemmar_sim_machine *machine,
                           const struct gemmar_sim_forecast *f, const char *command)
{
    const struct gemmar_tile_map *map = &f->result.plan.map;

    (void)fprintf(out,
                  "{\"forecast\": true, \"m\": %lld, \"n\": %lld, \"k\": %lld, \"dtype\": \"%s\", "
                  "\"nodes\": %u, \"ranks_per_node\": %u, \"algo\": \"%s\", \"chosen\": %s, "
                  "\"tile\": \"%ux%u\", \"chunks\": %lld",
                  (long long)f->call.m, (long long)f->call.n, (long long)f->call.k,
                  f->call.dtype == GEMMAR_DTYPE_BF16 ? "bf16" : "fp16", f->call.nodes,
                  f->call.locals, gemmar_sim_algo_name(f->result.plan.algo),
                  f->chosen ? "true" : "false", map->tile_m, map->tile_n, (long long)map->chunks);
    json_times(out, f);
    json_machine(out, machine);
    (void)fprintf(out, ", \"commit\": ");
    gemmar_perf_json_text(out, gemmar_perf_commit());
    (void)fprintf(out, ", \"command\": ");
    gemmar_perf_json_text(out, command);
    (void)fprintf(out, "}\n");
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}
