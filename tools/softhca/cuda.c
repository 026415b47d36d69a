// SPDX-License-Identifier: Apache-2.0
// Finds CUDA memory, shows it to other processes, and moves it through pinned staging memory.
#include "tools/softhca/cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tools/softhca/config.h"
#include "tools/softhca/cuda_driver.h"
#include "tools/softhca/cuda_gpu.h"
#include "tools/softhca/fabric.h"
#include "tools/softhca/sync.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct softhca_gpu *gpus; // grows under lock; entries live as long as the process
static _Thread_local int stays;  // this thread is ours: a context may stay current in it
static _Thread_local const struct softhca_gpu *current; // in a thread that is ours

int softhca_cuda_fail(const struct softhca_cuda_driver *cu, const char *what, int error)
{
    const char *text = NULL;
    (void)cu->error_string(error, &text); // text stays NULL for an unknown number
    softhca_log("softhca: cuda: %s: %s (%d)", what, text ? text : "unknown error", error);
    return -EIO;
}

int softhca_cuda_enter(const struct softhca_gpu *gpu)
{
    static _Thread_local int relaxed;
    if (!relaxed) { // a capture of the program in another thread must not forbid our copies
        int mode = SOFTHCA_CUDA_CAPTURE_RELAXED;
        (void)gpu->cu->capture_mode(&mode); // fails for no valid mode
        relaxed = 1;
    }
    if (current == gpu) {
        return 0;
    }
    void *before;
    if (current) {
        (void)gpu->cu->pop(&before); // the one that stayed
        current = NULL;
    }
    int error = gpu->cu->push(gpu->context);
    current = error || !stays ? NULL : gpu;
    return error ? softhca_cuda_fail(gpu->cu, "cannot enter the context", error) : 0;
}

void softhca_cuda_leave(const struct softhca_gpu *gpu)
{
    void *context;
    if (!stays) {
        (void)gpu->cu->pop(&context); // what enter pushed
    }
}

void softhca_cuda_stay(void)
{
    stays = 1;
}

// In the context: the number of its GPU in all processes.
static int device_of(const struct softhca_cuda_driver *cu, uint64_t *out)
{
    uint8_t uuid[16] = {0};
    uint64_t halves[2];
    int device = 0, error = cu->device(&device);
    error = error ? error : cu->uuid(uuid, device);
    memcpy(halves, uuid, sizeof halves);
    *out = halves[0] ^ halves[1] * 31;
    return error;
}

// Streams of one priority share a few queues of the device. Behind a kernel of the program's that
// is queued until another one ends, which in turn waits for a message, ours would wait for ever.
static int make_stream(struct softhca_gpu *gpu, void **out)
{
    return gpu->cu->stream_create(out, SOFTHCA_CUDA_STREAM_NON_BLOCKING, SOFTHCA_CUDA_FIRST);
}

static int make_resources(struct softhca_gpu *gpu)
{
    int mode = SOFTHCA_CUDA_CAPTURE_RELAXED;
    (void)gpu->cu->capture_mode(&mode); // the caller's thread gets its own mode back below
    int error = gpu->cu->push(gpu->context);
    if (error) {
        (void)gpu->cu->capture_mode(&mode);
        return softhca_cuda_fail(gpu->cu, "cannot enter the context", error);
    }
    void *stage = NULL, *ring = NULL;
    error = device_of(gpu->cu, &gpu->device);
    error = error ? error : make_stream(gpu, &gpu->stream);
    error = error ? error : make_stream(gpu, &gpu->pulls);
    error = error ? error : make_stream(gpu, &gpu->words);
    for (uint32_t i = 0; i < SOFTHCA_CUDA_MARKS && !error; i++) {
        error = gpu->cu->event_create(&gpu->events[i], SOFTHCA_CUDA_EVENT_NO_TIMING);
    }
    if (!error) {
        error = gpu->cu->host_alloc(&stage, SOFTHCA_CUDA_BYTES, SOFTHCA_CUDA_HOST_PORTABLE);
    }
    if (!error) {
        error = gpu->cu->host_alloc(&ring, SOFTHCA_CUDA_RING + SOFTHCA_CUDA_BOUNCE + 64,
                                    SOFTHCA_CUDA_HOST_PORTABLE);
    }
    gpu->stage = stage;
    gpu->ring = ring;
    gpu->batch = gpu->flush = 1;
    gpu->first_word = gpu->due_ns = UINT64_MAX;
    if (ring) {
        gpu->bounce = gpu->ring + SOFTHCA_CUDA_RING;
        gpu->done = (uint64_t *)(void *)(gpu->bounce + SOFTHCA_CUDA_BOUNCE);
        *gpu->done = 0;
    }
    softhca_cuda_leave(gpu);
    (void)gpu->cu->capture_mode(&mode);
    return error ? softhca_cuda_fail(gpu->cu, "cannot make a stream and staging memory", error) : 0;
}

