// SPDX-License-Identifier: Apache-2.0
// Copies to device memory that go on while packets are handled. They are collected and started
// together, because each call of the driver takes longer than a small copy.
#include <errno.h>
#include <string.h>

#include "tools/softhca/cuda_gpu.h"

int softhca_cuda_stage(struct softhca_gpu *gpu, const void *from, uint64_t len, uint64_t *out_at)
{
    uint64_t at = gpu->ring_pos % SOFTHCA_CUDA_RING;
    uint64_t skip = at + len > SOFTHCA_CUDA_RING ? SOFTHCA_CUDA_RING - at : 0;
    if (gpu->ring_pos + skip + len - gpu->ring_free > SOFTHCA_CUDA_RING) {
        int err = softhca_cuda_drain(gpu); // of a message longer than the ring no mark tells
        if (err) {
            return err;
        }
    }
    gpu->ring_pos += skip;
    uint8_t *to = gpu->ring + gpu->ring_pos % SOFTHCA_CUDA_RING;
    memcpy(to, from, len);
    gpu->ring_pos += len;
    *out_at = (uintptr_t)to;
    return 0;
}

int softhca_cuda_pull(struct softhca_gpu *gpu, void *to, uint64_t from, uint64_t len, int overlap)
{
    if (gpu->count == SOFTHCA_CUDA_BATCH) {
        softhca_cuda_start(gpu);
    }
    gpu->to[gpu->count] = (uintptr_t)to;
    gpu->from[gpu->count] = from;
    gpu->len[gpu->count++] = len;
    gpu->staged += from - (uintptr_t)gpu->ring < SOFTHCA_CUDA_RING;
    gpu->overlap = overlap;
    return 0;
}

// A copy engine beside kernels is asked for by the batch call only. A copy from host memory gets
// one anyway, and sooner by a call of its own.
static int start_copies(struct softhca_gpu *gpu)
{
    int error = 0;
    if (gpu->overlap && gpu->cu->copy_batch && gpu->staged < gpu->count) {
        struct softhca_cuda_copy_attributes a = {.source_order = 1, .flags = 1};
        size_t first = 0;
        return gpu->cu->copy_batch(gpu->to, gpu->from, gpu->len, gpu->count, &a, &first, 1,
                                   gpu->pulls);
    }
    for (uint32_t i = 0; i < gpu->count && !error; i++) {
        error = gpu->cu->copy(gpu->to[i], gpu->from[i], gpu->len[i], gpu->pulls);
    }
    return error;
}

static int wait_for_all(struct softhca_gpu *gpu)
{
    int error = gpu->cu->stream_wait(gpu->pulls);
    return error ? softhca_cuda_fail(gpu->cu, "a copy failed", error) : 0;
}

void softhca_cuda_start(struct softhca_gpu *gpu)
{
    if (!gpu->count && !gpu->is_marked) {
        return;
    }
    int err = softhca_cuda_enter(gpu);
    int error = err || !gpu->count ? 0 : start_copies(gpu);
    if (error) {
        err = softhca_cuda_fail(gpu->cu, "a copy failed", error);
    }
    gpu->failed |= err != 0;
    gpu->busy = 1;
    if (gpu->is_marked) {
        uint64_t n = (gpu->mark - 1) % SOFTHCA_CUDA_MARKS;
        struct softhca_cuda_mark *mark = &gpu->marks[n];
        mark->ring_pos = gpu->ring_pos;
        mark->state = gpu->failed ? -EIO : 1;
        if (!gpu->failed && (error = gpu->cu->event_record(gpu->events[n], gpu->pulls))) {
            (void)softhca_cuda_fail(gpu->cu, "cannot follow a copy", error);
            mark->state = wait_for_all(gpu) ? -EIO : 2;
        }
        gpu->failed = 0;
    }
    if (!err) {
        softhca_cuda_leave(gpu);
    }
    gpu->batch++;
    gpu->count = gpu->staged = 0;
    gpu->is_marked = 0;
}

void softhca_cuda_start_all(void)
{
    for (struct softhca_gpu *g = softhca_cuda_gpus(); g; g = g->next) {
        softhca_cuda_start(g);
    }
}

uint64_t softhca_cuda_batch(const struct softhca_gpu *gpu)
{
    return gpu->batch;
}

uint64_t softhca_cuda_mark(struct softhca_gpu *gpu)
{
    if (!gpu->is_marked) {
        gpu->is_marked = 1;
        gpu->marks[gpu->mark++ % SOFTHCA_CUDA_MARKS].state = 0;
    }
    return gpu->mark - 1;
}

int softhca_cuda_passed(struct softhca_gpu *gpu, uint64_t number)
{
    struct softhca_cuda_mark *mark = &gpu->marks[number % SOFTHCA_CUDA_MARKS];
    if (mark->state == 1) {
        int err = softhca_cuda_enter(gpu);
        if (err) {
            return err;
        }
        int error = gpu->cu->event_query(gpu->events[number % SOFTHCA_CUDA_MARKS]);
        softhca_cuda_leave(gpu);
        if (error == SOFTHCA_CUDA_NOT_READY) {
            return 0;
        }
        mark->state = error ? softhca_cuda_fail(gpu->cu, "a copy failed", error) : 2;
    }
    if (mark->state == 2 && mark->ring_pos > gpu->ring_free) {
        gpu->ring_free = mark->ring_pos;
    }
    return mark->state == 2 ? 1 : mark->state;
}

int softhca_cuda_drain(struct softhca_gpu *gpu)
{
    softhca_cuda_start(gpu);
    if (!gpu->busy) {
        return 0;
    }
    int err = softhca_cuda_enter(gpu);
    if (err) {
        return err;
    }
    err = wait_for_all(gpu);
    softhca_cuda_leave(gpu);
    gpu->busy = 0;
    gpu->ring_free = gpu->ring_pos;
    return err;
}

void softhca_cuda_drain_all(void)
{
    for (struct softhca_gpu *g = softhca_cuda_gpus(); g; g = g->next) {
        (void)softhca_cuda_drain(g); // a failure shows at the marks
    }
}
