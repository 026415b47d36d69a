// SPDX-License-Identifier: Apache-2.0
// --fifo --device cuda: how long it takes from a GPU's push to the posted work request, and to the
// stamp in the memory of another GPU (of the same one where there is no other). Both ends are
// channels of this process; the clock is that of the GPU that pushes.
#include "tools/gemmar_perf/fifo.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gemmar/transport.h>

#include "tools/gemmar_perf/device.h"
#include "tools/gemmar_perf/gpu/fifo.h"
#include "tools/gemmar_perf/inputs.h"
#include "tools/gemmar_perf/report.h"
#include "tools/gemmar_perf/say.h"
#include "transport/order.h"
#include "transport/wait.h"

#define TRIES       GEMMAR_PERF_FIFO_TRIES
#define DATA_BYTES  (2u << 20)
#define WINDOW      (1u << 20)
#define STAMP_BYTES 65536u
#define TASK_NS     UINT64_C(3000000000)
#define TIMEOUT_NS  UINT64_C(5000000000)
#define PEER_MARK   (UINT64_C(1) << 40) /* no epoch comes so far */

struct end {
    int gpu;
    char *data; /* source window, then sink window */
    uint64_t *stamps;
    struct gemmar_channel *channel;
    cudaStream_t stream;
};

/* Host memory that both GPUs and the proxies reach; each in a cache line of its own. */
struct shared {
    uint64_t ping[8], pong[8], posted[8], abort_word[2][8];
    uint64_t done[8], all_cycles[8], all_ns[8];
    uint64_t cycles[TRIES];
};

struct bench {
    const struct gemmar_transport_table *table;
    struct gemmar_transport *transport;
    struct end end[2];
    struct shared *shared;
    uint64_t *seen;               /* of end 0's GPU */
    struct gemmar_fifo_ring ring; /* as end 0's GPU sees it */
    void *registered;
    uint64_t position; /* commands pushed so far */
};

/* p50 and p90 in us. */
struct time {
    double p50, p90;
};

static bool bad(cudaError_t error, const char *doing)
{
    if (error != cudaSuccess) {
        gemmar_perf_say("%s: %s", doing, cudaGetErrorString(error));
    }
    return error != cudaSuccess;
}

/* -- setting up -------------------------------------------------------------------------------- */

static int open_memory(struct bench *b)
{
    void *at = NULL;
    int count = 0, linked = 0;

    if (bad(cudaGetDeviceCount(&count), "no CUDA device") || count == 0) {
        return 1;
    }
    b->end[1].gpu = count > 1;
    if (count > 1 && (bad(cudaDeviceCanAccessPeer(&linked, 0, 1), "GPUs 0 and 1") || !linked)) {
        gemmar_perf_say("GPUs 0 and 1 do not reach each other's memory; both ends are on GPU 0");
        b->end[1].gpu = 0;
    }
    if (bad(cudaHostAlloc(&at, sizeof(*b->shared), cudaHostAllocMapped | cudaHostAllocPortable),
            "no host memory")) {
        return 1;
    }
    b->shared = at;
    memset(b->shared, 0, sizeof(*b->shared));
    for (int i = 0; i < 2; i++) {
        struct end *e = &b->end[i];

        if (bad(cudaSetDevice(e->gpu), "cannot use the GPU") ||
            bad(cudaMalloc((void **)&e->data, DATA_BYTES), "no device memory") ||
            bad(cudaMalloc((void **)&e->stamps, STAMP_BYTES), "no device memory") ||
            bad(cudaMemset(e->data, 0, DATA_BYTES), "cannot clear memory") ||
            bad(cudaMemset(e->stamps, 0, STAMP_BYTES), "cannot clear memory") ||
            bad(cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking), "no stream") ||
            bad(gemmar_perf_gpu_fifo_load(), "cannot load the kernels")) {
            return 1;
        }
        if (b->end[1].gpu != 0 && bad(cudaDeviceEnablePeerAccess(!e->gpu, 0), "no peer access")) {
            return 1;
        }
        if (bad(cudaDeviceSynchronize(), "the GPU failed")) {
            return 1;
        }
    }
    b->seen = b->end[0].stamps + STAMP_BYTES / 16; /* its second half: nobody sends there */
    return 0;
}

