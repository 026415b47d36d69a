// SPDX-License-Identifier: Apache-2.0
// What a shape's measurement says, as a line of a table and as a JSON object.
#include "tools/gemmar_perf/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "gemmar_commit.h"

static double output_bytes(const struct gemmar_perf_result *r)
{
    return (double)r->shape.m * (double)r->shape.n * (double)gemmar_perf_dtype_bytes(r->dtype);
}

double gemmar_perf_gflops(const struct gemmar_perf_result *r)
{
    double products = (double)r->shape.m * (double)r->shape.n * (double)r->shape.k;

    return r->time_us > 0 ? 2 * products / (r->time_us * 1e3) : 0;
}

double gemmar_perf_algbw(const struct gemmar_perf_result *r)
{
    return r->time_us > 0 ? output_bytes(r) / (r->time_us * 1e3) : 0;
}

double gemmar_perf_busbw(const struct gemmar_perf_result *r)
{
    double ranks = (double)r->nodes * r->ranks_per_node;

    return gemmar_perf_algbw(r) * 2 * (ranks - 1) / ranks;
}

double gemmar_perf_wire_ratio(const struct gemmar_perf_result *r)
{
    double others = (double)r->nodes - 1, slice = output_bytes(r) / r->ranks_per_node;
    double ideal = r->algo == gemmarAlgoTwoShot ? 2 * others / r->nodes * slice : others * slice;

    return ideal > 0 ? r->wire_mean / ideal : 0;
}

void gemmar_perf_report_head(FILE *out)
{
    (void)fprintf(out, "#%6s %7s %7s %9s %12s %9s %8s %8s %12s %12s %8s %7s %10s %9s\n", "M", "N",
                  "K", "algo", "time us", "GFLOP/s", "algbw", "busbw", "wire bytes", "formula",
                  "wire to", "wrong", "max error", "workspace");
    (void)fprintf(out, "#%6s %7s %7s %9s %12s %9s %8s %8s %12s %12s %8s %7s %10s %9s\n", "", "", "",
                  "", "median,max", "a rank", "GB/s", "GB/s", "a call", "", "textbook", "", "",
                  "MiB");
}

void gemmar_perf_report_line(FILE *out, const struct gemmar_perf_result *r)
{
    double ratio = gemmar_perf_wire_ratio(r);

    (void)fprintf(out, "%7lld %7lld %7lld %9s ", (long long)r->shape.m, (long long)r->shape.n,
                  (long long)r->shape.k, gemmar_perf_algo_name(r->algo));
    if (r->timed) {
        (void)fprintf(out, "%12.1f %9.2f %8.3f %8.3f ", r->time_us, gemmar_perf_gflops(r),
                      gemmar_perf_algbw(r), gemmar_perf_busbw(r));
    } else {
        (void)fprintf(out, "%12s %9s %8s %8s ", "-", "-", "-", "-");
    }
    (void)fprintf(out, "%12llu %12llu ", (unsigned long long)r->wire_bytes,
                  (unsigned long long)r->wire_bytes_formula);
    if (ratio > 0) {
        (void)fprintf(out, "%8.4f ", ratio);
    } else {
        (void)fprintf(out, "%8s ", "-");
    }
    if (r->checked) {
        (void)fprintf(out, "%7llu %10.3g ", (unsigned long long)r->wrong, r->max_abs_err);
    } else {
        (void)fprintf(out, "%7s %10s ", "-", "-");
    }
    (void)fprintf(out, "%9.2f\n", (double)r->workspace_bytes / (1 << 20));
    (void)fflush(out);
}

void gemmar_perf_json_text(FILE *out, const char *text)
{
    (void)fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') {
            (void)fprintf(out, "\\%c", *p);
        } else if (*p < 0x20 || *p >= 0x7f) {
            /* bytes beyond ASCII as Latin-1: the file stays valid whatever the command line was */
            (void)fprintf(out, "\\u%04x", *p);
        } else {
            (void)fputc(*p, out);
        }
    }
    (void)fputc('"', out);
}

void gemmar_perf_json_number(FILE *out, const char *key, double value)
{
    if (isfinite(value)) {
        (void)fprintf(out, ", \"%s\": %.9g", key, value);
    } else {
        (void)fprintf(out, ", \"%s\": null", key);
    }
}

int gemmar_perf_report_json(FILE *out, const struct gemmar_perf_result *r, const char *machine,
                            const char *command)
{
    (void)fprintf(out,
                  "{\"m\": %lld, \"n\": %lld, \"k\": %lld, \"dtype\": \"%s\", \"layout\": \"%s\", "
                  "\"nodes\": %u, \"ranks_per_node\": %u, \"device\": \"cpu\", \"algo\": \"%s\", "
                  "\"strategy\": null, \"iters\": %u",
                  (long long)r->shape.m, (long long)r->shape.n, (long long)r->shape.k,
                  gemmar_perf_dtype_name(r->dtype), r->trans_b ? "nt" : "nn", r->nodes,
                  r->ranks_per_node, gemmar_perf_algo_name(r->algo), r->iters);
    gemmar_perf_json_number(out, "time_us", r->timed ? r->time_us : NAN);
    gemmar_perf_json_number(out, "gflops", r->timed ? gemmar_perf_gflops(r) : NAN);
    gemmar_perf_json_number(out, "algbw", r->timed ? gemmar_perf_algbw(r) : NAN);
    gemmar_perf_json_number(out, "busbw", r->timed ? gemmar_perf_busbw(r) : NAN);
    (void)fprintf(out, ", \"wire_bytes\": %llu, \"wire_bytes_formula\": %llu",
                  (unsigned long long)r->wire_bytes, (unsigned long long)r->wire_bytes_formula);
    if (r->checked) {
        (void)fprintf(out, ", \"wrong\": %llu", (unsigned long long)r->wrong);
    } else {
        (void)fprintf(out, ", \"wrong\": null");
    }
    gemmar_perf_json_number(out, "max_abs_err", r->checked ? r->max_abs_err : NAN);
    (void)fprintf(out, ", \"baseline\": null, \"baseline_us\": null, \"speedup\": null, "
                       "\"gemm_us\": null, \"bound_us\": null, \"bound_ratio\": null, "
                       "\"commit\": ");
    gemmar_perf_json_text(out, gemmar_perf_commit());
    (void)fprintf(out, ", \"machine\": ");
    gemmar_perf_json_text(out, machine);
    (void)fprintf(out, ", \"command\": ");
    gemmar_perf_json_text(out, command);
    (void)fprintf(out, "}\n");
    return fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}

const char *gemmar_perf_commit(void)
{
    return GEMMAR_COMMIT;
}

void gemmar_perf_machine(char *text, size_t bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256], model[128] = "unknown CPU";
    struct utsname name;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            colon[strcspn(colon, "\n")] = '\0';
            (void)snprintf(model, sizeof(model), "%.120s", colon + 1 + (colon[1] == ' '));
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file); /* read only */
    }
    if (uname(&name) != 0) {
        (void)snprintf(name.sysname, sizeof(name.sysname), "unknown");
        name.release[0] = '\0';
    }
    (void)snprintf(text, bytes, "%s, %ld CPUs, %s %s", model, sysconf(_SC_NPROCESSORS_ONLN),
                   name.sysname, name.release);
}

void gemmar_perf_command(char **argv, char *text, size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int i = 0; argv[i] != NULL && n + 1 < bytes; i++) {
        (void)snprintf(text + n, bytes - n, "%s%s", i == 0 ? "" : " ", argv[i]);
        n = strlen(text);
    }
}
