// SPDX-License-Identifier: Apache-2.0
// What is refused with a sentence, and the calls that go on working afterwards.
#include <stdio.h>
#include <stdlib.h>

#include "test/kernel/checkcomm.h"

void test_refused_registration(struct rank *r)
{
    void *plain = NULL, *memory = NULL, *other = NULL, *handle = NULL;

    create(r, 20000, 0);
    cuda(r, cudaMalloc(&plain, 1 << 20), "cudaMalloc");
    expect(r, gemmarCommRegister(r->comm, plain, 1 << 20, &handle), gemmarInvalidUsage,
           "gemmarMemAlloc", "register cudaMalloc memory");
    expect(r, gemmarMemAlloc(&memory, 4 << 20), gemmarSuccess, NULL, "gemmarMemAlloc");
    expect(r, gemmarCommRegister(r->comm, memory, (size_t)(1 + r->rank) << 20, &handle),
           gemmarInvalidUsage, "must be equal", "register other sizes");
    expect(r, gemmarCommRegister(r->comm, r->rank == 0 ? NULL : memory, 1 << 20, &handle),
           gemmarInvalidArgument, "rank 0", "register NULL");
    expect(r, gemmarCommDeregister(r->comm, &handle), gemmarInvalidArgument, "not a registration",
           "deregister nothing");
    one_call(r, shapes[1], "call after refusals");
    expect(r, gemmarCommRegister(r->comm, memory, 4 << 20, &handle), gemmarSuccess, NULL,
           "register"); /* the communicator's end deregisters it */
    expect(r, gemmarMemAlloc(&other, 4 << 20), gemmarSuccess, NULL, "gemmarMemAlloc");
    expect(r, gemmarCommRegister(r->comm, r->rank == 0 ? memory : other, 1 << 20, &handle),
           gemmarInvalidUsage, "same allocation", "register the same memory on one rank");
    destroy(r);
    (void)gemmarMemFree(memory);
    (void)gemmarMemFree(other);
    (void)cudaFree(plain);
}

void test_arguments(struct rank *r)
{
    struct problem p = {.s = {60, 130, 4}, .bf16 = true}, bad;
    uint16_t *pinned = NULL, *foreign = NULL;
    cudaStream_t stream = NULL;
    float *host = malloc(60 * 130 * 4);
    gemmarFusedArgs_t args = {.size = sizeof(args)};
    int peer = (r->device + 1) % r->all->gpus;

    create(r, 20000, 0);
    open_problem(r, &p);
    cuda(r, cudaHostAlloc((void **)&pinned, 1 << 20, cudaHostAllocDefault), "pinned");
    cuda(r, cudaSetDevice(peer), "device");
    cuda(r, cudaMalloc((void **)&foreign, 1 << 20), "foreign");
    cuda(r, cudaStreamCreate(&stream), "stream");
    cuda(r, cudaSetDevice(r->device), "device");
    bad = p;
    bad.a = (uint16_t *)host;
    expect(r, call_on(r, &bad, 1, 0, false, r->stream), gemmarInvalidArgument, "A (", "host A");
    bad = p;
    bad.b = pinned;
    expect(r, call_on(r, &bad, 1, 0, false, r->stream), gemmarInvalidArgument, "B (", "pinned B");
    bad = p;
    bad.c = foreign;
    expect(r, call_on(r, &bad, 1, 0, false, r->stream), gemmarInvalidArgument, "memory of GPU",
           "C of another GPU");
    bad = p;
    bad.bias = (uint16_t *)host;
    expect(r, call_on(r, &bad, 1, 0, true, r->stream), gemmarInvalidArgument, "bias (",
           "host bias");
    expect(r, call_on(r, &p, 1, 0, false, stream), gemmarInvalidArgument, "stream is of GPU",
           "stream of another GPU");
    expect(r, gemmar_fused(p.a, p.b, p.c, 60, 60, 4, gemmarFloat32, r->comm, r->stream),
           gemmarInvalidArgument, "fp32", "fp32");
    expect(r, gemmar_fused(p.a, p.b, p.a, 60, 130, 4, gemmarBfloat16, r->comm, r->stream),
           gemmarInvalidArgument, "overlaps", "C overlaps A");
    expect(r, gemmar_fused_ex(NULL, r->comm, r->stream), gemmarInvalidArgument, NULL, "NULL");
    args.datatype = gemmarBfloat16;
    expect(r, gemmar_fused_ex(&args, r->comm, r->stream), gemmarSuccess, NULL, "empty");
    set_c(r, &p, POISON);
    cuda(r, cudaSetDevice(peer), "device"); /* which device is current does not matter to a call */
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "other device current");
    cuda(r, cudaSetDevice(r->device), "device");
    cuda(r, cudaStreamSynchronize(r->stream), "other device current");
    compare(r, &p, 1, 0, false, "other device current");
    one_call(r, shapes[1], "after refusals");
    (void)cudaFree(foreign);
    (void)cudaStreamDestroy(stream);
    (void)cudaFreeHost(pinned);
    free(host);
    close_problem(r, &p);
    destroy(r);
}

void test_wrong_creation(struct rank *r)
{
    gemmarConfig_t config = GEMMAR_CONFIG_INITIALIZER;
    gemmarComm_t comm = NULL;

    r->comm = NULL;
    expect(r, gemmarCommCreate(NULL, r->nccl, NULL), gemmarInvalidArgument, "comm is NULL", "NULL");
    expect(r, gemmarCommCreate(&comm, NULL, NULL), gemmarInvalidArgument, "nccl is NULL", "NULL");
    config.tile_m = r->rank == 1 ? 64 : 32; /* must be equal */
    expect(r, gemmarCommCreate(&comm, r->nccl, &config), gemmarInvalidUsage, "tile_m",
           "settings differ");
    cuda(r, cudaSetDevice(r->rank == 1 ? (r->device + 1) % r->all->gpus : r->device), "device");
    expect(r, gemmarCommCreate(&comm, r->nccl, NULL), gemmarInvalidUsage, "current device",
           "other device on rank 1");
    cuda(r, cudaSetDevice(r->device), "device");
}

void test_compare_calls(struct rank *r)
{
    struct problem p = {.s = {20 + 10 * r->rank, 40, 4}, .bf16 = true};

    create(r, 20000, 1);
    expect(r, gemmarCommReserve(r->comm, 200 + 100 * r->rank, 3000, 8, gemmarBfloat16),
           gemmarInvalidUsage, "another shape", "other shapes reserved");
    open_problem(r, &p);
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarInvalidUsage, "another M",
           "other M, compared");
    close_problem(r, &p);
    one_call(r, shapes[1], "after a call that differed");
    destroy(r);
}

/* Without the comparison before: the kernels find out, before any writes into another's C. */
void test_other_arguments(struct rank *r)
{
    struct problem p = {.s = {200, 304, 8}, .bf16 = true};
    gemmarResult_t state = gemmarInProgress;
    double began;

    create(r, 2000, 0);
    open_problem(r, &p);
    began = now_us();
    expect(r, call_on(r, &p, (float)(1 + r->rank), 0, false, r->stream), gemmarSuccess, NULL,
           "call");
    cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
    check(r, now_us() - began < 10e6, "it took %.1f s", (now_us() - began) * 1e-6);
    barrier(r);
    expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
    check(r, state == gemmarInvalidUsage || state == gemmarRemoteError, "state %d", state);
    printf("other arguments, rank %d: %d %s\n", r->rank, state, gemmarGetLastError(r->comm));
    close_problem(r, &p);
    destroy(r);
    barrier(r);
}
