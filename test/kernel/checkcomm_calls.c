// SPDX-License-Identifier: Apache-2.0
// Calls that give results: C of every kind, graphs, growth, streams, what a call costs the CPU.
#include <stdio.h>

#include "test/kernel/checkcomm.h"

#define BATCH 50

static void results(struct rank *r, bool registered)
{
    uint16_t *memory = NULL;
    void *handle = NULL;
    size_t bytes = 4u << 20;

    if (registered) {
        expect(r, gemmarMemAlloc((void **)&memory, bytes), gemmarSuccess, NULL, "gemmarMemAlloc");
        expect(r, gemmarCommRegister(r->comm, memory, bytes, &handle), gemmarSuccess, NULL,
               "register");
    }
    for (size_t i = 0; i < SHAPES; i++) {
        for (int kind = 0; kind < 4; kind++) {
            struct problem p = {.s = shapes[i],
                                .bf16 = (kind & 1) != 0,
                                .trans_b = (kind & 2) != 0,
                                .ldc = kind == 3 ? shapes[i].n + 3 : 0,
                                .c_given = registered ? memory + 64 * i : NULL};

            open_problem(r, &p);
            set_c(r, &p, POISON);
            expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "call");
            cuda(r, cudaStreamSynchronize(r->stream), "call");
            compare(r, &p, 1, 0, false, "plain");
            if (kind != 3) {
                set_c(r, &p, 3);
                expect(r, call_on(r, &p, 2, 1, true, r->stream), gemmarSuccess, NULL, "epilogue");
                cuda(r, cudaStreamSynchronize(r->stream), "epilogue");
                compare(r, &p, 2, 3, true, "epilogue");
            }
            close_problem(r, &p);
        }
    }
    if (registered) {
        expect(r, gemmarCommDeregister(r->comm, handle), gemmarSuccess, NULL, "deregister");
        expect(r, gemmarMemFree(memory), gemmarSuccess, NULL, "gemmarMemFree");
    }
}

void test_results(struct rank *r)
{
    create(r, 20000, 0);
    results(r, false);
    destroy(r);
}

void test_registered(struct rank *r)
{
    create(r, 20000, 0);
    results(r, true);
    destroy(r);
}

/* A capture of global mode forbids a process's other threads to allocate or copy meanwhile. */
static cudaGraphExec_t capture(struct rank *r, const struct problem *p, float beta)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;

    barrier(r);
    cuda(r, cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeGlobal), "begin capture");
    expect(r, call_on(r, p, 1, beta, false, r->stream), gemmarSuccess, NULL, "captured call");
    cuda(r, cudaStreamEndCapture(r->stream, &graph), "end capture");
    barrier(r);
    cuda(r, cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    (void)cudaGraphDestroy(graph);
    return exec;
}

void test_graph(struct rank *r)
{
    struct problem p = {.s = {60, 130, 4}}, q = {.s = {33, 65, 3}};
    cudaGraphExec_t exec;

    create(r, 20000, 0);
    open_problem(r, &p);
    open_problem(r, &q);
    exec = capture(r, &p, 1);
    set_c(r, &p, 0);
    for (int i = 0; i < 100; i++) {
        cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
    }
    cuda(r, cudaStreamSynchronize(r->stream), "replays");
    compare(r, &p, 100, 0, false, "100 replays");
    for (int i = 0; i < 10; i++) { /* replays and calls mixed */
        cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
        expect(r, call_on(r, &q, 1, 0, false, r->stream), gemmarSuccess, NULL, "between");
    }
    cuda(r, cudaStreamSynchronize(r->stream), "replays");
    compare(r, &p, 110, 0, false, "110 replays");
    compare(r, &q, 1, 0, false, "between replays");
    (void)cudaGraphExecDestroy(exec);
    close_problem(r, &q);
    close_problem(r, &p);
    destroy(r);
}

/* A capture that forks to a second stream: the second call waits for the first. */
void test_graph_of_two_streams(struct rank *r)
{
    struct problem p = {.s = {40, 70, 4}};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t fork, join;

    create(r, 20000, 0);
    open_problem(r, &p);
    cuda(r, cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "event");
    cuda(r, cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "event");
    barrier(r);
    cuda(r, cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeGlobal), "begin");
    cuda(r, cudaEventRecord(fork, r->stream), "fork");
    cuda(r, cudaStreamWaitEvent(r->other, fork, 0), "fork");
    expect(r, call_on(r, &p, 1, 1, false, r->stream), gemmarSuccess, NULL, "first");
    expect(r, call_on(r, &p, 1, 1, false, r->other), gemmarSuccess, NULL, "second");
    cuda(r, cudaEventRecord(join, r->other), "join");
    cuda(r, cudaStreamWaitEvent(r->stream, join, 0), "join");
    cuda(r, cudaStreamEndCapture(r->stream, &graph), "end");
    barrier(r);
    cuda(r, cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    set_c(r, &p, 0);
    for (int i = 0; i < 20; i++) {
        cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
    }
    cuda(r, cudaStreamSynchronize(r->stream), "replays");
    compare(r, &p, 40, 0, false, "two streams");
    (void)cudaGraphExecDestroy(exec);
    (void)cudaGraphDestroy(graph);
    (void)cudaEventDestroy(fork);
    (void)cudaEventDestroy(join);
    close_problem(r, &p);
    destroy(r);
}

