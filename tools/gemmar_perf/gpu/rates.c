// SPDX-License-Identifier: Apache-2.0
// Copy rates: on the GPU, and to the next rank of the node with the copy engine.
#include "tools/gemmar_perf/gpu/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/device.h"
#include "tools/gemmar_perf/say.h"

#define COPY_BYTES (UINT64_C(512) << 20)
#define PEER_BYTES (UINT64_C(256) << 20)
#define COPIES     5

/* The slowest rank's fastest copy, in seconds; all ranks copy at the same time. */
static int time_copies(struct gemmar_perf_session *s, void *to, const void *from, size_t bytes,
                       double *out_seconds)
{
    struct gemmar_perf_gpu *g = s->gpu;
    cudaEvent_t event[2] = {NULL, NULL};
    double mine = INFINITY, all[GEMMAR_PERF_GPU_RANKS];
    int status = gemmar_perf_gpu_bad(cudaEventCreate(&event[0]), "event") ||
                 gemmar_perf_gpu_bad(cudaEventCreate(&event[1]), "event");

    for (int i = 0; i <= COPIES && status == 0; i++) {
        float ms = 0;

        status = gemmar_perf_gate_shut(&g->gate, g->stream) ||
                 gemmar_perf_gpu_bad(cudaEventRecord(event[0], g->stream), "event") ||
                 gemmar_perf_gpu_bad(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->stream),
                                     "cannot copy") ||
                 gemmar_perf_gpu_bad(cudaEventRecord(event[1], g->stream), "event");
        gemmar_perf_gate_lift(&g->gate);
        status = status || gemmar_perf_gpu_bad(cudaEventSynchronize(event[1]), "copy") ||
                 gemmar_perf_gpu_bad(cudaEventElapsedTime(&ms, event[0], event[1]), "event");
        mine = i > 0 ? fmin(mine, ms * 1e-3) : mine;
    }
    for (int i = 0; i < 2; i++) {
        if (event[i] != NULL) {
            (void)cudaEventDestroy(event[i]);
        }
    }
    if (gemmar_perf_gpu_agree(s, status != 0) != 0 ||
        gemmar_perf_gather(s, &mine, all, sizeof(mine)) != 0) {
        return 1;
    }
    *out_seconds = 0;
    for (uint32_t r = 0; r < s->ranks; r++) {
        *out_seconds = fmax(*out_seconds, all[r]);
    }
    return 0;
}

static int measure_copy(struct gemmar_perf_session *s)
{
    void *from = NULL, *to = NULL;
    double seconds;
    int status = gemmar_perf_gpu_agree(
        s, gemmar_perf_gpu_bad(cudaMalloc(&from, COPY_BYTES), "no memory for the copy rate") ||
               gemmar_perf_gpu_bad(cudaMalloc(&to, COPY_BYTES), "no memory for the copy rate"));

    status = status == 0 ? time_copies(s, to, from, COPY_BYTES, &seconds) : status;
    if (status == 0) {
        s->gpu->rates.copy = 2 * (double)COPY_BYTES / seconds * 1e-9;
    }
    (void)cudaFree(from);
    (void)cudaFree(to);
    return status;
}

/* The next rank of this rank's node, round the node. */
static uint32_t next_rank(const struct gemmar_perf_session *s)
{
    for (uint32_t i = 1; i < s->ranks; i++) {
        uint32_t r = (s->rank + i) % s->ranks;

        if (s->node_of_rank[r] == s->node_of_rank[s->rank]) {
            return r;
        }
    }
    return s->rank;
}

static int measure_peer(struct gemmar_perf_session *s, void *from, void *to)
{
    cudaIpcMemHandle_t mine, all[GEMMAR_PERF_GPU_RANKS];
    void *peer = NULL;
    double seconds;
    bool failed = gemmar_perf_gpu_bad(cudaIpcGetMemHandle(&mine, to), "cannot share memory");

    if (gemmar_perf_gpu_agree(s, failed) != 0 ||
        gemmar_perf_gather(s, &mine, all, sizeof(mine)) != 0) {
        return 1;
    }
    failed = gemmar_perf_gpu_bad(
        cudaIpcOpenMemHandle(&peer, all[next_rank(s)], cudaIpcMemLazyEnablePeerAccess),
        "cannot map the next rank's memory");
    if (gemmar_perf_gpu_agree(s, failed) != 0) {
        return 1;
    }
    if (time_copies(s, peer, from, PEER_BYTES, &seconds) != 0) {
        return 1;
    }
    s->gpu->rates.nvlink = (double)PEER_BYTES / seconds * 1e-9;
    (void)gemmar_perf_gpu_bad(cudaIpcCloseMemHandle(peer), "cannot unmap the next rank's memory");
    return gemmar_perf_gpu_agree(s, false); /* nobody frees what a peer still maps */
}

/* NaN: not set, or no number. */
static double given(const char *name)
{
    const char *text = getenv(name);
    char *end;
    double value = text != NULL ? strtod(text, &end) : NAN;

    return text != NULL && end != text && *end == '\0' ? value : NAN;
}

int gemmar_perf_gpu_rates(struct gemmar_perf_session *s)
{
    void *from = NULL, *to = NULL;
    int status = measure_copy(s);

    if (s->nodes > 1) {
        s->gpu->rates.net = gemmar_perf_device_rate(s->ranks_per_node);
        s->gpu->rates.net_measured = given("GEMMAR_PERF_NIC_GBS");
        s->gpu->rates.net_latency_us = given("GEMMAR_PERF_NIC_US");
    }

    if (status != 0 || s->ranks_per_node < 2) {
        return status;
    }
    status = gemmar_perf_gpu_agree(
        s, gemmar_perf_gpu_bad(cudaMalloc(&from, PEER_BYTES), "no memory for the NVLink rate") ||
               gemmar_perf_gpu_bad(cudaMalloc(&to, PEER_BYTES), "no memory for the NVLink rate"));
    if (status == 0 && measure_peer(s, from, to) != 0) {
        s->gpu->rates.nvlink = NAN; /* said; the run goes on without this bound */
    }
    (void)cudaFree(from);
    (void)cudaFree(to);
    return status;
}
