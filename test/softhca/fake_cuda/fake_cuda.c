// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 without a GPU: "device memory" lies where the program cannot touch it, and is
// reached through a second mapping by the copies only. Each stream is a thread, so that a copy is
// over some time after it was asked for. What a test of softhca calls, and what softhca calls.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORT        __attribute__((visibility("default")))
#define MAX_BLOCKS    256
#define INVALID       1
#define OUT_OF_MEMORY 2
#define LOST          700 // what a device says after a fault
#define NOT_READY     600

struct block { // an allocation: addr..addr+bytes, at alias for the copies
    uint64_t addr, bytes;
    uint8_t *alias;
    int fd; // -1: of another process
    int is_vmm;
    uint64_t id;
};

struct allocation { // of cuMemCreate
    int fd;
    uint64_t bytes;
};

struct job { // a copy, a word to write, or an event to wait for
    struct job *next;
    uint64_t to, from, bytes;
    int is_word;
    uint64_t value;
    struct stream *event_stream;
    uint64_t event_after;
};

struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *first, *last;
    uint64_t asked, done; // jobs
};

struct event {
    struct stream *stream;
    uint64_t after; // jobs of the stream that were asked for before it
};

struct ipc { // 64 bytes, as the driver's
    uint64_t bytes;
    char path[56];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[MAX_BLOCKS]; // under lock
static uint64_t next_id = 1;            // under lock
static unsigned delay_us;               // of each copy; relaxed
static unsigned fail_in;                // the n-th copy from now fails; 0 none; relaxed
static uint64_t copies;                 // asked for so far; relaxed
static int all_differ;                  // each question for a UUID has another answer; relaxed
static int context_mark;                // its address is the only context

// For tests: found by dlsym, because the real driver has none of them.
EXPORT void fake_cuda_delay(unsigned us);
EXPORT void fake_cuda_fail(unsigned nth);
EXPORT uint64_t fake_cuda_copies(void);
EXPORT int fake_cuda_descriptor(uint64_t addr);
EXPORT void fake_cuda_far(int is_far);

EXPORT void fake_cuda_delay(unsigned us)
{
    __atomic_store_n(&delay_us, us, __ATOMIC_RELAXED);
}

EXPORT void fake_cuda_fail(unsigned nth)
{
    __atomic_store_n(&fail_in, nth, __ATOMIC_RELAXED);
}

EXPORT void fake_cuda_far(int is_far)
{
    __atomic_store_n(&all_differ, is_far, __ATOMIC_RELAXED);
}

EXPORT uint64_t fake_cuda_copies(void)
{
    return __atomic_load_n(&copies, __ATOMIC_RELAXED);
}

// The block of an address, or NULL: then it is host memory. Under lock.
static struct block *block_of(uint64_t addr)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (blocks[i].alias && addr - blocks[i].addr < blocks[i].bytes) {
            return &blocks[i];
        }
    }
    return NULL;
}

EXPORT int fake_cuda_descriptor(uint64_t addr)
{
    (void)pthread_mutex_lock(&lock);
    const struct block *b = block_of(addr);
    int fd = b ? fcntl(b->fd, F_DUPFD_CLOEXEC, 0) : -1;
    (void)pthread_mutex_unlock(&lock);
    return fd;
}

