// SPDX-License-Identifier: Apache-2.0
// checkcomm: communicators of GPUs through the public functions, one rank per GPU, for a machine
// with at least two.
//
// Ranks are threads of one process, or with --processes a process each. Inputs are small whole
// numbers, so that every sum is exact in 16 bits and results are compared for equality. NCCL is
// loaded as Python does it, outside the global scope.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gemmar/gemmar.h>

#define MAX_RANKS 8
#define BATCH     50

/* Seen by all ranks. */
struct shared {
    pthread_barrier_t barrier;
    ncclUniqueId id;
    int ranks;
    int failures; /* atomic */
    int checks;   /* atomic */
};

struct nccl {
    ncclResult_t (*unique_id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
    ncclResult_t (*destroy)(ncclComm_t);
};

struct rank {
    struct shared *all;
    int rank;
    ncclComm_t nccl;
    gemmarComm_t comm;
    cudaStream_t stream, other;
    const char *test;
    const char *step; /* what it is in, if it hangs */
};

struct shape {
    int64_t m, n, k;
};

static struct nccl nccl;
static struct rank ranks[MAX_RANKS]; /* of this process */
static const char *only;

static void check(struct rank *r, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void check(struct rank *r, bool ok, const char *format, ...)
{
    char text[1024];
    va_list args;

    __atomic_fetch_add(&r->all->checks, 1, __ATOMIC_RELAXED);
    if (ok) {
        return;
    }
    __atomic_fetch_add(&r->all->failures, 1, __ATOMIC_RELAXED);
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    printf("FAILED %s: rank %d: %s\n", r->test, r->rank, text);
    fflush(stdout);
}

static void cuda(struct rank *r, cudaError_t rc, const char *what)
{
    check(r, rc == cudaSuccess, "%s: %s", what, cudaGetErrorString(rc));
}

static void expect(struct rank *r, gemmarResult_t got, gemmarResult_t want, const char *sentence,
                   const char *what)
{
    const char *text = gemmarGetLastError(r->comm);

    check(r, got == want && (sentence == NULL || strstr(text, sentence) != NULL),
          "%s: result %d, not %d, or not \"%s\" in: %s", what, got, want,
          sentence != NULL ? sentence : "", text);
}

static void barrier(struct rank *r)
{
    const char *step = r->step;

    r->step = "barrier";
    (void)pthread_barrier_wait(&r->all->barrier);
    r->step = step;
}

static double now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Small whole numbers as 16-bit floats. */
static uint16_t to_16(int v, bool bf16)
{
    uint32_t u;
    float x = (float)v;
    int sign = v < 0, e = 0;

    if (bf16) {
        memcpy(&u, &x, 4);
        return (uint16_t)(u >> 16);
    }
    if (v == 0) {
        return 0;
    }
    for (v = sign ? -v : v; v >> (e + 1) != 0; e++) {
    }
    return (uint16_t)(sign << 15 | (e + 15) << 10 | ((v << 10 >> e) & 1023));
}

static int element(int rank, int which, int64_t i)
{
    uint64_t h = ((uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)(rank * 8 + which);

    h ^= h >> 29;
    h *= UINT64_C(0xBF58476D1CE4E5B9);
    h ^= h >> 32;
    return (int)(h % 3) - 1;
}

/* One problem: operands on the GPU, the expected product of all ranks on the host. */
struct problem {
    struct shape s;
    bool bf16, trans_b;
    uint16_t *a, *b, *bias, *c;
    int *product; /* [m, n] sum over ranks of A * B */
    int64_t ldc;
    uint16_t *c_given; /* registered memory, or NULL: an allocation of c's own */
};

static uint16_t *upload(struct rank *r, int owner, int which, int64_t count, bool bf16)
{
    uint16_t *host = malloc((size_t)count * 2 + 2), *device = NULL;

    for (int64_t i = 0; i < count; i++) {
        host[i] = to_16(element(owner, which, i), bf16);
    }
    cuda(r, cudaMalloc((void **)&device, (size_t)count * 2 + 2), "operand");
    cuda(r, cudaMemcpy(device, host, (size_t)count * 2, cudaMemcpyHostToDevice), "operand");
    free(host);
    return device;
}

static void make_product(struct rank *r, struct problem *p)
{
    struct shape s = p->s;

    p->product = calloc((size_t)(s.m * s.n) + 1, sizeof(int));
    for (int g = 0; g < r->all->ranks; g++) {
        for (int64_t i = 0; i < s.m; i++) {
            for (int64_t k = 0; k < s.k; k++) {
                int a = element(g, 0, i * s.k + k);

                for (int64_t j = 0; a != 0 && j < s.n; j++) {
                    int64_t at = p->trans_b ? j * s.k + k : k * s.n + j;

                    p->product[i * s.n + j] += a * element(g, 1, at);
                }
            }
        }
    }
}

static void open_problem(struct rank *r, struct problem *p)
{
    struct shape s = p->s;

    r->step = "allocate";
    p->ldc = p->ldc != 0 ? p->ldc : s.n;
    p->a = upload(r, r->rank, 0, s.m * s.k, p->bf16);
    p->b = upload(r, r->rank, 1, s.k * s.n, p->bf16);
    p->bias = upload(r, 99, 2, s.n, p->bf16);
    p->c = p->c_given;
    if (p->c == NULL) {
        cuda(r, cudaMalloc((void **)&p->c, (size_t)(s.m * p->ldc) * 2 + 2), "C");
    }
    make_product(r, p);
    barrier(r); /* memory is not allocated while the kernel of a peer may wait for mine */
}

static void close_problem(struct rank *r, struct problem *p)
{
    r->step = "free";
    (void)cudaFree(p->a);
    (void)cudaFree(p->b);
    (void)cudaFree(p->bias);
    if (p->c_given == NULL) {
        (void)cudaFree(p->c);
    }
    free(p->product);
    barrier(r); /* freeing waits for the GPUs of all threads: no kernel may wait for this one */
}

/* C = value everywhere, rows with their gaps. */
static void set_c(struct rank *r, const struct problem *p, int value)
{
    int64_t count = p->s.m * p->ldc;
    uint16_t *host = malloc((size_t)count * 2);

    for (int64_t i = 0; i < count; i++) {
        host[i] = value == INT32_MAX ? 0xffff : to_16(value, p->bf16);
    }
    cuda(r, cudaMemcpy(p->c, host, (size_t)count * 2, cudaMemcpyHostToDevice), "C");
    cuda(r, cudaDeviceSynchronize(), "C");
    free(host);
}

/* C == times * product + plus + bias * with_bias; gaps between rows are `gap`. */
static void compare(struct rank *r, const struct problem *p, int times, int plus, bool with_bias,
                    const char *what)
{
    int64_t count = p->s.m * p->ldc, wrong = 0, first = -1;
    uint16_t *host = malloc((size_t)count * 2);

    r->step = "compare";
    cuda(r, cudaMemcpy(host, p->c, (size_t)count * 2, cudaMemcpyDeviceToHost), "result");
    for (int64_t i = 0; i < p->s.m; i++) {
        for (int64_t j = 0; j < p->ldc; j++) {
            int want = j < p->s.n ? times * p->product[i * p->s.n + j] + plus +
                                        (with_bias ? element(99, 2, j) : 0)
                                  : 0;
            uint16_t bits = j < p->s.n ? to_16(want, p->bf16) : 0xffff, got = host[i * p->ldc + j];

            if (j < p->s.n && want == 0 && got == 0x8000) {
                got = 0; /* minus zero is zero */
            }
            if (got != bits) {
                first = wrong++ == 0 ? i * p->ldc + j : first;
            }
        }
    }
    check(r, wrong == 0, "%s %ldx%ldx%ld: %ld wrong elements, the first at %ld", what, p->s.m,
          p->s.n, p->s.k, wrong, first);
    free(host);
}

static gemmarResult_t call_on(struct rank *r, const struct problem *p, float alpha, float beta,
                              bool bias, cudaStream_t stream)
{
    gemmarFusedArgs_t args = {.size = sizeof(args),
                              .A = p->a,
                              .B = p->b,
                              .C = p->c,
                              .bias = bias ? p->bias : NULL,
                              .M = p->s.m,
                              .N = p->s.n,
                              .K = p->s.k,
                              .ldc = p->ldc,
                              .datatype = p->bf16 ? gemmarBfloat16 : gemmarFloat16,
                              .transB = p->trans_b,
                              .alpha = alpha,
                              .beta = beta};

    gemmarResult_t rc;

    r->step = "call";
    rc = gemmar_fused_ex(&args, r->comm, stream);
    r->step = "after a call";
    return rc;
}

static void create(struct rank *r, unsigned timeout_ms, unsigned compare_calls)
{
    gemmarConfig_t config = GEMMAR_CONFIG_INITIALIZER;

    r->step = "create";
    config.timeoutMs = timeout_ms;
    config.check = compare_calls;
    r->comm = NULL;
    expect(r, gemmarCommCreate(&r->comm, r->nccl, &config), gemmarSuccess, NULL, "create");
}

static void destroy(struct rank *r)
{
    gemmarResult_t rc;

    r->step = "destroy";
    rc = gemmarCommDestroy(r->comm);
    r->comm = NULL;
    check(r, rc == gemmarSuccess, "destroy: %s", gemmarGetLastError(NULL));
}

/* A call with a plain result, as a sign that everything works. */
static void one_call(struct rank *r, struct shape s, const char *what)
{
    struct problem p = {.s = s, .bf16 = true};

    open_problem(r, &p);
    set_c(r, &p, INT32_MAX);
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, what);
    cuda(r, cudaStreamSynchronize(r->stream), what);
    compare(r, &p, 1, 0, false, what);
    close_problem(r, &p);
}

static const struct shape shapes[] = {{1, 1, 1},       {17, 33, 5},    {64, 1024, 24},
                                      {128, 256, 32},  {100, 300, 24}, {257, 511, 17},
                                      {512, 1024, 32}, {5, 7, 0}};

static void results(struct rank *r, bool registered)
{
    uint16_t *memory = NULL;
    void *handle = NULL;
    size_t bytes = 4u << 20;

    if (registered) {
        expect(r, gemmarMemAlloc((void **)&memory, bytes), gemmarSuccess, NULL, "gemmarMemAlloc");
        expect(r, gemmarCommRegister(r->comm, memory, bytes, &handle), gemmarSuccess, NULL,
               "register");
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (int kind = 0; kind < 4; kind++) {
            struct problem p = {.s = shapes[i],
                                .bf16 = (kind & 1) != 0,
                                .trans_b = (kind & 2) != 0,
                                .ldc = kind == 3 ? shapes[i].n + 3 : 0,
                                .c_given = registered ? memory + 64 * i : NULL};

            open_problem(r, &p);
            set_c(r, &p, INT32_MAX);
            expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "call");
            cuda(r, cudaStreamSynchronize(r->stream), "call");
            compare(r, &p, 1, 0, false, "plain");
            if (kind != 3) {
                set_c(r, &p, 3);
                expect(r, call_on(r, &p, 2, 1, true, r->stream), gemmarSuccess, NULL, "epilogue");
                cuda(r, cudaStreamSynchronize(r->stream), "epilogue");
                compare(r, &p, 2, 3, true, "epilogue");
            }
            close_problem(r, &p);
        }
    }
    if (registered) {
        expect(r, gemmarCommDeregister(r->comm, handle), gemmarSuccess, NULL, "deregister");
        expect(r, gemmarMemFree(memory), gemmarSuccess, NULL, "gemmarMemFree");
    }
}

static void test_results(struct rank *r)
{
    create(r, 20000, 0);
    results(r, false);
    destroy(r);
}

static void test_registered(struct rank *r)
{
    create(r, 20000, 0);
    results(r, true);
    destroy(r);
}

static void test_refused_registration(struct rank *r)
{
    void *plain = NULL, *memory = NULL, *other = NULL, *handle = NULL;

    create(r, 20000, 0);
    cuda(r, cudaMalloc(&plain, 1 << 20), "cudaMalloc");
    expect(r, gemmarCommRegister(r->comm, plain, 1 << 20, &handle), gemmarInvalidUsage,
           "gemmarMemAlloc", "register cudaMalloc memory");
    expect(r, gemmarMemAlloc(&memory, 4 << 20), gemmarSuccess, NULL, "gemmarMemAlloc");
    expect(r, gemmarCommRegister(r->comm, memory, (size_t)(1 + r->rank) << 20, &handle),
           gemmarInvalidUsage, "must be equal", "register other sizes");
    expect(r, gemmarCommRegister(r->comm, r->rank == 0 ? NULL : memory, 1 << 20, &handle),
           gemmarInvalidArgument, "rank 0", "register NULL");
    expect(r, gemmarCommDeregister(r->comm, &handle), gemmarInvalidArgument, "not a registration",
           "deregister nothing");
    one_call(r, shapes[1], "call after refusals");
    expect(r, gemmarCommRegister(r->comm, memory, 4 << 20, &handle), gemmarSuccess, NULL,
           "register"); /* the communicator's end deregisters it */
    expect(r, gemmarMemAlloc(&other, 4 << 20), gemmarSuccess, NULL, "gemmarMemAlloc");
    expect(r, gemmarCommRegister(r->comm, r->rank == 0 ? memory : other, 1 << 20, &handle),
           gemmarInvalidUsage, "same allocation", "register the same memory on one rank");
    destroy(r);
    (void)gemmarMemFree(memory);
    (void)gemmarMemFree(other);
    (void)cudaFree(plain);
}

/* A capture of global mode forbids a process's other threads to allocate or copy meanwhile. */
static cudaGraphExec_t capture(struct rank *r, const struct problem *p, float beta)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;

