// SPDX-License-Identifier: Apache-2.0
// Receiving: a group of receives is announced to the sender by one write, and is complete when the
// immediates of all its parts have come. Flushes of GPU memory.
#include <errno.h>
#include <string.h>

#include "plugin/net_comm.h"
#include "plugin/net_profiler.h"

static void fill(struct net_cts *cts, void *data, size_t size, int tag, const struct net_mr *mr,
                 uint32_t parts, uint64_t stamp)
{
    cts->address = (uintptr_t)data;
    cts->bytes = size;
    if (mr != NULL) {
        memcpy(cts->rkey, mr->rkey, sizeof(cts->rkey));
    }
    cts->tag = (uint32_t)tag;
    cts->parts = parts;
    cts->stamp = stamp;
}

int net_recv_announce(struct net_recv *r, uint64_t slot, uint32_t parts)
{
    struct net_comm *c = &r->base;
    struct net_lane *l = c->live[0];
    struct ibv_send_wr *bad, *wr = &r->cts_wr;
    uint32_t before = l->unsignalled;
    uint32_t signalled = ++l->unsignalled < NET_CTS_SIGNAL ? 0 : l->unsignalled;
    int rc;

    r->cts_sge.addr = (uintptr_t)r->words->cts[slot];
    r->cts_sge.length = parts * (uint32_t)sizeof(struct net_cts);
    r->cts_sge.lkey = l->words_lkey;
    wr->wr_id = net_wr_id(NET_WORK_CTS, l->index, signalled, 0);
    wr->send_flags = (r->cts_sge.length <= l->inline_bytes ? IBV_SEND_INLINE : 0) |
                     (signalled != 0 ? IBV_SEND_SIGNALED : 0);
    wr->wr.rdma.remote_addr = c->peer_words + offsetof(struct net_send_words, cts[slot]);
    wr->wr.rdma.rkey = l->peer_words_rkey;
    l->unsignalled = signalled != 0 ? 0 : l->unsignalled;
    rc = ibv_post_send(l->qp, wr, &bad);
    if (rc == ENOMEM) {
        l->unsignalled = before;
        return -EAGAIN;
    }
    if (rc != 0) {
        return net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR,
                             "device %s:%d qp 0x%x does not take a clear-to-send: %s",
                             c->rail[l->rail].device->name, c->rail[l->rail].device->port,
                             l->qp->qp_num, strerror(rc));
    }
    l->room--;
    return 0;
}

static void start_events(struct net_comm *c, const struct net_lane *l, struct net_request *request,
                         int n, void **phandles)
{
    for (int i = 0; i < n; i++) {
        if (phandles[i] != NULL) {
            gemmar_net_profile_start(c->profiler, phandles[i], (int)l->rail, l->qp->qp_num, 0, 0, 0,
                                     &request->event[i]);
        }
    }
}

/* No announcement can be sent now. */
static int no_room(struct net_comm *c)
{
    int rc = net_failover_due(c) ? net_failover_step(c) : net_comm_poll(c);

    return rc == 0 && ++c->idle % NET_IDLE_TURNS == 0 ? net_comm_check(c) : rc;
}

int gemmar_net_irecv(void *recv, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                     void **phandles, void **out_request)
{
    struct net_recv *r = recv;
    struct net_comm *c = &r->base;
    uint64_t sequence = c->head, slot = sequence % NET_SLOTS;
    struct net_request *request = &r->request[slot];
    struct net_cts *cts = r->words->cts[slot];
    struct net_lane *l = c->live[0];
    int rc;

    *out_request = NULL;
    if (c->failed != 0) {
        return c->failed;
    }
    if (n < 1 || n > NET_PARTS) {
        return net_comm_fail(c, GEMMAR_NCCL_INVALID_ARGUMENT, "a group of %d receives", n);
    }
    if (request->state != NET_REQUEST_FREE) {
        return GEMMAR_NCCL_SUCCESS;
    }
    if (l->room == 0) {
        return no_room(c);
    }
    for (int i = 0; i < n; i++) {
        fill(&cts[i], data[i], sizes[i], tags[i], mhandles[i], (uint32_t)n, sequence + 1);
        request->bytes[i] = sizes[i];
    }
    rc = net_recv_announce(r, slot, (uint32_t)n);
    if (rc != 0) {
        return rc == -EAGAIN ? net_comm_poll(c) : rc;
    }
    if (phandles != NULL) {
        start_events(c, l, request, n, phandles);
    }
    request->state = NET_REQUEST_RECV;
    request->parts = (uint8_t)n;
    request->pending = (uint16_t)((1u << n) - 1);
    request->sequence = sequence;
    c->head = sequence + 1;
    *out_request = request;
    return GEMMAR_NCCL_SUCCESS;
}

