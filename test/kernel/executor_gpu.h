// SPDX-License-Identifier: Apache-2.0
// The protocol test on a GPU: every rank is a persistent kernel on a stream of its own, all of them
// on one GPU, and all memory is mapped host memory, so that a thread can play the network.
//
// Everything comes out of one arena, taken before the first kernel: allocating while a kernel waits
// for a peer can block for ever. The kernels are loaded first for the same reason.
#ifndef GEMMAR_TEST_EXECUTOR_GPU_H
#define GEMMAR_TEST_EXECUTOR_GPU_H

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/fused_kernel.h"
#include "transport/order.h"

/* Products add in the order of k without contraction, as the reference does. */
#define MACHINE_ADDS_IN_ORDER 0
#define ARENA_BYTES           (UINT64_C(256) << 20)
#define MAX_STREAMS           16

struct machine {
    cudaStream_t stream;
};

static pthread_mutex_t arena_lock = PTHREAD_MUTEX_INITIALIZER;
static char *arena;
static uint64_t arena_used;
static struct machine machines[MAX_STREAMS];
static int machines_used;

static void must(cudaError_t error)
{
    ck_assert_msg(error == cudaSuccess, "%s", cudaGetErrorString(error));
}

/* Under arena_lock. */
static void open_arena(void)
{
    must(cudaSetDeviceFlags(cudaDeviceScheduleYield));
    must(cudaHostAlloc((void **)&arena, ARENA_BYTES, cudaHostAllocPortable | cudaHostAllocMapped));
    must(gemmar_fused_load());
    for (int i = 0; i < MAX_STREAMS; i++) {
        must(cudaStreamCreateWithFlags(&machines[i].stream, cudaStreamNonBlocking));
    }
}

static void *zeros(uint64_t bytes)
{
    char *p;

    (void)pthread_mutex_lock(&arena_lock);
    if (arena == NULL) {
        open_arena();
    }
    p = arena + arena_used;
    arena_used += (bytes + 64 + 127) / 128 * 128;
    ck_assert_uint_le(arena_used, ARENA_BYTES);
    (void)pthread_mutex_unlock(&arena_lock);
    memset(p, 0, bytes + 64);
    return p;
}

static void give(void *p)
{
    (void)p; /* the arena ends with the test's process */
}

static void machine_map(void *base, uint64_t bytes)
{
    must(cudaHostRegister(base, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
}

static void machine_unmap(void *base)
{
    must(cudaHostUnregister(base));
}

static struct machine *machine_open(void)
{
    ck_assert_int_lt(machines_used, MAX_STREAMS);
    return &machines[machines_used++];
}

static void machine_close(struct machine *m)
{
    (void)m;
    machines_used--;
}

static int machine_run(struct machine *m, const struct gemmar_call *call)
{
    must(gemmar_fused_launch(call, m->stream));
    must(cudaStreamSynchronize(m->stream));
    return gemmar_load_acquire(call->watch.abort_word) != 0 ? -EIO : 0;
}

#endif