    barrier(r);
    cuda(r, cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeGlobal), "begin capture");
    expect(r, call_on(r, p, 1, beta, false, r->stream), gemmarSuccess, NULL, "captured call");
    cuda(r, cudaStreamEndCapture(r->stream, &graph), "end capture");
    barrier(r);
    cuda(r, cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    (void)cudaGraphDestroy(graph);
    return exec;
}

static void test_graph(struct rank *r)
{
    struct problem p = {.s = {60, 130, 4}}, q = {.s = {33, 65, 3}};
    cudaGraphExec_t exec;

    create(r, 20000, 0);
    open_problem(r, &p);
    open_problem(r, &q);
    exec = capture(r, &p, 1);
    set_c(r, &p, 0);
    for (int i = 0; i < 100; i++) {
        cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
    }
    cuda(r, cudaStreamSynchronize(r->stream), "replays");
    compare(r, &p, 100, 0, false, "100 replays");
    for (int i = 0; i < 10; i++) { /* replays and calls mixed */
        cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
        expect(r, call_on(r, &q, 1, 0, false, r->stream), gemmarSuccess, NULL, "between");
    }
    cuda(r, cudaStreamSynchronize(r->stream), "replays");
    compare(r, &p, 110, 0, false, "110 replays");
    compare(r, &q, 1, 0, false, "between replays");
    (void)cudaGraphExecDestroy(exec);
    close_problem(r, &q);
    close_problem(r, &p);
    destroy(r);
}

