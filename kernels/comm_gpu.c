// SPDX-License-Identifier: Apache-2.0
// Communicators on GPUs: creation beside an ncclComm_t, and the end.
#include "kernels/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/peer_pointers.h"
#include "transport/order.h"

/* A rank's segment: struct gemmar_control, struct gemmar_gpu_words (pinned, both), the area of the
 * all-gather. */
#define PINNED_BYTES  (2u * GEMMAR_PAGE)
#define SEGMENT_BYTES (PINNED_BYTES + sizeof(struct gemmar_gather_area))
#define LEAVE_NS      (10 * UINT64_C(1000000000)) /* the others have agreed to end */

#define CREATE_NS (300 * UINT64_C(1000000000)) /* ranks may come to the creation this late */

static const struct gemmar_logger plain = {.level = GEMMAR_LOG_WARN}; /* before there is a comm */

static bool cuda_failed(cudaError_t rc, const char *what, struct gemmar_error *error)
{
    if (rc != cudaSuccess) {
        (void)gemmar_error_set(error, gemmarUnhandledCudaError, "%s: %s", what,
                               cudaGetErrorString(rc));
    }
    return rc != cudaSuccess;
}

/* What the kernels need of a GPU. */
static void check_device(struct gemmar_gpu *gpu, struct gemmar_error *error)
{
    int major = 0, minor = 0, cooperative = 0, sms = 0;

    if (cuda_failed(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu->device),
                    "compute capability", error) ||
        cuda_failed(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu->device),
                    "compute capability", error) ||
        cuda_failed(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, gpu->device),
                    "cooperative launch", error) ||
        cuda_failed(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, gpu->device),
                    "multiprocessors", error)) {
        return;
    }
    gpu->sms = (uint32_t)sms;
    if (major != 9 || minor != 0 || cooperative == 0) {
        (void)gemmar_error_set(error, gemmarInvalidUsage,
                               "GPU %d has compute capability %d.%d%s: 9.0 is needed", gpu->device,
                               major, minor, cooperative == 0 ? " and no cooperative launch" : "");
    }
}

/* Everything that may not happen later: behind a kernel that waits for a peer, allocating memory or
 * loading a kernel can block for ever. */
static void prepare_device(struct gemmar_gpu *gpu, struct gemmar_error *error)
{
    struct cudaMemPoolProps pool = {.allocType = cudaMemAllocationTypePinned,
                                    .location = {cudaMemLocationTypeDevice, gpu->device}};
    uint64_t keep = UINT64_MAX; /* what was freed is used again, and goes back at the end */
    size_t answers = (GEMMAR_MAX_LOCAL_RANKS + 1) * sizeof(*gpu->answers);

    if (cuda_failed(gemmar_sm90_load(&gpu->most_ctas), "loading the kernels", error) ||
        cuda_failed(gemmar_peer_pointers_load(), "loading the kernels", error) ||
        cuda_failed(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), "stream",
                    error) ||
        cuda_failed(cudaEventCreateWithFlags(&gpu->order.last, cudaEventDisableTiming), "event",
                    error) ||
        cuda_failed(cudaEventCreateWithFlags(&gpu->order.captured, cudaEventDisableTiming), "event",
                    error) ||
        cuda_failed(cudaHostAlloc((void **)&gpu->answers, answers,
                                  cudaHostAllocPortable | cudaHostAllocMapped),
                    "pinned memory", error) ||
        cuda_failed(cudaMemPoolCreate(&gpu->pool, &pool), "memory pool", error)) {
        return;
    }
    (void)cuda_failed(cudaMemPoolSetAttribute(gpu->pool, cudaMemPoolAttrReleaseThreshold, &keep),
                      "memory pool", error);
}

/* A call waits for all its thread blocks: with fewer than a cluster it could not end. */
static void limit_ctas(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    uint32_t fit = gpu->most_ctas, limit = comm->settings.max_ctas;

    gpu->most_ctas = limit != 0 && limit < fit ? limit & ~1u : fit;
    if (gpu->most_ctas < 2) {
        (void)gemmar_error_set(error, gemmarInvalidUsage,
                               "%u thread blocks of the kernel fit on GPU %d at once and "
                               "GEMMAR_MAX_CTAS is %u: a call needs 2 (MPS limits, green contexts)",
                               fit, gpu->device, limit);
    }
}

static void begin(struct gemmarComm *comm, struct gemmar_error *error)
{
    comm->gpu->gather.log = &comm->log;
    check_device(comm->gpu, error);
    if (error->result == gemmarSuccess) {
        prepare_device(comm->gpu, error);
    }
    if (error->result == gemmarSuccess) {
        limit_ctas(comm, error);
    }
    if (error->result == gemmarSuccess) {
        gemmar_gpu_trace_open(comm);
    }
}

