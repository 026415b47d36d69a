// SPDX-License-Identifier: Apache-2.0
// --simulate: forecasts of calls on machines that are not there.
#include "tools/gemmar_perf/simulate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/gemmar_perf/report.h"
#include "tools/gemmar_perf/say.h"
#include "tools/gemmar_perf/simulate_report.h"

struct output {
    const struct gemmar_sim_machine *machine;
    FILE *json; /* or NULL */
    char command[4096];
};

static int write_json(struct output *out, const struct gemmar_sim_forecast *f)
{
    return out->json == NULL ? 0 : gemmar_sim_report_json(out->json, out->machine, f, out->command);
}

/* One number of nodes: both algorithms, or what is the same on one node. */
static int run_nodes(struct output *out, struct gemmar_sim_call call, bool head)
{
    struct gemmar_sim_forecast way[2];
    char why[256];

    for (uint32_t i = 0; i < 2; i++) {
        int rc;

        call.algo = i == 0 ? GEMMAR_ALGO_DIRECT : GEMMAR_ALGO_TWO_SHOT;
        if (i == 1 && call.nodes == 1) {
            way[1] = way[0];
            break;
        }
        rc = gemmar_sim_forecast(out->machine, &call, &way[i], why, sizeof(why));
        if (rc != 0) {
            gemmar_perf_say("%s", why);
            return rc == -EINVAL ? 2 : 1;
        }
    }
    way[0].chosen = gemmar_sim_choice(out->machine, &call) != GEMMAR_ALGO_TWO_SHOT;
    way[1].chosen = !way[0].chosen || call.nodes == 1;
    if (head) {
        gemmar_sim_report_head(stdout, &way[0]);
    }
    gemmar_sim_report_line(stdout, &way[0], &way[1]);
    if (write_json(out, &way[0]) != 0 || (call.nodes > 1 && write_json(out, &way[1]) != 0)) {
        gemmar_perf_say("cannot write the JSON file");
        return 1;
    }
    return 0;
}

static int run_shape(struct output *out, const struct gemmar_perf_options *o,
                     const struct gemmar_perf_shape *shape)
{
    struct gemmar_sim_call call = {
        .m = shape->m,
        .n = shape->n,
        .k = shape->k,
        .dtype = o->dtype == gemmarFloat16 ? GEMMAR_DTYPE_FP16 : GEMMAR_DTYPE_BF16,
        .locals = o->ranks_per_node,
        .tile_m = o->tile_m,
        .tile_n = o->tile_n,
    };
    int status = 0;

    for (size_t i = 0; status == 0 && i < o->simulate.count; i++) {
        call.nodes = (uint32_t)o->simulate.value[i];
        status = run_nodes(out, call, i == 0);
    }
    return status;
}

int gemmar_perf_simulate(const struct gemmar_perf_options *o, char **argv)
{
    struct output out = {.machine = &o->machine};
    int status = 0;

    if (o->against != NULL) {
        return gemmar_perf_simulate_against(o);
    }
    gemmar_perf_command(argv, out.command, sizeof(out.command));
    if (o->json != NULL && (out.json = fopen(o->json, "ae")) == NULL) {
        gemmar_perf_say("cannot write %s: %s", o->json, strerror(errno));
        return 1;
    }
    (void)printf("# machine: ");
    gemmar_sim_machine_print(stdout, &o->machine, " ");
    (void)printf("\n");
    for (size_t i = 0; status == 0 && i < o->shapes.count; i++) {
        status = run_shape(&out, o, &o->shapes.shape[i]);
    }
    if (out.json != NULL && fclose(out.json) != 0 && status == 0) {
        gemmar_perf_say("cannot write %s", o->json);
        status = 1;
    }
    return status;
}
