// SPDX-License-Identifier: Apache-2.0
// One rank's GPU: which one, NCCL's communicator on it, and gemmar's beside that.
#include "tools/gemmar_perf/gpu/gpu.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/gemmar_perf/gpu/nccl.h"
#include "tools/gemmar_perf/gpu/run.h"
#include "tools/gemmar_perf/gpu/tune.h"
#include "tools/gemmar_perf/say.h"

#define ROOM_CTAS 2u

bool gemmar_perf_gpu_bad(cudaError_t error, const char *doing)
{
    if (error != cudaSuccess) {
        gemmar_perf_say("%s: %s", doing, cudaGetErrorString(error));
    }
    return error != cudaSuccess;
}

bool gemmar_perf_gpu_bad_nccl(struct gemmar_perf_gpu *g, ncclResult_t result, const char *doing)
{
    if (result != ncclSuccess) {
        const char *text = ncclGetLastError(g->nccl);

        gemmar_perf_say("%s: %s%s%s", doing, ncclGetErrorString(result),
                        text != NULL && text[0] != '\0' ? ": " : "", text != NULL ? text : "");
    }
    return result != ncclSuccess;
}

int gemmar_perf_gpu_agree(struct gemmar_perf_session *s, bool failed)
{
    uint8_t mine = failed, all[GEMMAR_PERF_GPU_RANKS];

    if (gemmar_perf_gather(s, &mine, all, 1) != 0) {
        return 1;
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (all[r] != 0) {
            return 1;
        }
    }
    return 0;
}

/* Of this machine's GPUs the one that this rank's turn is. */
static int choose_device(struct gemmar_perf_session *s, struct gemmar_perf_gpu *g)
{
    const struct gemmar_perf_options *o = s->o;
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);

    if (error != cudaSuccess || count == 0) {
        gemmar_perf_say("--device cuda: no CUDA device: %s",
                        error != cudaSuccess ? cudaGetErrorString(error) : "none is visible");
        return 1;
    }
    g->device =
        o->gpu_count != 0 ? (int)o->gpus[s->rank % o->gpu_count] : (int)(s->rank % (uint32_t)count);
    if (g->device >= count) {
        gemmar_perf_say("--gpus names GPU %d, the last one here is %d", g->device, count - 1);
        return 2;
    }
    return 0;
}

/* Two ranks of one node on one GPU would wait for each other there. */
static int compare_places(struct gemmar_perf_session *s, struct gemmar_perf_gpu *g)
{
    struct place {
        char node[64], host[64], gpu[16];
    } mine, all[GEMMAR_PERF_GPU_RANKS];
    const char *node = getenv("NCCL_HOSTID");

    memset(&mine, 0, sizeof(mine));
    (void)gethostname(mine.host, sizeof(mine.host) - 1);
    (void)snprintf(mine.node, sizeof(mine.node), "%s", node != NULL ? node : mine.host);
    if (gemmar_perf_gpu_bad(cudaDeviceGetPCIBusId(mine.gpu, sizeof(mine.gpu), g->device),
                            "cannot read the GPU's bus address") ||
        gemmar_perf_gather(s, &mine, all, sizeof(mine)) != 0) {
        return 1;
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        uint32_t first = 0; /* of this name for a node */

        while (strcmp(all[first].node, all[r].node) != 0) {
            first++;
        }
        g->hosts += first == r;
        g->sharing += strcmp(all[r].gpu, mine.gpu) == 0 && strcmp(all[r].host, mine.host) == 0;
        if (r != s->rank && memcmp(&all[r], &mine, sizeof(mine)) == 0) {
            gemmar_perf_say("ranks %u and %u of one node share GPU %d: start fewer ranks, or more "
                            "nodes",
                            r < s->rank ? r : s->rank, r < s->rank ? s->rank : r, g->device);
            return 1;
        }
    }
    return 0;
}

static int open_device(struct gemmar_perf_session *s, struct gemmar_perf_gpu *g)
{
    struct cudaDeviceProp p;
    void *device;

    if (gemmar_perf_gpu_bad(cudaSetDevice(g->device), "cannot use the GPU") ||
        gemmar_perf_gpu_bad(cudaGetDeviceProperties(&p, g->device),
                            "cannot read the GPU's facts") ||
        gemmar_perf_gpu_bad(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking),
                            "cannot make a stream") ||
        gemmar_perf_gpu_bad(gemmar_perf_gpu_load(), "cannot load the tool's kernels") ||
        gemmar_perf_gpu_bad(cudaMalloc(&device, sizeof(*g->found)), "no memory on the GPU")) {
        return 1;
    }
    g->found = device;
    if (gemmar_perf_gpu_bad(cudaMalloc(&device, 2 * sizeof(*g->counters)),
                            "no memory on the GPU")) {
        return 1;
    }
    g->counters = device;
    g->l2 = (size_t)p.l2CacheSize;
    g->sms = (uint32_t)p.multiProcessorCount;
    (void)snprintf(g->name, sizeof(g->name), "%.60s", p.name);
    return compare_places(s, g);
}

