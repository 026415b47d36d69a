// SPDX-License-Identifier: Apache-2.0
// Peers that never call, abort or die: every rank gets an error in time, and its GPU goes on.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "test/kernel/checkcomm.h"

/* The communicator's state once it is an error. Local peers are told at once, other nodes by the
 * next look at their connections. */
static gemmarResult_t state_of(struct rank *r)
{
    gemmarResult_t state = gemmarSuccess;
    double began = now_us();

    while (state == gemmarSuccess && now_us() - began < 5e6) {
        expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
        (void)usleep(1000);
    }
    return state;
}

/* Is it on the node of rank 0? */
static bool is_first_node(const struct rank *r)
{
    return r->rank < r->all->ranks / r->all->nodes;
}

/* Behind a failure: the GPU goes on, and a new communicator is right. */
static void begin_again(struct rank *r, struct problem *p)
{
    close_problem(r, p);
    destroy(r);
    cuda(r, cudaDeviceSynchronize(), "the GPU goes on");
    barrier(r);
    create(r, 20000, 0);
    one_call(r, shapes[3], "new communicator");
    destroy(r);
}

void test_never_calls(struct rank *r)
{
    struct problem p = {.s = {200, 300, 4}, .bf16 = true};
    gemmarResult_t state = gemmarInProgress;
    double began;

    create(r, 500, 0);
    open_problem(r, &p);
    barrier(r);
    began = now_us();
    if (r->rank == 0) {
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "call");
        cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
        check(r, now_us() - began < 5e6, "it took %.1f s", (now_us() - began) * 1e-6);
        expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
        expect(r, state, gemmarRemoteError, "rank 1", "async error");
        printf("never calls: %s\n", gemmarGetLastError(r->comm));
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarRemoteError, "rank 1", "next call");
    }
    barrier(r);
    if (r->rank != 0) {
        expect(r, state_of(r), gemmarRemoteError, "rank 0", "async error");
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarRemoteError, "rank 0",
               "call after the others left");
        printf("never calls, rank %d: %s\n", r->rank, gemmarGetLastError(r->comm));
    }
    begin_again(r, &p);
}

/* Two graphs of a call, launched side by side while the other ranks keep the first one waiting. */
void test_two_at_once(struct rank *r)
{
    struct problem p = {.s = {60, 130, 4}, .bf16 = true};
    gemmarResult_t state = gemmarInProgress;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec[2];

    create(r, 2000, 0);
    open_problem(r, &p);
    cuda(r, cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal), "begin");
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "captured call");
    cuda(r, cudaStreamEndCapture(r->stream, &graph), "end");
    for (int i = 0; i < 2; i++) {
        cuda(r, cudaGraphInstantiate(&exec[i], graph, 0), "instantiate");
    }
    barrier(r);
    if (r->rank == 0) {
        cuda(r, cudaGraphLaunch(exec[0], r->stream), "first");
        cuda(r, cudaGraphLaunch(exec[1], r->other), "second");
        cuda(r, cudaStreamSynchronize(r->stream), "the first leaves");
        cuda(r, cudaStreamSynchronize(r->other), "the second leaves");
        expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
        expect(r, state, gemmarInvalidUsage, "two calls ran at once", "async error");
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarInvalidUsage, NULL, "next call");
    }
    barrier(r);
    for (int i = 0; i < 2; i++) {
        (void)cudaGraphExecDestroy(exec[i]);
    }
    (void)cudaGraphDestroy(graph);
    begin_again(r, &p);
}

static void *abort_later(void *argument)
{
    struct timespec t = {.tv_nsec = 200000000};

    (void)nanosleep(&t, NULL);
    (void)gemmarCommAbort(argument);
    return NULL;
}

void test_abort(struct rank *r)
{
    struct problem p = {.s = {200, 300, 4}, .bf16 = true};
    gemmarResult_t state = gemmarInProgress;
    pthread_t thread;
    double began;

    create(r, 60000, 0);
    open_problem(r, &p);
    barrier(r);
    began = now_us();
    if (r->rank == 0) {
        (void)pthread_create(&thread, NULL, abort_later, r->comm);
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "call");
        cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
        check(r, now_us() - began < 3e6, "it took %.1f s", (now_us() - began) * 1e-6);
        (void)pthread_join(thread, NULL);
        expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
        expect(r, state, gemmarInvalidUsage, "gemmarCommAbort", "async error");
    }
    barrier(r);
    if (r->rank != 0) {
        state = state_of(r);
        expect(r, state, gemmarRemoteError, is_first_node(r) ? "gemmarCommAbort" : "left",
               "async error of a peer");
    }
    expect(r, call_on(r, &p, 1, 0, false, r->stream), state, NULL, "next call");
    begin_again(r, &p);
}

void peer_dies(struct rank *r)
{
    struct problem p = {.s = {200, 300, 4}, .bf16 = true};
    double began;

    create(r, 60000, 0);
    open_problem(r, &p);
    if (r->rank == r->all->ranks - 1) {
        _exit(0);
    }
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "call");
    began = now_us();
    expect(r, state_of(r), gemmarRemoteError, "is gone", "async error");
    cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
    printf("peer dies: %.3f s: %s\n", (now_us() - began) * 1e-6, gemmarGetLastError(r->comm));
    expect(r, gemmarCommDestroy(r->comm), gemmarSuccess, NULL, "destroy");
    r->comm = NULL;
    cuda(r, cudaDeviceSynchronize(), "the GPU goes on");
}
