// SPDX-License-Identifier: Apache-2.0
// Calls on a GPU: checks, order between streams, launch. Nothing here waits but gemmar_gpu_settle.
#include "kernels/gpu.h"

#include "kernels/dtype.h"
#include "kernels/fused_sm90.h"
#include "kernels/strides.h"
#include "transport/wait.h"

#define LAST_SPECIAL_STREAM ((uintptr_t)2) /* NULL, cudaStreamLegacy, cudaStreamPerThread */
#define SETTLE_TIMES        2              /* a kernel gives up first, then the host on it */

static gemmarResult_t failed(cudaError_t rc, const char *what, struct gemmar_error *error)
{
    return gemmar_error_set(error, gemmarUnhandledCudaError, "%s: %s", what,
                            cudaGetErrorString(rc));
}

/* Four pointers a call cost 1 us to ask about, so those of earlier calls are remembered by value.
 */
static gemmarResult_t check_pointer(struct gemmar_gpu *gpu, const char *name, const void *pointer,
                                    struct gemmar_error *error)
{
    uint64_t hash = (uint64_t)(uintptr_t)pointer * UINT64_C(0x9E3779B97F4A7C15);
    const void **seen = &gpu->seen[hash >> 58];
    struct cudaPointerAttributes a;
    cudaError_t rc;

    if (*seen == pointer) {
        return gemmarSuccess;
    }
    rc = cudaPointerGetAttributes(&a, pointer);
    if (rc != cudaSuccess) {
        return failed(rc, name, error);
    }
    if (a.type != cudaMemoryTypeDevice && a.type != cudaMemoryTypeManaged) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "%s (%p) is host memory: the communicator's calls run on GPU %d",
                                name, pointer, gpu->device);
    }
    if (a.type == cudaMemoryTypeDevice && a.device != gpu->device) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "%s (%p) is memory of GPU %d, the communicator's is GPU %d", name,
                                pointer, a.device, gpu->device);
    }
    *seen = pointer;
    return gemmarSuccess;
}

/* The state of the stream's capture, and its number. */
static cudaError_t capture_of(cudaStream_t stream, enum cudaStreamCaptureStatus *out_status,
                              unsigned long long *out_id)
{
    *out_status = cudaStreamCaptureStatusNone;
    *out_id = 0;
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, out_status, out_id, NULL, NULL, NULL, NULL);
#else
    return cudaStreamGetCaptureInfo(stream, out_status, out_id, NULL, NULL, NULL);
#endif
}

static gemmarResult_t check_stream(struct gemmar_gpu *gpu, cudaStream_t stream,
                                   struct gemmar_error *error)
{
    enum cudaStreamCaptureStatus status;
    unsigned long long id;
    int device = gpu->device;
    cudaError_t rc = capture_of(stream, &status, &id);

    gpu->order.now = status == cudaStreamCaptureStatusActive ? id : 0;
    /* In capture nobody may ask; there a stream of another device is refused by the launch. */
    if (rc == cudaSuccess && status == cudaStreamCaptureStatusNone &&
        (uintptr_t)stream > LAST_SPECIAL_STREAM && stream != gpu->seen_stream) {
        rc = cudaStreamGetDevice(stream, &device);
        gpu->seen_stream = rc == cudaSuccess && device == gpu->device ? stream : NULL;
    }
    if (rc != cudaSuccess) {
        return failed(rc, "stream", error);
    }
    if (device != gpu->device) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "stream is of GPU %d, the communicator's is GPU %d", device,
                                gpu->device);
    }
    if (status == cudaStreamCaptureStatusInvalidated) {
        return gemmar_error_set(error, gemmarInvalidUsage, "the stream's capture is invalidated");
    }
    return gemmarSuccess;
}

gemmarResult_t gemmar_gpu_check(struct gemmarComm *comm, const gemmarFusedArgs_t *args,
                                gemmarStream_t stream, struct gemmar_error *error)
{
    struct gemmar_gpu *gpu = comm->gpu;
    bool out = args->M > 0 && args->N > 0;
    const struct {
        const char *name;
        const void *pointer;
    } operands[] = {
        {"A", out && args->K > 0 ? args->A : NULL},
        {"B", out && args->K > 0 ? args->B : NULL},
        {"C", out ? args->C : NULL},
        {"bias", out ? args->bias : NULL},
    };
    gemmarResult_t result = gemmarSuccess;
    int before;

    if (args->datatype == gemmarFloat32) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "datatype 7 (fp32): GPUs take fp16 (6) and bf16 (9)");
    }
    if (args->M > INT32_MAX || args->N > INT32_MAX || args->K > INT32_MAX) { /* TMA's coordinates */
        return gemmar_error_set(
            error, gemmarInvalidArgument, "M %lld N %lld K %lld: GPUs take at most %d each",
            (long long)args->M, (long long)args->N, (long long)args->K, INT32_MAX);
    }
    if (gemmar_strides_check(args, error) != gemmarSuccess) {
        return error->result;
    }
    before = gemmar_gpu_enter(gpu->device);
    result = check_stream(gpu, stream, error);
    for (size_t i = 0; result == gemmarSuccess && i < sizeof(operands) / sizeof(operands[0]); i++) {
        if (operands[i].pointer != NULL) {
            result = check_pointer(gpu, operands[i].name, operands[i].pointer, error);
        }
    }
    gemmar_gpu_leave(gpu->device, before);
    return result;
}

