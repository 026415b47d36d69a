// SPDX-License-Identifier: Apache-2.0
// NCCL's own InfiniBand transport over softhca, without a GPU: a program that nobody here wrote.
// libnccl.so.2 keeps its symbol table, so the hidden table of the transport can be found there as
// a distance from an exported function. Two processes move checked data of many sizes.
#include <dlfcn.h>
#include <elf.h>
#include <glob.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define NCCL_VERSION 22809 // the layout below is that version's (plugin API v11)
#define HANDLE_BYTES 128
#define DEADLINE_S   60
#define SKIP         77
#define PTR_HOST     1
#define MAX_BYTES    (4u << 20)

typedef void (*log_fn)(int level, unsigned long flags, const char *where, int line,
                       const char *format, ...);

struct net_properties {
    char *name;
    char *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, force_flush, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version;
    int vdevs, vdev[4];
    size_t max_p2p_bytes, max_coll_bytes;
    int max_multi_request;
};

struct net { // NCCL's table of a network, API v11
    const char *name;
    int (*init)(void **ctx, uint64_t comm_id, void *config, log_fn log, void *profiler);
    int (*devices)(int *n);
    int (*get_properties)(int dev, struct net_properties *props);
    int (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
    int (*connect)(void *ctx, int dev, void *handle, void **send_comm, void **device_comm);
    int (*accept)(void *listen_comm, void **recv_comm, void **device_comm);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mhandle);
    int (*dereg_mr)(void *comm, void *mhandle);
    int (*isend)(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                 void **request);
    int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                 void **phandles, void **request);
    int (*iflush)(void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *comm);
    void *get_device_mr;
    void *irecv_consumed;
    int (*make_vdevice)(int *dev, void *props);
    int (*finalize)(void *ctx);
    void *set_net_attr;
};

struct shared { // between the two processes
    int ready;  // writer: receiver, release; reader: sender, acquire
    char handle[HANDLE_BYTES];
};

static const char *role;

static void die(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", role, what);
    _exit(1);
}

static void say_nccl(int level, unsigned long flags, const char *where, int line,
                     const char *format, ...)
{
    (void)flags, (void)where, (void)line;
    if (level > 2 && !getenv("VERBOSE")) { // warnings only
        return;
    }
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "%s: nccl: ", role);
    (void)vfprintf(stderr, format, args);
    (void)fputc('\n', stderr);
    va_end(args);
}

static void *open_nccl(void)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    glob_t g;
    if (!lib && glob("/usr/local/cuda*/lib*/libnccl.so.2", 0, NULL, &g) == 0) {
        for (size_t i = 0; !lib && i < g.gl_pathc; i++) {
            lib = dlopen(g.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
        }
        globfree(&g);
    }
    return lib;
}

// The value of a symbol in the file's full table, local ones included. 0 when there is none.
static uint64_t find_symbol(const uint8_t *file, const char *name)
{
    const Elf64_Ehdr *h = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const Elf64_Sym *s = (const void *)(file + sections[i].sh_offset);
        const char *text = (const char *)file + sections[sections[i].sh_link].sh_offset;
        for (uint64_t n = sections[i].sh_size / sizeof *s; n-- > 0; s++) {
            if (strcmp(text + s->st_name, name) == 0) {
                return s->st_value;
            }
        }
    }
    return 0;
}

static const struct net *find_table(void *lib)
{
    Dl_info info;
    struct stat st;
    void *version = dlsym(lib, "ncclGetVersion");
    if (!version || !dladdr(version, &info)) {
        return NULL;
    }
    int fd = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        return NULL;
    }
    const uint8_t *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (file == MAP_FAILED) {
        return NULL;
    }
    uint64_t at = find_symbol(file, "ncclNetIb");
    (void)munmap((void *)(uintptr_t)file, (size_t)st.st_size);
    return at ? (const void *)((const uint8_t *)info.dli_fbase + at) : NULL;
}

static void check(int result, const char *what)
{
    if (result) {
        (void)fprintf(stderr, "%s: %s returned %d\n", role, what, result);
        _exit(1);
    }
}

static time_t deadline;

static void breathe(void)
{
    if (time(NULL) > deadline) {
        die("does not end");
    }
    (void)sched_yield();
}

static uint8_t byte_of(uint32_t i, uint32_t seed)
{
    return (uint8_t)(i * 13 + i / 253 + seed * 31 + 1);
}

