// SPDX-License-Identifier: Apache-2.0
// Calls over a network that goes wrong: every rank gets an error in time that names ranks and
// stage, and its GPU goes on; what retries can mend goes on by itself.
//
// The network is softhca; CHECKCOMM_SOFTHCA_CTL is the path of softhca-ctl.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/kernel/checkcomm.h"

#define TIMEOUT_MS 3000
#define GIVE_UP_US 8e6 /* the time-out, and a machine that is busy */

static const struct shape shape = {512, 1024, 32};

/* A command of the GPU that has nothing to do with us still runs. */
static void gpu_goes_on(struct rank *r)
{
    unsigned char seen = 0;
    void *memory = NULL;

    cuda(r, cudaMalloc(&memory, 1), "memory afterwards");
    cuda(r, cudaMemsetAsync(memory, 7, 1, r->other), "work afterwards");
    cuda(r, cudaMemcpyAsync(&seen, memory, 1, cudaMemcpyDeviceToHost, r->other), "afterwards");
    cuda(r, cudaStreamSynchronize(r->other), "the GPU goes on");
    check(r, seen == 7, "the GPU wrote %d, not 7", seen);
    (void)cudaFree(memory);
}

static void disturb(struct rank *r, const char *ctl)
{
    const char *program = getenv("CHECKCOMM_SOFTHCA_CTL");
    char command[512];

    (void)snprintf(command, sizeof(command), "'%s' %s", program != NULL ? program : "softhca-ctl",
                   ctl);
    check(r, system(command) == 0, "%s", command);
}

/* Calls one after the other until one fails or `calls` have ended; the state. */
static gemmarResult_t call_again_and_again(struct rank *r, const struct problem *p, int calls,
                                           int dying, const char *ctl)
{
    gemmarResult_t state = gemmarSuccess;
    double began = now_us();

    for (int i = 0; state == gemmarSuccess && i < calls && now_us() - began < GIVE_UP_US; i++) {
        state = call_on(r, p, 1, 0, false, r->stream);
        if (i == 5 && r->rank == dying) {
            (void)raise(SIGKILL);
        }
        if (i == 5 && ctl != NULL && r->rank == 0) {
            disturb(r, ctl);
        }
        while (state == gemmarSuccess && cudaStreamQuery(r->stream) == cudaErrorNotReady) {
            (void)usleep(200);
            (void)gemmarCommGetAsyncError(r->comm, &state);
        }
    }
    if (state == gemmarSuccess) {
        (void)gemmarCommGetAsyncError(r->comm, &state);
    }
    return state;
}

/* Every rank but `dying` fails in time, with a sentence that names a rank and a stage. */
static void all_fail(struct rank *r, int dying, const char *ctl)
{
    struct problem p = {.s = shape, .bf16 = true};
    double began;

    create(r, TIMEOUT_MS, 0);
    open_problem(r, &p);
    began = now_us();
    expect(r, call_again_and_again(r, &p, 1000000, dying, ctl), gemmarRemoteError, "stage",
           "calls that are disturbed");
    check(r, strstr(gemmarGetLastError(r->comm), "rank ") != NULL, "no rank in: %s",
          gemmarGetLastError(r->comm));
    printf("%s: rank %d: %.2f s: %s\n", r->test, r->rank, (now_us() - began) * 1e-6,
           gemmarGetLastError(r->comm));
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarRemoteError, NULL, "next call");
    cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
    check(r, now_us() - began < GIVE_UP_US, "it took %.1f s", (now_us() - began) * 1e-6);
    expect(r, gemmarCommDestroy(r->comm), gemmarSuccess, NULL, "destroy");
    r->comm = NULL;
    gpu_goes_on(r);
}

void test_killed(struct rank *r)
{
    all_fail(r, r->all->ranks - 1, NULL);
}

/* Without end: the retries of its queue pairs run out, or the calls' time. */
void test_port_down(struct rank *r)
{
    all_fail(r, -1, "port node1 0 1 down");
}

/* The peer's device refuses the access. */
void test_wrong_key(struct rank *r)
{
    all_fail(r, -1, "rule 'key nth=20 node=node1'");
}

/* Shorter than the retries last: nothing is lost. */
void test_flap(struct rank *r)
{
    struct problem p = {.s = shape, .bf16 = true};

    create(r, 20000, 0);
    open_problem(r, &p);
    set_c(r, &p, POISON);
    expect(r, call_again_and_again(r, &p, 200, -1, "flap node1 0 1 150"), gemmarSuccess, NULL,
           "calls over a port that flaps");
    cuda(r, cudaStreamSynchronize(r->stream), "calls");
    compare(r, &p, 1, 0, false, "after the flap");
    close_problem(r, &p);
    destroy(r);
}

/* Two communicators whose calls each fill the GPU: in the same order on all ranks they run one
 * after the other; in crossed order each waits for what stands behind the other, until the time is
 * over. */
void test_two_communicators(struct rank *r)
{
    struct problem p = {.s = {2048, 4096, 8}, .bf16 = true}, q = p;
    gemmarComm_t comms[2];
    gemmarResult_t state[2] = {gemmarSuccess, gemmarSuccess};
    int first = r->rank % 2;
    double began;

    create(r, 2000, 0);
    comms[0] = r->comm;
    create(r, 2000, 0);
    comms[1] = r->comm;
    for (int i = 0; i < 2; i++) {
        expect(r, gemmarCommReserve(comms[i], p.s.m, p.s.n, p.s.k, gemmarBfloat16), gemmarSuccess,
               NULL, "reserve");
    }
    open_problem(r, &p);
    open_problem(r, &q);
    set_c(r, &p, POISON);
    set_c(r, &q, POISON);
    barrier(r);
    for (int i = 0; i < 10; i++) {
        r->comm = comms[i % 2];
        expect(r, call_on(r, i % 2 == 0 ? &p : &q, 1, 0, false, i % 2 == 0 ? r->stream : r->other),
               gemmarSuccess, NULL, "same order");
    }
    cuda(r, cudaDeviceSynchronize(), "same order");
    compare(r, &p, 1, 0, false, "first communicator");
    compare(r, &q, 1, 0, false, "second communicator");
    barrier(r);
    began = now_us();
    r->comm = comms[first];
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "crossed order");
    (void)usleep(100000); /* it has the GPU */
    r->comm = comms[1 - first];
    expect(r, call_on(r, &q, 1, 0, false, r->other), gemmarSuccess, NULL, "crossed order");
    cuda(r, cudaDeviceSynchronize(), "the kernels leave");
    check(r, now_us() - began < GIVE_UP_US, "it took %.1f s", (now_us() - began) * 1e-6);
    barrier(r);
    for (int i = 0; i < 2; i++) {
        r->comm = comms[i];
        (void)gemmarCommGetAsyncError(comms[i], &state[i]);
        if (state[i] != gemmarSuccess) {
            expect(r, state[i], gemmarRemoteError, "stage", "crossed order");
            printf("two communicators: rank %d, communicator %d: %s\n", r->rank, i,
                   gemmarGetLastError(comms[i]));
        }
    }
    check(r, state[first] != gemmarSuccess, "the crossed order had no error");
    close_problem(r, &q);
    close_problem(r, &p);
    for (int i = 0; i < 2; i++) {
        (void)gemmarCommDestroy(comms[i]); /* broken on some ranks */
    }
    r->comm = NULL;
    gpu_goes_on(r);
    barrier(r);
}
