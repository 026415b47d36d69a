// SPDX-License-Identifier: Apache-2.0
// How the ranks of a node reach each other's GPU memory: a communicator of NCCL's for the node, and
// windows of it over whole allocations.
//
// NCCL's window call waits for the other ranks, and one that fails on a rank alone leaves them
// waiting; allocations of different sizes give silently different offsets. So the ranks compare
// what they are about to register first, and refuse together.
#include "kernels/gpu.h"

#include <cuda.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/peer_pointers.h"

#define DEV_COMM_BYTES     4096 /* more than any release's struct ncclDevComm */
#define REQUIREMENTS_BYTES 1024 /* more than NCCL 2.28's; all zeros: nothing beyond the basics */

/* What ncclCommQueryProperties of NCCL 2.29 fills, up to what is looked at. */
struct properties {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int rank, ranks, cuda_device, nvml_device;
    bool device_api;
    char more[512];
};

#define PROPERTIES_MAGIC   0xcafebeefu
#define PROPERTIES_VERSION 22902u

/* Without symmetric memory NCCL's windows are something else, that no GPU may look into. */
static void check_support(struct gemmar_gpu *gpu, struct gemmar_error *error)
{
    static const char requirements[REQUIREMENTS_BYTES];
    char *dev_comm = calloc(1, DEV_COMM_BYTES);
    struct properties p = {.size = 40, .magic = PROPERTIES_MAGIC, .version = PROPERTIES_VERSION};
    ncclResult_t rc;
    bool support = false;

    if (dev_comm == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
        return;
    }
    if (gpu->api->query_properties != NULL) {
        rc = gpu->api->query_properties(gpu->node, &p);
        support = rc == ncclSuccess && p.device_api;
    } else {
        rc = gpu->api->dev_comm_create(gpu->node, requirements, dev_comm);
        support = rc == ncclSuccess;
    }
    if (support && gpu->api->query_properties == NULL) {
        (void)gpu->api->dev_comm_destroy(gpu->node, dev_comm); /* it holds nothing */
    }
    if (!support) {
        (void)gemmar_error_set(
            error, gemmarInvalidUsage,
            "NCCL's symmetric memory cannot be used by these ranks: it needs peer "
            "access between all GPUs of the node, and NCCL_CUMEM_ENABLE and "
            "NCCL_WIN_ENABLE not 0 (NCCL says %s)",
            gpu->api->error_string(rc));
    }
    free(dev_comm);
}

/* The ranks that NCCL lets load and store into each other must be exactly those of the node. */
static void check_team(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_nccl_team team = comm->gpu->api->team_lsa(comm->gpu->node);

    if (team.ranks != (int)comm->place.locals || team.rank != (int)comm->place.local) {
        (void)gemmar_error_set(
            error, gemmarInvalidUsage,
            "rank %u is %d of %d ranks that NCCL connects by loads and stores, and "
            "local rank %u of %u: NCCL and gemmar see other nodes",
            comm->place.rank, team.rank, team.ranks, comm->place.local, comm->place.locals);
    }
}

gemmarResult_t gemmar_fabric_attach(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    gemmarResult_t result;
    ncclResult_t rc;

    config.blocking = 1;
    config.splitShare = 0;
    config.maxCTAs = 1; /* it carries no collective */
    config.commName = "gemmar";
    rc = gpu->api->split(gpu->parent, (int)comm->place.node, (int)comm->place.rank, &gpu->node,
                         &config);
    if (rc != ncclSuccess) {
        (void)gemmar_nccl_failed(gpu->api, gpu->parent, rc, "splitting the communicator by nodes",
                                 error);
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_SPLIT, error, NULL, 0, NULL);
    if (result != gemmarSuccess) {
        return result;
    }
    check_support(gpu, error);
    if (error->result == gemmarSuccess) {
        check_team(comm, error);
    }
    return gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_FABRIC, error, NULL, 0, NULL);
}

bool gemmar_gpu_driver_function(const char *name, unsigned version, void *out_function)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;

    if (cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        return false;
    }
    memcpy(out_function, &function, sizeof(function));
    return true;
}

static bool is_shareable(CUmemGenericAllocationHandle handle)
{
    CUresult (*properties)(CUmemAllocationProp *, CUmemGenericAllocationHandle);
    CUmemAllocationProp p = {0};

    return gemmar_gpu_driver_function("cuMemGetAllocationPropertiesFromHandle", 12000,
                                      &properties) &&
           properties(&p, handle) == CUDA_SUCCESS && p.requestedHandleTypes != 0;
}

/* The allocation that `pointer` lies in. */
static gemmarResult_t find_allocation(const void *pointer, struct gemmar_gpu_memory *out,
                                      struct gemmar_error *error)
{
    CUresult (*range)(CUdeviceptr *, size_t *, CUdeviceptr);
    CUresult (*retain)(CUmemGenericAllocationHandle *, void *);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = 0;
    size_t bytes = 0;

