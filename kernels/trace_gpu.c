// SPDX-License-Identifier: Apache-2.0
// GEMMAR_TRACE: the stage trace of a communicator's last call, at its end in a file.
#include "kernels/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/trace.h"

#define MOST_CALLS 256 /* that a byte tells apart */

static size_t event_bytes(const struct gemmar_gpu_trace *t)
{
    return (size_t)t->ctas * GEMMAR_GPU_TRACE_ITEMS * GEMMAR_TRACE_EVENTS * sizeof(uint64_t);
}

/* Of the communicator's creation: a file that cannot be written is known before there are calls. */
static int open_file(const struct gemmarComm *comm)
{
    char path[GEMMAR_KNOB_TEXT_BYTES];
    int fd = gemmar_trace_path(comm->settings.trace, comm->place.rank, path, sizeof(path));

    if (fd == 0) {
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        fd = fd < 0 ? -errno : fd;
    }
    if (fd < 0) {
        gemmar_warn(&comm->log, "trace: GEMMAR_TRACE %s: %s: there will be no trace",
                    comm->settings.trace, strerror(-fd));
    }
    return fd;
}

void gemmar_gpu_trace_open(struct gemmarComm *comm)
{
    struct gemmar_gpu_trace *t = &comm->gpu->trace;
    cudaError_t rc;
    int fd;

    if (comm->settings.trace[0] == '\0') {
        return;
    }
    fd = open_file(comm);
    if (fd < 0) {
        return;
    }
    t->ctas = comm->gpu->most_ctas;
    t->calls = calloc(MOST_CALLS, sizeof(*t->calls));
    rc = t->calls == NULL ? cudaErrorMemoryAllocation
                          : cudaMalloc((void **)&t->events, event_bytes(t) + GEMMAR_GPU_TRACE_TAIL);
    if (rc == cudaSuccess) {
        rc = cudaMemsetAsync(t->events, 0, event_bytes(t) + GEMMAR_GPU_TRACE_TAIL,
                             comm->gpu->stream);
    }
    if (rc == cudaSuccess) {
        rc = gemmar_gpu_wait_stream(comm->gpu->stream, comm->settings.timeout_ns);
    }
    if (rc == cudaSuccess) {
        t->fd = fd;
        return;
    }
    gemmar_warn(&comm->log, "trace: memory: %s: there will be no trace", cudaGetErrorString(rc));
    (void)cudaFree(t->events);
    t->events = NULL;
    free(t->calls);
    t->calls = NULL;
    (void)close(fd); /* nothing was written */
}

/* Number of this call, the last one or one that a graph may make again and again; MOST_CALLS: there
 * is none left. */
static uint32_t number_of(struct gemmar_gpu_trace *t, const struct gemmar_traced *call,
                          bool captured)
{
    uint32_t i = 1;

    if (!captured) {
        t->calls[0] = *call;
        return 0;
    }
    while (i <= t->captured && memcmp(&t->calls[i], call, sizeof(*call)) != 0) {
        i++;
    }
    if (i < MOST_CALLS && i > t->captured) {
        t->calls[i] = *call;
        t->captured = i;
    }
    return i;
}

uint64_t *gemmar_gpu_trace_call(struct gemmar_gpu *gpu, const struct gemmar_call *call,
                                cudaStream_t stream)
{
    struct gemmar_gpu_trace *t = &gpu->trace;
    struct gemmar_traced of;
    uint32_t number;

    if (t->events == NULL || call->plan.ctas > t->ctas) {
        return NULL;
    }
    memset(&of, 0, sizeof(of)); /* it is compared whole */
    of.m = call->map.m;
    of.n = call->map.n;
    of.k = call->operands.k;
    of.rank = call->place.rank;
    gemmar_trace_name(call->algo, call->tensor.strategy, call->place.locals, of.way);
    number = number_of(t, &of, gpu->order.now != 0);
    if (number >= MOST_CALLS ||
        cudaMemsetAsync(t->events, 0, event_bytes(t), stream) != cudaSuccess ||
        cudaMemsetAsync((char *)t->events + event_bytes(t), (int)number, 1, stream) !=
            cudaSuccess) {
        return NULL; /* what is wrong with the stream the launch finds, too */
    }
    return t->events;
}

/* After the calls have ended. */
static void write_file(struct gemmarComm *comm)
{
    struct gemmar_gpu *gpu = comm->gpu;
    struct gemmar_gpu_trace *t = &gpu->trace;
    size_t bytes = event_bytes(t) + GEMMAR_GPU_TRACE_TAIL;
    uint64_t *events = malloc(bytes);
    cudaError_t error = cudaErrorMemoryAllocation;
    int rc;

    if (events != NULL) {
        error = cudaMemcpyAsync(events, t->events, bytes, cudaMemcpyDeviceToHost, gpu->stream);
    }
    if (error == cudaSuccess) {
        error = gemmar_gpu_wait_stream(gpu->stream, comm->settings.timeout_ns);
    }
    if (error != cudaSuccess) {
        gemmar_warn(&comm->log, "trace: not written: %s", cudaGetErrorString(error));
        if (error != cudaErrorNotReady) { /* else it may still be written to */
            free(events);
        }
        return;
    }
    rc = gemmar_trace_append(t->fd, &t->calls[((unsigned char *)events)[event_bytes(t)]], events,
                             t->ctas, GEMMAR_GPU_TRACE_ITEMS);
    if (rc != 0) {
        gemmar_warn(&comm->log, "trace: GEMMAR_TRACE %s: %s", comm->settings.trace, strerror(-rc));
    }
    free(events);
}

void gemmar_gpu_trace_close(struct gemmarComm *comm)
{
    struct gemmar_gpu *gpu = comm->gpu;
    struct gemmar_gpu_trace *t = &gpu->trace;
    int before;

    if (t->events == NULL) {
        return;
    }
    if (!gpu->left_behind) {
        before = gemmar_gpu_enter(gpu->device);
        write_file(comm);
        (void)cudaFree(t->events);
        gemmar_gpu_leave(gpu->device, before);
    }
    t->events = NULL;
    free(t->calls);
    (void)close(t->fd); /* write has told of errors */
}
