// SPDX-License-Identifier: Apache-2.0
// Opens a plugin as NCCL does and passes calls to it, arguments in guarded memory.
#include "test/plugin/net.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin/net_abi.h"

#define KEPT 64u

static struct {
    pthread_mutex_t lock;
    unsigned warnings, count;
    char line[KEPT][NET_LINE_BYTES]; // ring: line n is at n % KEPT
} net_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

void net_say(int level, unsigned long subsystems, const char *file, int line, const char *format,
             ...)
{
    (void)subsystems, (void)file, (void)line;
    (void)pthread_mutex_lock(&net_log.lock); // the plugin's own threads log too
    char *to = net_log.line[net_log.count++ % KEPT];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(to, sizeof net_log.line[0], format, args);
    va_end(args);
    net_log.warnings += level == GEMMAR_NCCL_LOG_WARN;
    if (getenv("VERBOSE")) {
        (void)fprintf(stderr, "# [%s] %s\n", level == GEMMAR_NCCL_LOG_WARN ? "warn" : "info", to);
    }
    (void)pthread_mutex_unlock(&net_log.lock);
}

unsigned net_warnings(void)
{
    (void)pthread_mutex_lock(&net_log.lock);
    unsigned n = net_log.warnings;
    (void)pthread_mutex_unlock(&net_log.lock);
    return n;
}

unsigned net_lines(void)
{
    (void)pthread_mutex_lock(&net_log.lock);
    unsigned n = net_log.count;
    (void)pthread_mutex_unlock(&net_log.lock);
    return n;
}

int net_line(unsigned age, char out_line[NET_LINE_BYTES])
{
    (void)pthread_mutex_lock(&net_log.lock);
    int is_kept = age < net_log.count && age < KEPT;
    if (is_kept) {
        memcpy(out_line, net_log.line[(net_log.count - 1 - age) % KEPT], NET_LINE_BYTES);
    }
    (void)pthread_mutex_unlock(&net_log.lock);
    return is_kept;
}

int net_logged(const char *text)
{
    char line[NET_LINE_BYTES];
    for (unsigned age = 0; net_line(age, line); age++) {
        if (strstr(line, text)) {
            return 1;
        }
    }
    return 0;
}

int net_open(struct net *net, const char *library, int api, const char **out_error, int *out_absent)
{
    static char error[512];
    char symbol[32];
    memset(net, 0, sizeof *net);
    *out_absent = 0;
    *out_error = error;
    net->api = api;
    net->calls = net_calls_of(api);
    if (strcmp(library, "nccl") == 0) {
        net->reference = 1;
        if (api != 11) {
            *out_absent = 1;
            *out_error = "NCCL 2.28.9's own table is v11";
            return -1;
        }
        net->table = net_find_nccl(&net->lib, out_error, out_absent);
        net->name = net->table ? *(const char *const *)net->table : NULL;
        return net->table ? 0 : -1;
    }
    net->lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!net->lib) {
        (void)snprintf(error, sizeof error, "%s", dlerror());
        return -1;
    }
    (void)snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", api);
    net->table = dlsym(net->lib, symbol);
    if (!net->table) {
        (void)snprintf(error, sizeof error, "%s has no %s", library, symbol);
        (void)dlclose(net->lib); // nothing was made with it
        return -1;
    }
    net->name = *(const char *const *)net->table; // first in every version
    return 0;
}

void net_close(struct net *net)
{
    if (net->lib && !net->reference) { // threads of NCCL run its code to the end of the process
        (void)dlclose(net->lib);       // its result says nothing: the library may refuse to go
    }
    net->lib = NULL;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); // cannot fail for this clock
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// How long this thread has waited for a processor so far: a busy machine is not a blocking call.
static uint64_t waited_ns(void)
{
    unsigned long long ran = 0, waited = 0;
    FILE *f = fopen("/proc/thread-self/schedstat", "re");
    if (f) {
        if (fscanf(f, "%llu %llu", &ran, &waited) != 2) {
            waited = 0;
        }
        (void)fclose(f); // only read
    }
    return waited;
}

static uint64_t start_time(void)
{
    return now_ns() - waited_ns();
}

static void note_time(struct net *net, const char *call, uint64_t start)
{
    uint64_t ns = now_ns() - waited_ns() - start;
    if (ns > UINT64_MAX / 2) {
        return; // the two clocks are not one
    }
    net->slow_calls += ns > NET_SLOW_NS;
    if (ns > net->slowest_ns) {
        net->slowest_ns = ns;
        net->slowest_call = call;
    }
}

