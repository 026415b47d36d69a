// SPDX-License-Identifier: Apache-2.0
// What both ways share: errors, waiting, sums of host memory, times.
#include "layer.h"

#include <time.h>

#define WAIT_SECONDS 60
#define ROUNDS       5
#define WARM_CALLS   5

int bad_cuda(cudaError_t error, const char *doing)
{
    if (error != cudaSuccess) {
        say("CUDA: %s: %s", doing, cudaGetErrorString(error));
        return 1;
    }
    return 0;
}

int bad_nccl(ncclResult_t result, ncclComm_t comm, const char *doing)
{
    if (result != ncclSuccess) {
        say("NCCL: %s: %s: %s", doing, ncclGetErrorString(result), ncclGetLastError(comm));
        return 1;
    }
    return 0;
}

int bad_gemmar(gemmarResult_t result, gemmarComm_t comm, const char *doing)
{
    if (result != gemmarSuccess) {
        say("gemmar: %s: %s: %s", doing, gemmarGetErrorString(result), gemmarGetLastError(comm));
        return 1;
    }
    return 0;
}

/* cudaStreamSynchronize() would wait for ever for the kernel of NCCL whose peer has died. */
int layer_wait(const struct layer *l, const struct way *way)
{
    struct timespec pause = {.tv_nsec = 100000}, begin, now;
    cudaError_t state;

    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    while ((state = cudaStreamQuery(l->stream)) == cudaErrorNotReady) {
        if (before.error(l) || (way != NULL && way->error(l))) {
            return 1;
        }
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begin.tv_sec > WAIT_SECONDS) {
            say("the GPU was not ready after %d s", WAIT_SECONDS);
            return 1;
        }
        (void)nanosleep(&pause, NULL);
    }
    return bad_cuda(state, "the work on the stream") || before.error(l) ||
           (way != NULL && way->error(l));
}

int layer_reduce(const struct layer *l, void *data, size_t count, ncclDataType_t type,
                 ncclRedOp_t op)
{
    size_t bytes = count * (type == ncclUint64 ? 8 : 4);
    void *copy = NULL;
    int failed =
        bad_cuda(cudaMalloc(&copy, bytes), "memory of a sum") ||
        bad_cuda(cudaMemcpyAsync(copy, data, bytes, cudaMemcpyHostToDevice, l->stream),
                 "copy to the GPU") ||
        bad_nccl(ncclAllReduce(copy, copy, count, type, op, l->nccl, l->stream), l->nccl,
                 "ncclAllReduce") ||
        layer_wait(l, NULL) ||
        bad_cuda(cudaMemcpy(data, copy, bytes, cudaMemcpyDeviceToHost), "copy to the host");

    if (!failed) {
        (void)cudaFree(copy); /* else the GPU may still use it, and the program ends */
    }
    return failed;
}

/* One round of calls of one way, after some that do not count; adds to *sum_us. */
static int time_round(const struct layer *l, const struct way *way, cudaGraphExec_t graph,
                      int calls, const cudaEvent_t *event, float *sum_us)
{
    float ms = 0;

    for (int i = -WARM_CALLS; i < calls; i++) {
        if ((i == 0 && bad_cuda(cudaEventRecord(event[0], l->stream), "event")) ||
            (graph == NULL ? way->forward(l)
                           : bad_cuda(cudaGraphLaunch(graph, l->stream), "graph"))) {
            return 1;
        }
    }
    if (bad_cuda(cudaEventRecord(event[1], l->stream), "event") || layer_wait(l, way) ||
        bad_cuda(cudaEventElapsedTime(&ms, event[0], event[1]), "time") ||
        layer_reduce(l, &ms, 1, ncclFloat, ncclMax)) {
        return 1;
    }
    *sum_us += ms * 1000 / (float)calls;
    return 0;
}

static int capture(const struct layer *l, const struct way *way, cudaGraphExec_t *out_graph)
{
    cudaGraph_t graph = NULL;
    int failed;

    if (bad_cuda(cudaStreamBeginCapture(l->stream, cudaStreamCaptureModeThreadLocal), "capture")) {
        return 1;
    }
    failed = way->forward(l);
    failed |= bad_cuda(cudaStreamEndCapture(l->stream, &graph), "capture");
    if (!failed) {
        failed = bad_cuda(cudaGraphInstantiate(out_graph, graph, 0), "graph");
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    return failed;
}

int layer_time(const struct layer *l, const struct way *const ways[2], int calls,
               float out_us[2][2])
{
    int per_round = calls > ROUNDS ? calls / ROUNDS : 1;
    cudaGraphExec_t graph[2] = {NULL, NULL};
    cudaEvent_t event[2] = {NULL, NULL};
    float sum[2][2] = {{0, 0}, {0, 0}};
    int failed = bad_cuda(cudaEventCreate(&event[0]), "event") ||
                 bad_cuda(cudaEventCreate(&event[1]), "event") || capture(l, ways[0], &graph[0]) ||
                 capture(l, ways[1], &graph[1]);

    for (int turn = 0; !failed && turn < 4 * ROUNDS; turn++) {
        int way = turn % 2, replayed = turn / 2 % 2;

        failed = time_round(l, ways[way], replayed ? graph[way] : NULL, per_round, event,
                            &sum[way][replayed]);
    }
    for (int i = 0; i < 2; i++) {
        out_us[i][0] = sum[i][0] / ROUNDS;
        out_us[i][1] = sum[i][1] / ROUNDS;
        if (graph[i] != NULL) {
            (void)cudaGraphExecDestroy(graph[i]);
        }
        if (event[i] != NULL) {
            (void)cudaEventDestroy(event[i]);
        }
    }
    return failed;
}
