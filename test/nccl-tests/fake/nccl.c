// SPDX-License-Identifier: Apache-2.0
// What comm_pairs calls of NCCL. Nobody talks to anybody: element i of what rank r sends is known
// to be i % 1000 + r. A collective takes 1 ms, over IB 2 ms. FAKE_NCCL=wrong: IB spoils the last
// value; dies: rank 1 ends in mid-collective.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

void fake_cuda_pass(double ms); // of the other fake

struct id {
    char bytes[128];
};

struct config {
    size_t size;
    unsigned magic, version;
    int numbers[4];
    const char *network;
};

struct comm {
    int ranks, rank, is_ib;
};

static struct { // the group that is open
    const struct comm *comm;
    int receives;
    struct {
        float *to;
        size_t count;
        int peer;
    } receive[8];
} group;

static float sent(int by, size_t at)
{
    return (float)(at % 1000 + (size_t)by);
}

static float sum(int ranks, size_t at)
{
    return (float)(at % 1000 * (size_t)ranks + (size_t)(ranks * (ranks - 1) / 2));
}

static int end(const struct comm *c, float *last)
{
    static int calls;
    const char *fault = getenv("FAKE_NCCL");
    fake_cuda_pass(c->is_ib ? 2 : 1);
    if (fault && strcmp(fault, "dies") == 0 && c->rank == 1 && ++calls == 20) {
        _exit(3);
    }
    *last += fault && strcmp(fault, "wrong") == 0 && c->is_ib;
    return 0;
}

// As the real one into NCCL_DEBUG_FILE, whose last two characters stand for the process.
static void say(const char *network)
{
    char name[4096];
    const char *pattern = getenv("NCCL_DEBUG_FILE");
    (void)snprintf(name, sizeof name, "%.*s%d", (int)strlen(pattern) - 2, pattern, (int)getpid());
    FILE *f = fopen(name, "a");
    if (f) {
        (void)fprintf(f, "Using network %s\nvia NET/%s/0/GDRDMA\n", network, network);
        (void)fclose(f);
    }
}

int ncclGetUniqueId(struct id *out)
{
    memset(out, 0, sizeof *out);
    return 0;
}

int ncclCommInitRank(void **out, int ranks, struct id id, int rank)
{
    (void)out, (void)ranks, (void)id, (void)rank;
    return 5; // comm_pairs names the network
}

int ncclCommInitRankConfig(void **out, int ranks, struct id id, int rank, struct config *config)
{
    struct comm *c = malloc(sizeof *c);
    (void)id;
    *c = (struct comm){ranks, rank, strcasecmp(config->network, "IB") == 0};
    *out = c;
    say(config->network);
    return config->magic != 0xcafebeef || config->version != 21700 ||
           strcmp(getenv("NCCL_NET_PLUGIN"), "gemmar") != 0;
}

int ncclCommDestroy(void *comm)
{
    free(comm);
    return 0;
}

int ncclAllReduce(uint64_t from, uint64_t to, size_t count, int type, int op, struct comm *c,
                  void *stream)
{
    float *out = (float *)(uintptr_t)to;
    (void)from, (void)type, (void)op, (void)stream;
    for (size_t i = 0; i < count; i++) {
        out[i] = sum(c->ranks, i);
    }
    return end(c, &out[count - 1]);
}

int ncclAllGather(uint64_t from, uint64_t to, size_t count, int type, struct comm *c, void *stream)
{
    float *out = (float *)(uintptr_t)to;
    (void)from, (void)type, (void)stream;
    for (size_t i = 0; i < count * (size_t)c->ranks; i++) {
        out[i] = sent((int)(i / count), i % count);
    }
    return end(c, out);
}

int ncclReduceScatter(uint64_t from, uint64_t to, size_t count, int type, int op, struct comm *c,
                      void *stream)
{
    float *out = (float *)(uintptr_t)to;
    (void)from, (void)type, (void)op, (void)stream;
    for (size_t i = 0; i < count; i++) {
        out[i] = sum(c->ranks, (size_t)c->rank * count + i);
    }
    return end(c, out);
}

int ncclGroupStart(void)
{
    group.receives = 0;
    return 0;
}

int ncclSend(uint64_t from, size_t count, int type, int peer, struct comm *c, void *stream)
{
    (void)from, (void)count, (void)type, (void)peer, (void)c, (void)stream;
    return 0;
}

int ncclRecv(uint64_t to, size_t count, int type, int peer, struct comm *c, void *stream)
{
    int i = group.receives++;
    (void)type, (void)stream;
    group.comm = c;
    group.receive[i].to = (float *)(uintptr_t)to;
    group.receive[i].count = count;
    group.receive[i].peer = peer;
    return 0;
}

// One receive is the first part of what its peer sends, several are this rank's part each.
int ncclGroupEnd(void)
{
    for (int r = 0; r < group.receives; r++) {
        size_t count = group.receive[r].count;
        size_t first = group.receives > 1 ? (size_t)group.comm->rank * count : 0;
        for (size_t i = 0; i < count; i++) {
            group.receive[r].to[i] = sent(group.receive[r].peer, first + i);
        }
    }
    return end(group.comm, group.receive[0].to);
}

int ncclCommAbort(void *comm)
{
    return !comm;
}

int ncclCommGetAsyncError(void *comm, int *out)
{
    *out = 0;
    return !comm;
}

const char *ncclGetErrorString(int error)
{
    return error ? "an error" : "no error";
}

const char *ncclGetLastError(void *comm)
{
    return comm ? "" : NULL;
}