static int find_table(struct bench *b)
{
    struct gemmar_transport_settings settings = {.size = sizeof(settings)};
    const char *file = getenv("GEMMAR_TRANSPORT");
    void *handle = dlopen(file != NULL ? file : GEMMAR_TRANSPORT_SONAME, RTLD_NOW | RTLD_LOCAL);

    b->table = handle != NULL ? dlsym(handle, GEMMAR_TRANSPORT_SYMBOL) : NULL;
    if (b->table == NULL || b->table->version != GEMMAR_TRANSPORT_VERSION) {
        gemmar_perf_say("no transport: %s", handle == NULL ? dlerror() : "of another version");
        return 1;
    }
    return b->table->acquire(&settings, &b->transport) != 0; /* it says why */
}

static int open_channel(struct bench *b, uint32_t rank)
{
    struct end *e = &b->end[rank];
    const uint32_t device = 0, peer = 1 - rank;
    const struct gemmar_route_settings route = {
        .sink_offset = {WINDOW, WINDOW}, .window_bytes = WINDOW, .slots = STAMP_BYTES / 16};
    struct gemmar_channel_settings s = {
        .size = sizeof(s),
        .rank = rank,
        .peer_count = 1,
        .peer_ranks = &peer,
        .route_count = 1,
        .device_count = 1,
        .routes = &route,
        .devices = &device,
        .data = {.address = e->data, .length = DATA_BYTES, .dmabuf_fd = -1, .is_gpu = 1},
        .stamps = {.address = e->stamps, .length = STAMP_BYTES, .dmabuf_fd = -1, .is_gpu = 1},
        .queue_pairs_per_peer = 1,
        .signal = GEMMAR_SIGNAL_STAMP,
        .numa_node = -1,
        .first_epoch = 1,
        .abort_word = b->shared->abort_word[rank],
        .posted_word = rank == 0 ? b->shared->posted : NULL,
    };

    return b->table->channel_open(b->transport, &s, &e->channel) != 0; /* it says why */
}

static int connect_channels(struct bench *b)
{
    static char blob[2][GEMMAR_CONNECT_BLOB_BYTES];

    for (uint32_t rank = 0; rank < 2; rank++) {
        if (open_channel(b, rank) != 0 ||
            b->table->channel_blob(b->end[rank].channel, 0, blob[rank]) != 0) {
            return 1;
        }
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (b->table->channel_connect(b->end[rank].channel, 0, blob[1 - rank]) != 0) {
            return 1;
        }
    }
    return b->table->channel_start(b->end[0].channel) != 0 ||
           b->table->channel_start(b->end[1].channel) != 0;
}

/* The ring for GPU 0. */
static int map_ring(struct bench *b)
{
    struct gemmar_fifo_ring ring;
    void *base = NULL;
    ptrdiff_t shift;

    if (b->table->channel_ring(b->end[0].channel, &ring) != 0 ||
        bad(cudaSetDevice(0), "cannot use the GPU") ||
        bad(cudaHostRegister(ring.base, ring.bytes, cudaHostRegisterMapped), "no ring")) {
        return 1;
    }
    b->registered = ring.base;
    if (bad(cudaHostGetDevicePointer(&base, ring.base, 0), "no ring")) {
        return 1;
    }
    shift = (char *)base - (char *)ring.base;
    b->ring = ring;
    b->ring.commands = (void *)((char *)ring.commands + shift);
    b->ring.tail = (const void *)((const char *)ring.tail + shift);
    b->ring.retired = (const void *)((const char *)ring.retired + shift);
    return 0;
}

/* -- measuring --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The bare echo's other end. */
static void answer(struct shared *s)
{
    uint64_t last = 0;
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, TASK_NS);
    while (gemmar_load_acquire(s->done) == UINT64_MAX) {
        uint64_t value = gemmar_load_acquire(s->ping);

        if (value != last) {
            last = value;
            gemmar_store_release(s->pong, value);
        }
        gemmar_pause();
    }
}

