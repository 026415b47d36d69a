// SPDX-License-Identifier: Apache-2.0
// softhca-rate [--table] [SECONDS]: what the model of the NIC, as SOFTHCA_* set it, really does
// between two processes: GB/s of 256 KiB messages in both directions at once, each with its stamp
// behind it, and the time of an 8-byte write one way. One line of JSON; with --table one for each
// size too. Memory of GPUs (0 and 1, or both ends on 0) where there is one, beside a kernel that
// fills it; else of the host. Fails when something went wrong or was faster than the model.
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/softhca/rate_gpu.h"

#define AREA    (64u << 20) // of what is sent, and of what comes
#define STAMPS  4096u
#define QPS     4u
#define DEPTH   512u
#define CHAIN   8u // messages of one post
#define LATENCY 200u
#define MESSAGE 262144u
#define LIMIT_S 60.0
#define ACCESS  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define MUST(call)                                                                                 \
    do {                                                                                           \
        if (!(call)) {                                                                             \
            (void)fprintf(stderr, "softhca-rate: %s failed: %s\n", #call, strerror(errno));        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

struct hello {
    uint32_t qpn[QPS], lid, rkey[2];
    uint64_t addr[2];
};

// What both processes see.
struct meeting {
    atomic_uint arrived;    // how often a process came to a meeting point
    _Atomic uint64_t stamp; // newest that the receiver has seen
    _Atomic uint64_t at_ns; // when: before stamp
    double gbs[2];
    double echo_us;
};

struct end {
    int me, gpus;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp[QPS];
    uint8_t *data, *stamps; // data: AREA to send, AREA that comes
    struct ibv_mr *mr[2];
    struct hello peer;
    struct rate_words *words; // NULL without a GPU
    struct meeting *both;
    unsigned meetings;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); // cannot fail for this clock
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void meet(struct end *e)
{
    uint64_t end = now_ns() + (uint64_t)(LIMIT_S * 1e9);
    unsigned want = 2 * ++e->meetings;
    (void)atomic_fetch_add(&e->both->arrived, 1);
    while (atomic_load(&e->both->arrived) < want) {
        MUST(now_ns() < end);
        (void)sched_yield();
    }
}

// -- setting up ---------------------------------------------------------------------------------

static void open_memory(struct end *e)
{
    if (e->gpus) {
        MUST(rate_gpu_open(e->me % e->gpus) == 0);
        MUST((e->data = rate_gpu_alloc(2ull * AREA)) && (e->stamps = rate_gpu_alloc(8 * STAMPS)));
    } else {
        MUST((e->data = aligned_alloc(4096, 2ull * AREA)));
        MUST((e->stamps = aligned_alloc(4096, 8 * STAMPS)));
        memset(e->data, 0, 2ull * AREA);
        memset(e->stamps, 0, 8 * STAMPS);
    }
    MUST((e->mr[0] = ibv_reg_mr(e->pd, e->data, 2ull * AREA, ACCESS)));
    MUST((e->mr[1] = ibv_reg_mr(e->pd, e->stamps, 8 * STAMPS, ACCESS)));
}

static void connect_qp(struct end *e, unsigned q)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
    MUST(ibv_modify_qp(e->qp[q], &a,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = e->peer.qpn[q];
    a.ah_attr.dlid = (uint16_t)e->peer.lid;
    a.ah_attr.port_num = 1;
    a.min_rnr_timer = 12;
    MUST(ibv_modify_qp(e->qp[q], &a,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 18;
    a.retry_cnt = a.rnr_retry = 7;
    MUST(ibv_modify_qp(e->qp[q], &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void open_end(struct end *e, int sock)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_port_attr port;
    struct hello mine = {0};
    MUST(list && list[0] && (e->ctx = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    MUST((e->pd = ibv_alloc_pd(e->ctx)));
    MUST((e->cq = ibv_create_cq(e->ctx, QPS * DEPTH, NULL, NULL, 0)));
    open_memory(e);
    struct ibv_qp_init_attr init = {
        .send_cq = e->cq,
        .recv_cq = e->cq,
        .cap = {.max_send_wr = DEPTH, .max_send_sge = 1, .max_inline_data = 8},
        .qp_type = IBV_QPT_RC};
    for (unsigned q = 0; q < QPS; q++) {
        MUST((e->qp[q] = ibv_create_qp(e->pd, &init)));
        mine.qpn[q] = e->qp[q]->qp_num;
    }
    MUST(ibv_query_port(e->ctx, 1, &port) == 0);
    mine.lid = port.lid;
    for (int k = 0; k < 2; k++) {
        mine.rkey[k] = e->mr[k]->rkey;
    }
    mine.addr[0] = (uintptr_t)e->data + AREA;
    mine.addr[1] = (uintptr_t)e->stamps;
    MUST(write(sock, &mine, sizeof mine) == sizeof mine);
    MUST(recv(sock, &e->peer, sizeof e->peer, MSG_WAITALL) == sizeof e->peer);
    for (unsigned q = 0; q < QPS; q++) {
        connect_qp(e, q);
    }
}

// -- messages -----------------------------------------------------------------------------------

// Data of message i and its stamp, behind each other on one queue pair.
static void describe(const struct end *e, uint64_t i, uint32_t bytes, uint64_t slot,
                     const uint64_t *stamp, struct ibv_send_wr wr[2], struct ibv_sge sge[2])
{
    uint64_t at = i % (AREA / (bytes ? bytes : 8)) * bytes;
    memset(wr, 0, 2 * sizeof *wr);
    sge[0] = (struct ibv_sge){(uintptr_t)e->data + at, bytes, e->mr[0]->lkey};
    sge[1] = (struct ibv_sge){(uintptr_t)stamp, 8, 0};
    for (int k = 0; k < 2; k++) {
        wr[k].sg_list = &sge[k];
        wr[k].num_sge = 1;
        wr[k].opcode = IBV_WR_RDMA_WRITE;
        wr[k].wr.rdma.rkey = e->peer.rkey[k];
    }
    wr[0].wr.rdma.remote_addr = e->peer.addr[0] + at;
    wr[1].wr.rdma.remote_addr = e->peer.addr[1] + 8 * slot;
    wr[1].send_flags = IBV_SEND_INLINE;
    wr[0].next = &wr[1];
}

static unsigned poll(struct end *e)
{
    struct ibv_wc wc[32];
    int n = ibv_poll_cq(e->cq, 32, wc);
    unsigned messages = 0;
    MUST(n >= 0);
    for (int i = 0; i < n; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
            (void)fprintf(stderr, "softhca-rate: %s\n", ibv_wc_status_str(wc[i].status));
            _exit(1);
        }
        messages += (unsigned)wc[i].wr_id;
    }
    return messages;
}

// A chain of messages on one queue pair; its completion tells how many they are.
static void post_chain(struct end *e, uint64_t first, uint32_t bytes)
{
    static uint64_t epoch;
    struct ibv_send_wr wr[2 * CHAIN], *bad;
    struct ibv_sge sge[2 * CHAIN];
    epoch++;
    for (unsigned i = 0; i < CHAIN; i++) {
        describe(e, first + i, bytes, 1 + (first + i) % (STAMPS - 1), &epoch, wr + 2 * i,
                 sge + 2 * i);
        if (i) {
            wr[2 * i - 1].next = &wr[2 * i];
        }
    }
    wr[2 * CHAIN - 1].wr_id = CHAIN;
    wr[2 * CHAIN - 1].send_flags |= IBV_SEND_SIGNALED;
    MUST(ibv_post_send(e->qp[first / CHAIN % QPS], wr, &bad) == 0);
}

// GB/s that this end sends.
static double stream(struct end *e, uint32_t bytes, double seconds)
{
    uint64_t posted = 0, done = 0, start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    uint64_t warm = start + (uint64_t)(seconds * 0.25e9), warm_done = 0, warm_ns = 0, last;
    uint64_t window = (8u << 20) / bytes;
    window = window < 4 * CHAIN ? 4 * CHAIN : window > DEPTH ? DEPTH : window;
    while ((last = now_ns()) < end) {
        while (posted + CHAIN <= done + window) {
            post_chain(e, posted, bytes);
            posted += CHAIN;
        }
        done += poll(e);
        if (!warm_ns && last >= warm) {
            warm_ns = last;
            warm_done = done;
        }
    }
    double gbs = (double)(done - warm_done) * bytes / (double)(last - warm_ns);
    while (done < posted) {
        done += poll(e);
        MUST(now_ns() < end + (uint64_t)(LIMIT_S * 1e9));
    }
    return gbs;
}

static uint64_t look(const struct end *e)
{
    return e->words ? __atomic_load_n(&e->words->seen, __ATOMIC_ACQUIRE)
                    : __atomic_load_n((uint64_t *)(void *)e->stamps, __ATOMIC_ACQUIRE);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, unsigned n)
{
    qsort(x, n, sizeof *x, compare);
    return x[n / 2];
}

// us from the post to where the receiver sees the stamp; its own way to tell is taken off.
static double one_way(struct end *e, uint32_t bytes)
{
    static uint64_t stamp;
    double us[LATENCY];
    for (unsigned i = 0; i < LATENCY; i++) {
        uint64_t end = now_ns() + (uint64_t)(LIMIT_S * 1e9);
        stamp++;
        if (e->me == 1) {
            while (look(e) != stamp) {
                MUST(now_ns() < end);
            }
            atomic_store(&e->both->at_ns, now_ns());
            atomic_store(&e->both->stamp, stamp);
            continue;
        }
        struct ibv_send_wr wr[2], *bad;
        struct ibv_sge sge[2];
        describe(e, i, bytes, 0, &stamp, wr, sge);
        wr[1].send_flags |= IBV_SEND_SIGNALED;
        uint64_t start = now_ns();
        MUST(ibv_post_send(e->qp[0], bytes ? wr : wr + 1, &bad) == 0);
        while (atomic_load(&e->both->stamp) != stamp) {
            MUST(now_ns() < end);
        }
        us[i] = (double)(atomic_load(&e->both->at_ns) - start) / 1e3;
        for (unsigned n = 0; n == 0;) { // the queue pair is idle when the next one is posted
            struct ibv_wc wc;
            int got = ibv_poll_cq(e->cq, 1, &wc);
            MUST(got >= 0 && (got == 0 || wc.status == IBV_WC_SUCCESS) && now_ns() < end);
            n = (unsigned)got;
        }
    }
    return e->me == 1 ? 0 : median(us, LATENCY) - e->both->echo_us / 2;
}

// us from the host to a kernel and back.
static double echo(struct rate_words *w)
{
    double us[LATENCY];
    for (uint64_t i = 1; i <= LATENCY; i++) {
        uint64_t start = now_ns();
        __atomic_store_n(&w->ping, i, __ATOMIC_RELEASE);
        while (__atomic_load_n(&w->pong, __ATOMIC_ACQUIRE) != i) {
            MUST(now_ns() < start + (uint64_t)(LIMIT_S * 1e9));
        }
        us[i - 1] = (double)(now_ns() - start) / 1e3;
    }
    __atomic_store_n(&w->ping, UINT64_MAX, __ATOMIC_RELEASE); // now it watches the stamp
    return median(us, LATENCY);
}

// -- the measurement ----------------------------------------------------------------------------

static double setting(const char *name)
{
    const char *text = getenv(name);
    return text ? atof(text) : 0;
}

static double both_ways(struct end *e, uint32_t bytes, double seconds)
{
    meet(e);
    e->both->gbs[e->me] = stream(e, bytes, seconds);
    meet(e);
    return (e->both->gbs[0] + e->both->gbs[1]) / 2;
}

static void table(struct end *e, double seconds)
{
    static const uint32_t sizes[] = {8, 4096, 16384, 32768, 65536, 131072, 262144, 524288, 1048576};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double gbs = both_ways(e, sizes[i], seconds), us = one_way(e, sizes[i]);
        double rate = setting("SOFTHCA_MBPS") / 8000; // GB/s
        double model =
            setting("SOFTHCA_LATENCY_NS") / 1e3 + (rate > 0 ? (sizes[i] + 8) / rate / 1e3 : 0);
        if (e->me == 0) {
            (void)printf("{\"bytes\": %u, \"gbs\": %.2f, \"one_way_us\": %.2f, \"model_us\": %.2f, "
                         "\"over_us\": %.2f}\n",
                         sizes[i], gbs, us, model, us - model);
        }
    }
}

static int measure(struct end *e, int with_table, double seconds)
{
    double us = (meet(e), one_way(e, 0)), gbs = 0;
    for (int i = 0; i < 2; i++) { // the first one warms up
        gbs = both_ways(e, MESSAGE, seconds);
    }
    double rate = setting("SOFTHCA_MBPS") / 8000, latency = setting("SOFTHCA_LATENCY_NS") / 1e3;
    if (with_table) {
        table(e, seconds);
    }
    if (e->me == 1) {
        return 0;
    }
    (void)printf("{\"model_gbs\": %.2f, \"model_latency_us\": %.2f, \"bytes\": %u, "
                 "\"set_gbs\": %.2f, \"set_latency_us\": %.2f, \"gpus\": %d, \"echo_us\": %.2f}\n",
                 gbs, us, MESSAGE, rate, latency, e->gpus, e->both->echo_us);
    double slack = CHAIN * MESSAGE / (0.75e9 * seconds); // completions come in chains
    if ((rate > 0 && gbs > 1.02 * rate + slack) || us < 0.98 * latency) {
        (void)fprintf(stderr, "softhca-rate: faster than the model\n");
        return 1;
    }
    return 0;
}

static int run(int me, int sock, struct meeting *both, int with_table, double seconds)
{
    static struct end e;
    uint64_t end = UINT64_MAX;
    struct ibv_send_wr wr[2], *bad;
    struct ibv_sge sge[2];
    e.me = me;
    e.both = both;
    e.gpus = rate_gpu_count();
    open_end(&e, sock);
    meet(&e);
    (void)stream(&e, 65536, 0.3); // until memory is mapped, which a kernel would hold up
    meet(&e);
    if (e.gpus) {
        MUST((e.words = rate_gpu_fill(e.stamps, LIMIT_S / 2)));
        double us = echo(e.words);
        both->echo_us = me ? us : both->echo_us; // the receiver's
    }
    meet(&e);
    int status = measure(&e, with_table, seconds);
    (void)fflush(stdout);
    meet(&e);
    if (e.gpus) { // the kernel at the other end may stop
        describe(&e, 0, 0, 0, &end, wr, sge);
        MUST(ibv_post_send(e.qp[0], wr + 1, &bad) == 0);
        MUST(rate_gpu_wait() == 0);
        meet(&e);
    }
    return status;
}

int main(int argc, char **argv)
{
    int with_table = argc > 1 && strcmp(argv[1], "--table") == 0, pair[2], status = 1;
    double seconds = argc > 1 + with_table ? atof(argv[1 + with_table]) : 0.1;
    char node[32];
    struct meeting *both =
        mmap(NULL, sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(seconds > 0 && both != MAP_FAILED);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    (void)snprintf(node, sizeof node, "rate-%d", (int)getpid());
    pid_t child = fork(); // before CUDA, which does not survive it
    MUST(child >= 0);
    node[4] = child ? '-' : '+'; // two nodes
    MUST(setenv("SOFTHCA_NODE", node, 1) == 0);
    (void)close(pair[child ? 1 : 0]);
    if (child == 0) {
        _exit(run(1, pair[1], both, with_table, seconds));
    }
    int failed = run(0, pair[0], both, with_table, seconds);
    MUST(waitpid(child, &status, 0) == child);
    return failed || status;
}