/* The driver's own version: NVML's, which is there wherever the driver is. */
static void driver_version(char *text, size_t bytes)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    union {
        void *symbol;
        int (*init)(void);
        int (*version)(char *, unsigned);
    } init, version;

    (void)snprintf(text, bytes, "unknown");
    if (nvml == NULL) {
        return;
    }
    init.symbol = dlsym(nvml, "nvmlInit_v2");
    version.symbol = dlsym(nvml, "nvmlSystemGetDriverVersion");
    if (init.symbol != NULL && version.symbol != NULL && init.init() == 0) {
        (void)version.version(text, (unsigned)bytes); /* else it stays unknown */
    }
    (void)dlclose(nvml);
}

static void describe(struct gemmar_perf_session *s, struct gemmar_perf_gpu *g)
{
    char driver[80], cpu[96];
    int cuda = 0, nccl = 0;

    (void)cudaRuntimeGetVersion(&cuda); /* 0 is shown when it fails */
    (void)ncclGetVersion(&nccl);
    driver_version(driver, sizeof(driver));
    (void)snprintf(g->versions, sizeof(g->versions), "driver %s, CUDA %d.%d, NCCL %d.%d.%d", driver,
                   cuda / 1000, cuda % 1000 / 10, nccl / 10000, nccl / 100 % 100, nccl % 100);
    (void)snprintf(cpu, sizeof(cpu), "%.95s", s->machine);
    (void)snprintf(s->machine, sizeof(s->machine), "%u x %.40s, %.100s; %s", s->ranks, g->name,
                   g->versions, cpu);
}

/* All thread blocks of a call are on the GPU at once: ranks that share one must share its
 * multiprocessors, too, and leave some for the kernels around a call. */
static void limit_ctas(struct gemmar_perf_session *s, const struct gemmar_perf_gpu *g)
{
    uint32_t share = g->sms / g->sharing & ~1u;

    if (g->sharing > 1 && getenv("GEMMAR_MAX_CTAS") == NULL) {
        s->config.maxCtas = share > 2 * ROOM_CTAS ? share - ROOM_CTAS : share;
    }
}

static int make_communicator(struct gemmar_perf_session *s, struct gemmar_perf_gpu *g)
{
    gemmarResult_t result;

    limit_ctas(s, g);
    gemmar_perf_meet_busy(s->meet, true);
    result = gemmarCommCreate(&s->comm, g->nccl, &s->config);
    gemmar_perf_meet_busy(s->meet, false);
    if (result != gemmarSuccess) {
        s->comm = NULL;
        gemmar_perf_say_error(s, "cannot make the communicator", result);
    }
    return result != gemmarSuccess;
}

int gemmar_perf_gpu_make(struct gemmar_perf_session *s)
{
    struct gemmar_perf_gpu *g = calloc(1, sizeof(*g));
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    int status;

    if (g == NULL || s->ranks > GEMMAR_PERF_GPU_RANKS) {
        gemmar_perf_say("%s", g == NULL ? "no memory" : "too many ranks for --device cuda");
        free(g);
        return 1;
    }
    s->gpu = g;
    g->nvls = nvls != NULL ? nvls : "unset";
    g->rates = (struct gemmar_perf_gpu_rates){NAN, NAN, NAN, NAN, NAN};
    g->log = -1;
    status = choose_device(s, g);
    if (status == 0) {
        status = open_device(s, g);
    }
    if (gemmar_perf_gpu_agree(s, status != 0) != 0) {
        return status != 0 ? status : 1;
    }
    describe(s, g);
    if (gemmar_perf_gate_open(s, &g->gate) != 0 || gemmar_perf_nccl_open(s) != 0 ||
        (s->o->tune != NULL && gemmar_perf_tune_begin(s) != 0)) {
        return 1;
    }
    return make_communicator(s, g);
}

void gemmar_perf_gpu_finish(struct gemmar_perf_session *s, int status)
{
    if (s->gpu == NULL || s->comm == NULL) {
        return;
    }
    gemmar_perf_gpu_memory_leave(s, status == 0);
    if (status != 0) {
        (void)gemmarCommAbort(s->comm); /* its end must not wait for peers that are gone */
    }
}

void gemmar_perf_gpu_close(struct gemmar_perf_session *s, int status)
{
    struct gemmar_perf_gpu *g = s->gpu;
    bool healthy = status == 0;

    if (g == NULL) {
        return;
    }
    gemmar_perf_gpu_memory_close(g, healthy);
    gemmar_perf_gate_close(&g->gate);
    gemmar_perf_nccl_close(g, status);
    if (g->stream != NULL) {
        (void)cudaStreamDestroy(g->stream); /* the process ends next */
    }
    (void)cudaFree(g->found);
    (void)cudaFree(g->counters);
    free(g);
    s->gpu = NULL;
}