static int measure(struct bench *b, enum gemmar_perf_fifo_way way, uint32_t bytes,
                   struct time *out_time)
{
    struct shared *s = b->shared;
    bool pushes = way == GEMMAR_PERF_FIFO_POSTED || way == GEMMAR_PERF_FIFO_STAMP;
    struct gemmar_perf_fifo_task task = {
        .way = way,
        .bytes = bytes,
        .first = way == GEMMAR_PERF_FIFO_PEER ? PEER_MARK
                 : pushes                     ? b->position
                                              : 0,
        .deadline_ns = TASK_NS,
        .ring = b->ring,
        .ping = s->ping,
        .pong = s->pong,
        .posted = s->posted,
        .stamp = b->end[1].stamps,
        .seen = b->seen,
        .cycles = s->cycles,
        .done = s->done,
        .all_cycles = s->all_cycles,
        .all_ns = s->all_ns,
    };
    double us;

    gemmar_store_release(s->done, UINT64_MAX);
    if (bad(cudaSetDevice(0), "cannot use the GPU") ||
        bad(gemmar_perf_gpu_fifo_push(&task, b->end[0].stream), "cannot start the kernel")) {
        return 1;
    }
    answer(s);
    if (bad(cudaStreamSynchronize(b->end[0].stream), "the kernel failed")) {
        return 1;
    }
    b->position += pushes ? *s->done : 0;
    if (*s->done != TRIES) {
        gemmar_perf_say("try %llu did not end in time", (unsigned long long)*s->done);
        return 1;
    }
    us = (double)*s->all_ns / 1e3 / (double)*s->all_cycles;
    qsort(s->cycles, TRIES, sizeof(s->cycles[0]), compare);
    out_time->p50 = (double)s->cycles[TRIES / 2] * us;
    out_time->p90 = (double)s->cycles[TRIES * 9 / 10] * us;
    return 0;
}

static double setting(const char *name)
{
    const char *text = getenv(name);

    return text != NULL ? strtod(text, NULL) : 0;
}

/* What softhca's model says for a message and its stamp, us. */
static double model_us(uint32_t bytes)
{
    double mbps = setting("SOFTHCA_MBPS"), latency = setting("SOFTHCA_LATENCY_NS") / 1e3;

    return latency + (mbps > 0 ? (bytes + 8.0) * 8 / mbps : 0);
}

static void say_stamp(FILE *json, uint32_t bytes, const struct time *t, double back)
{
    double model = model_us(bytes);

    (void)printf("push -> stamp at the peer GPU, %7u B: %6.2f us (p90 %6.2f), model %6.2f, over "
                 "%5.2f\n",
                 bytes, t->p50 - back, t->p90 - back, model, t->p50 - back - model);
    if (json != NULL) {
        (void)fprintf(json,
                      "%s{\"bytes\": %u, \"p50_us\": %.3f, \"p90_us\": %.3f, \"model_us\": %.3f}",
                      bytes == 0 ? "" : ", ", bytes, t->p50 - back, t->p90 - back, model);
    }
}

static int stamps(struct bench *b, FILE *json, double back)
{
    static const uint32_t sizes[] = {0, 8, 4096, 32768, 65536, 131072, 262144, 524288, 1048576};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct time t;

        if (measure(b, GEMMAR_PERF_FIFO_STAMP, sizes[i], &t) != 0) {
            return 1;
        }
        say_stamp(json, sizes[i], &t, back);
    }
    return 0;
}

