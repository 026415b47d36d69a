// SPDX-License-Identifier: Apache-2.0
// Copies to device memory that go on while packets are handled. They are collected and started
// together, because each call of the driver takes longer than a small copy.
#include <errno.h>
#include <string.h>

#include "tools/softhca/cuda_gpu.h"

#define BYTES_IN_NS 200u // that a copy engine moves between two GPUs, at least

int softhca_cuda_stage(struct softhca_gpu *gpu, const void *from, uint64_t len, uint64_t *out_at)
{
    uint64_t at = gpu->ring_pos % SOFTHCA_CUDA_RING;
    uint64_t skip = at + len > SOFTHCA_CUDA_RING ? SOFTHCA_CUDA_RING - at : 0;
    if (gpu->ring_pos + skip + len - gpu->ring_free > SOFTHCA_CUDA_RING) {
        int err = softhca_cuda_drain(gpu); // nothing tells of a message longer than the ring
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

static int meets(const struct softhca_gpu *gpu, uint32_t i, uint64_t to, uint64_t len)
{
    return to < gpu->to[i] + gpu->len[i] && gpu->to[i] < to + len;
}

static int is_kin(const struct softhca_gpu *gpu, uint32_t i, struct softhca_cuda_kin kin)
{
    return kin.from != UINT64_MAX && gpu->kin[i].from == kin.from && gpu->kin[i].to == kin.to;
}

// Does copy i end, at both ends, where these bytes begin?
static int is_before(const struct softhca_gpu *gpu, uint32_t i, uint64_t to, uint64_t from)
{
    return gpu->to[i] + gpu->len[i] == to && gpu->from[i] + gpu->len[i] == from;
}

static void drop_copy(struct softhca_gpu *gpu, uint32_t i)
{
    uint32_t last = --gpu->count;
    gpu->to[i] = gpu->to[last];
    gpu->from[i] = gpu->from[last];
    gpu->len[i] = gpu->len[last];
    gpu->kin[i] = gpu->kin[last];
}

// 1 when copies of the open batch could be made longer: the one before these bytes, the one behind
// them, or both to one.
static int merge(struct softhca_gpu *gpu, uint64_t to, uint64_t from, uint64_t len,
                 struct softhca_cuda_kin kin)
{
    uint32_t before = UINT32_MAX, behind = UINT32_MAX;
    for (uint32_t i = 0; i < gpu->count; i++) {
        if (!is_kin(gpu, i, kin)) {
            continue;
        }
        if (is_before(gpu, i, to, from)) {
            before = i;
        } else if (to + len == gpu->to[i] && from + len == gpu->from[i]) {
            behind = i;
        }
    }
    if (behind != UINT32_MAX) {
        gpu->to[behind] = to;
        gpu->from[behind] = from;
        gpu->len[behind] += len;
    }
    if (before != UINT32_MAX) {
        gpu->len[before] += behind != UINT32_MAX ? gpu->len[behind] : len;
    }
    if (before != UINT32_MAX && behind != UINT32_MAX) {
        drop_copy(gpu, behind);
    }
    return before != UINT32_MAX || behind != UINT32_MAX;
}

int softhca_cuda_pull(struct softhca_gpu *gpu, void *to, uint64_t from, uint64_t len,
                      struct softhca_cuda_kin kin, int overlap, uint64_t due_ns,
                      uint64_t *out_batch)
{
    uint64_t at = (uintptr_t)to;
    uint32_t i = 0;
    while (i < gpu->count && !meets(gpu, i, at, len)) {
        i++;
    }
    if (i < gpu->count) {
        softhca_cuda_start(gpu); // the later bytes stay
    }
    if (merge(gpu, at, from, len, kin)) {
        gpu->bytes += len;
        gpu->due_ns = due_ns < gpu->due_ns ? due_ns : gpu->due_ns;
        *out_batch = gpu->batch;
        return 0;
    }
    if (gpu->count == SOFTHCA_CUDA_BATCH) {
        softhca_cuda_start(gpu);
    }
    *out_batch = gpu->batch;
    gpu->due_ns = due_ns < gpu->due_ns ? due_ns : gpu->due_ns;
    gpu->bytes += len;
    gpu->to[gpu->count] = at;
    gpu->from[gpu->count] = from;
    gpu->kin[gpu->count] = kin;
    gpu->len[gpu->count++] = len;
    gpu->staged += from - (uintptr_t)gpu->ring < SOFTHCA_CUDA_RING;
    gpu->overlap = overlap;
    return 0;
}

// Copies between two GPUs, or from host memory. A copy engine beside kernels is asked for by the
// batch call only. A copy from host memory gets one anyway, and sooner by a call of its own.
static int start_some(struct softhca_gpu *gpu, uint32_t first, uint32_t count, int by_engine)
{
    int error = 0;
    if (by_engine && gpu->cu->copy_batch) {
        struct softhca_cuda_copy_attributes a = {.source_order = 1, .flags = 1};
        size_t none = 0;
        return gpu->cu->copy_batch(gpu->to + first, gpu->from + first, gpu->len + first, count, &a,
                                   &none, 1, gpu->pulls);
    }
    for (uint32_t i = first; i < first + count && !error; i++) {
        error = gpu->cu->copy(gpu->to[i], gpu->from[i], gpu->len[i], gpu->pulls);
    }
    return error;
}

// The driver copies within a GPU by a kernel, whatever is asked for, and that waits for kernels
// that fill the GPU. Copy engines do it through host memory.
static int bounce(struct softhca_gpu *gpu, uint64_t to, uint64_t from, uint64_t len)
{
    uint64_t at = (uintptr_t)gpu->bounce;
    int error = 0;
    while (len && !error) {
        uint64_t part = len < SOFTHCA_CUDA_BOUNCE ? len : SOFTHCA_CUDA_BOUNCE;
        error = gpu->cu->copy(at, from, part, gpu->pulls);
        error = error ? error : gpu->cu->copy(to, at, part, gpu->pulls);
        to += part, from += part, len -= part;
    }
    return error;
}

static int is_within(const struct softhca_gpu *gpu, uint32_t i)
{
    return gpu->overlap && gpu->kin[i].device == gpu->device;
}

static int start_copies(struct softhca_gpu *gpu)
{
    int error = 0;
    for (uint32_t i = 0, n; i < gpu->count && !error; i += n) {
        n = 1;
        if (is_within(gpu, i)) {
            error = bounce(gpu, gpu->to[i], gpu->from[i], gpu->len[i]);
            continue;
        }
        while (i + n < gpu->count && !is_within(gpu, i + n)) {
            n++;
        }
        error = start_some(gpu, i, n, gpu->overlap && gpu->staged < gpu->count);
    }
    return error;
}

void softhca_cuda_start(struct softhca_gpu *gpu)
{
    if (!gpu->count) {
        return;
    }
    uint32_t n = gpu->batch % SOFTHCA_CUDA_MARKS;
    gpu->failed[n] = softhca_cuda_enter(gpu) != 0;
    if (!gpu->failed[n]) {
        int error = start_copies(gpu);
        error = error ? error : gpu->cu->event_record(gpu->events[n], gpu->pulls);
        if (error) {
            (void)softhca_cuda_fail(gpu->cu, "a copy failed", error);
            gpu->failed[n] = 1;
            (void)softhca_cuda_wait(gpu, gpu->pulls); // what was started has no event behind it
        }
        softhca_cuda_leave(gpu);
    }
    gpu->busy = 1;
    gpu->ring_at[n] = gpu->ring_pos;
    gpu->batch++;
    gpu->count = gpu->staged = 0;
    gpu->bytes = 0;
    gpu->due_ns = UINT64_MAX;
}

uint64_t softhca_cuda_start_due(uint64_t now_ns, uint64_t copy_ns)
{
    uint64_t next = UINT64_MAX;
    for (struct softhca_gpu *g = softhca_cuda_gpus(); g; g = g->next) {
        uint64_t early_ns = copy_ns + g->bytes / BYTES_IN_NS;
        if (g->count == SOFTHCA_CUDA_BATCH || g->due_ns <= now_ns + early_ns) {
            softhca_cuda_start(g);
        } else if (g->count && g->due_ns - early_ns < next) {
            next = g->due_ns - early_ns;
        }
    }
    return next;
}

uint64_t softhca_cuda_batch(const struct softhca_gpu *gpu)
{
    return gpu->batch;
}

int softhca_cuda_is_full(const struct softhca_gpu *gpu)
{
    return gpu->count == SOFTHCA_CUDA_BATCH;
}
