// SPDX-License-Identifier: Apache-2.0
// --simulate --against FILE: the forecast of every call that a JSON file of gemmar_perf has, beside
// what was measured.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/say.h"
#include "tools/gemmar_perf/simulate.h"
#include "tools/gemmar_perf/simulate_report.h"

struct errors {
    uint32_t count;
    double squares, worst;
};

/* What stands behind "key": in an object on one line, or NULL. */
static const char *value(const char *line, const char *key)
{
    char text[40];
    const char *at;

    (void)snprintf(text, sizeof(text), "\"%s\": ", key);
    at = strstr(line, text);
    return at == NULL ? NULL : at + strlen(text);
}

static double number(const char *line, const char *key)
{
    const char *text = value(line, key);

    return text == NULL ? 0 : strtod(text, NULL);
}

static bool is(const char *line, const char *key, const char *word)
{
    const char *text = value(line, key);

    return text != NULL && text[0] == '"' && strncmp(text + 1, word, strlen(word)) == 0 &&
           text[1 + strlen(word)] == '"';
}

/* The rates of the network that the file has replace those of the machine. */
static struct gemmar_sim_machine read_machine(const char *line,
                                              const struct gemmar_sim_machine *machine)
{
    double line_gbs = number(line, "net_gbs"), data_gbs = number(line, "net_measured_gbs");
    double latency = number(line, "net_measured_latency_us");
    struct gemmar_sim_machine m = *machine;

    if (line_gbs > 0) {
        m.nic_gbits = 8 * line_gbs / m.nics;
        m.nic_share = data_gbs > 0 ? fmin(data_gbs / line_gbs, 1) : m.nic_share;
        m.nic_us = latency > 0 ? latency : m.nic_us;
    }
    return m;
}

/* False: no call of the tensor-core kernel with a time, or of ranks that share a GPU. */
static bool read_call(const char *line, struct gemmar_sim_call *call)
{
    *call = (struct gemmar_sim_call){
        .m = (int64_t)number(line, "m"),
        .n = (int64_t)number(line, "n"),
        .k = (int64_t)number(line, "k"),
        .dtype = is(line, "dtype", "fp16") ? GEMMAR_DTYPE_FP16 : GEMMAR_DTYPE_BF16,
        .nodes = (uint32_t)number(line, "nodes"),
        .locals = (uint32_t)number(line, "ranks_per_node"),
        .algo = is(line, "algo", "two-shot") ? GEMMAR_ALGO_TWO_SHOT
                : is(line, "algo", "direct") ? GEMMAR_ALGO_DIRECT
                                             : GEMMAR_ALGO_LOCAL,
    };
    return is(line, "device", "cuda") && !is(line, "output", "plain") &&
           number(line, "ranks_on_a_gpu") < 2 && number(line, "time_us") > 0 && call->m > 0 &&
           call->n > 0 && call->k > 0 && call->nodes > 0 && call->locals > 0;
}

static double compare(struct errors *e, double forecast, double measured)
{
    double error = forecast / measured - 1;

    e->count++;
    e->squares += error * error;
    e->worst = fabs(error) > fabs(e->worst) ? error : e->worst;
    return 100 * error;
}

static int print_call(const struct gemmar_sim_machine *machine, const struct gemmar_sim_call *call,
                      const char *line, struct errors *fused, struct errors *unfused)
{
    double time = number(line, "time_us"), baseline = number(line, "baseline_us");
    struct gemmar_sim_forecast f;
    char why[256];

    if (gemmar_sim_forecast(machine, call, &f, why, sizeof(why)) != 0) {
        gemmar_perf_say("%lldx%lldx%lld: %s", (long long)call->m, (long long)call->n,
                        (long long)call->k, why);
        return 1;
    }
    (void)printf("%6lld %6lld %6lld %2ux%-2u %9s %10.1f %10.1f %+7.1f", (long long)call->m,
                 (long long)call->n, (long long)call->k, call->nodes, call->locals,
                 gemmar_sim_algo_name(f.result.plan.algo), time, f.result.time_us,
                 compare(fused, f.result.time_us, time));
    if (baseline > 0) {
        (void)printf(" %10.1f %10.1f %+7.1f", baseline, f.unfused.total,
                     compare(unfused, f.unfused.total, baseline));
    }
    (void)printf("\n");
    return 0;
}

static void print_errors(const char *what, const struct errors *e)
{
    if (e->count != 0) {
        (void)printf("# %s: %u calls, root mean square of the errors %.1f%%, the largest %+.1f%%\n",
                     what, e->count, 100 * sqrt(e->squares / e->count), 100 * e->worst);
    }
}

static int read_lines(const struct gemmar_perf_options *o, FILE *in)
{
    struct errors fused = {.count = 0}, unfused = {.count = 0};
    char *line = NULL;
    size_t room = 0;
    int status = 0;

    (void)printf("#%5s %6s %6s %5s %9s %10s %10s %7s %10s %10s %7s\n", "M", "N", "K", "ranks",
                 "algo", "measured", "forecast", "error %", "baseline", "forecast", "error %");
    while (status == 0 && getline(&line, &room, in) >= 0) {
        struct gemmar_sim_call call;

        if (read_call(line, &call)) {
            struct gemmar_sim_machine machine = read_machine(line, &o->machine);

            status = print_call(&machine, &call, line, &fused, &unfused);
        }
    }
    free(line);
    if (status == 0 && fused.count == 0) {
        gemmar_perf_say("%s has no timed call of GPUs with a registered C", o->against);
        return 1;
    }
    print_errors("fused", &fused);
    print_errors("baseline", &unfused);
    return status;
}

int gemmar_perf_simulate_against(const struct gemmar_perf_options *o)
{
    FILE *in = fopen(o->against, "re");
    int status;

    if (in == NULL) {
        gemmar_perf_say("cannot read %s: %s", o->against, strerror(errno));
        return 2;
    }
    (void)printf("# machine: ");
    gemmar_sim_machine_print(stdout, &o->machine, " ");
    (void)printf("\n");
    status = read_lines(o, in);
    (void)fclose(in); /* read only */
    return status;
}