/* A capture that forks to a second stream: the second call waits for the first. */
static void test_graph_of_two_streams(struct rank *r)
{
    struct problem p = {.s = {40, 70, 4}};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t fork, join;

    create(r, 20000, 0);
    open_problem(r, &p);
    cuda(r, cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "event");
    cuda(r, cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "event");
    barrier(r);
    cuda(r, cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeGlobal), "begin");
    cuda(r, cudaEventRecord(fork, r->stream), "fork");
    cuda(r, cudaStreamWaitEvent(r->other, fork, 0), "fork");
    expect(r, call_on(r, &p, 1, 1, false, r->stream), gemmarSuccess, NULL, "first");
    expect(r, call_on(r, &p, 1, 1, false, r->other), gemmarSuccess, NULL, "second");
    cuda(r, cudaEventRecord(join, r->other), "join");
    cuda(r, cudaStreamWaitEvent(r->stream, join, 0), "join");
    cuda(r, cudaStreamEndCapture(r->stream, &graph), "end");
    barrier(r);
    cuda(r, cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    set_c(r, &p, 0);
    for (int i = 0; i < 20; i++) {
        cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
    }
    cuda(r, cudaStreamSynchronize(r->stream), "replays");
    compare(r, &p, 40, 0, false, "two streams");
    (void)cudaGraphExecDestroy(exec);
    (void)cudaGraphDestroy(graph);
    (void)cudaEventDestroy(fork);
    (void)cudaEventDestroy(join);
    close_problem(r, &p);
    destroy(r);
}