static void *reserve(uint64_t bytes)
{
    return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static int add_block_at(void *addr, int fd, uint64_t bytes, int keep_fd, int is_vmm)
{
    void *alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (addr == MAP_FAILED || alias == MAP_FAILED) {
        return OUT_OF_MEMORY;
    }
    int error = OUT_OF_MEMORY;
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_BLOCKS && error; i++) {
        if (!blocks[i].alias) {
            blocks[i] = (struct block){.addr = (uintptr_t)addr,
                                       .bytes = bytes,
                                       .alias = alias,
                                       .fd = keep_fd ? fd : -1,
                                       .is_vmm = is_vmm,
                                       .id = next_id++};
            error = 0;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return error;
}

static int add_block(int fd, uint64_t bytes, int keep_fd, uint64_t *out_addr)
{
    void *addr = reserve(bytes);
    *out_addr = (uintptr_t)addr;
    return add_block_at(addr, fd, bytes, keep_fd, 0);
}

static int remove_block(uint64_t addr)
{
    (void)pthread_mutex_lock(&lock);
    struct block *b = block_of(addr);
    int error = b && b->addr == addr ? 0 : INVALID;
    if (!error) {
        if (!b->is_vmm) { // else its addresses stay reserved
            (void)munmap((void *)(uintptr_t)b->addr, b->bytes);
        }
        (void)munmap(b->alias, b->bytes);
        if (b->fd >= 0) {
            (void)close(b->fd);
        }
        memset(b, 0, sizeof *b);
    }
    (void)pthread_mutex_unlock(&lock);
    return error;
}

// Where a copy finds an address, or NULL when the block ends too early.
static uint8_t *at(uint64_t addr, uint64_t bytes)
{
    (void)pthread_mutex_lock(&lock);
    const struct block *b = block_of(addr);
    uint8_t *p = !b                                   ? (uint8_t *)(uintptr_t)addr
                 : addr - b->addr + bytes <= b->bytes ? b->alias + (addr - b->addr)
                                                      : NULL;
    (void)pthread_mutex_unlock(&lock);
    return p;
}

static int copy_now(uint64_t to, uint64_t from, uint64_t bytes)
{
    uint8_t *d = at(to, bytes);
    const uint8_t *s = at(from, bytes);
    if (!d || !s) {
        return INVALID;
    }
    if (bytes == 8 && (((uintptr_t)d | (uintptr_t)s) & 7) == 0) { // a program may look for it
        __atomic_store_n((uint64_t *)(void *)d,
                         __atomic_load_n((const uint64_t *)(const void *)s, __ATOMIC_ACQUIRE),
                         __ATOMIC_RELEASE);
    } else {
        memcpy(d, s, bytes);
    }
    return 0;
}

static void wait_for(struct stream *s, uint64_t jobs);

static void run_job(const struct job *j)
{
    if (j->event_stream) {
        wait_for(j->event_stream, j->event_after);
    } else if (j->is_word) {
        uint8_t *to = at(j->to, j->bytes); // was checked when asked for
        if (j->bytes == 8) {
            __atomic_store_n((uint64_t *)(void *)to, j->value, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n((uint32_t *)(void *)to, (uint32_t)j->value, __ATOMIC_RELEASE);
        }
    } else {
        (void)copy_now(j->to, j->from, j->bytes); // as above
    }
}

static void *run_stream(void *arg)
{
    struct stream *s = arg;
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first) {
            (void)pthread_cond_wait(&s->changed, &s->lock);
        }
        struct job *j = s->first;
        (void)pthread_mutex_unlock(&s->lock);
        unsigned us = __atomic_load_n(&delay_us, __ATOMIC_RELAXED);
        struct timespec t = {.tv_nsec = us * 1000l};
        if (us && !j->event_stream && !j->is_word) {
            (void)nanosleep(&t, NULL); // cut short is fine
        }
        run_job(j);
        (void)pthread_mutex_lock(&s->lock);
        s->first = j->next;
        s->last = s->first ? s->last : NULL;
        s->done++;
        (void)pthread_cond_broadcast(&s->changed);
        free(j);
    }
    return NULL;
}

// The driver's interface.
#define API(name, ...)                                                                             \
    EXPORT int name(__VA_ARGS__);                                                                  \
    EXPORT int name(__VA_ARGS__)

API(cuInit, unsigned flags)
{
    return flags ? INVALID : 0;
}

API(cuDeviceGet, int *out, int ordinal)
{
    *out = ordinal;
    return ordinal ? INVALID : 0;
}

API(cuDeviceGetUuid_v2, uint8_t *out, int device)
{
    static int asked; // relaxed
    memset(out, 7, 16);
    if (__atomic_load_n(&all_differ, __ATOMIC_RELAXED)) {
        int n = __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
        memcpy(out, &n, sizeof n);
    }
    return device ? INVALID : 0;
}

API(cuDevicePrimaryCtxRetain, void **out, int device)
{
    *out = &context_mark;
    return device ? INVALID : 0;
}

API(cuCtxPushCurrent_v2, void *context)
{
    return context == &context_mark ? 0 : INVALID;
}

API(cuCtxPopCurrent_v2, void **out)
{
    *out = &context_mark;
    return 0;
}

API(cuCtxSetCurrent, void *context)
{
    return context == &context_mark ? 0 : INVALID;
}

API(cuThreadExchangeStreamCaptureMode, int *mode)
{
    static _Thread_local int current;
    int old = current;
    if (*mode < 0 || *mode > 2) {
        return INVALID;
    }
    current = *mode;
    *mode = old;
    return 0;
}

API(cuGetErrorString, int error, const char **out)
{
    *out = error == LOST ? "pretended fault" : "error of the fake";
    return 0;
}

API(cuMemAlloc_v2, uint64_t *out, size_t bytes)
{
    uint64_t whole = (bytes + 65535) & ~65535ull;
    int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)whole)) {
        return OUT_OF_MEMORY;
    }
    return add_block(fd, whole, 1, out);
}

