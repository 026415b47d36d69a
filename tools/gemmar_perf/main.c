// SPDX-License-Identifier: Apache-2.0
// gemmar_perf: measure and check gemmar_fused(), in the manner of nccl-tests.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/gemmar_perf/device.h"
#include "tools/gemmar_perf/fifo.h"
#include "tools/gemmar_perf/gpu/run.h"
#include "tools/gemmar_perf/launch.h"
#include "tools/gemmar_perf/measure.h"
#include "tools/gemmar_perf/mix.h"
#include "tools/gemmar_perf/options.h"
#include "tools/gemmar_perf/place.h"
#include "tools/gemmar_perf/report.h"
#include "tools/gemmar_perf/say.h"
#include "tools/gemmar_perf/session.h"
#include "tools/gemmar_perf/simulate.h"
#include "transport/build_id.h"

static void print_head(const struct gemmar_perf_session *s)
{
    const struct gemmar_perf_options *o = s->o;
    char device[1024] = "none: one node";

    if (s->nodes > 1) {
        gemmar_perf_device_describe(device, sizeof(device));
    }
    (void)printf("# gemmar_perf %s, libgemmar %s\n", gemmar_build_id, gemmarGetBuildId());
    (void)printf("# %u nodes x %u ranks, device %s, verbs %s\n", s->nodes, s->ranks_per_node,
                 s->o->cuda ? "cuda" : "cpu", device);
    (void)printf("# %s\n", s->machine);
    (void)printf("# dtype %s layout %s algo %s signal %s seed %llu skew %u us\n",
                 gemmar_perf_dtype_name(o->dtype), o->trans_b ? "nt" : "nn",
                 gemmar_perf_algo_name(o->algo), o->imm ? "imm" : "stamp",
                 (unsigned long long)o->seed, o->skew_us);
}

static int run_shapes(struct gemmar_perf_session *s)
{
    if (s->rank == 0) {
        gemmar_perf_report_head(stdout);
        (void)fflush(stdout);
    }
    for (size_t i = 0; i < s->o->shapes.count; i++) {
        struct gemmar_perf_result result;
        int status = gemmar_perf_measure(s, &s->o->shapes.shape[i], &result);

        if (status != 0) {
            return status;
        }
        if (s->rank != 0) {
            continue;
        }
        gemmar_perf_report_line(stdout, &result);
        if (s->json != NULL &&
            gemmar_perf_report_json(s->json, &result, s->machine, s->command) != 0) {
            gemmar_perf_say("cannot write %s", s->o->json);
            return 1;
        }
    }
    return 0;
}

/* Tell the launcher, which compares runs. */
static void pass_checksum(const struct gemmar_perf_session *s)
{
    const char *text = getenv(GEMMAR_PERF_ENV_CHECKSUM);

    if (text != NULL && s->rank == 0 &&
        write(atoi(text), &s->checksum, sizeof(s->checksum)) != (ssize_t)sizeof(s->checksum)) {
        gemmar_perf_say("cannot pass the checksum on: %s", strerror(errno));
    }
}

static int run_rank(const struct gemmar_perf_options *o, const struct gemmar_perf_place *place,
                    char **argv)
{
    static struct gemmar_perf_session s; /* large */
    int status, closed;

    if (place->ranks > 1 || place->launcher != NULL) {
        gemmar_perf_say_rank(place->rank);
    }
    status = gemmar_perf_session_open(&s, o, place, argv,
                                      o->cuda ? gemmar_perf_gpu_make : gemmar_perf_make_host);
    if (status == 0 && s.rank == 0) {
        print_head(&s);
    }
    if (status == 0) {
        status = o->cuda       ? gemmar_perf_gpu_run(&s)
                 : o->mix != 0 ? gemmar_perf_mixed_calls(&s)
                               : run_shapes(&s);
    }
    gemmar_perf_gpu_finish(&s, status);
    closed = gemmar_perf_session_close(&s);
    gemmar_perf_gpu_close(&s, status);
    if (status != 0 || closed != 0) {
        return status != 0 ? status : closed;
    }
    if (s.rank == 0 && s.results != 0) {
        (void)printf("# %llu results checked, checksum 0x%016llx\n", (unsigned long long)s.results,
                     (unsigned long long)s.checksum);
    }
    pass_checksum(&s);
    if (s.rank == 0) {
        if (s.wrong != 0) {
            (void)printf("# FAILED: %llu wrong elements\n", (unsigned long long)s.wrong);
        } else {
            (void)printf("# %s\n", s.failed ? "FAILED" : "ok");
        }
        (void)fflush(stdout);
    }
    return s.wrong != 0 || s.failed;
}

static int run(int argc, char **argv)
{
    static struct gemmar_perf_options options; /* large */
    struct gemmar_perf_place place;
    char why[GEMMAR_PERF_WHY_BYTES];

    switch (gemmar_perf_options_parse(argc, argv, &options, why, sizeof(why))) {
    case GEMMAR_PERF_PARSE_DONE: return 0;
    case GEMMAR_PERF_PARSE_BAD: gemmar_perf_say("%s", why); return 2;
    default: break;
    }
    if (options.simulate.count != 0) {
        return gemmar_perf_simulate(&options, argv);
    }
    if (options.fifo) {
        return options.cuda ? gemmar_perf_gpu_fifo(&options, argv)
                            : gemmar_perf_fifo(&options, argv);
    }
    if (gemmar_perf_place_find(options.rendezvous, &place, why, sizeof(why)) != 0) {
        gemmar_perf_say("%s", why);
        return 2;
    }
    if (place.launcher == NULL) {
        return gemmar_perf_launch(&options, argv);
    }
    return run_rank(&options, &place, argv);
}

int main(int argc, char **argv)
{
    int status;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    status = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        gemmar_perf_say("the output cannot be written: %s", strerror(errno));
        return status != 0 ? status : 1;
    }
    return status;
}
