// SPDX-License-Identifier: Apache-2.0
// The common start: a small kernel in front of a timed call, and the delay that plays a slow rank.
#include "tools/gemmar_perf/gpu/kernels.h"

extern "C" cudaError_t gemmar_perf_gpu_load_inputs(void);
extern "C" cudaError_t gemmar_perf_gpu_load_check(void);

static __device__ uint64_t now_ns(void)
{
    uint64_t ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __device__ uint64_t load_sys(const uint64_t *word)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

static __device__ void store_sys(uint64_t *word, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/* Between two looks at the words: they are host memory, and reads of it without a pause hold up the
 * GPU's other traffic, a peer's last copies among it. */
#define PAUSE_NS 200

/* One warp; a lane watches every 32nd rank. */
static __global__ void gate(struct gemmar_perf_gpu_word *words, uint32_t rank, uint32_t ranks,
                            uint64_t ticket, uint64_t deadline_ns)
{
    uint64_t start = now_ns();

    if (threadIdx.x == 0) {
        store_sys(&words[rank].arrived, ticket);
    }
    for (uint32_t r = threadIdx.x; r < ranks; r += 32) {
        while (load_sys(&words[r].enqueued) < ticket || load_sys(&words[r].arrived) < ticket) {
            if (now_ns() - start > deadline_ns) {
                if (load_sys(&words[rank].late) == 0) {
                    store_sys(&words[rank].late, ticket);
                }
                break;
            }
            __nanosleep(PAUSE_NS);
        }
    }
}

static __global__ void delay(uint64_t ns)
{
    uint64_t start = now_ns();

    while (now_ns() - start < ns) {
        __nanosleep(500);
    }
}

extern "C" cudaError_t gemmar_perf_gpu_gate(struct gemmar_perf_gpu_word *words, uint32_t rank,
                                            uint32_t ranks, uint64_t ticket, uint64_t deadline_ns,
                                            cudaStream_t stream)
{
    gate<<<1, 32, 0, stream>>>(words, rank, ranks, ticket, deadline_ns);
    return cudaGetLastError();
}

extern "C" cudaError_t gemmar_perf_gpu_delay(uint64_t ns, cudaStream_t stream)
{
    delay<<<1, 1, 0, stream>>>(ns);
    return cudaGetLastError();
}

extern "C" cudaError_t gemmar_perf_gpu_load(void)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, gate);

    if (error == cudaSuccess) {
        error = cudaFuncGetAttributes(&attributes, delay);
    }
    if (error == cudaSuccess) {
        error = gemmar_perf_gpu_load_inputs();
    }
    return error == cudaSuccess ? gemmar_perf_gpu_load_check() : error;
}