static void test_growth(struct rank *r)
{
    struct problem small = {.s = {60, 130, 4}}, large = {.s = {700, 1500, 8}};
    struct shape larger = {900, 1700, 8};
    gemmarCommInfo_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;

    create(r, 20000, 0);
    open_problem(r, &small);
    open_problem(r, &large);
    exec = capture(r, &small, 1);
    set_c(r, &small, 0);
    expect(r, gemmarCommGetInfo(r->comm, &before), gemmarSuccess, NULL, "info");
    cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
    barrier(r);
    cuda(r, cudaStreamBeginCapture(r->other, cudaStreamCaptureModeGlobal), "begin capture");
    expect(r, call_on(r, &large, 1, 0, false, r->other), gemmarInvalidUsage, "gemmarCommReserve",
           "growth in capture");
    cuda(r, cudaStreamEndCapture(r->other, &graph), "end capture");
    barrier(r);
    (void)cudaGraphDestroy(graph);
    cuda(r, cudaStreamSynchronize(r->stream), "replay");
    set_c(r, &large, INT32_MAX);
    expect(r, call_on(r, &large, 1, 0, false, r->stream), gemmarSuccess, NULL, "growing call");
    for (int i = 0; i < 5; i++) { /* on the generation that it was captured with */
        cuda(r, cudaGraphLaunch(exec, r->stream), "replay");
    }
    cuda(r, cudaStreamSynchronize(r->stream), "replays");
    compare(r, &large, 1, 0, false, "grown");
    compare(r, &small, 6, 0, false, "replays across growth");
    expect(r, gemmarCommReserve(r->comm, larger.m, larger.n, larger.k, gemmarBfloat16),
           gemmarSuccess, NULL, "reserve");
    one_call(r, larger, "call after reserve");
    expect(r, gemmarCommGetInfo(r->comm, &after), gemmarSuccess, NULL, "info");
    check(r, after.workspaceBytes > before.workspaceBytes && after.epoch > 1,
          "workspace %lu, then %lu bytes, epoch %lu", before.workspaceBytes, after.workspaceBytes,
          after.epoch);
    (void)cudaGraphExecDestroy(exec);
    close_problem(r, &large);
    close_problem(r, &small);
    destroy(r);
}

