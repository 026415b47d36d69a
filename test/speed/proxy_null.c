// SPDX-License-Identifier: Apache-2.0
// The proxy over a verbs provider that does nothing, single-threaded: for counting instructions.
//
// usage: proxy_null [COMMANDS [BATCH [QUEUE_PAIRS]]]
// Every turn finds BATCH commands (8); the provider completes whatever is signalled at once. Under
// callgrind, --toggle-collect=gemmar_proxy_turn counts the proxy alone, and the null_ functions are
// the provider's.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "transport/channel.h"
#include "transport/fifo.h"
#include "transport/ib_device.h"

#define SLOTS      64u
#define SLOT_BYTES 4096u

/* A completion queue: the signalled work requests, in order. */
struct null_cq {
    struct ibv_cq cq;
    struct ibv_wc wc[1024];
    unsigned head, tail;
};

static unsigned long posted, doorbells;

static int null_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct null_cq *cq = (struct null_cq *)qp->send_cq;

    (void)bad;
    doorbells++;
    for (; wr != NULL; wr = wr->next) {
        posted++;
        if (wr->send_flags & IBV_SEND_SIGNALED) {
            struct ibv_wc *wc = &cq->wc[cq->tail++ % 1024];

            wc->wr_id = wr->wr_id;
            wc->status = IBV_WC_SUCCESS;
            wc->opcode = IBV_WC_RDMA_WRITE;
            wc->qp_num = qp->qp_num;
        }
    }
    return 0;
}

static int null_poll_cq(struct ibv_cq *at, int count, struct ibv_wc *wc)
{
    struct null_cq *cq = (struct null_cq *)at;
    int n = 0;

    while (n < count && cq->head != cq->tail) {
        wc[n++] = cq->wc[cq->head++ % 1024];
    }
    return n;
}

static struct ibv_mr *null_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    struct ibv_mr *mr = calloc(1, sizeof(*mr));

    (void)access;
    if (mr != NULL) {
        mr->pd = pd;
        mr->addr = address;
        mr->length = length;
        mr->lkey = mr->rkey = 1;
    }
    return mr;
}

static int null_dereg_mr(struct ibv_mr *mr)
{
    free(mr);
    return 0;
}

static struct ibv_cq *null_create_cq(struct ibv_context *context, int entries, void *user,
                                     struct ibv_comp_channel *channel, int vector)
{
    struct null_cq *cq = calloc(1, sizeof(*cq));

    (void)user;
    (void)channel;
    (void)vector;
    if (cq == NULL) {
        return NULL;
    }
    cq->cq.context = context;
    cq->cq.cqe = entries;
    return &cq->cq;
}

static int null_destroy_cq(struct ibv_cq *cq)
{
    free(cq);
    return 0;
}

static struct ibv_qp *null_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    static uint32_t number = 0x10;
    struct ibv_qp *qp = calloc(1, sizeof(*qp));

    if (qp != NULL) {
        qp->context = pd->context;
        qp->pd = pd;
        qp->send_cq = attr->send_cq;
        qp->recv_cq = attr->recv_cq;
        qp->qp_num = number++;
    }
    return qp;
}

static int null_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)mask;
    qp->state = attr->qp_state;
    return 0;
}

static int null_destroy_qp(struct ibv_qp *qp)
{
    free(qp);
    return 0;
}

static void fail(const char *what, int rc)
{
    (void)fprintf(stderr, "proxy_null: %s: %s\n", what, strerror(-rc));
    exit(1);
}

static void check(const char *what, int rc)
{
    if (rc != 0) {
        fail(what, rc);
    }
}

static struct ibv_context context = {.ops = {.post_send = null_post_send, .poll_cq = null_poll_cq}};
static struct ibv_pd pd = {.context = &context};
static const struct gemmar_ib_verbs verbs = {.reg_mr = null_reg_mr,
                                             .dereg_mr = null_dereg_mr,
                                             .create_cq = null_create_cq,
                                             .destroy_cq = null_destroy_cq,
                                             .create_qp = null_create_qp,
                                             .modify_qp = null_modify_qp,
                                             .destroy_qp = null_destroy_qp};