static int run(struct bench *b, FILE *json)
{
    struct time host, peer, posted;
    uint64_t end = UINT64_MAX;
    int status;

    if (bad(cudaSetDevice(b->end[1].gpu), "cannot use the GPU") ||
        bad(gemmar_perf_gpu_fifo_watch(b->end[1].stamps, b->seen, 10 * TASK_NS, b->end[1].stream),
            "cannot start the kernel")) {
        return 1;
    }
    status = measure(b, GEMMAR_PERF_FIFO_HOST, 0, &host) != 0 ||
             measure(b, GEMMAR_PERF_FIFO_PEER, 0, &peer) != 0;
    if (status == 0) { /* epochs are smaller */
        status = bad(cudaMemcpyAsync(b->seen, b->shared->abort_word[0], 8, cudaMemcpyHostToDevice,
                                     b->end[0].stream),
                     "cannot clear memory") ||
                 bad(cudaStreamSynchronize(b->end[0].stream), "the GPU failed") ||
                 measure(b, GEMMAR_PERF_FIFO_POSTED, 0, &posted) != 0;
    }
    if (status == 0) {
        (void)printf("bare echo GPU - host %.2f us (p90 %.2f), GPU - GPU %.2f us (p90 %.2f)\n",
                     host.p50, host.p90, peer.p50, peer.p90);
        (void)printf("push -> posted work request: %.2f us (p90 %.2f)\n", posted.p50 - host.p50 / 2,
                     posted.p90 - host.p50 / 2);
        if (json != NULL) {
            (void)fprintf(
                json,
                "\"echo_host_us\": %.3f, \"echo_peer_us\": %.3f, \"posted_p50_us\": %.3f, "
                "\"posted_p90_us\": %.3f, \"stamps\": [",
                host.p50, peer.p50, posted.p50 - host.p50 / 2, posted.p90 - host.p50 / 2);
        }
        status = stamps(b, json, peer.p50 / 2);
    }
    /* the watching kernel ends */
    if (bad(cudaSetDevice(0), "cannot use the GPU") ||
        bad(cudaMemcpyAsync(b->end[1].stamps, &end, 8, cudaMemcpyHostToDevice, b->end[0].stream),
            "cannot end the kernel") ||
        bad(cudaStreamSynchronize(b->end[0].stream), "the GPU failed") ||
        bad(cudaStreamSynchronize(b->end[1].stream), "the kernel failed")) {
        return 1;
    }
    return status;
}

static int write_end(const struct bench *b, FILE *json, char **argv)
{
    char text[4096];

    gemmar_perf_device_describe(text, sizeof(text));
    (void)fprintf(json, "], \"gpus\": %d, \"nic\": ", b->end[1].gpu + 1);
    gemmar_perf_json_text(json, text);
    (void)fprintf(json, ", \"commit\": ");
    gemmar_perf_json_text(json, gemmar_perf_commit());
    gemmar_perf_machine(text, sizeof(text));
    (void)fprintf(json, ", \"machine\": ");
    gemmar_perf_json_text(json, text);
    gemmar_perf_command(argv, text, sizeof(text));
    (void)fprintf(json, ", \"command\": ");
    gemmar_perf_json_text(json, text);
    (void)fprintf(json, "}\n");
    return ferror(json);
}

static void close_bench(struct bench *b)
{
    if (b->registered != NULL) {
        (void)cudaHostUnregister(b->registered);
    }
    for (int i = 0; b->table != NULL && i < 2; i++) {
        b->table->channel_close(b->end[i].channel);
    }
    if (b->transport != NULL) {
        b->table->release(b->transport);
    }
    /* memory of GPUs and streams go with the process */
}

int gemmar_perf_gpu_fifo(const struct gemmar_perf_options *o, char **argv)
{
    static struct bench b;
    char text[1024];
    FILE *json = o->json != NULL ? fopen(o->json, "ae") : NULL;
    int status;

    if (o->json != NULL && json == NULL) {
        gemmar_perf_say("cannot write %s: %s", o->json, strerror(errno));
        return 1;
    }
    status = gemmar_perf_device_prepare(o, 0) != 0 || open_memory(&b) != 0 || find_table(&b) != 0 ||
             connect_channels(&b) != 0 || map_ring(&b) != 0;
    if (status == 0) {
        gemmar_perf_device_describe(text, sizeof(text));
        (void)printf("# fifo: GPU 0 -> GPU %d, %u tries, %s; model %.0f Mb/s, %.2f us\n",
                     b.end[1].gpu, TRIES, text, setting("SOFTHCA_MBPS"), model_us(0));
        if (json != NULL) {
            (void)fprintf(json, "{\"bench\": \"fifo_gpu\", ");
        }
        status = run(&b, json);
    }
    if (json != NULL) {
        status |= status == 0 && write_end(&b, json, argv) != 0;
        status |= fclose(json) != 0;
    }
    close_bench(&b);
    return status;
}
