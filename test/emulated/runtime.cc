// SPDX-License-Identifier: Apache-2.0
// The runtime's calls that the checks and the launch make, on emulated GPUs. Streams do what is in
// them in order; a kernel runs while somebody waits for a stream.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <deque>
#include <memory>
#include <mutex>
#include <sched.h>
#include <vector>

#include "kernels/fused_sm90.h"
#include "test/emulated/gpu.h"

#define STEPS  256 /* between two looks at the streams */
#define POISON 0xcd

struct CUstream_st {
    std::deque<std::function<bool()>> work;
};

struct CUevent_st {
    uint64_t recorded, done; /* counts */
};

static std::mutex lock;
static std::atomic<int> waiting; /* other threads that want the lock */
static std::vector<CUstream_st *> streams;
static thread_local int device;

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : otherwise;
}

static int sms(void)
{
    return number("EMULATED_SMS", 4);
}

struct locked {
    locked()
    {
        waiting++;
        lock.lock();
        waiting--;
    }
    ~locked()
    {
        lock.unlock();
    }
};

/* What is at the heads of the streams and can be done now. */
static void pump(void)
{
    for (CUstream_st *s : streams) {
        while (!s->work.empty() && s->work.front()()) {
            s->work.pop_front();
        }
    }
}

/* Under the lock, which others get in between. */
static void let_go_on(void)
{
    pump();
    for (int i = 0; i < STEPS; i++) {
        emulated_step();
    }
    pump();
    if (waiting > 0) {
        lock.unlock();
        while (waiting > 0) {
            (void)sched_yield();
        }
        lock.lock();
    }
}

void emulated_enqueue(cudaStream_t stream, std::function<bool()> work)
{
    locked l;

    stream->work.push_back(work);
    pump();
}

static cudaError_t once(cudaStream_t stream, std::function<void()> work)
{
    emulated_enqueue(stream, [=] {
        work();
        return true;
    });
    return cudaSuccess;
}

static cudaError_t allocate(void **out, size_t bytes)
{
    *out = aligned_alloc(1024, (bytes + 1023) / 1024 * 1024);
    if (*out == NULL) {
        return cudaErrorMemoryAllocation;
    }
    memset(*out, POISON, bytes);
    return cudaSuccess;
}

extern "C" {

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error of the emulated GPU";
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = number("EMULATED_GPUS", 16);
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int which)
{
    device = which;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *which)
{
    *which = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    if (attribute != cudaDevAttrMultiProcessorCount) {
        return cudaErrorInvalidValue;
    }
    *value = sms();
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    return allocate(out, bytes);
}

cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    return allocate(out, bytes);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    memset(p, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    return once(stream, [=] { memset(p, value, bytes); });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream)
{
    return once(stream, [=] { memcpy(to, from, bytes); });
}

cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes,
                                cudaStream_t stream)
{
    return once(stream, [=] { memcpy(to, from, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    locked l;

    *out = new CUstream_st();
    streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    locked l;

    while (!stream->work.empty()) {
        let_go_on();
    }
    return cudaSuccess;
}

/* As long as the work in the stream needs it, each call lets it get on. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    locked l;

    if (!stream->work.empty()) {
        let_go_on();
    }
    return stream->work.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    for (size_t i = 0; i < streams.size(); i++) {
        (void)cudaStreamSynchronize(streams[i]);
    }
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    *out = new CUevent_st();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    {
        locked l;

        event->recorded++;
    }
    return once(stream, [=] { event->done++; });
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    locked l;

    return event->done == event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *, const cudaLaunchConfig_t *)
{
    *clusters = sms() / 2;
    return cudaSuccess;
}

static CUresult encode(CUtensorMap *map, CUtensorMapDataType, cuuint32_t rank, void *base,
                       const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                       const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    emulated_map m = {base, dims[0], dims[1], strides[0], box[1]};

    if (rank != 2 || swizzle != CU_TENSOR_MAP_SWIZZLE_128B || box[0] != 64 || box[1] > 256 ||
        (uintptr_t)base % 16 != 0 || strides[0] % 16 != 0 || dims[0] == 0 || dims[1] == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    static_assert(sizeof(m) <= sizeof(*map), "a tensor map");
    memcpy(map, &m, sizeof(m));
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *status)
{
    if (strcmp(name, "cuTensorMapEncodeTiled") != 0) {
        return cudaErrorSymbolNotFound;
    }
    *status = cudaDriverEntryPointSuccess;
    *function = (void *)encode;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                void **arguments)
{
    typedef void (*kernel_fn)(const gemmar_fused_params);
    uint32_t ctas = config->gridDim.x, threads = config->blockDim.x;
    emulated_grid *grid = NULL;
    std::shared_ptr<gemmar_fused_params> p =
        std::make_shared<gemmar_fused_params>(*(const gemmar_fused_params *)arguments[0]);

    if (config->dynamicSmemBytes > EMULATED_SHARED_BYTES - 1024 || ctas % 2 != 0 ||
        (int)ctas > sms()) {
        return cudaErrorCooperativeLaunchTooLarge;
    }
    emulated_enqueue(config->stream, [=]() mutable {
        if (grid == NULL) {
            grid = emulated_start([=] { ((kernel_fn)kernel)(*p); }, ctas, threads);
        }
        return emulated_ended(grid);
    });
    return cudaSuccess;
}
}
