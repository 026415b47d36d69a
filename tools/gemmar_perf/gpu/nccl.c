// SPDX-License-Identifier: Apache-2.0
// The communicators of NCCL.
#include "tools/gemmar_perf/gpu/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/say.h"

#define CONNECT_BYTES (UINT64_C(64) << 20)

/* `network` NULL: the one that NCCL chooses. */
static int make(struct gemmar_perf_session *s, const char *network, ncclComm_t *out)
{
    struct gemmar_perf_gpu *g = s->gpu;
    ncclUniqueId mine, all[GEMMAR_PERF_GPU_RANKS];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t result = ncclSuccess;

    memset(&mine, 0, sizeof(mine));
    if (s->rank == 0) {
        result = ncclGetUniqueId(&mine);
    }
    if (gemmar_perf_gpu_agree(
            s, gemmar_perf_gpu_bad_nccl(g, result, "cannot begin a communicator of NCCL")) != 0 ||
        gemmar_perf_gather(s, &mine, all, sizeof(mine)) != 0) {
        return 1;
    }
    if (network != NULL) {
        config.netName = network;
    }
    gemmar_perf_meet_busy(s->meet, true);
    result = ncclCommInitRankConfig(out, (int)s->ranks, all[0], (int)s->rank, &config);
    gemmar_perf_meet_busy(s->meet, false);
    if (result != ncclSuccess && network != NULL) {
        gemmar_perf_say("NCCL has no communicator over the network '%s': that of the plugin needs "
                        "NCCL_NET_PLUGIN=gemmar and its folder in LD_LIBRARY_PATH, and neither "
                        "goes with NCCL_NET",
                        network);
    }
    return gemmar_perf_gpu_bad_nccl(g, result, "cannot make NCCL's communicator");
}

int gemmar_perf_nccl_open(struct gemmar_perf_session *s)
{
    struct gemmar_perf_gpu *g = s->gpu;
    bool both = s->o->baseline && g->hosts > 1;

    g->log = both ? gemmar_perf_nccl_log_open() : -1;
    return make(s, both ? "Gemmar" : NULL, &g->nccl) || (both && make(s, "IB", &g->builtin) != 0);
}

void gemmar_perf_nccl_close(struct gemmar_perf_gpu *g, int status)
{
    ncclComm_t comms[2] = {g->builtin, g->nccl};

    if (status != 0) {
        gemmar_perf_nccl_log_warnings(g->log);
    }
    for (int i = 0; i < 2; i++) {
        if (comms[i] != NULL) { /* an aborted communicator waits for nobody */
            (void)(status == 0 ? ncclCommDestroy(comms[i]) : ncclCommAbort(comms[i]));
        }
    }
    gemmar_perf_nccl_log_close(g->log);
    g->log = -1;
    g->builtin = g->nccl = NULL;
}

static void add(struct gemmar_perf_links *sum, const struct gemmar_perf_links *more)
{
    sum->all += more->all;
    sum->direct += more->direct;
}

int gemmar_perf_nccl_connect(struct gemmar_perf_session *s)
{
    struct gemmar_perf_gpu *g = s->gpu;
    ncclComm_t comms[2] = {g->builtin, g->nccl};
    size_t count = (g->baseline.bytes < CONNECT_BYTES ? g->baseline.bytes : CONNECT_BYTES) / 2;
    int status = 0;

    if (g->builtin == NULL) {
        return 0;
    }
    (void)snprintf(g->doing, sizeof(g->doing), "a first all-reduce of NCCL's");
    for (int i = 0; i < 2 && status == 0; i++) {
        status = gemmar_perf_gpu_bad_nccl(g,
                                          ncclAllReduce(g->baseline.base, g->baseline.base, count,
                                                        ncclBfloat16, ncclSum, comms[i], g->stream),
                                          "ncclAllReduce") ||
                 gemmar_perf_gpu_wait(s);
    }
    return status || gemmar_perf_nccl_look(s);
}

int gemmar_perf_nccl_look(struct gemmar_perf_session *s)
{
    struct gemmar_perf_gpu *g = s->gpu;
    struct gemmar_perf_nccl_facts mine, all[GEMMAR_PERF_GPU_RANKS], *sum = &g->networks;
    bool read = gemmar_perf_nccl_log_read(g->log, &mine);

    if (g->builtin == NULL) {
        return 0;
    }
    if (gemmar_perf_gather(s, &mine, all, sizeof(mine)) != 0) {
        return 1;
    }
    *sum = (struct gemmar_perf_nccl_facts){.loaded = true};
    for (uint32_t r = 0; r < s->ranks; r++) {
        add(&sum->builtin, &all[r].builtin);
        add(&sum->plugin, &all[r].plugin);
        sum->loaded = sum->loaded && all[r].loaded;
    }
    g->networks_known = read;
    if (read && (sum->builtin.direct != sum->builtin.all || sum->plugin.direct != sum->plugin.all ||
                 !sum->loaded)) {
        gemmar_perf_say("of NCCL's connections %u of %u over IB and %u of %u over the plugin have "
                        "GPU Direct RDMA%s: no fair baseline",
                        sum->builtin.direct, sum->builtin.all, sum->plugin.direct, sum->plugin.all,
                        sum->loaded ? "" : ", and a rank has not loaded the plugin");
        s->failed = true;
    }
    return 0;
}
