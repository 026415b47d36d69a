// SPDX-License-Identifier: Apache-2.0
// The common start of timed calls.
#include "tools/gemmar_perf/gpu/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/gemmar_perf/gpu/gpu.h"
#include "tools/gemmar_perf/say.h"

#define DEADLINE_NS UINT64_C(5000000000)

/* The memory of rank 0's making, by name; a rank of another host finds none. */
static void *map(const char *name, size_t bytes, bool create)
{
    int fd = shm_open(name, O_RDWR | (create ? O_CREAT | O_EXCL : 0), 0600);
    void *memory = MAP_FAILED;

    if (fd >= 0 && (!create || ftruncate(fd, (off_t)bytes) == 0)) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return memory != MAP_FAILED ? memory : NULL;
}

static int pin(struct gemmar_perf_gate *g)
{
    void *device;

    if (gemmar_perf_gpu_bad(cudaHostRegister(g->words, g->bytes, cudaHostRegisterMapped),
                            "cannot pin the words of the common start") ||
        gemmar_perf_gpu_bad(cudaHostGetDevicePointer(&device, g->words, 0),
                            "cannot map the words of the common start")) {
        return 1;
    }
    g->device = device;
    return 0;
}

int gemmar_perf_gate_open(struct gemmar_perf_session *s, struct gemmar_perf_gate *g)
{
    char name[64], names[GEMMAR_PERF_GPU_RANKS][64];
    bool all;

    *g = (struct gemmar_perf_gate){.s = s};
    g->bytes = (s->ranks * sizeof(*g->words) + 4095) / 4096 * 4096;
    (void)snprintf(name, sizeof(name), "/gemmar-perf-gate-%d", (int)getpid());
    if (s->rank == 0) {
        g->words = map(name, g->bytes, true);
    }
    if (gemmar_perf_gather(s, name, names, sizeof(name)) != 0) {
        return 1;
    }
    if (s->rank != 0) {
        g->words = map(names[0], g->bytes, false);
    }
    all = gemmar_perf_gpu_agree(s, g->words == NULL) == 0;
    if (s->rank == 0) {
        (void)shm_unlink(name);
    }
    if (!all && g->words != NULL) {
        (void)munmap(g->words, g->bytes);
        g->words = NULL;
    }
    return gemmar_perf_gpu_agree(s, all && pin(g) != 0);
}

void gemmar_perf_gate_close(struct gemmar_perf_gate *g)
{
    if (g->device != NULL) {
        (void)cudaHostUnregister(g->words); /* the process ends next */
    }
    if (g->words != NULL) {
        (void)munmap(g->words, g->bytes);
    }
    *g = (struct gemmar_perf_gate){0};
}

/* Without common memory: all streams are empty, and all CPUs here. */
static int meet(struct gemmar_perf_session *s)
{
    return gemmar_perf_gpu_wait(s) || gemmar_perf_gpu_agree(s, false);
}

int gemmar_perf_gate_shut(struct gemmar_perf_gate *g, cudaStream_t stream)
{
    const struct gemmar_perf_session *s = g->s;

    g->ticket++;
    return g->words == NULL
               ? meet(g->s)
               : gemmar_perf_gpu_bad(gemmar_perf_gpu_gate(g->device, s->rank, s->ranks, g->ticket,
                                                          DEADLINE_NS, stream),
                                     "cannot enqueue the common start");
}

void gemmar_perf_gate_lift(struct gemmar_perf_gate *g)
{
    if (g->words != NULL) {
        __atomic_store_n(&g->words[g->s->rank].enqueued, g->ticket, __ATOMIC_RELEASE);
    }
}

bool gemmar_perf_gate_late(const struct gemmar_perf_gate *g)
{
    for (uint32_t r = 0; g->words != NULL && r < g->s->ranks; r++) {
        if (__atomic_load_n(&g->words[r].late, __ATOMIC_ACQUIRE) != 0) {
            return true;
        }
    }
    return false;
}