API(cuMemFree_v2, uint64_t addr)
{
    return remove_block(addr);
}

API(cuMemHostAlloc, void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    *out = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    return *out ? 0 : OUT_OF_MEMORY;
}

API(cuPointerGetAttribute, void *out, int attribute, uint64_t addr)
{
    (void)pthread_mutex_lock(&lock);
    const struct block *b = block_of(addr);
    int error = b ? 0 : INVALID; // memory that the driver does not know
    if (b) {
        switch (attribute) {
        case 1: *(void **)out = &context_mark; break;
        case 2: *(unsigned *)out = 2; break; // device memory
        case 7: *(uint64_t *)out = b->id; break;
        case 8: *(unsigned *)out = 0; break; // not managed
        case 9: *(int *)out = 0; break;
        default: error = INVALID;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return error;
}

API(cuMemGetAddressRange_v2, uint64_t *out_addr, size_t *out_bytes, uint64_t addr)
{
    (void)pthread_mutex_lock(&lock);
    const struct block *b = block_of(addr);
    if (b) {
        *out_addr = b->addr;
        *out_bytes = b->bytes;
    }
    (void)pthread_mutex_unlock(&lock);
    return b ? 0 : INVALID;
}

API(cuMemcpy, uint64_t to, uint64_t from, size_t bytes)
{
    return copy_now(to, from, bytes);
}

// One with the priority of a program's streams could share a queue of the device with them.
API(cuStreamCreateWithPriority, void **out, unsigned flags, int priority)
{
    struct stream *s = priority < 0 ? calloc(1, sizeof *s) : NULL;
    (void)flags;
    if (!s) {
        return priority < 0 ? OUT_OF_MEMORY : INVALID;
    }
    (void)pthread_mutex_init(&s->lock, NULL); // cannot fail without attributes
    (void)pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, run_stream, s)) {
        free(s);
        return OUT_OF_MEMORY;
    }
    *out = s;
    return 0;
}