static void wait_request(const struct net *net, void *request, int *size)
{
    int done = 0;
    while (!done) {
        check(net->test(request, &done, size), "test");
        breathe();
    }
}

static void transfer(const struct net *net, void *comm, void *mh, uint8_t *buf, int sending,
                     size_t bytes, uint32_t seed)
{
    void *request = NULL;
    int tag = 7, got = -1;
    for (uint32_t i = 0; i < bytes; i++) {
        buf[i] = sending ? byte_of(i, seed) : 0;
    }
    void *data = buf;
    while (!request) {
        if (sending) {
            check(net->isend(comm, buf, bytes, tag, mh, NULL, &request), "isend");
        } else {
            size_t room = MAX_BYTES;
            check(net->irecv(comm, 1, &data, &room, &tag, &mh, NULL, &request), "irecv");
        }
        breathe();
    }
    wait_request(net, request, &got);
    if (sending) {
        return;
    }
    if ((size_t)got != bytes) {
        die("received another size");
    }
    for (uint32_t i = 0; i < bytes; i++) {
        if (buf[i] != byte_of(i, seed)) {
            die("received wrong data");
        }
    }
}

static void run(const struct net *net, struct shared *shared, int sending)
{
    static const size_t sizes[] = {0, 1, 8, 127, 4096, 65536, 131073, 1 << 20, MAX_BYTES};
    struct net_properties props;
    void *ctx = NULL, *comm = NULL, *listener = NULL, *mh = NULL;
    int traffic_class = -1, devices = 0;
    memset(&props, 0, sizeof props);
    check(net->init(&ctx, 1, &traffic_class, say_nccl, NULL), "init");
    check(net->devices(&devices), "devices");
    if (devices < 1) {
        die("NCCL sees no device");
    }
    check(net->get_properties(0, &props), "getProperties");
    if (sending) {
        while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE)) {
            breathe();
        }
        while (!comm) {
            check(net->connect(ctx, 0, shared->handle, &comm, NULL), "connect");
            breathe();
        }
    } else {
        char handle[HANDLE_BYTES] = {0};
        check(net->listen(ctx, 0, handle, &listener), "listen");
        memcpy(shared->handle, handle, sizeof handle);
        __atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
        while (!comm) {
            check(net->accept(listener, &comm, NULL), "accept");
            breathe();
        }
    }
    uint8_t *buf = aligned_alloc(4096, MAX_BYTES);
    if (!buf) {
        die("no memory");
    }
    check(net->reg_mr(comm, buf, MAX_BYTES, PTR_HOST, &mh), "regMr");
    for (uint32_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint32_t k = 0; k < 5; k++) {
            transfer(net, comm, mh, buf, sending, sizes[s], s * 5 + k);
        }
    }
    check(net->dereg_mr(comm, mh), "deregMr");
    if (sending) {
        check(net->close_send(comm), "closeSend");
    } else {
        check(net->close_recv(comm), "closeRecv");
        check(net->close_listen(listener), "closeListen");
        (void)printf("device %s speed %d port %d maxRecvs %d: %zu sizes from 0 to %u bytes exact\n",
                     props.name, props.speed, props.port, props.max_recvs,
                     sizeof sizes / sizeof *sizes, MAX_BYTES);
    }
    check(net->finalize(ctx), "finalize");
    free(buf);
}

int main(void)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return 1;
    }
    deadline = time(NULL) + DEADLINE_S;
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    pid_t child = fork(); // before NCCL and softhca are in the process
    role = child ? "receiver" : "sender";
    (void)setenv("SOFTHCA_NODE", role, 1);
    void *lib = open_nccl();
    int version = 0;
    int (*get_version)(int *) = NULL;
    if (lib) {
        *(void **)&get_version = dlsym(lib, "ncclGetVersion"); // POSIX spells it so
    }
    const struct net *net = get_version && get_version(&version) == 0 && version == NCCL_VERSION
                                ? find_table(lib)
                                : NULL;
    if (net) {
        run(net, shared, child == 0);
    } else if (child) {
        (void)printf("skipped: %s\n", !lib                      ? "no libnccl.so.2"
                                      : version != NCCL_VERSION ? "another version of libnccl.so.2"
                                                                : "its symbols are stripped");
    }
    if (child == 0) {
        _exit(net ? 0 : SKIP);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        return 1;
    }
    return WEXITSTATUS(status);
}