static void test_streams(struct rank *r)
{
    struct problem p = {.s = {60, 130, 4}};
    cudaStream_t streams[3] = {r->stream, r->other, NULL};

    create(r, 20000, 0);
    open_problem(r, &p);
    set_c(r, &p, 0);
    for (int i = 0; i < 99; i++) {
        expect(r, call_on(r, &p, 1, 1, false, streams[i % 3]), gemmarSuccess, NULL, "call");
    }
    cuda(r, cudaDeviceSynchronize(), "calls");
    compare(r, &p, 99, 0, false, "three streams");
    close_problem(r, &p);
    destroy(r);
}

static void test_arguments(struct rank *r)
{
    struct problem p = {.s = {60, 130, 4}, .bf16 = true}, bad;
    uint16_t *pinned = NULL, *foreign = NULL;
    cudaStream_t stream = NULL;
    float *host = malloc(60 * 130 * 4);
    gemmarFusedArgs_t args = {.size = sizeof(args)};
    int peer = (r->rank + 1) % r->all->ranks;

    create(r, 20000, 0);
    open_problem(r, &p);
    cuda(r, cudaHostAlloc((void **)&pinned, 1 << 20, cudaHostAllocDefault), "pinned");
    cuda(r, cudaSetDevice(peer), "device");
    cuda(r, cudaMalloc((void **)&foreign, 1 << 20), "foreign");
    cuda(r, cudaStreamCreate(&stream), "stream");
    cuda(r, cudaSetDevice(r->rank), "device");
    bad = p;
    bad.a = (uint16_t *)host;
    expect(r, call_on(r, &bad, 1, 0, false, r->stream), gemmarInvalidArgument, "A (", "host A");
    bad = p;
    bad.b = pinned;
    expect(r, call_on(r, &bad, 1, 0, false, r->stream), gemmarInvalidArgument, "B (", "pinned B");
    bad = p;
    bad.c = foreign;
    expect(r, call_on(r, &bad, 1, 0, false, r->stream), gemmarInvalidArgument, "memory of GPU",
           "C of another GPU");
    bad = p;
    bad.bias = (uint16_t *)host;
    expect(r, call_on(r, &bad, 1, 0, true, r->stream), gemmarInvalidArgument, "bias (",
           "host bias");
    expect(r, call_on(r, &p, 1, 0, false, stream), gemmarInvalidArgument, "stream is of GPU",
           "stream of another GPU");
    expect(r, gemmar_fused(p.a, p.b, p.c, 60, 60, 4, gemmarFloat32, r->comm, r->stream),
           gemmarInvalidArgument, "fp32", "fp32");
    expect(r, gemmar_fused(p.a, p.b, p.a, 60, 130, 4, gemmarBfloat16, r->comm, r->stream),
           gemmarInvalidArgument, "overlaps", "C overlaps A");
    expect(r, gemmar_fused_ex(NULL, r->comm, r->stream), gemmarInvalidArgument, NULL, "NULL");
    args.datatype = gemmarBfloat16;
    expect(r, gemmar_fused_ex(&args, r->comm, r->stream), gemmarSuccess, NULL, "empty");
    set_c(r, &p, INT32_MAX);
    cuda(r, cudaSetDevice(peer), "device"); /* which device is current does not matter to a call */
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "other device current");
    cuda(r, cudaSetDevice(r->rank), "device");
    cuda(r, cudaStreamSynchronize(r->stream), "other device current");
    compare(r, &p, 1, 0, false, "other device current");
    one_call(r, shapes[1], "after refusals");
    (void)cudaFree(foreign);
    (void)cudaStreamDestroy(stream);
    (void)cudaFreeHost(pinned);
    free(host);
    close_problem(r, &p);
    destroy(r);
}