// Under lock.
static struct softhca_gpu *gpu_of(const struct softhca_cuda_driver *cu, void *context)
{
    for (struct softhca_gpu *g = gpus; g; g = g->next) {
        if (g->context == context) {
            return g;
        }
    }
    struct softhca_gpu *g = calloc(1, sizeof *g);
    if (!g) {
        return NULL;
    }
    g->cu = cu;
    g->context = context;
    if (make_resources(g)) {
        free(g);
        return NULL;
    }
    g->next = gpus;
    SOFTHCA_STORE_RELEASE(&gpus, g); // the progress thread walks the list without the lock
    return g;
}

static int is_device(const struct softhca_cuda_driver *cu, uint64_t addr)
{
    unsigned type = 0, managed = 0;
    return !cu->pointer_attribute(&type, SOFTHCA_CUDA_POINTER_MEMORY_TYPE, addr) &&
           type == SOFTHCA_CUDA_MEMORY_DEVICE &&
           !(cu->pointer_attribute(&managed, SOFTHCA_CUDA_POINTER_IS_MANAGED, addr) == 0 &&
             managed); // managed memory is reached through its host address
}

// The context that an address belongs to. Memory made by cuMemCreate belongs to none: there it is
// the one of the runtime.
static int context_of(const struct softhca_cuda_driver *cu, uint64_t addr, void **out_context)
{
    void *context = NULL;
    int device = 0;
    if (cu->pointer_attribute(&context, SOFTHCA_CUDA_POINTER_CONTEXT, addr) || !context) {
        int error = cu->pointer_attribute(&device, SOFTHCA_CUDA_POINTER_DEVICE, addr);
        error = error ? error : cu->retain_context(&context, device);
        if (error) {
            return softhca_cuda_fail(cu, "cannot find the context of a registered address", error);
        }
    }
    *out_context = context;
    return 0;
}

int softhca_cuda_find(const void *addr, size_t len, struct softhca_gpu **out_gpu)
{
    const struct softhca_cuda_driver *cu = softhca_cuda_driver();
    uint64_t first = (uintptr_t)addr;
    if (!cu || !len || !is_device(cu, first)) {
        return 0;
    }
    if (!is_device(cu, first + len - 1)) {
        softhca_log("softhca: cuda: %p is device memory, but not all of the %zu bytes from there",
                    addr, len);
        return -EFAULT;
    }
    void *context;
    int err = context_of(cu, first, &context);
    if (err) {
        return err;
    }
    (void)pthread_mutex_lock(&lock);
    struct softhca_gpu *gpu = gpu_of(cu, context);
    (void)pthread_mutex_unlock(&lock);
    if (!gpu) {
        return -ENOMEM;
    }
    *out_gpu = gpu;
    return 1;
}

static int copy(struct softhca_gpu *gpu, const void *to, const void *from, uint64_t len)
{
    int err = softhca_cuda_enter(gpu);
    if (err) {
        return err;
    }
    int error = gpu->cu->copy((uintptr_t)to, (uintptr_t)from, len, gpu->stream);
    error = error ? error : gpu->cu->stream_wait(gpu->stream);
    softhca_cuda_leave(gpu);
    return error ? softhca_cuda_fail(gpu->cu, "a copy failed", error) : 0;
}

int softhca_cuda_write(struct softhca_gpu *gpu, void *to, const void *from, uint64_t len)
{
    memcpy(gpu->stage, from, len);
    return copy(gpu, to, gpu->stage, len);
}

int softhca_cuda_read(struct softhca_gpu *gpu, void *to, const void *from, uint64_t len)
{
    int err = copy(gpu, gpu->stage, from, len);
    if (!err) {
        memcpy(to, gpu->stage, len);
    }
    return err;
}