bool gemmar_gpu_capturing(struct gemmarComm *comm, gemmarStream_t stream)
{
    (void)stream; /* the one that was just checked */
    return comm->gpu->order.now != 0;
}

/* Behind the last call; on its own stream that costs next to nothing, and a stream's handle may
 * come again for another stream. A capture knows only its own calls: what ran before it, and other
 * graphs, are the caller's to order. */
static cudaError_t order_before(struct gemmar_gpu_order *order, cudaStream_t stream,
                                unsigned long long capture)
{
    if (capture != 0) {
        return order->capture == capture ? cudaStreamWaitEvent(stream, order->captured, 0)
                                         : cudaSuccess;
    }
    return order->any ? cudaStreamWaitEvent(stream, order->last, 0) : cudaSuccess;
}

static cudaError_t order_after(struct gemmar_gpu_order *order, cudaStream_t stream,
                               unsigned long long capture)
{
    cudaError_t rc = cudaEventRecord(capture != 0 ? order->captured : order->last, stream);

    if (rc != cudaSuccess) {
        return rc;
    }
    if (capture != 0) {
        order->capture = capture;
    } else {
        order->any = true;
    }
    return cudaSuccess;
}

/* Everything that the kernel is told. All pointers are the GPU's. */
static void fill_call(struct gemmarComm *comm, const struct gemmar_plan *plan,
                      const struct gemmar_operands *operands, struct gemmar_target *targets,
                      struct gemmar_call *call)
{
    struct gemmar_gpu *gpu = comm->gpu;
    struct gemmar_told_c c;
    enum gemmar_copies copies = gemmar_gpu_targets(comm, &plan->map, operands, targets, &c);

    gemmar_launch_fill_tensor(comm, plan, operands, gpu->most_ctas, &c, call);
    call->copies = copies;
    call->rank_of = gpu->rank_of;
    call->watch.abort_word = &gpu->mapped->comm.abort;
    call->watch.trouble = &gpu->mapped->trouble;
}

static cudaError_t start(struct gemmarComm *comm, const struct gemmar_plan *plan,
                         const struct gemmar_operands *operands, cudaStream_t stream)
{
    struct gemmar_target targets[GEMMAR_MAX_LOCAL_RANKS];
    struct gemmar_operands o = *operands;
    struct gemmar_gpu_packed packed = {NULL, NULL};
    struct gemmar_call call;
    cudaError_t rc, freed;

    gemmar_strides_of_one_row(&o, plan->map.m, plan->map.n, plan->map.element_bytes);
    rc = gemmar_gpu_pack(comm->gpu, &plan->map, &o, &packed, stream);
    if (rc == cudaSuccess) {
        fill_call(comm, plan, &o, targets, &call);
        rc = gemmar_sm90_launch(&call, targets, gemmar_gpu_trace_call(comm->gpu, &call, stream),
                                GEMMAR_GPU_TRACE_ITEMS, stream);
    }
    freed = gemmar_gpu_free_packed(&packed, stream);
    return rc == cudaSuccess ? freed : rc;
}

/* The other ranks are in the call, or will be: a call that cannot start breaks the communicator. In
 * capture nothing has begun. */
static gemmarResult_t cannot_start(struct gemmarComm *comm, cudaError_t rc, bool captured)
{
    const char *why = rc == cudaErrorCooperativeLaunchTooLarge
                          ? "its thread blocks do not fit on the GPU all at once (GEMMAR_CTAS)"
                          : cudaGetErrorString(rc);

    return captured
               ? gemmar_comm_refuse(comm, gemmarUnhandledCudaError,
                                    "the call could not be captured: %s", why)
               : gemmar_comm_break(comm, gemmarUnhandledCudaError,
                                   "rank %u: the call could not start: %s", comm->place.rank, why);
}

gemmarResult_t gemmar_gpu_run(struct gemmarComm *comm, const struct gemmar_plan *plan,
                              const struct gemmar_operands *operands, gemmarStream_t stream)
{
    struct gemmar_gpu *gpu = comm->gpu;
    int before = gemmar_gpu_enter(gpu->device);
    unsigned long long capture = gpu->order.now;
    cudaError_t rc = order_before(&gpu->order, stream, capture);

    if (rc == cudaSuccess) {
        rc = start(comm, plan, operands, stream);
    }
    if (rc == cudaSuccess) {
        gpu->calls += capture == 0; /* a capture may be given up or made again on one rank */
        rc = order_after(&gpu->order, stream, capture);
    }
    gemmar_gpu_leave(gpu->device, before);
    return rc == cudaSuccess ? gemmarSuccess : cannot_start(comm, rc, capture != 0);
}

gemmarResult_t gemmar_gpu_settle(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_gpu_order *order = &comm->gpu->order;
    uint64_t timeout = comm->settings.timeout_ns;
    int before = gemmar_gpu_enter(comm->gpu->device);
    cudaError_t rc = cudaSuccess;
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, timeout > UINT64_MAX / SETTLE_TIMES ? timeout : SETTLE_TIMES * timeout);
    do {
        rc = order->any ? cudaEventQuery(order->last) : cudaSuccess;
    } while (rc == cudaErrorNotReady && gemmar_wait_step(&wait));
    gemmar_gpu_leave(comm->gpu->device, before);
    if (rc == cudaErrorNotReady) {
        return gemmar_error_set(error, gemmarRemoteError,
                                "the calls made so far have not ended in %.3f s",
                                (double)timeout * SETTLE_TIMES * 1e-9);
    }
    return rc == cudaSuccess ? gemmarSuccess : failed(rc, "the calls made so far", error);
}
