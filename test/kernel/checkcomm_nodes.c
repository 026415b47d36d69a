// SPDX-License-Identifier: Apache-2.0
// Communicators of several nodes: what needs no call, the ways between nodes, a rank that ends.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test/kernel/checkcomm.h"

static void register_and_back(struct rank *r)
{
    void *memory = NULL, *handle = NULL;

    expect(r, gemmarMemAlloc(&memory, 2 << 20), gemmarSuccess, NULL, "gemmarMemAlloc");
    expect(r, gemmarCommRegister(r->comm, memory, 1 << 20, &handle), gemmarSuccess, NULL,
           "register");
    expect(r, gemmarCommDeregister(r->comm, handle), gemmarSuccess, NULL, "deregister");
    (void)gemmarMemFree(memory);
}

void test_nodes(struct rank *r)
{
    gemmarCommInfo_t info = {.size = sizeof(info)}, grown = {.size = sizeof(grown)};
    int locals = r->all->ranks / r->all->nodes;
    double began = now_us();

    create(r, 20000, 0);
    printf("rank %d: creation %.1f ms\n", r->rank, (now_us() - began) * 1e-3);
    expect(r, gemmarCommGetInfo(r->comm, &info), gemmarSuccess, NULL, "info");
    check(r,
          info.nodes == r->all->nodes && info.localRanks == locals &&
              info.node == r->rank / locals && info.localRank == r->rank % locals,
          "rank %d is %d of %d on node %d of %d", info.rank, info.localRank, info.localRanks,
          info.node, info.nodes);
    register_and_back(r);
    for (int i = 1; i < 4; i++) {
        expect(r, gemmarCommReserve(r->comm, 512 * i, 4096, 64, gemmarBfloat16), gemmarSuccess,
               NULL, "reserve");
    }
    expect(r, gemmarCommReserve(r->comm, 4096 + 64 * r->rank, 8192, 8, gemmarBfloat16),
           gemmarInvalidUsage, "another shape", "other shapes reserved");
    expect(r, gemmarCommGetInfo(r->comm, &grown), gemmarSuccess, NULL, "info");
    check(r, grown.workspaceBytes > info.workspaceBytes && grown.wireBytes == 0,
          "%lu bytes, then %lu, %lu on the wire", info.workspaceBytes, grown.workspaceBytes,
          grown.wireBytes);
    register_and_back(r);
    destroy(r);
}

/* One communicator with a knob set for its creation alone. */
static void create_with(struct rank *r, const char *knob, const char *value)
{
    (void)setenv(knob, value, 1);
    create(r, 20000, 0);
    (void)unsetenv(knob);
}

/* Calls of several shapes, there and back, so that both halves of the windows are used again. */
static void some_calls(struct rank *r, const char *what)
{
    for (int i = 0; i < 3; i++) {
        one_call(r, shapes[6], what);
        one_call(r, shapes[4], what);
        one_call(r, shapes[0], what);
    }
}

void test_signals(struct rank *r)
{
    static const char *const signals[] = {"stamp", "imm"};

    for (int i = 0; i < 2; i++) {
        gemmarCommInfo_t info = {.size = sizeof(info)};

        create_with(r, "GEMMAR_SIGNAL", signals[i]);
        some_calls(r, signals[i]);
        expect(r, gemmarCommGetInfo(r->comm, &info), gemmarSuccess, NULL, "info");
        check(r, (info.stampBytes == 0) == (i == 1), "%s: %lu bytes of stamps", signals[i],
              info.stampBytes);
        destroy(r);
    }
}

void test_algorithms(struct rank *r)
{
    static const char *const names[] = {"direct", "two-shot"};
    struct shape whole = {1024, 2048, 64};

    for (int i = 0; i < 2; i++) {
        gemmarCommInfo_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};

        create_with(r, "GEMMAR_ALGO", names[i]);
        some_calls(r, names[i]);
        expect(r, gemmarCommGetInfo(r->comm, &before), gemmarSuccess, NULL, "info");
        one_call(r, whole, names[i]);
        expect(r, gemmarCommGetInfo(r->comm, &after), gemmarSuccess, NULL, "info");
        check(r, after.wireBytes - before.wireBytes == after.wireBytesFormula,
              "%s: %lu bytes on the wire, the formula says %lu", names[i],
              after.wireBytes - before.wireBytes, after.wireBytesFormula);
        if (r->rank == 0) {
            printf("%s: %lu bytes on the wire of rank 0 for %ldx%ld\n", names[i],
                   after.wireBytes - before.wireBytes, whole.m, whole.n);
        }
        destroy(r);
    }
}

/* A rank ends while the others grow: they are told by its closed connection, not by the time-out.
 */
void test_gone_in_reserve(struct rank *r)
{
    double began;

    create(r, 60000, 0);
    barrier(r);
    if (r->rank == r->all->ranks - 1) {
        _exit(0);
    }
    began = now_us();
    r->step = "reserve";
    expect(r, gemmarCommReserve(r->comm, 4096, 4096, 8, gemmarBfloat16), gemmarSystemError,
           "all-gather", "reserve without a rank");
    check(r, now_us() - began < 5e6, "it took %.1f s", (now_us() - began) * 1e-6);
    printf("rank %d: told after %.3f s: %s\n", r->rank, (now_us() - began) * 1e-6,
           gemmarGetLastError(r->comm));
    (void)gemmarCommDestroy(r->comm);
    r->comm = NULL;
    cuda(r, cudaDeviceSynchronize(), "the GPU goes on");
}