    if (!gemmar_gpu_driver_function("cuMemGetAddressRange", 12000, &range) ||
        !gemmar_gpu_driver_function("cuMemRetainAllocationHandle", 12000, &retain) ||
        !gemmar_gpu_driver_function("cuMemRelease", 12000, &release)) {
        return gemmar_error_set(error, gemmarUnhandledCudaError,
                                "the driver has no virtual memory management");
    }
    if (range(&base, &bytes, (CUdeviceptr)(uintptr_t)pointer) != CUDA_SUCCESS) {
        return gemmar_error_set(error, gemmarInvalidArgument, "%p is not in device memory",
                                pointer);
    }
    out->base = (char *)(uintptr_t)base;
    out->bytes = bytes;
    out->shareable = retain(&handle, out->base) == CUDA_SUCCESS;
    if (out->shareable) {
        out->shareable = is_shareable(handle);
        (void)release(handle); /* only looked at */
    }
    return gemmarSuccess;
}

/* What must be equal on all ranks before a window is made. */
struct window_facts {
    uint64_t allocation, offset, bytes;
    uint64_t shareable;
    uint64_t known; /* number of the first registration in the same allocation, 0: none */
};

/* NCCL gathers nothing for an allocation that it has a window over: a rank for which it is new
 * would wait for one for which it is not. */
static uint64_t known_as(const struct gemmar_gpu *gpu, const struct gemmar_gpu_memory *memory)
{
    uint64_t number = 0;

    for (const struct gemmar_registration *r = gpu->registrations; r != NULL; r = r->next) {
        if ((uint64_t)(r->buff - memory->base) < memory->bytes) { /* huge when it lies before */
            number = r->number; /* the list begins with the last one */
        }
    }
    return number;
}

static gemmarResult_t same_memory(struct gemmarComm *comm, const struct window_facts *mine,
                                  struct gemmar_error *error)
{
    struct window_facts *all = calloc(comm->place.ranks, sizeof(*all));
    gemmarResult_t result;

    if (all == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_MEMORY, error, mine, sizeof(*mine), all);
    for (uint32_t r = 0; result == gemmarSuccess && r < comm->place.ranks; r++) {
        if (all[r].shareable == 0) {
            result = gemmar_error_set(error, gemmarInvalidUsage,
                                      "rank %u: the memory cannot be shared: it must come from "
                                      "gemmarMemAlloc or ncclMemAlloc",
                                      r);
        } else if (all[r].known != all[0].known) {
            result = gemmar_error_set(error, gemmarInvalidUsage,
                                      "rank %u registers memory of the same allocation as its "
                                      "registration %" PRIu64 ", rank 0 as its %" PRIu64
                                      " (0: of a new one): they must be equal",
                                      r, all[r].known, all[0].known);
        } else if (memcmp(&all[r], &all[0], sizeof(*all)) != 0) {
            result = gemmar_error_set(error, gemmarInvalidUsage,
                                      "rank %u registers %" PRIu64 " bytes at offset %" PRIu64
                                      " of %" PRIu64 ", rank 0 %" PRIu64 " at %" PRIu64
                                      " of %" PRIu64 ": they must be equal",
                                      r, all[r].bytes, all[r].offset, all[r].allocation,
                                      all[0].bytes, all[0].offset, all[0].allocation);
        }
    }
    free(all);
    return result;
}

/* NCCL's window, then where it lies: the set-up stream is empty afterwards. */
static void make_window(struct gemmarComm *comm, const struct gemmar_gpu_memory *memory,
                        ncclWindow_t *out, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    ncclWindow_t window = NULL;
    ncclResult_t nccl = gpu->api->window_register(gpu->node, memory->base, memory->bytes, &window,
                                                  NCCL_WIN_DEFAULT);
    cudaError_t rc;

    if (nccl != ncclSuccess || window == NULL) {
        (void)gemmar_nccl_failed(gpu->api, gpu->node, nccl != ncclSuccess ? nccl : ncclInvalidUsage,
                                 "registering a window (is an NCCL group open?)", error);
        return;
    }
    *out = window;
    rc = gemmar_peer_pointers(window, comm->place.locals, gpu->answers, gpu->stream);
    if (rc == cudaSuccess) {
        rc = gemmar_gpu_wait_stream(gpu->stream, comm->settings.timeout_ns);
    }
    if (rc != cudaSuccess) {
        (void)gemmar_error_set(error, gemmarUnhandledCudaError, "addresses of the window: %s",
                               cudaGetErrorString(rc));
    }
}