static void test_wrong_creation(struct rank *r)
{
    gemmarConfig_t config = GEMMAR_CONFIG_INITIALIZER;
    gemmarComm_t comm = NULL;

    r->comm = NULL;
    expect(r, gemmarCommCreate(NULL, r->nccl, NULL), gemmarInvalidArgument, "comm is NULL", "NULL");
    expect(r, gemmarCommCreate(&comm, NULL, NULL), gemmarInvalidArgument, "nccl is NULL", "NULL");
    config.tile_m = r->rank == 1 ? 64 : 32; /* must be equal */
    expect(r, gemmarCommCreate(&comm, r->nccl, &config), gemmarInvalidUsage, "tile_m",
           "settings differ");
    cuda(r, cudaSetDevice(r->rank == 1 ? 0 : r->rank), "device");
    expect(r, gemmarCommCreate(&comm, r->nccl, NULL), gemmarInvalidUsage, "current device",
           "other device on rank 1");
    cuda(r, cudaSetDevice(r->rank), "device");
}

static void test_compare_calls(struct rank *r)
{
    struct problem p = {.s = {20 + 10 * r->rank, 40, 4}, .bf16 = true};

    create(r, 20000, 1);
    expect(r, gemmarCommReserve(r->comm, 200 + 100 * r->rank, 3000, 8, gemmarBfloat16),
           gemmarInvalidUsage, "another shape", "other shapes reserved");
    open_problem(r, &p);
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarInvalidUsage, "another M",
           "other M, compared");
    close_problem(r, &p);
    one_call(r, shapes[1], "after a call that differed");
    destroy(r);
}

/* Without the comparison before: the kernels find out, before any writes into another's C. */
static void test_other_arguments(struct rank *r)
{
    struct problem p = {.s = {200, 304, 8}, .bf16 = true};
    gemmarResult_t state = gemmarInProgress;
    double began;

    create(r, 2000, 0);
    open_problem(r, &p);
    began = now_us();
    expect(r, call_on(r, &p, (float)(1 + r->rank), 0, false, r->stream), gemmarSuccess, NULL,
           "call");
    cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
    check(r, now_us() - began < 10e6, "it took %.1f s", (now_us() - began) * 1e-6);
    barrier(r);
    expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
    check(r, state == gemmarInvalidUsage || state == gemmarRemoteError, "state %d", state);
    printf("other arguments, rank %d: %d %s\n", r->rank, state, gemmarGetLastError(r->comm));
    close_problem(r, &p);
    destroy(r);
    barrier(r);
}

static void test_never_calls(struct rank *r)
{
    struct problem p = {.s = {200, 300, 4}, .bf16 = true};
    gemmarResult_t state = gemmarInProgress;
    double began;

    create(r, 500, 0);
    open_problem(r, &p);
    barrier(r);
    began = now_us();
    if (r->rank == 0) {
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "call");
        cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
        check(r, now_us() - began < 5e6, "it took %.1f s", (now_us() - began) * 1e-6);
        expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
        expect(r, state, gemmarRemoteError, "rank 1", "async error");
        printf("never calls: %s\n", gemmarGetLastError(r->comm));
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarRemoteError, "rank 1", "next call");
    }
    barrier(r);
    if (r->rank != 0) {
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarRemoteError, "rank 0",
               "call after the others left");
        printf("never calls, rank %d: %s\n", r->rank, gemmarGetLastError(r->comm));
    }
    close_problem(r, &p);
    destroy(r);
    cuda(r, cudaDeviceSynchronize(), "the GPU goes on");
    barrier(r);
    create(r, 20000, 0);
    one_call(r, shapes[3], "new communicator");
    destroy(r);
}

static void *abort_later(void *argument)
{
    struct timespec t = {.tv_nsec = 200000000};

    (void)nanosleep(&t, NULL);
    (void)gemmarCommAbort(argument);
    return NULL;
}

static void test_abort(struct rank *r)
{
    struct problem p = {.s = {200, 300, 4}, .bf16 = true};
    gemmarResult_t state = gemmarInProgress;
    pthread_t thread;
    double began;

    create(r, 60000, 0);
    open_problem(r, &p);
    barrier(r);
    began = now_us();
    if (r->rank == 0) {
        (void)pthread_create(&thread, NULL, abort_later, r->comm);
        expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "call");
        cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
        check(r, now_us() - began < 3e6, "it took %.1f s", (now_us() - began) * 1e-6);
        (void)pthread_join(thread, NULL);
        expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
        expect(r, state, gemmarInvalidUsage, "gemmarCommAbort", "async error");
    }
    barrier(r);
    if (r->rank != 0) {
        expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
        expect(r, state, gemmarRemoteError, "gemmarCommAbort", "async error of a peer");
    }
    expect(r, call_on(r, &p, 1, 0, false, r->stream), state, NULL, "next call");
    close_problem(r, &p);
    destroy(r);
    barrier(r);
    create(r, 20000, 0);
    one_call(r, shapes[3], "new communicator");
    destroy(r);
}