/* What the ranks know of each other's GPUs. */
struct device_facts {
    uint32_t sms;
    uint32_t ctas;
    int32_t nccl;
};

static gemmarResult_t compare_devices(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct device_facts mine = {comm->gpu->sms, comm->gpu->most_ctas, comm->gpu->api->version},
                        *all;
    gemmarResult_t result;

    all = calloc(comm->place.ranks, sizeof(*all));
    if (all == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_DEVICE, error, &mine, sizeof(mine), all);
    comm->settings.sms = mine.sms;
    comm->settings.resident = mine.ctas;
    for (uint32_t r = 0; result == gemmarSuccess && r < comm->place.ranks; r++) {
        comm->settings.sms = all[r].sms < comm->settings.sms ? all[r].sms : comm->settings.sms;
        comm->settings.resident =
            all[r].ctas < comm->settings.resident ? all[r].ctas : comm->settings.resident;
        if (all[r].nccl != all[0].nccl) {
            result = gemmar_error_set(error, gemmarInvalidUsage,
                                      "rank %u has NCCL version %d, rank 0 version %d", r,
                                      all[r].nccl, all[0].nccl);
        }
    }
    free(all);
    return result;
}

/* The abort word and the record of what was waited for go where kernels and local peers see them.
 */
static void move_words(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    char *base = gpu->peers.segments[comm->place.local].base;
    void *mapped = NULL;

    if (cuda_failed(
            cudaHostRegister(base, PINNED_BYTES, cudaHostRegisterPortable | cudaHostRegisterMapped),
            "pinning the abort word", error)) {
        return;
    }
    gpu->words = (struct gemmar_gpu_words *)(base + GEMMAR_PAGE);
    if (cuda_failed(cudaHostGetDevicePointer(&mapped, base, 0), "mapping the abort word", error)) {
        return;
    }
    gpu->mapped = (struct gemmar_gpu_words *)((char *)mapped + GEMMAR_PAGE);
    comm->words = &gpu->words->comm;
    comm->trouble = &gpu->words->trouble;
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        struct gemmar_gpu_words *words =
            (struct gemmar_gpu_words *)(gpu->peers.segments[g].base + GEMMAR_PAGE);

        gpu->peers.abort[g] = &words->comm.abort;
    }
}

/* Ranks by place, for messages of the kernel. */
static void copy_ranks(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    size_t bytes = comm->place.ranks * sizeof(*gpu->rank_of);

    if (!cuda_failed(cudaMalloc((void **)&gpu->rank_of, bytes), "device memory", error) &&
        !cuda_failed(cudaMemcpyAsync(gpu->rank_of, comm->rank_of, bytes, cudaMemcpyHostToDevice,
                                     gpu->stream),
                     "device memory", error)) {
        (void)cuda_failed(gemmar_gpu_wait_stream(gpu->stream, comm->settings.timeout_ns),
                          "device memory", error);
    }
}

/* The all-gather of all later steps, on one node or several. The first ones need the caller's
 * communicator, which is left in peace afterwards but for being split. */
static gemmarResult_t leave_nccl(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    gemmarResult_t result = gemmar_local_peers_open(comm, SEGMENT_BYTES, &gpu->peers, error);

    if (result != gemmarSuccess) {
        return result;
    }
    comm->peers = &gpu->peers;
    gpu->local_gather = (struct gemmar_local_gather){.peers = &gpu->peers,
                                                     .offset = PINNED_BYTES,
                                                     .local = comm->place.local,
                                                     .locals = comm->place.locals,
                                                     .timeout_ns = CREATE_NS};
    if (comm->place.nodes == 1) { /* local ranks are ranks */
        comm->bootstrap.allGather = gemmar_local_gather_all;
        comm->bootstrap.context = &gpu->local_gather;
        return gemmarSuccess;
    }
    gpu->nodes_gather = (struct gemmar_nodes_gather){.local = &gpu->local_gather,
                                                     .place = &comm->place,
                                                     .rank_of = comm->rank_of,
                                                     .log = &comm->log,
                                                     .next = -1,
                                                     .previous = -1};
    result = gemmar_nodes_gather_open(&gpu->nodes_gather, &comm->bootstrap, error);
    comm->bootstrap.allGather = gemmar_nodes_gather_all;
    comm->bootstrap.context = &gpu->nodes_gather;
    return result;
}