/* Index of a receive whose data went to GPU memory; -1: none. A read of any of them pushes all that
 * the device wrote before. */
static int to_flush(int n, const int *sizes, void **mhandles)
{
    int last = -1;

    for (int i = 0; i < n; i++) {
        const struct net_mr *mr = mhandles[i];

        if (sizes[i] > 0 && mr != NULL && mr->type == GEMMAR_NET_PTR_CUDA) {
            last = i;
        }
    }
    return last;
}

static struct net_request *free_flush(struct net_recv *r)
{
    for (uint32_t i = 0; i < NET_SLOTS; i++) {
        struct net_request *request = &r->flush[r->flushes++ % NET_SLOTS];

        if (request->state == NET_REQUEST_FREE) {
            return request;
        }
    }
    return NULL;
}

/* One rail's read of a flush; it counts as pending already. */
static int flush_rail(struct net_recv *r, struct net_request *request, uint32_t i)
{
    struct net_comm *c = &r->base;
    struct net_rail *rail = &c->rail[i];
    int rc = 0;

    request->again &= (uint8_t) ~(1u << i);
    if (gemmar_load_acquire(&rail->device->port_down) != 0 && c->rails > 1) {
        request->pending--; /* what it wrote is long in place, and it carries no read */
        return 0;
    }
    if (rail->flush_failed && gemmar_ib_flush_pending(rail->flush) > 0) {
        request->again |= (uint8_t)(1u << i); /* once all have come back */
        return 0;
    }
    if (rail->flush_failed) {
        gemmar_ib_flush_close(rail->flush);
        rail->flush = NULL;
        rail->flush_failed = false;
    }
    if (rail->flush == NULL) {
        rc = gemmar_ib_flush_open(rail->device, rail->cq, NET_SLOTS, &rail->flush);
    }
    if (rc == 0) {
        rc = gemmar_ib_flush_post(rail->flush, net_wr_id(NET_WORK_FLUSH, i, 0, request->index),
                                  request->data, request->mr->rkey[i]);
    }
    return rc == 0 ? 0
                   : net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR, "cannot post a flush: %s",
                                   strerror(-rc));
}

int net_recv_flush_again(struct net_request *request)
{
    struct net_comm *c = request->comm;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < c->rails; i++) {
        if ((request->again >> i & 1) != 0) {
            rc = flush_rail((struct net_recv *)c, request, i);
        }
    }
    return rc;
}

int gemmar_net_iflush(void *recv, int n, void **data, int *sizes, void **mhandles,
                      void **out_request)
{
    struct net_recv *r = recv;
    struct net_comm *c = &r->base;
    struct net_request *request;
    int last, rc = 0;

    *out_request = NULL;
    if (c->failed != 0) {
        return c->failed;
    }
    last = c->hold.core->knobs.gdr_flush_disable ? -1 : to_flush(n, sizes, mhandles);
    if (last < 0) {
        return GEMMAR_NCCL_SUCCESS;
    }
    request = free_flush(r);
    if (request == NULL) { /* success without a request would mean that none is needed */
        return net_comm_fail(c, GEMMAR_NCCL_INTERNAL_ERROR, "more than %d flushes under way",
                             NET_SLOTS);
    }
    request->data = (uintptr_t)data[last];
    request->mr = mhandles[last];
    request->pending = (uint16_t)c->rails;
    for (uint32_t i = 0; rc == 0 && i < c->rails; i++) {
        rc = flush_rail(r, request, i);
    }
    if (rc != 0) {
        return rc;
    }
    request->state = NET_REQUEST_FLUSH;
    request->parts = 0;
    *out_request = request;
    return GEMMAR_NCCL_SUCCESS;
}