static struct gemmar_knobs knobs;
static const struct gemmar_logger logger = {.level = GEMMAR_LOG_WARN};
static struct gemmar_ib_device device = {.verbs = &verbs,
                                         .knobs = &knobs,
                                         .log = &logger,
                                         .context = &context,
                                         .pd = &pd,
                                         .attr = {.max_qp_wr = 16384, .max_cqe = 65536},
                                         .port_attr = {.state = IBV_PORT_ACTIVE,
                                                       .max_msg_sz = 1u << 30,
                                                       .active_mtu = IBV_MTU_4096,
                                                       .lid = 1,
                                                       .link_layer = IBV_LINK_LAYER_INFINIBAND},
                                         .name = "null",
                                         .numa_node = -1,
                                         .port = 1,
                                         .gid_index = -1,
                                         .mr_lock = PTHREAD_MUTEX_INITIALIZER,
                                         .watch_lock = PTHREAD_MUTEX_INITIALIZER,
                                         .stop_fd = -1};

static struct gemmar_channel *open_channel(uint32_t queue_pairs, void *memory, size_t bytes)
{
    static uint64_t abort_word, stamps[2 * SLOTS] __attribute__((aligned(4096)));
    uint32_t peers[1] = {0}, devices[1] = {0};
    struct gemmar_route_settings route = {.window_bytes = (uint64_t)SLOTS * SLOT_BYTES,
                                          .slots = SLOTS,
                                          .stamp_offset = {0, sizeof(stamps) / 2}};
    struct gemmar_channel_settings s = {
        .size = sizeof(s),
        .peer_count = 1,
        .peer_ranks = peers,
        .route_count = 1,
        .device_count = 1,
        .routes = &route,
        .devices = devices,
        .data = {.address = memory, .length = bytes, .dmabuf_fd = -1},
        .stamps = {.address = stamps, .length = sizeof(stamps), .dmabuf_fd = -1},
        .queue_pairs_per_peer = queue_pairs,
        .ring_entries = 64,
        .numa_node = -1,
        .first_epoch = 1,
        .timeout_ns = 1000000000,
        .abort_word = &abort_word};
    struct gemmar_channel *channel;
    static char blob[GEMMAR_CONNECT_BLOB_BYTES];

    check("open", gemmar_channel_open(&device, 1, &logger, &s, &channel));
    check("blob", gemmar_channel_blob(channel, 0, blob));
    check("connect", gemmar_channel_connect(channel, 0, blob));
    return channel;
}

static unsigned long argument(int argc, char **argv, int i, unsigned long otherwise)
{
    return argc > i ? strtoul(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    unsigned long commands = argument(argc, argv, 1, 100000), batch = argument(argc, argv, 2, 8);
    uint32_t queue_pairs = (uint32_t)argument(argc, argv, 3, 1);
    size_t bytes = 2 * (size_t)SLOTS * SLOT_BYTES;
    void *memory = aligned_alloc(4096, bytes);
    struct gemmar_channel *channel;
    uint64_t ticket = 0, tail = 0;

    if (memory == NULL || batch == 0 || batch > 32 || queue_pairs == 0) {
        fail("arguments", -EINVAL);
    }
    memset(memory, 0, bytes);
    channel = open_channel(queue_pairs, memory, bytes);
    while (ticket < commands) {
        for (unsigned long i = 0; i < batch; i++) {
            uint64_t epoch = 1 + ticket / SLOTS;
            struct gemmar_fifo_request r = {.offset = ticket % SLOTS * SLOT_BYTES,
                                            .length = SLOT_BYTES,
                                            .slot = (uint32_t)(ticket % SLOTS),
                                            .epoch = (uint32_t)epoch};

            if (!gemmar_fifo_produce(&channel->fifo.ring, &ticket, &tail, &r, NULL)) {
                fail("the ring is full", -EAGAIN);
            }
        }
        if (!gemmar_proxy_turn(channel)) {
            fail("the proxy found nothing", -EIO);
        }
    }
    while (*channel->fifo.retired != ticket) {
        (void)gemmar_proxy_turn(channel);
    }
    (void)printf("commands %llu writes %lu doorbells %lu\n", (unsigned long long)ticket, posted,
                 doorbells);
    if (posted != 2 * ticket) {
        fail("work requests are missing", -EIO);
    }
    gemmar_channel_close(channel);
    free(memory);
    return 0;
}