static gemmarResult_t attach(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    gemmarResult_t result = compare_devices(comm, error);

    if (result == gemmarSuccess) {
        result = leave_nccl(comm, error);
    }
    if (result == gemmarSuccess) {
        result = gemmar_fabric_attach(comm, error);
    }
    if (result == gemmarSuccess && comm->place.nodes > 1) {
        gemmar_gpu_find_place(comm);
        result = gemmar_comm_attach(comm, error);
    }
    if (result != gemmarSuccess) {
        return result;
    }
    move_words(comm, error);
    if (error->result == gemmarSuccess) {
        copy_ranks(comm, error);
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_ATTACHED, error, NULL, 0, NULL);
    if (result == gemmarSuccess) {
        gemmar_info(
            &comm->log,
            "communicator: rank %u of %u on GPU %d: %u CTAs can be resident, NCCL version %d",
            comm->place.rank, comm->place.ranks, gpu->device, gpu->most_ctas, gpu->api->version);
        gpu->local_gather.timeout_ns = comm->settings.timeout_ns; /* they are together now */
    }
    return result;
}

static void close_order(struct gemmar_gpu_order *order)
{
    if (order->last != NULL) {
        (void)cudaEventDestroy(order->last);
    }
    if (order->captured != NULL) {
        (void)cudaEventDestroy(order->captured);
    }
}

/* What a call that did not end may still use stays. */
static void free_memory(struct gemmar_gpu *gpu)
{
    if (gpu->left_behind) {
        return;
    }
    if (gpu->words != NULL) {
        (void)cudaHostUnregister((char *)gpu->words - GEMMAR_PAGE);
    }
    if (gpu->rank_of != NULL) {
        (void)cudaFree(gpu->rank_of);
    }
    if (gpu->pool != NULL) {
        (void)cudaMemPoolDestroy(gpu->pool);
    }
}

void gemmar_gpu_close(struct gemmar_gpu *gpu, bool ended)
{
    int before;

    if (gpu == NULL || gpu->device < 0) {
        free(gpu); /* nothing is open, and to make a GPU current would make a context there */
        return;
    }
    before = gemmar_gpu_enter(gpu->device);
    gemmar_gpu_forget_registrations(gpu);
    if (gpu->node != NULL && !gpu->left_behind) {
        /* Aborting waits for nobody. */
        (void)(ended ? gpu->api->destroy(gpu->node) : gpu->api->stop(gpu->node));
    }
    gemmar_gather_close(&gpu->gather);
    free_memory(gpu);
    if (gpu->answers != NULL) {
        (void)cudaFreeHost(gpu->answers);
    }
    if (gpu->stream != NULL) {
        (void)cudaStreamDestroy(gpu->stream);
    }
    close_order(&gpu->order);
    gemmar_gpu_leave(gpu->device, before);
    if (ended) {
        /* Freeing can wait for the GPUs of all threads of the process: nobody goes on to what keeps
         * a GPU waiting for a peer before all are done. */
        gpu->local_gather.timeout_ns = LEAVE_NS;
        (void)gemmar_local_gather_barrier(&gpu->local_gather);
    }
    gemmar_nodes_gather_close(&gpu->nodes_gather);
    if (!gpu->left_behind) {
        gemmar_local_peers_close(&gpu->peers);
    }
    free(gpu);
}

static void release(struct gemmarComm *comm)
{
    comm->words = comm->host_words;
    comm->trouble = &comm->host_trouble;
    gemmar_gpu_trace_close(comm);
    gemmar_gpu_close(comm->gpu, comm->ended);
    comm->gpu = NULL;
}

static uint64_t history(struct gemmarComm *comm)
{
    return comm->gpu->calls;
}

cudaError_t gemmar_gpu_read_word(struct gemmarComm *comm, const uint64_t *word, uint64_t *out)
{
    struct gemmar_gpu *gpu = comm->gpu;
    uint64_t *answer = &gpu->answers[GEMMAR_MAX_LOCAL_RANKS];
    int before = gemmar_gpu_enter(gpu->device);
    cudaError_t rc =
        cudaMemcpyAsync(answer, word, sizeof(*answer), cudaMemcpyDeviceToHost, gpu->stream);

    if (rc == cudaSuccess) {
        rc = gemmar_gpu_wait_stream(gpu->stream, comm->settings.timeout_ns);
    }
    gemmar_gpu_leave(gpu->device, before);
    *out = rc == cudaSuccess ? *answer : 0;
    return rc;
}

