// SPDX-License-Identifier: Apache-2.0
// The few calls of the CUDA driver that softhca needs, restated so that it builds without CUDA.
#ifndef GEMMAR_SOFTHCA_CUDA_DRIVER_H
#define GEMMAR_SOFTHCA_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum { // CUresult
    SOFTHCA_CUDA_SUCCESS = 0,
    SOFTHCA_CUDA_NOT_READY = 600
};
enum { // CUpointer_attribute and CUmemorytype
    SOFTHCA_CUDA_POINTER_CONTEXT = 1,
    SOFTHCA_CUDA_POINTER_MEMORY_TYPE = 2,
    SOFTHCA_CUDA_POINTER_BUFFER_ID = 7,
    SOFTHCA_CUDA_POINTER_IS_MANAGED = 8,
    SOFTHCA_CUDA_POINTER_DEVICE = 9,
    SOFTHCA_CUDA_MEMORY_DEVICE = 2
};
enum { // CUstream_flags, CUevent_flags, CUmemhostalloc_flags, CUipcMem_flags, CUstreamCaptureMode
    SOFTHCA_CUDA_STREAM_NON_BLOCKING = 1,
    SOFTHCA_CUDA_FIRST = -100, // priority of a stream: the driver takes the nearest that it has
    SOFTHCA_CUDA_EVENT_NO_TIMING = 2,
    SOFTHCA_CUDA_HOST_PORTABLE = 1,
    SOFTHCA_CUDA_IPC_PEER_ACCESS = 1,
    SOFTHCA_CUDA_CAPTURE_RELAXED = 2
};

enum { // CUmemAllocationHandleType, CUmemLocationType, CUmemAccess_flags
    SOFTHCA_CUDA_HANDLE_DESCRIPTOR = 1,
    SOFTHCA_CUDA_LOCATION_DEVICE = 1,
    SOFTHCA_CUDA_READ_WRITE = 3
};

struct softhca_cuda_access { // CUmemAccessDesc
    int kind, device, flags;
};

enum { // CUstreamBatchMemOpType
    SOFTHCA_CUDA_WRITE_32 = 2,
    SOFTHCA_CUDA_WRITE_64 = 5
};

struct softhca_cuda_word { // CUstreamBatchMemOpParams of a write
    int operation;
    uint64_t addr, value;
    unsigned flags; // 0: what the stream did before is seen first
    uint64_t reserved[2];
};

struct softhca_cuda_ipc { // CUipcMemHandle
    uint8_t bytes[64];
};

// CUmemcpyAttributes, whose locations are hints that stay 0.
struct softhca_cuda_copy_attributes {
    int source_order; // 1: in the order of the stream
    int source_hint[2], destination_hint[2];
    unsigned flags; // 1: by a copy engine, while kernels fill the GPU
};

// CALL(field, symbol in libcuda.so.1, arguments). Pointers on the device are 64-bit numbers.
#define SOFTHCA_CUDA_CALLS(CALL)                                                                   \
    CALL(pointer_attribute, cuPointerGetAttribute, (void *out, int attribute, uint64_t addr))      \
    CALL(retain_context, cuDevicePrimaryCtxRetain, (void **out, int device))                       \
    CALL(device, cuCtxGetDevice, (int *out))                                                       \
    CALL(uuid, cuDeviceGetUuid_v2, (uint8_t out[16], int device))                                  \
    CALL(push, cuCtxPushCurrent_v2, (void *context))                                               \
    CALL(pop, cuCtxPopCurrent_v2, (void **out))                                                    \
    CALL(stream_create, cuStreamCreateWithPriority, (void **out, unsigned flags, int priority))    \
    CALL(stream_wait, cuStreamSynchronize, (void *stream))                                         \
    CALL(copy, cuMemcpyAsync, (uint64_t to, uint64_t from, size_t len, void *stream))              \
    CALL(event_create, cuEventCreate, (void **out, unsigned flags))                                \
    CALL(event_record, cuEventRecord, (void *event, void *stream))                                 \
    CALL(event_query, cuEventQuery, (void *event))                                                 \
    CALL(wait_event, cuStreamWaitEvent, (void *stream, void *event, unsigned flags))               \
    CALL(write_words, cuStreamBatchMemOp_v2,                                                       \
         (void *stream, unsigned count, struct softhca_cuda_word *words, unsigned flags))          \
    CALL(range, cuMemGetAddressRange_v2, (uint64_t * out_addr, size_t * out_len, uint64_t addr))   \
    CALL(ipc_get, cuIpcGetMemHandle, (struct softhca_cuda_ipc * out, uint64_t addr))               \
    CALL(ipc_open, cuIpcOpenMemHandle_v2,                                                          \
         (uint64_t * out, struct softhca_cuda_ipc handle, unsigned flags))                         \
    CALL(ipc_close, cuIpcCloseMemHandle, (uint64_t addr))                                          \
    CALL(host_alloc, cuMemHostAlloc, (void **out, size_t len, unsigned flags))                     \
    CALL(capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))                             \
    CALL(error_string, cuGetErrorString, (int error, const char **out))

// The same for memory of cuMemCreate; without one of them it is staged.
#define SOFTHCA_CUDA_VMM_CALLS(CALL)                                                               \
    CALL(retain, cuMemRetainAllocationHandle, (uint64_t * out, const void *addr))                  \
    CALL(release, cuMemRelease, (uint64_t allocation))                                             \
    CALL(describe, cuMemExportToShareableHandle,                                                   \
         (void *out, uint64_t allocation, int kind, unsigned long long flags))                     \
    CALL(import, cuMemImportFromShareableHandle, (uint64_t * out, void *handle, int kind))         \
    CALL(reserve, cuMemAddressReserve,                                                             \
         (uint64_t * out, size_t len, size_t align, uint64_t at, unsigned long long flags))        \
    CALL(unreserve, cuMemAddressFree, (uint64_t addr, size_t len))                                 \
    CALL(                                                                                          \
        map, cuMemMap,                                                                             \
        (uint64_t addr, size_t len, size_t offset, uint64_t allocation, unsigned long long flags)) \
    CALL(unmap, cuMemUnmap, (uint64_t addr, size_t len))                                           \
    CALL(set_access, cuMemSetAccess,                                                               \
         (uint64_t addr, size_t len, const struct softhca_cuda_access *access, size_t count))

struct softhca_cuda_driver {
#define FIELD(field, symbol, arguments) int(*field) arguments;
    SOFTHCA_CUDA_CALLS(FIELD)
#undef FIELD
    struct {
#define FIELD(field, symbol, arguments) int(*field) arguments;
        SOFTHCA_CUDA_VMM_CALLS(FIELD)
#undef FIELD
    } vmm; // all of them or, all NULL, none
    // since CUDA 13; may be NULL
    int (*copy_batch)(uint64_t *to, uint64_t *from, size_t *len, size_t count,
                      struct softhca_cuda_copy_attributes *attributes, size_t *first, size_t kinds,
                      void *stream);
};

// Any thread. NULL while the program has not loaded libcuda.so.1, or when a call is missing.
const struct softhca_cuda_driver *softhca_cuda_driver(void);

#endif