void test_growth(struct rank *r)
{
    struct problem small = {.s = {60, 130, 4}}, large = {.s = {700, 1500, 8}};
    struct shape larger = {900, 1700, 8};
    gemmarCommInfo_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;

    create(r, 20000, 0);
    open_problem(r, &small);
    open_problem(r, &large);
    exec = capture(r, &small, 1);
    set_c(r, &small, 0);
    expect(r, gemmarCommGetInfo(r->comm, &before), gemmarSuccess, NULL, "info");
    cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
    barrier(r);
    cuda(r, cudaStreamBeginCapture(r->other, cudaStreamCaptureModeGlobal), "begin capture");
    expect(r, call_on(r, &large, 1, 0, false, r->other), gemmarInvalidUsage, "gemmarCommReserve",
           "growth in capture");
    cuda(r, cudaStreamEndCapture(r->other, &graph), "end capture");
    barrier(r);
    (void)cudaGraphDestroy(graph);
    cuda(r, cudaStreamSynchronize(r->stream), "replay");
    set_c(r, &large, POISON);
    expect(r, call_on(r, &large, 1, 0, false, r->stream), gemmarSuccess, NULL, "growing call");
    for (int i = 0; i < 5; i++) { /* on the generation that it was captured with */
        cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
    }
    cuda(r, cudaStreamSynchronize(r->stream), "replays");
    compare(r, &large, 1, 0, false, "grown");
    compare(r, &small, 6, 0, false, "replays across growth");
    expect(r, gemmarCommReserve(r->comm, larger.m, larger.n, larger.k, gemmarBfloat16),
           gemmarSuccess, NULL, "reserve");
    one_call(r, larger, "call after reserve");
    expect(r, gemmarCommGetInfo(r->comm, &after), gemmarSuccess, NULL, "info");
    check(r, after.workspaceBytes > before.workspaceBytes && after.epoch > 1,
          "workspace %lu, then %lu bytes, epoch %lu", before.workspaceBytes, after.workspaceBytes,
          after.epoch);
    (void)cudaGraphExecDestroy(exec);
    close_problem(r, &large);
    close_problem(r, &small);
    destroy(r);
}

void test_streams(struct rank *r)
{
    struct problem p = {.s = {60, 130, 4}};
    cudaStream_t streams[3] = {r->stream, r->other, NULL};

    create(r, 20000, 0);
    open_problem(r, &p);
    set_c(r, &p, 0);
    for (int i = 0; i < 99; i++) {
        expect(r, call_on(r, &p, 1, 1, false, streams[i % 3]), gemmarSuccess, NULL, "call");
    }
    cuda(r, cudaDeviceSynchronize(), "calls");
    compare(r, &p, 99, 0, false, "three streams");
    close_problem(r, &p);
    destroy(r);
}

void test_again(struct rank *r)
{
    double creating = 0, destroying = 0;

    for (int i = 0; i < 10; i++) {
        double began = now_us();

        create(r, 20000, 0);
        creating += now_us() - began;
        one_call(r, shapes[1], "call");
        began = now_us();
        destroy(r);
        destroying += now_us() - began;
    }
    printf("rank %d: creation %.1f ms, destruction %.1f ms\n", r->rank, creating * 1e-4,
           destroying * 1e-4);
}

/* Of a call on the CPU, in batches that fit into the driver's queue: a full queue makes the CPU
 * wait for the GPU. */
static double host_time(struct rank *r, const struct problem *p, int batches)
{
    double total = 0;

    for (int b = 0; b < batches; b++) {
        for (int i = 0; i < BATCH; i++) {
            double began = now_us();

            (void)call_on(r, p, 1, 0, false, r->stream);
            total += b > 0 ? now_us() - began : 0;
        }
        cuda(r, cudaStreamSynchronize(r->stream), "calls");
    }
    return total / ((batches - 1) * BATCH);
}

void test_host_time(struct rank *r)
{
    struct problem p = {.s = {64, 256, 64}, .bf16 = true};
    uint16_t *memory = NULL;
    void *handle = NULL;
    double plain, registered;

    create(r, 20000, 0);
    expect(r, gemmarMemAlloc((void **)&memory, 2 << 20), gemmarSuccess, NULL, "gemmarMemAlloc");
    expect(r, gemmarCommRegister(r->comm, memory, 2 << 20, &handle), gemmarSuccess, NULL,
           "register");
    open_problem(r, &p);
    plain = host_time(r, &p, 20);
    (void)cudaFree(p.c);
    p.c = p.c_given = memory;
    barrier(r);
    registered = host_time(r, &p, 20);
    printf("host time: rank %d: %.2f us a call, %.2f with a registered C\n", r->rank, plain,
           registered);
    check(r, registered <= 10, "%.2f us of host time per call", registered);
    close_problem(r, &p);
    destroy(r);
    (void)gemmarMemFree(memory);
}