/* The caller's communicator may be one whose calls return before they are done. */
static void test_again(struct rank *r)
{
    double creating = 0, destroying = 0;

    for (int i = 0; i < 10; i++) {
        double began = now_us();

        create(r, 20000, 0);
        creating += now_us() - began;
        one_call(r, shapes[1], "call");
        began = now_us();
        destroy(r);
        destroying += now_us() - began;
    }
    printf("rank %d: creation %.1f ms, destruction %.1f ms\n", r->rank, creating * 1e-4,
           destroying * 1e-4);
}

/* Of a call on the CPU, in batches that fit into the driver's queue: a full queue makes the CPU
 * wait for the GPU. */
static double host_time(struct rank *r, const struct problem *p, int batches)
{
    double total = 0;

    for (int b = 0; b < batches; b++) {
        for (int i = 0; i < BATCH; i++) {
            double began = now_us();

            (void)call_on(r, p, 1, 0, false, r->stream);
            total += b > 0 ? now_us() - began : 0;
        }
        cuda(r, cudaStreamSynchronize(r->stream), "calls");
    }
    return total / ((batches - 1) * BATCH);
}

static void test_host_time(struct rank *r)
{
    struct problem p = {.s = {64, 256, 64}, .bf16 = true};
    uint16_t *memory = NULL;
    void *handle = NULL;
    double plain, registered;

    create(r, 20000, 0);
    expect(r, gemmarMemAlloc((void **)&memory, 2 << 20), gemmarSuccess, NULL, "gemmarMemAlloc");
    expect(r, gemmarCommRegister(r->comm, memory, 2 << 20, &handle), gemmarSuccess, NULL,
           "register");
    open_problem(r, &p);
    plain = host_time(r, &p, 20);
    (void)cudaFree(p.c);
    p.c = p.c_given = memory;
    barrier(r);
    registered = host_time(r, &p, 20);
    printf("host time: rank %d: %.2f us a call, %.2f with a registered C\n", r->rank, plain,
           registered);
    check(r, registered <= 10, "%.2f us of host time per call", registered);
    close_problem(r, &p);
    destroy(r);
    (void)gemmarMemFree(memory);
}

/* Not among the tests: it leaves NCCL's communicator without a rank. */
static void peer_dies(struct rank *r)
{
    struct problem p = {.s = {200, 300, 4}, .bf16 = true};
    gemmarResult_t state = gemmarSuccess;
    double began;

    r->test = "peer_dies";
    create(r, 60000, 0);
    open_problem(r, &p);
    if (r->rank == r->all->ranks - 1) {
        _exit(0);
    }
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, "call");
    began = now_us();
    while (state == gemmarSuccess && now_us() - began < 10e6) {
        (void)usleep(1000);
        expect(r, gemmarCommGetAsyncError(r->comm, &state), gemmarSuccess, NULL, "async error");
    }
    expect(r, state, gemmarRemoteError, "is gone", "async error");
    cuda(r, cudaStreamSynchronize(r->stream), "the kernel leaves");
    printf("peer dies: %.3f s: %s\n", (now_us() - began) * 1e-6, gemmarGetLastError(r->comm));
    expect(r, gemmarCommDestroy(r->comm), gemmarSuccess, NULL, "destroy");
    r->comm = NULL;
    cuda(r, cudaDeviceSynchronize(), "the GPU goes on");
}

static const struct {
    const char *name;
    void (*run)(struct rank *);
} tests[] = {
    {"wrong_creation", test_wrong_creation},
    {"results", test_results},
    {"registered", test_registered},
    {"refused_registration", test_refused_registration},
    {"graph", test_graph},
    {"graph_of_two_streams", test_graph_of_two_streams},
    {"growth", test_growth},
    {"streams", test_streams},
    {"arguments", test_arguments},
    {"compare_calls", test_compare_calls},
    {"other_arguments", test_other_arguments},
    {"never_calls", test_never_calls},
    {"abort", test_abort},
    {"again", test_again},
    {"host_time", test_host_time},
};