int softhca_cuda_export(struct softhca_gpu *gpu, const void *addr, struct softhca_export *out,
                        uint64_t *out_id, int *out_fd)
{
    struct softhca_cuda_ipc handle;
    size_t bytes = 0;
    *out_fd = -1;
    int err = softhca_cuda_enter(gpu);
    if (err) {
        return err;
    }
    int error = device_of(gpu->cu, &out->device);
    error = error ? error : gpu->cu->range(&out->base, &bytes, (uintptr_t)addr);
    error =
        error ? error
              : gpu->cu->pointer_attribute(out_id, SOFTHCA_CUDA_POINTER_BUFFER_ID, (uintptr_t)addr);
    out->kind = SOFTHCA_EXPORT_IPC;
    if (gpu->cu->ipc_get(&handle, (uintptr_t)addr)) { // memory of cuMemCreate has no number
        out->kind = SOFTHCA_EXPORT_DESCRIPTOR;
        *out_id = out->base;
        *out_fd = out->base ? softhca_cuda_describe(gpu, addr) : -1;
        error = *out_fd < 0;
    }
    softhca_cuda_leave(gpu);
    if (error) {
        return -EIO; // it goes through staging memory
    }
    out->bytes = bytes;
    if (out->kind == SOFTHCA_EXPORT_IPC) {
        memcpy(out->handle, handle.bytes, sizeof out->handle);
    }
    return 0;
}

struct softhca_gpu *softhca_cuda_gpus(void)
{
    return SOFTHCA_LOAD_ACQUIRE(&gpus);
}

int softhca_cuda_any(void)
{
    return softhca_cuda_gpus() != NULL;
}

static struct softhca_gpu *first_gpu(void)
{
    struct softhca_gpu *gpu = softhca_cuda_gpus();
    while (gpu && gpu->next) {
        gpu = gpu->next;
    }
    return gpu;
}

uint64_t softhca_cuda_import(const struct softhca_export *x, int fd)
{
    struct softhca_gpu *gpu = first_gpu();
    struct softhca_cuda_ipc handle;
    uint64_t addr = 0;
    if (!gpu || softhca_cuda_enter(gpu)) {
        return 0;
    }
    if (x->kind == SOFTHCA_EXPORT_DESCRIPTOR) {
        addr = softhca_cuda_map(gpu, fd, x->bytes);
    } else {
        memcpy(handle.bytes, x->handle, sizeof handle.bytes);
        addr = gpu->cu->ipc_open(&addr, handle, SOFTHCA_CUDA_IPC_PEER_ACCESS) ? 0 : addr;
    }
    softhca_cuda_leave(gpu);
    return addr;
}

void softhca_cuda_drop(uint64_t addr, uint64_t bytes, uint32_t kind)
{
    struct softhca_gpu *gpu = first_gpu();
    if (!gpu || softhca_cuda_enter(gpu)) {
        return;
    }
    if (kind == SOFTHCA_EXPORT_DESCRIPTOR) {
        softhca_cuda_unmap(gpu, addr, bytes);
    } else {
        (void)gpu->cu->ipc_close(addr); // its process may have ended
    }
    softhca_cuda_leave(gpu);
}

int softhca_cuda_fetch(void *to, uint64_t from, uint64_t len)
{
    struct softhca_gpu *gpu = first_gpu();
    int err = gpu ? 0 : -EIO;
    for (uint64_t done = 0; done < len && !err;) {
        uint64_t part = len - done < SOFTHCA_CUDA_BYTES ? len - done : SOFTHCA_CUDA_BYTES;
        err = copy(gpu, gpu->stage, (void *)(uintptr_t)(from + done), part);
        if (!err) {
            softhca_dma_write((uint8_t *)to + done, gpu->stage, part);
        }
        done += part;
    }
    return err;
}

int softhca_place_write(const struct softhca_place *to, const void *from, uint64_t len)
{
    if (to->gpu && len) {
        return softhca_cuda_write(to->gpu, to->at, from, len);
    }
    softhca_dma_write(to->at, from, len);
    return 0;
}

int softhca_place_read(void *to, const struct softhca_place *from, uint64_t len)
{
    if (from->gpu && len) {
        return softhca_cuda_read(from->gpu, to, from->at, len);
    }
    softhca_dma_read(to, from->at, len);
    return 0;
}