static uint64_t epoch(struct gemmarComm *comm)
{
    uint64_t value;

    (void)gemmar_gpu_read_word(comm, &comm->workspace->words->epoch, &value); /* else 0 */
    return value;
}

static uint32_t left(struct gemmarComm *comm)
{
    return gemmar_nodes_gather_left(&comm->gpu->nodes_gather);
}

static void leave(struct gemmarComm *comm)
{
    gemmar_nodes_gather_leave(&comm->gpu->nodes_gather);
}

const struct gemmar_backend gemmar_backend_gpu = {
    .local_path = "peer memory of the GPUs",
    .asynchronous = true,
    .begin = begin,
    .attach = attach,
    .release = release,
    .open_memory = gemmar_fabric_open_memory,
    .close_memory = gemmar_fabric_close_memory,
    .quiet = gemmar_fabric_quiet,
    .net_memory = gemmar_gpu_net_memory,
    .map = gemmar_gpu_map,
    .unmap = gemmar_gpu_unmap,
    .upload = gemmar_gpu_upload,
    .discard = gemmar_gpu_discard,
    .pushed = gemmar_gpu_pushed,
    .left = left,
    .leave = leave,
    .check = gemmar_gpu_check,
    .capturing = gemmar_gpu_capturing,
    .run = gemmar_gpu_run,
    .settle = gemmar_gpu_settle,
    .history = history,
    .epoch = epoch,
};

/* Who I am in the caller's communicator, and a way to all its ranks. */
static gemmarResult_t open_gpu(ncclComm_t nccl, struct gemmar_gpu *gpu,
                               gemmarHostBootstrap_t *bootstrap, struct gemmar_error *error)
{
    const struct gemmar_nccl_api *api = gpu->api;
    ncclResult_t rc = api->count(nccl, &bootstrap->nranks);

    rc = rc == ncclSuccess ? api->rank(nccl, &bootstrap->rank) : rc;
    rc = rc == ncclSuccess ? api->device(nccl, &gpu->device) : rc;
    if (rc != ncclSuccess) {
        return gemmar_nccl_failed(api, nccl, rc, "asking the communicator", error);
    }
    gpu->parent = nccl;
    gpu->gather = (struct gemmar_gather){.api = api,
                                         .log = &plain,
                                         .nccl = nccl,
                                         .ranks = bootstrap->nranks,
                                         .device = gpu->device,
                                         .timeout_ns = CREATE_NS};
    bootstrap->allGather = gemmar_gather_all;
    bootstrap->context = &gpu->gather;
    return gemmar_gather_open(&gpu->gather, error);
}

static gemmarResult_t create(gemmarComm_t *out, ncclComm_t nccl, const gemmarConfig_t *config,
                             struct gemmar_gpu **gpu, struct gemmar_error *error)
{
    gemmarHostBootstrap_t bootstrap = {.size = sizeof(bootstrap)};
    int current = -1, before, device;
    gemmarResult_t result;

    (void)cudaGetDevice(&current); /* -1 is no device of the communicator's */
    result = open_gpu(nccl, *gpu, &bootstrap, error);
    if (result != gemmarSuccess) {
        return result;
    }
    if (current != (*gpu)->device) { /* goes on to the first step, where all learn of it */
        (void)gemmar_error_set(error, gemmarInvalidUsage,
                               "the current device is %d, the communicator's is %d", current,
                               (*gpu)->device);
    }
    device = (*gpu)->device;
    before = gemmar_gpu_enter(device);
    result = gemmar_comm_create(&gemmar_backend_gpu, gpu, &bootstrap, config, out, error);
    gemmar_gpu_leave(device, before);
    return result;
}

gemmarResult_t gemmarCommCreate(gemmarComm_t *comm, ncclComm_t nccl, const gemmarConfig_t *config)
{
    struct gemmar_error *error = gemmar_error_thread();
    struct gemmar_gpu *gpu;
    gemmarResult_t result;

    gemmar_error_clear(error);
    if (comm != NULL) {
        *comm = NULL;
    }
    if (comm == NULL || nccl == NULL) {
        return gemmar_error_set(error, gemmarInvalidArgument, "%s is NULL",
                                comm == NULL ? "comm" : "nccl");
    }
    gpu = calloc(1, sizeof(*gpu));
    if (gpu == NULL) {
        return gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    gpu->device = -1;
    gpu->nodes_gather.next = gpu->nodes_gather.previous = -1;
    gpu->api = gemmar_nccl_api(error);
    result = gpu->api != NULL ? create(comm, nccl, config, &gpu, error) : error->result;
    gemmar_gpu_close(gpu, false);
    return result;
}