int net_init(struct net *net, uint64_t id, int traffic_class, void **out_ctx)
{
    return net->calls->init(net, id, traffic_class, out_ctx);
}

int net_devices(struct net *net, int *out_count)
{
    return net->calls->devices(net, out_count);
}

int net_properties(struct net *net, int dev, struct net_props *out_props)
{
    return net->calls->properties(net, dev, out_props);
}

int net_listen(struct net *net, void *ctx, int dev, void *handle, void **out_comm)
{
    return net->calls->listen(net, ctx, dev, handle, out_comm);
}

int net_connect(struct net *net, void *ctx, int dev, int traffic_class, void *handle,
                void **out_comm)
{
    uint64_t start = start_time();
    int rc = net->calls->connect(net, ctx, dev, traffic_class, handle, out_comm);
    note_time(net, "connect", start);
    return rc;
}

int net_accept(struct net *net, void *listener, void **out_comm)
{
    uint64_t start = start_time();
    int rc = net->calls->accept(net, listener, out_comm);
    note_time(net, "accept", start);
    return rc;
}

int net_reg(struct net *net, void *comm, void *data, size_t bytes, void **out_mh)
{
    return net->calls->reg(net, comm, data, bytes, GEMMAR_NET_PTR_HOST, out_mh);
}

int net_reg_dmabuf(struct net *net, void *comm, void *data, size_t bytes, uint64_t offset, int fd,
                   void **out_mh)
{
    return net->calls->reg_dmabuf(net, comm, data, bytes, GEMMAR_NET_PTR_CUDA, offset, fd, out_mh);
}

int net_dereg(struct net *net, void *comm, void *mh)
{
    return net->calls->dereg(net, comm, mh);
}

int net_isend(struct net *net, void *comm, void *data, size_t bytes, int tag, void *mh,
              void **out_request)
{
    return net->calls->isend(net, comm, data, bytes, tag, mh, out_request);
}

int net_irecv(struct net *net, void *comm, int n, void **data, const size_t *bytes, const int *tags,
              void **mhs, void **request)
{
    size_t k = (size_t)n;
    void **d = guard_copy(GUARD_DATA, data, k * sizeof *d);
    int *t = guard_copy(GUARD_TAGS, tags, k * sizeof *t);
    void **m = guard_copy(GUARD_MHS, mhs, k * sizeof *m);
    size_t sizes[NET_MAX_RECVS];
    memcpy(sizes, bytes, k * sizeof *sizes);
    return net->calls->irecv(net, comm, n, d, sizes, t, m, request);
}

int net_iflush(struct net *net, void *comm, int n, void **data, const int *bytes, void **mhs,
               void **out_request)
{
    size_t k = (size_t)n;
    void **d = guard_copy(GUARD_DATA, data, k * sizeof *d);
    int *b = guard_copy(GUARD_BYTES, bytes, k * sizeof *b);
    void **m = guard_copy(GUARD_MHS, mhs, k * sizeof *m);
    return net->calls->iflush(net, comm, n, d, b, m, out_request);
}

int net_test(struct net *net, void *request, int *out_done, int n, int *out_bytes)
{
    int *done = guard_place(GUARD_DONE, sizeof *done);
    int *bytes = out_bytes ? guard_place(GUARD_BYTES, (size_t)n * sizeof *bytes) : NULL;
    int rc = net->calls->test(net, request, done, bytes);
    *out_done = *done;
    if (bytes) {
        memcpy(out_bytes, bytes, (size_t)n * sizeof *bytes);
    }
    return rc;
}

int net_close_send(struct net *net, void *comm)
{
    return net->calls->close_send(net, comm);
}

int net_close_recv(struct net *net, void *comm)
{
    return net->calls->close_recv(net, comm);
}

int net_close_listen(struct net *net, void *comm)
{
    return net->calls->close_listen(net, comm);
}

int net_make_vdevice(struct net *net, int n, const int *devs, int *out_dev)
{
    int *out = guard_place(GUARD_OUT, sizeof *out);
    int rc = net->calls->make_vdevice(net, out, n, devs);
    *out_dev = *out;
    return rc;
}

int net_finalize(struct net *net, void *ctx)
{
    return net->calls->finalize(net, ctx);
}

const char *net_missing(struct net *net)
{
    return net->calls->missing(net->table);
}