static void *run_rank(void *argument)
{
    struct rank *r = argument;

    r->test = "set-up";
    cuda(r, cudaSetDevice(r->rank), "device");
    cuda(r, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "stream");
    cuda(r, cudaStreamCreate(&r->other), "stream");
    check(r, nccl.init(&r->nccl, r->all->ranks, r->all->id, r->rank) == ncclSuccess,
          "ncclCommInitRank");
    if (only != NULL && strcmp(only, "peer_dies") == 0) {
        peer_dies(r);
        return NULL;
    }
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        int failures = __atomic_load_n(&r->all->failures, __ATOMIC_RELAXED);
        double began = now_us();

        if (only != NULL && strcmp(only, tests[i].name) != 0) {
            continue;
        }
        barrier(r);
        r->test = tests[i].name;
        tests[i].run(r);
        barrier(r);
        if (r->rank == 0) {
            printf("%s %s (%.2f s)\n",
                   __atomic_load_n(&r->all->failures, __ATOMIC_RELAXED) == failures ? "ok"
                                                                                    : "not ok",
                   tests[i].name, (now_us() - began) * 1e-6);
            fflush(stdout);
        }
    }
    check(r, nccl.destroy(r->nccl) == ncclSuccess, "ncclCommDestroy");
    return NULL;
}

/* Where it hangs. */
static void say_steps(int signal)
{
    (void)signal;
    for (int i = 0; i < MAX_RANKS; i++) {
        if (ranks[i].all != NULL) {
            dprintf(2, "rank %d: test %s, step %s\n", ranks[i].rank, ranks[i].test, ranks[i].step);
        }
    }
    _exit(3);
}

static void run_threads(struct shared *all)
{
    pthread_t threads[MAX_RANKS];

    for (int i = 0; i < all->ranks; i++) {
        ranks[i].all = all;
        ranks[i].rank = i;
        (void)pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < all->ranks; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

static bool load_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    static const char *const names[] = {"ncclGetUniqueId", "ncclCommInitRank", "ncclCommDestroy"};
    void *functions[3];

    if (library == NULL) {
        fprintf(stderr, "checkcomm: %s\n", dlerror());
        return false;
    }
    for (int i = 0; i < 3; i++) {
        functions[i] = dlsym(library, names[i]);
        if (functions[i] == NULL) {
            fprintf(stderr, "checkcomm: no %s\n", names[i]);
            return false;
        }
    }
    memcpy(&nccl, functions, sizeof(nccl));
    return true;
}

/* No CUDA call before the fork. The first rank makes the id. */
static void run_processes(struct shared *all)
{
    for (int i = 0; i < all->ranks; i++) {
        if (fork() == 0) {
            struct rank *r = &ranks[0];

            r->all = all;
            r->rank = i;
            r->test = "set-up";
            if (!load_nccl()) {
                _exit(1);
            }
            if (i == 0) {
                check(r, nccl.unique_id(&all->id) == ncclSuccess, "ncclGetUniqueId");
            }
            barrier(r);
            (void)run_rank(r);
            _exit(0);
        }
    }
    for (int i = 0; i < all->ranks; i++) {
        int status = 0;

        if (wait(&status) < 0 || status != 0) {
            __atomic_fetch_add(&all->failures, 1, __ATOMIC_RELAXED);
            printf("FAILED: a rank ended with status 0x%x\n", (unsigned)status);
        }
    }
}

int main(int argc, char **argv)
{
    struct shared *all =
        mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    bool processes = false;

    if (all == MAP_FAILED) {
        return 1;
    }
    all->ranks = 2;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--processes") == 0) {
            processes = true;
        } else if (strncmp(argv[i], "--ranks=", 8) == 0) {
            all->ranks = atoi(argv[i] + 8);
        } else if (strncmp(argv[i], "--only=", 7) == 0) {
            only = argv[i] + 7;
        } else {
            fprintf(stderr, "usage: checkcomm [--processes] [--ranks=N] [--only=TEST]\n"
                            "       checkcomm --processes --only=peer_dies\n");
            return 2;
        }
    }
    if (all->ranks < 2 || all->ranks > MAX_RANKS) {
        fprintf(stderr, "checkcomm: 2 to %d ranks\n", MAX_RANKS);
        return 2;
    }
    (void)signal(SIGTERM, say_steps);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)pthread_barrierattr_init(&attributes);
    (void)pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)pthread_barrier_init(&all->barrier, &attributes, (unsigned)all->ranks);
    if (processes) {
        run_processes(all);
    } else if (load_nccl() && nccl.unique_id(&all->id) == ncclSuccess) {
        run_threads(all);
    } else {
        all->failures++;
    }
    printf("checkcomm: %d checks, %d failed, %d ranks as %s\n", all->checks, all->failures,
           all->ranks, processes ? "processes" : "threads");
    return all->failures != 0;
}
