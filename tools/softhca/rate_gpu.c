// SPDX-License-Identifier: Apache-2.0
// The GPU of softhca-rate, by the driver alone, so that nothing of CUDA is needed to build.
#include "tools/softhca/rate_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define THREADS 1024u // of a block; two blocks fill a multiprocessor
#define SHARED  (100u << 10)

// One thread looks, the others of its block wait for it at the barrier; the first block's also
// releases the other blocks. A pause between looks leaves the bus to others.
static const char program[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry watch(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n"
    "{\n"
    "    .reg .pred p;\n"
    "    .reg .b32 i;\n"
    "    .reg .b64 stamp, words, over, start, ns, now, v, last;\n"
    "    ld.param.u64 stamp, [a];\n"
    "    ld.param.u64 words, [b];\n"
    "    ld.param.u64 over, [c];\n"
    "    ld.param.u64 ns, [d];\n"
    "    mov.u32 i, %tid.x;\n"
    "    setp.ne.u32 p, i, 0;\n"
    "    @p bra DONE;\n"
    "    mov.u64 start, %globaltimer;\n"
    "    mov.u32 i, %ctaid.x;\n"
    "    setp.ne.u32 p, i, 0;\n"
    "    @p bra FILL;\n"
    "    mov.u64 last, 0;\n"
    "ECHO:\n"
    "    mov.u64 now, %globaltimer;\n"
    "    sub.u64 now, now, start;\n"
    "    setp.gt.u64 p, now, ns;\n"
    "    @p bra RELEASE;\n"
    "    ld.acquire.sys.u64 v, [words];\n"
    "    setp.eq.u64 p, v, 0xffffffffffffffff;\n"
    "    @p bra WATCH_BEGIN;\n"
    "    setp.eq.u64 p, v, last;\n"
    "    @p bra ECHO;\n"
    "    mov.u64 last, v;\n"
    "    st.release.sys.u64 [words+64], v;\n"
    "    bra ECHO;\n"
    "WATCH_BEGIN:\n"
    "    st.release.sys.u64 [words+64], v;\n"
    "    mov.u64 last, 0;\n"
    "WATCH:\n"
    "    mov.u64 now, %globaltimer;\n"
    "    sub.u64 now, now, start;\n"
    "    setp.gt.u64 p, now, ns;\n"
    "    @p bra RELEASE;\n"
    "    ld.acquire.sys.u64 v, [stamp];\n"
    "    setp.eq.u64 p, v, last;\n"
    "    @p bra WATCH;\n"
    "    mov.u64 last, v;\n"
    "    st.release.sys.u64 [words+128], v;\n"
    "    setp.ne.u64 p, v, 0xffffffffffffffff;\n"
    "    @p bra WATCH;\n"
    "RELEASE:\n"
    "    mov.u64 v, 1;\n"
    "    st.release.sys.u64 [over], v;\n"
    "    bra DONE;\n"
    "FILL:\n"
    "    nanosleep.u32 2000;\n"
    "    mov.u64 now, %globaltimer;\n"
    "    sub.u64 now, now, start;\n"
    "    setp.gt.u64 p, now, ns;\n"
    "    @p bra DONE;\n"
    "    ld.acquire.sys.u64 v, [over];\n"
    "    setp.eq.u64 p, v, 0;\n"
    "    @p bra FILL;\n"
    "DONE:\n"
    "    bar.sync 0;\n"
    "    ret;\n"
    "}\n";

enum { // CUdevice_attribute, CUfunction_attribute, CUstream_flags, CUmemhostalloc_flags
    MULTIPROCESSORS = 16,
    DYNAMIC_SHARED = 8,
    NON_BLOCKING = 1,
    PORTABLE = 1
};

#define CALLS(CALL)                                                                                \
    CALL(init, cuInit, (unsigned flags))                                                           \
    CALL(count, cuDeviceGetCount, (int *out))                                                      \
    CALL(attribute, cuDeviceGetAttribute, (int *out, int what, int device))                        \
    CALL(retain, cuDevicePrimaryCtxRetain, (void **out, int device))                               \
    CALL(set, cuCtxSetCurrent, (void *context))                                                    \
    CALL(alloc, cuMemAlloc_v2, (uint64_t * out, size_t bytes))                                     \
    CALL(fill, cuMemsetD8_v2, (uint64_t at, uint8_t value, size_t bytes))                          \
    CALL(host_alloc, cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))                   \
    CALL(load, cuModuleLoadData, (void **out, const void *image))                                  \
    CALL(function, cuModuleGetFunction, (void **out, void *module, const char *name))              \
    CALL(set_attribute, cuFuncSetAttribute, (void *function, int what, int value))                 \
    CALL(stream, cuStreamCreate, (void **out, unsigned flags))                                     \
    CALL(wait, cuStreamSynchronize, (void *stream))                                                \
    CALL(synchronize, cuCtxSynchronize, (void))                                                    \
    CALL(launch, cuLaunchKernel,                                                                   \
         (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,         \
          unsigned bz, unsigned shared, void *stream, void **arguments, void **extra))             \
    CALL(error_string, cuGetErrorString, (int error, const char **out))

static struct {
#define FIELD(field, symbol, arguments) int(*field) arguments;
    CALLS(FIELD)
#undef FIELD
} cu;
static int device;
static void *stream;

static int failed(const char *what, int error)
{
    const char *text = NULL;
    if (error) {
        (void)cu.error_string(error, &text); // text stays NULL for an unknown number
        (void)fprintf(stderr, "softhca-rate: %s: %s (%d)\n", what, text ? text : "unknown", error);
    }
    return error;
}

int rate_gpu_count(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW); // kept, as its calls are
    int n = 0;
    if (!lib) {
        return 0;
    }
#define LOOK(field, symbol, arguments)                                                             \
    void *field##_at = dlsym(lib, #symbol);                                                        \
    memcpy(&cu.field, &field##_at, sizeof cu.field);                                               \
    if (!cu.field) {                                                                               \
        return 0;                                                                                  \
    }
    CALLS(LOOK)
#undef LOOK
    return cu.init(0) || cu.count(&n) ? 0 : n;
}

int rate_gpu_open(int index)
{
    void *context = NULL;
    device = index;
    int error = cu.retain(&context, index);
    return failed("cannot use the GPU", error ? error : cu.set(context)) ? -1 : 0;
}

void *rate_gpu_alloc(size_t bytes)
{
    uint64_t at = 0;
    int error = cu.alloc(&at, bytes);
    error = error ? error : cu.fill(at, 0, bytes);
    error = error ? error : cu.synchronize();
    return failed("no device memory", error) ? NULL : (void *)(uintptr_t)at;
}

struct rate_words *rate_gpu_fill(void *stamp, double seconds)
{
    void *words = NULL, *over, *module = NULL, *function = NULL;
    uint64_t ns = (uint64_t)(seconds * 1e9);
    int processors = 0;
    int error = cu.host_alloc(&words, sizeof(struct rate_words), PORTABLE);
    over = error ? NULL : rate_gpu_alloc(8);
    if (!over) {
        return NULL;
    }
    memset(words, 0, sizeof(struct rate_words));
    void *arguments[] = {&stamp, &words, &over, &ns};
    error = cu.attribute(&processors, MULTIPROCESSORS, device);
    error = error ? error : cu.load(&module, program);
    error = error ? error : cu.function(&function, module, "watch");
    error = error ? error : cu.set_attribute(function, DYNAMIC_SHARED, SHARED);
    error = error ? error : cu.stream(&stream, NON_BLOCKING);
    error = error ? error
                  : cu.launch(function, 2 * (unsigned)processors, 1, 1, THREADS, 1, 1, SHARED,
                              stream, arguments, NULL);
    return failed("cannot start the kernel", error) ? NULL : words;
}

int rate_gpu_wait(void)
{
    return failed("the kernel failed", cu.wait(stream));
}
