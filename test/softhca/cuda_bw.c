// SPDX-License-Identifier: Apache-2.0
// cuda_bw [SECONDS [WINDOW]]: RDMA WRITE between the memories of two processes over softhca:
// bandwidth with WINDOW messages under way, and the time of a message alone. One line of JSON for
// each kind of memory and size. Runs with a GPU, or with the fake driver for a check of the program
// itself.
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AREA   (64u << 20) // of each kind of memory
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define MUST(call)                                                                                 \
    do {                                                                                           \
        if (!(call)) {                                                                             \
            (void)fprintf(stderr, "cuda_bw: %s failed: %s\n", #call, strerror(errno));             \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

struct end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    uint8_t *area[2]; // host, device
    struct ibv_mr *mr[2];
};

struct hello {
    uint32_t qpn, lid, rkey[2];
    uint64_t addr[2];
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); // cannot fail for this clock
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *cuda_call(void *lib, const char *name)
{
    void *at = dlsym(lib, name);
    MUST(at != NULL);
    return at;
}

static uint8_t *device_area(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*alloc)(uint64_t *, size_t);
    uint64_t addr = 0;
    if (!lib) {
        (void)fprintf(stderr, "cuda_bw: %s\n", dlerror());
        _exit(77);
    }
    *(void **)&init = cuda_call(lib, "cuInit");
    *(void **)&retain = cuda_call(lib, "cuDevicePrimaryCtxRetain");
    *(void **)&set = cuda_call(lib, "cuCtxSetCurrent");
    *(void **)&alloc = cuda_call(lib, "cuMemAlloc_v2");
    MUST(init(0) == 0 && retain(&context, 0) == 0 && set(context) == 0 && alloc(&addr, AREA) == 0);
    return (uint8_t *)(uintptr_t)addr;
}

static void modify(struct end *e, struct ibv_qp_attr *a, int mask)
{
    MUST(ibv_modify_qp(e->qp, a, mask) == 0);
}

// Opens everything and connects it to the process at the other end of sock.
static struct hello meet(struct end *e, int sock)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    MUST(list && list[0] && (e->ctx = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    MUST((e->pd = ibv_alloc_pd(e->ctx)) && (e->cq = ibv_create_cq(e->ctx, 1024, NULL, NULL, 0)));
    e->area[0] = aligned_alloc(4096, AREA);
    e->area[1] = device_area();
    MUST(e->area[0] != NULL);
    for (int k = 0; k < 2; k++) {
        MUST((e->mr[k] = ibv_reg_mr(e->pd, e->area[k], AREA, ACCESS)));
    }
    struct ibv_qp_init_attr init = {.send_cq = e->cq,
                                    .recv_cq = e->cq,
                                    .cap = {.max_send_wr = 512, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    MUST((e->qp = ibv_create_qp(e->pd, &init)));
    struct ibv_port_attr port;
    MUST(ibv_query_port(e->ctx, 1, &port) == 0);
    struct hello mine = {.qpn = e->qp->qp_num, .lid = port.lid}, theirs;
    for (int k = 0; k < 2; k++) {
        mine.rkey[k] = e->mr[k]->rkey;
        mine.addr[k] = (uintptr_t)e->area[k];
    }
    MUST(write(sock, &mine, sizeof mine) == sizeof mine);
    MUST(recv(sock, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
    modify(e, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = theirs.qpn;
    a.ah_attr.dlid = (uint16_t)theirs.lid;
    a.ah_attr.port_num = 1;
    a.min_rnr_timer = 12;
    modify(e, &a,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 18;
    a.retry_cnt = a.rnr_retry = 7;
    modify(e, &a,
           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC);
    char ready = 1;
    MUST(write(sock, &ready, 1) == 1 && recv(sock, &ready, 1, MSG_WAITALL) == 1);
    return theirs;
}

// Messages of size bytes for some seconds; returns how many ended, and the time.
static uint64_t stream(struct end *e, const struct hello *to, int from_kind, int to_kind,
                       uint32_t size, unsigned window, double seconds, double *out_seconds)
{
    uint64_t posted = 0, done = 0, slots = AREA / size;
    double start = now(), end = start + seconds;
    while (done < posted || now() < end) {
        while (posted - done < window && now() < end) {
            uint64_t at = posted % slots * size;
            struct ibv_sge sge = {(uintptr_t)e->area[from_kind] + at, size, e->mr[from_kind]->lkey};
            struct ibv_send_wr wr = {.sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_RDMA_WRITE,
                                     .send_flags = IBV_SEND_SIGNALED},
                               *bad;
            wr.wr.rdma.remote_addr = to->addr[to_kind] + at;
            wr.wr.rdma.rkey = to->rkey[to_kind];
            MUST(ibv_post_send(e->qp, &wr, &bad) == 0);
            posted++;
        }
        struct ibv_wc wc[32];
        int n = ibv_poll_cq(e->cq, 32, wc);
        for (int i = 0; i < n; i++) {
            if (wc[i].status != IBV_WC_SUCCESS) {
                (void)fprintf(stderr, "cuda_bw: %s\n", ibv_wc_status_str(wc[i].status));
                _exit(1);
            }
        }
        done += n > 0 ? (uint64_t)n : 0;
    }
    *out_seconds = now() - start;
    return done;
}

static void measure(struct end *e, const struct hello *to, double seconds, unsigned window)
{
    static const char *const names[] = {"host", "device"};
    static const uint32_t sizes[] = {8, 4096, 65536, 524288, 1048576, 4194304};
    double took;
    (void)stream(e, to, 1, 1, 4096, 1, 0.5 < seconds ? 0.5 : seconds, &took); // until it is mapped
    for (int kinds = 3; kinds >= 0; kinds--) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            double alone, many;
            int from = kinds & 1, dest = kinds >> 1;
            uint64_t n = stream(e, to, from, dest, sizes[i], 1, seconds / 2, &alone);
            uint64_t m = stream(e, to, from, dest, sizes[i], window, seconds, &many);
            (void)printf("{\"from\": \"%s\", \"to\": \"%s\", \"bytes\": %u, \"alone_us\": %.2f, "
                         "\"window\": %u, \"GBps\": %.3f}\n",
                         names[from], names[dest], sizes[i], alone / (double)n * 1e6, window,
                         (double)m * sizes[i] / many * 1e-9);
            (void)fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 0.2;
    unsigned window = argc > 2 ? (unsigned)atoi(argv[2]) : 16;
    int pair[2], status = 1;
    struct end e;
    MUST(seconds > 0 && window > 0 && window <= 512);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork(); // before CUDA, which does not survive it
    MUST(child >= 0);
    if (child == 0) {
        char over;
        (void)close(pair[0]);
        (void)setenv("SOFTHCA_NODE", "b", 1);
        (void)meet(&e, pair[1]);
        _exit(recv(pair[1], &over, 1, MSG_WAITALL) == 1 ? 0 : 1);
    }
    (void)close(pair[1]);
    (void)setenv("SOFTHCA_NODE", "a", 1);
    struct hello to = meet(&e, pair[0]);
    measure(&e, &to, seconds, window);
    MUST(write(pair[0], "", 1) == 1 && waitpid(child, &status, 0) == child);
    return status;
}
