// SPDX-License-Identifier: Apache-2.0
// From a GPU's push to the posted work request, and to the stamp in another GPU's memory, by the
// pushing GPU's clock. Every loop ends at a deadline.
#include "kernels/ptx/ld_st.cuh"
#include "tools/gemmar_perf/gpu/fifo.h"

static __device__ void store_release(uint64_t *word, uint64_t value)
{
    gemmar_fence_acq_rel_sys();
    gemmar_st_relaxed_sys(word, value);
}

static __device__ bool wait_for(const uint64_t *word, uint64_t least, uint64_t end_ns)
{
    while (gemmar_ld_acquire_sys(word) < least) {
        if (gemmar_globaltimer() > end_ns) {
            return false;
        }
    }
    return true;
}

static __device__ void push(const struct gemmar_perf_fifo_task *t, uint64_t position)
{
    struct gemmar_fifo_request request = {
        .offset = 0, .length = t->bytes, .slot = 0, .route = 0, .epoch = (uint32_t)position + 1};
    struct gemmar_fifo_command command =
        gemmar_fifo_pack(&request, gemmar_fifo_lap(position, t->ring.entries));

    gemmar_st_release_sys_b128(&t->ring.commands[position & (t->ring.entries - 1)], command.word[0],
                               command.word[1]);
}

static __device__ bool one(const struct gemmar_perf_fifo_task *t, uint64_t position,
                           uint64_t end_ns)
{
    switch (t->way) {
    case GEMMAR_PERF_FIFO_HOST:
        store_release(t->ping, position + 1);
        return wait_for(t->pong, position + 1, end_ns);
    case GEMMAR_PERF_FIFO_PEER:
        store_release(t->stamp, position + 1);
        return wait_for(t->seen, position + 1, end_ns);
    case GEMMAR_PERF_FIFO_POSTED:
        push(t, position);
        return wait_for(t->posted, position + 1, end_ns);
    default: push(t, position); return wait_for(t->seen, position + 1, end_ns);
    }
}

/* Between two commands the ring, the NIC and its copies are idle. */
static __global__ void push_all(struct gemmar_perf_fifo_task t)
{
    uint64_t start_ns = gemmar_globaltimer(), end_ns = start_ns + t.deadline_ns;
    long long start = clock64();
    uint64_t i = 0;
    bool pushes = t.way == GEMMAR_PERF_FIFO_POSTED || t.way == GEMMAR_PERF_FIFO_STAMP;

    for (; i < GEMMAR_PERF_FIFO_TRIES; i++) {
        uint64_t position = t.first + i;
        long long before = clock64();

        if (!one(&t, position, end_ns)) {
            break;
        }
        t.cycles[i] = (uint64_t)(clock64() - before);
        if (pushes && !wait_for(t.ring.retired, position + 1, end_ns)) {
            break;
        }
    }
    *t.all_cycles = (uint64_t)(clock64() - start);
    *t.all_ns = gemmar_globaltimer() - start_ns;
    store_release(t.done, i);
}

static __global__ void watch(uint64_t *stamp, uint64_t *seen, uint64_t deadline_ns)
{
    uint64_t end_ns = gemmar_globaltimer() + deadline_ns, last = 0;

    while (last != UINT64_MAX && gemmar_globaltimer() < end_ns) {
        uint64_t value = gemmar_ld_acquire_sys(stamp);

        if (value != last) {
            last = value;
            store_release(seen, value);
        }
    }
}

extern "C" cudaError_t gemmar_perf_gpu_fifo_load(void)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, push_all);

    return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, watch);
}

extern "C" cudaError_t gemmar_perf_gpu_fifo_push(const struct gemmar_perf_fifo_task *task,
                                                 cudaStream_t stream)
{
    push_all<<<1, 1, 0, stream>>>(*task);
    return cudaGetLastError();
}

extern "C" cudaError_t gemmar_perf_gpu_fifo_watch(uint64_t *stamp, uint64_t *seen,
                                                  uint64_t deadline_ns, cudaStream_t stream)
{
    watch<<<1, 1, 0, stream>>>(stamp, seen, deadline_ns);
    return cudaGetLastError();
}