static void wait_for(struct stream *s, uint64_t jobs)
{
    (void)pthread_mutex_lock(&s->lock);
    while (s->done < jobs) {
        (void)pthread_cond_wait(&s->changed, &s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

API(cuStreamSynchronize, void *stream)
{
    struct stream *s = stream;
    (void)pthread_mutex_lock(&s->lock);
    uint64_t asked = s->asked;
    (void)pthread_mutex_unlock(&s->lock);
    wait_for(s, asked);
    return 0;
}

static int ask(struct stream *s, const struct job *what)
{
    struct job *j = malloc(sizeof *j);
    if (!j) {
        return OUT_OF_MEMORY;
    }
    *j = *what;
    (void)pthread_mutex_lock(&s->lock);
    if (s->last) {
        s->last->next = j;
    } else {
        s->first = j;
    }
    s->last = j;
    s->asked++;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return 0;
}

API(cuMemcpyAsync, uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    (void)__atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
    unsigned left = __atomic_load_n(&fail_in, __ATOMIC_RELAXED);
    if (left) {
        __atomic_store_n(&fail_in, left - 1, __ATOMIC_RELAXED);
        if (left == 1) {
            return LOST;
        }
    }
    return at(to, bytes) && at(from, bytes)
               ? ask(stream, &(struct job){.to = to, .from = from, .bytes = bytes})
               : INVALID;
}

// The copies of a batch have no order; these begin with the last one.
API(cuMemcpyBatchAsync_v2, uint64_t *to, uint64_t *from, size_t *bytes, size_t count,
    void *attributes, size_t *first, size_t kinds, void *stream)
{
    int error = count && kinds == 1 && *first == 0 && *(int *)attributes == 1 ? 0 : INVALID;
    for (size_t i = count; i-- > 0 && !error;) {
        error = cuMemcpyAsync(to[i], from[i], bytes[i], stream);
    }
    return error;
}

API(cuEventCreate, void **out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof(struct event));
    return *out ? 0 : OUT_OF_MEMORY;
}

API(cuEventRecord, void *event, void *stream)
{
    struct event *e = event;
    struct stream *s = stream;
    (void)pthread_mutex_lock(&s->lock);
    *e = (struct event){.stream = s, .after = s->asked};
    (void)pthread_mutex_unlock(&s->lock);
    return 0;
}

API(cuStreamWaitEvent, void *stream, void *event, unsigned flags)
{
    const struct event *e = event;
    return flags ? INVALID
           : e->stream
               ? ask(stream, &(struct job){.event_stream = e->stream, .event_after = e->after})
               : 0;
}

struct memop { // CUstreamBatchMemOpParams of a write
    int operation;
    uint64_t addr, value;
    unsigned flags;
    uint64_t reserved[2];
};

API(cuStreamBatchMemOp_v2, void *stream, unsigned count, const struct memop *ops, unsigned flags)
{
    int error = count <= 256 && !flags ? 0 : INVALID;
    for (unsigned i = 0; i < count && !error; i++) {
        uint64_t bytes = ops[i].operation == 5 ? 8 : 4;
        error =
            (ops[i].operation == 5 || ops[i].operation == 2) && !ops[i].flags &&
                    ops[i].addr % bytes == 0 && at(ops[i].addr, bytes)
                ? ask(stream,
                      &(struct job){
                          .to = ops[i].addr, .bytes = bytes, .is_word = 1, .value = ops[i].value})
                : INVALID;
    }
    return error;
}

API(cuEventQuery, void *event)
{
    const struct event *e = event;
    if (!e->stream) {
        return 0;
    }
    (void)pthread_mutex_lock(&e->stream->lock);
    int ready = e->stream->done >= e->after;
    (void)pthread_mutex_unlock(&e->stream->lock);
    return ready ? 0 : NOT_READY;
}

API(cuEventSynchronize, void *event)
{
    const struct event *e = event;
    if (e->stream) {
        wait_for(e->stream, e->after);
    }
    return 0;
}

API(cuIpcGetMemHandle, void *out, uint64_t addr)
{
    struct ipc ipc = {0};
    (void)pthread_mutex_lock(&lock);
    const struct block *b = block_of(addr);
    if (b && b->fd >= 0 && !b->is_vmm) {
        ipc.bytes = b->bytes;
        (void)snprintf(ipc.path, sizeof ipc.path, "/proc/%d/fd/%d", (int)getpid(), b->fd);
    }
    (void)pthread_mutex_unlock(&lock);
    memcpy(out, &ipc, sizeof ipc);
    return ipc.bytes ? 0 : INVALID;
}

API(cuIpcOpenMemHandle_v2, uint64_t *out, struct ipc ipc, unsigned flags)
{
    char own[32];
    (void)flags;
    (void)snprintf(own, sizeof own, "/proc/%d/", (int)getpid());
    if (strncmp(ipc.path, own, strlen(own)) == 0) {
        return INVALID; // as the driver: not in the process that made it
    }
    int fd = open(ipc.path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return INVALID;
    }
    int error = add_block(fd, ipc.bytes, 0, out);
    (void)close(fd); // the mapping stays
    return error;
}

API(cuIpcCloseMemHandle, uint64_t addr)
{
    return remove_block(addr);
}

static int make_allocation(int fd, uint64_t bytes, uint64_t *out)
{
    struct allocation *a = malloc(sizeof *a);
    if (fd < 0 || !a) {
        free(a);
        return INVALID;
    }
    *a = (struct allocation){fd, bytes};
    *out = (uintptr_t)a;
    return 0;
}

API(cuMemCreate, uint64_t *out, size_t bytes, const int *properties, unsigned long long flags)
{
    int fd = memfd_create("fake-cuda-vmm", MFD_CLOEXEC);
    (void)flags;
    if (properties[0] != 1 || properties[1] != 1 || fd < 0 || ftruncate(fd, (off_t)bytes)) {
        return INVALID;
    }
    return make_allocation(fd, bytes, out);
}

API(cuMemRelease, uint64_t allocation)
{
    struct allocation *a = (struct allocation *)(uintptr_t)allocation;
    (void)close(a->fd); // mappings have their own
    free(a);
    return 0;
}

API(cuMemAddressReserve, uint64_t *out, size_t bytes, size_t align, uint64_t at,
    unsigned long long flags)
{
    void *addr = align || at || flags ? MAP_FAILED : reserve(bytes);
    *out = (uintptr_t)addr;
    return addr == MAP_FAILED ? INVALID : 0;
}

API(cuMemAddressFree, uint64_t addr, size_t bytes)
{
    return munmap((void *)(uintptr_t)addr, bytes) ? INVALID : 0;
}

API(cuMemMap, uint64_t addr, size_t bytes, size_t offset, uint64_t allocation,
    unsigned long long flags)
{
    const struct allocation *a = (const struct allocation *)(uintptr_t)allocation;
    int fd = offset || flags || bytes > a->bytes ? -1 : fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? INVALID : add_block_at((void *)(uintptr_t)addr, fd, bytes, 1, 1);
}

API(cuMemUnmap, uint64_t addr, size_t bytes)
{
    (void)bytes;
    return remove_block(addr);
}

API(cuMemSetAccess, uint64_t addr, size_t bytes, const int *access, size_t count)
{
    (void)bytes;
    return count == 1 && access[0] == 1 && access[1] == 0 && access[2] == 3 && addr ? 0 : INVALID;
}

API(cuMemRetainAllocationHandle, uint64_t *out, const void *addr)
{
    (void)pthread_mutex_lock(&lock);
    const struct block *b = block_of((uintptr_t)addr);
    int error =
        b && b->is_vmm ? make_allocation(fcntl(b->fd, F_DUPFD_CLOEXEC, 0), b->bytes, out) : INVALID;
    (void)pthread_mutex_unlock(&lock);
    return error;
}

API(cuMemExportToShareableHandle, int *out, uint64_t allocation, int kind, unsigned long long flags)
{
    const struct allocation *a = (const struct allocation *)(uintptr_t)allocation;
    *out = kind == 1 && !flags ? fcntl(a->fd, F_DUPFD_CLOEXEC, 0) : -1;
    return *out < 0 ? INVALID : 0;
}

API(cuMemImportFromShareableHandle, uint64_t *out, void *handle, int kind)
{
    struct stat st;
    int fd = kind == 1 ? fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 0) : -1;
    return fd < 0 || fstat(fd, &st) ? INVALID : make_allocation(fd, (uint64_t)st.st_size, out);
}

API(cuCtxGetDevice, int *out)
{
    *out = 0;
    return 0;
}
