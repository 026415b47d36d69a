// SPDX-License-Identifier: Apache-2.0
// The driver's and NCCL's functions that the programs here call, and how a failed one ends them.
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct cu_calls cu;
struct nccl_calls nccl;

static const char *program = "nccl-tests";
static int node;

void must(int error, const char *what)
{
    if (error) {
        (void)fprintf(stderr, "%s: rank %d: %s failed: %d\n", program, node, what, error);
        _exit(1);
    }
}

static void find(void *lib, const char *name, void *out)
{
    void *at = dlsym(lib, name);
    must(!at, name);
    memcpy(out, &at, sizeof at);
}

static void *library(const char *name)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!lib) {
        (void)fprintf(stderr, "%s: %s\n", program, dlerror());
        _exit(77);
    }
    return lib;
}

static void load_cuda(void)
{
    void *lib = library("libcuda.so.1");
    find(lib, "cuInit", &cu.init);
    find(lib, "cuDevicePrimaryCtxRetain", &cu.retain);
    find(lib, "cuCtxSetCurrent", &cu.set);
    find(lib, "cuMemAlloc_v2", &cu.alloc);
    find(lib, "cuMemFree_v2", &cu.release);
    find(lib, "cuStreamCreate", &cu.stream);
    find(lib, "cuStreamSynchronize", &cu.wait);
    find(lib, "cuStreamQuery", &cu.query);
    find(lib, "cuMemcpyHtoD_v2", &cu.in);
    find(lib, "cuMemcpyDtoH_v2", &cu.out);
    find(lib, "cuMemsetD8_v2", &cu.fill);
    find(lib, "cuEventCreate", &cu.event);
    find(lib, "cuEventRecord", &cu.record);
    find(lib, "cuEventElapsedTime", &cu.elapsed);
}

static void load_nccl(void)
{
    void *lib = library("libnccl.so.2");
    find(lib, "ncclGetUniqueId", &nccl.id);
    find(lib, "ncclCommInitRank", &nccl.init);
    find(lib, "ncclCommInitRankConfig", &nccl.init_with);
    find(lib, "ncclCommDestroy", &nccl.destroy);
    find(lib, "ncclAllReduce", &nccl.reduce);
    find(lib, "ncclAllGather", &nccl.gather);
    find(lib, "ncclReduceScatter", &nccl.scatter);
    find(lib, "ncclSend", &nccl.send);
    find(lib, "ncclRecv", &nccl.receive);
    find(lib, "ncclGroupStart", &nccl.start);
    find(lib, "ncclGroupEnd", &nccl.end);
    find(lib, "ncclCommAbort", &nccl.abort);
    find(lib, "ncclCommGetAsyncError", &nccl.error);
    find(lib, "ncclGetErrorString", &nccl.text);
    find(lib, "ncclGetLastError", &nccl.last);
}

void drive(const char *name, int number, int device)
{
    char host[16];
    void *context;
    program = name;
    node = number;
    (void)snprintf(host, sizeof host, "node%d", number);
    MUST(setenv("NCCL_HOSTID", host, 1));
    load_cuda();
    load_nccl();
    MUST(cu.init(0));
    MUST(cu.retain(&context, device));
    MUST(cu.set(context));
}

void *make_stream(void)
{
    void *stream;
    MUST(cu.stream(&stream, 1));
    return stream;
}

double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); // cannot fail for this clock
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