gemmarResult_t gemmar_fabric_window(struct gemmarComm *comm, void *buff, uint64_t bytes,
                                    ncclWindow_t *out_window, char **out_peers,
                                    struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    struct gemmar_gpu_memory memory = {0};
    struct window_facts mine = {0};
    ncclWindow_t window = NULL;
    gemmarResult_t result;
    uint64_t offset = 0;

    if (error->result == gemmarSuccess && find_allocation(buff, &memory, error) == gemmarSuccess) {
        offset = (uint64_t)((char *)buff - memory.base);
        if (bytes > memory.bytes - offset) {
            (void)gemmar_error_set(error, gemmarInvalidArgument,
                                   "%" PRIu64 " bytes at %p reach beyond their allocation", bytes,
                                   buff);
        }
        mine = (struct window_facts){memory.bytes, offset, bytes, memory.shareable,
                                     known_as(gpu, &memory)};
    }
    result = same_memory(comm, &mine, error);
    if (result != gemmarSuccess) {
        return result;
    }
    make_window(comm, &memory, &window, error);
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_WINDOW, error, NULL, 0, NULL);
    if (result != gemmarSuccess) {
        if (window != NULL) {
            (void)gpu->api->window_deregister(gpu->node, window); /* nobody has used it */
        }
        return result;
    }
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        out_peers[g] = (char *)(uintptr_t)gpu->answers[g] + offset;
    }
    out_peers[comm->place.local] = buff; /* one address for one memory: aliases are not coherent */
    *out_window = window;
    return gemmarSuccess;
}

/* Words and stamps begin at 0, and where the other rank's parts are to come there is none yet; all
 * else is written before it is read. */
static cudaError_t begin_memory(struct gemmarComm *comm, const struct gemmar_workspace *w,
                                char *base, uint64_t epoch)
{
    struct gemmar_gpu *gpu = comm->gpu;
    struct gemmar_words *words = (struct gemmar_words *)(base + w->layout.words);
    cudaError_t rc = cudaMemsetAsync(base, 0, w->layout.partial, gpu->stream);

    if (rc == cudaSuccess && w->layout.stamps_bytes != 0) {
        rc = cudaMemsetAsync(base + w->layout.stamps, 0, w->layout.stamps_bytes, gpu->stream);
    }
    if (rc == cudaSuccess && w->layout.capacity.exchange_bytes != 0) {
        rc = cudaMemsetAsync(base + w->layout.exchange, 0xff, 2 * w->layout.capacity.exchange_bytes,
                             gpu->stream);
    }
    gpu->answers[0] = epoch;
    if (rc == cudaSuccess) {
        rc = cudaMemcpyAsync(&words->epoch, gpu->answers, sizeof(epoch), cudaMemcpyHostToDevice,
                             gpu->stream);
    }
    return rc == cudaSuccess ? gemmar_gpu_wait_stream(gpu->stream, comm->settings.timeout_ns) : rc;
}

gemmarResult_t gemmar_fabric_open_memory(struct gemmarComm *comm, struct gemmar_workspace *w,
                                         uint64_t epoch, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    int before = gemmar_gpu_enter(gpu->device);
    ncclWindow_t window = NULL;
    void *base = NULL;
    gemmarResult_t result;

    if (error->result == gemmarSuccess) {
        ncclResult_t nccl = gpu->api->mem_alloc(&base, w->layout.bytes); /* whole 2 MiB pages */

        if (nccl != ncclSuccess) {
            base = NULL;
            (void)gemmar_nccl_failed(gpu->api, NULL, nccl, "allocating the workspace", error);
            error->result = gemmarSystemError;
        }
    }
    if (error->result == gemmarSuccess) {
        cudaError_t rc = begin_memory(comm, w, base, epoch);

        if (rc != cudaSuccess) {
            (void)gemmar_error_set(error, gemmarUnhandledCudaError, "clearing the workspace: %s",
                                   cudaGetErrorString(rc));
        }
    }
    w->memory = base;
    result = gemmar_fabric_window(comm, base, w->layout.bytes, &window, w->bases, error);
    if (result == gemmarSuccess) {
        w->window = window;
        w->words = (struct gemmar_words *)(w->bases[comm->place.local] + w->layout.words);
    }
    gemmar_gpu_leave(gpu->device, before);
    return result;
}

bool gemmar_fabric_quiet(struct gemmarComm *comm)
{
    struct gemmar_error error = {.result = gemmarSuccess};
    struct gemmar_gpu *gpu = comm->gpu;

    if (!gpu->left_behind && gemmar_gpu_settle(comm, &error) != gemmarSuccess) {
        gpu->left_behind = true;
        gemmar_warn(&comm->log, "fabric_nccl: %s: the workspace is not given back", error.text);
    }
    return !gpu->left_behind;
}

void gemmar_fabric_close_memory(struct gemmarComm *comm, struct gemmar_workspace *w)
{
    struct gemmar_gpu *gpu = comm->gpu;
    int before = gemmar_gpu_enter(gpu->device);

    if (w->window != NULL) {
        (void)gpu->api->window_deregister(gpu->node, w->window); /* nothing to be done about it */
    }
    if (w->memory != NULL) {
        (void)gpu->api->mem_free(w->memory);
    }
    gemmar_gpu_leave(gpu->device, before);
}
