// SPDX-License-Identifier: Apache-2.0
// Sending: a receive that the peer has announced is matched by tag, its data written into place,
// and told by an immediate behind the data on each queue pair that carried some of it.
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "plugin/net_comm.h"
#include "plugin/net_profiler.h"
#include "transport/order.h"

#define STRIPE_LEAST    (1u << 15) /* bytes of a stripe, on average: shorter messages go whole */
#define STRIPE_OVERHEAD 4096u      /* bytes that a message costs beside its own */
#define SERVED_UNIT     64u

/* The part of the group at the head that a tag belongs to: the first one not taken. -1: none, or
 * the group has not arrived as a whole. */
static int match(const struct net_send *s, const struct net_cts *group, int tag)
{
    uint64_t stamp = s->base.head + 1;
    int found = -1;

    for (uint32_t i = 0; i < group[0].parts && i < NET_PARTS; i++) {
        if (gemmar_load_acquire(&group[i].stamp) != stamp) {
            return -1;
        }
        if (found < 0 && group[i].tag == (uint32_t)tag && (s->taken & 1u << i) == 0) {
            found = (int)i;
        }
    }
    return found;
}

static void take(struct net_send *s, const struct net_cts *group, uint32_t part)
{
    s->taken |= 1u << part;
    if (s->taken == (1u << group[0].parts) - 1) {
        s->taken = 0;
        s->base.head++;
    }
}

/* A stripe of a message: where it lies, how many there are. */
struct stripe {
    uint64_t offset, bytes;
    uint32_t count;
    bool with_size; /* the message's size goes ahead of the immediate */
};

static void set(struct net_send *s, const struct net_lane *l, uint32_t n, uint64_t from,
                uint64_t bytes, uint32_t lkey)
{
    s->wr[n].wr_id = net_wr_id(NET_WORK_PIECE, l->index, 0, 0);
    s->sge[n] = (struct ibv_sge){.addr = from, .length = (uint32_t)bytes, .lkey = lkey};
    s->wr[n].num_sge = bytes > 0; /* some providers take a length of 0 for 2^31 */
    s->wr[n].opcode = IBV_WR_RDMA_WRITE;
    s->wr[n].send_flags = 0;
}

static void aim(struct net_send *s, uint32_t n, uint64_t address, uint32_t rkey)
{
    s->wr[n].wr.rdma.remote_addr = address;
    s->wr[n].wr.rdma.rkey = rkey;
}

/* The data ahead of the immediate, in pieces that the device takes. Returns the next index. */
static uint32_t build_data(struct net_send *s, struct net_request *m, const struct net_lane *l,
                           const struct stripe *stripe)
{
    uint32_t n = 0;

    for (uint64_t done = 0; done < stripe->bytes; n++) {
        uint64_t left = stripe->bytes - done, piece = left < l->longest ? left : l->longest;
        uint64_t offset = stripe->offset + done;

        set(s, l, n, m->data + offset, piece, m->mr->lkey[l->rail]);
        aim(s, n, m->cts->address + offset, m->cts->rkey[l->peer_rail]);
        done += piece;
    }
    return n;
}

static uint32_t build_size(struct net_send *s, struct net_request *m, const struct net_lane *l,
                           uint32_t n)
{
    uint64_t slot = m->sequence % NET_SLOTS, *size = &s->words->bytes[slot][m->part];

    *size = m->bytes[0];
    set(s, l, n, (uintptr_t)size, sizeof(*size), l->words_lkey);
    aim(s, n, s->base.peer_words + offsetof(struct net_recv_words, bytes[slot][m->part]),
        l->peer_words_rkey);
    s->wr[n].send_flags = l->inline_bytes >= sizeof(*size) ? IBV_SEND_INLINE : 0;
    return n + 1;
}

/* The immediate, with the stripe's data unless that went ahead. */
static uint32_t build_immediate(struct net_send *s, struct net_request *m, const struct net_lane *l,
                                const struct stripe *stripe, uint32_t n, bool ahead)
{
    uint32_t imm = stripe->count > 1 || m->bytes[0] > NET_IMM_SHORT_BYTES
                       ? net_imm_striped(m->sequence, m->part, stripe->count)
                       : net_imm_short(m->sequence, m->part, (uint32_t)m->bytes[0]);

    if (ahead || stripe->bytes == 0) {
        /* a receive of no bytes may have no registration: name memory that exists */
        set(s, l, n, 0, 0, 0);
        aim(s, n, s->base.peer_words, l->peer_words_rkey);
    } else {
        set(s, l, n, m->data + stripe->offset, stripe->bytes, m->mr->lkey[l->rail]);
        aim(s, n, m->cts->address + stripe->offset, m->cts->rkey[l->peer_rail]);
        if (stripe->bytes <= l->inline_bytes && m->mr->type == GEMMAR_NET_PTR_HOST) {
            s->wr[n].send_flags = IBV_SEND_INLINE;
        }
    }
    s->wr[n].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    s->wr[n].send_flags |= IBV_SEND_SIGNALED;
    s->wr[n].imm_data = htonl(imm);
    return n + 1;
}

/* Work requests of one stripe in s->wr. Returns their number. */
static uint32_t build(struct net_send *s, struct net_request *m, const struct net_lane *l,
                      const struct stripe *stripe)
{
    bool ahead = stripe->with_size || stripe->bytes > s->adaptive || stripe->bytes > l->longest;
    uint32_t n = ahead ? build_data(s, m, l, stripe) : 0;

    if (stripe->with_size) {
        n = build_size(s, m, l, n);
    }
    return build_immediate(s, m, l, stripe, n, ahead);
}

/* Post one stripe. 0, ENOMEM when nothing was posted for want of room, or another errno. */
static int post(struct net_send *s, struct net_request *m, struct net_lane *l,
                const struct stripe *stripe)
{
    uint32_t n = build(s, m, l, stripe);
    struct ibv_send_wr *bad;
    int rc;

    for (uint32_t i = 0; i + 1 < n; i++) {
        s->wr[i].wr_id = net_wr_id(NET_WORK_PIECE, l->index, 0, m->index);
    }
    s->wr[n - 1].wr_id = net_wr_id(NET_WORK_DATA, l->index, n, m->index);
    s->wr[n - 1].next = NULL;
    rc = ibv_post_send(l->qp, s->wr, &bad);
    s->wr[n - 1].next = &s->wr[n];
    if (rc != 0) {
        return rc == ENOMEM && bad != s->wr ? EIO : rc;
    }
    l->room -= n;
    l->messages++;
    l->bytes += stripe->bytes;
    m->pending++;
    l->served += (stripe->bytes + STRIPE_OVERHEAD) * SERVED_UNIT / l->weight;
    if (m->phandle != NULL && m->pending <= NET_PARTS) {
        gemmar_net_profile_start(s->base.profiler, m->phandle, (int)l->rail, l->qp->qp_num,
                                 stripe->bytes, s->wr[n - 1].wr_id, IBV_WR_RDMA_WRITE_WITH_IMM,
                                 &m->event[m->pending - 1]);
    }
    return 0;
}

/* The lane that has been given the least work for its speed. */
static struct net_lane *idlest(struct net_comm *c)
{
    struct net_lane *found = c->live[0];

    for (uint32_t i = 1; i < c->live_lanes; i++) {
        found = c->live[i]->served < found->served ? c->live[i] : found;
    }
    return found;
}

/* The lanes of a long message: one of each path, or all when NCCL_IB_SPLIT_DATA_ON_QPS says so. */
static uint32_t spread(struct net_send *s, struct net_lane **out)
{
    struct net_comm *c = &s->base;
    uint32_t first = c->paths * (s->turn++ % c->queue_pairs);

    if (s->split) {
        memcpy(out, c->live, c->live_lanes * sizeof(*out));
        return c->live_lanes;
    }
    for (uint32_t i = 0; i < c->live_paths; i++) {
        out[i] = &c->lane[first + c->live_path[i]];
    }
    return c->live_paths;
}

/* Work requests that a stripe of at most `bytes` needs. */
static uint32_t needed(const struct net_lane *l, uint64_t bytes)
{
    return 2 + (bytes > l->longest ? (uint32_t)((bytes + l->longest - 1) / l->longest) : 1);
}

static int cannot_post(struct net_send *s, const struct net_lane *l, int rc)
{
    const struct gemmar_ib_device *d = s->base.rail[l->rail].device;

    return net_comm_fail(&s->base, GEMMAR_NCCL_SYSTEM_ERROR,
                         "device %s:%d qp 0x%x does not take a send: %s", d->name, d->port,
                         l->qp->qp_num, strerror(rc));
}

/* Shares by weight, cut at NET_STRIPE_ALIGN; the last lane takes the rest. */
static int post_striped(struct net_send *s, struct net_request *m)
{
    struct net_lane *lanes[NET_MAX_LANES];
    uint64_t weights = 0, offset = 0, share[NET_MAX_LANES];
    uint32_t count = spread(s, lanes), stripes = 0;

    for (uint32_t i = 0; i < count; i++) {
        weights += lanes[i]->weight;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t left = m->bytes[0] - offset;
        uint64_t part = (uint64_t)((double)m->bytes[0] * lanes[i]->weight / (double)weights);

        part = (part + NET_STRIPE_ALIGN - 1) / NET_STRIPE_ALIGN * NET_STRIPE_ALIGN;
        share[i] = i + 1 == count || part > left ? left : part;
        offset += share[i];
        stripes += share[i] > 0;
        if (lanes[i]->room < needed(lanes[i], share[i])) {
            return -EAGAIN;
        }
    }
    offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct stripe stripe = {
            .offset = offset, .bytes = share[i], .count = stripes, .with_size = offset == 0};
        int rc = share[i] > 0 ? post(s, m, lanes[i], &stripe) : 0;

        if (rc != 0) {
            return offset == 0 && rc == ENOMEM ? -EAGAIN : cannot_post(s, lanes[i], rc);
        }
        offset += share[i];
    }
    return 0;
}

static int post_whole(struct net_send *s, struct net_request *m)
{
    const struct stripe whole = {
        .bytes = m->bytes[0], .count = 1, .with_size = m->bytes[0] > NET_IMM_SHORT_BYTES};
    struct net_lane *l = idlest(&s->base);
    int rc;

    if (l->room < needed(l, m->bytes[0])) {
        return -EAGAIN;
    }
    rc = post(s, m, l, &whole);
    if (rc == ENOMEM) {
        return -EAGAIN;
    }
    return rc != 0 ? cannot_post(s, l, rc) : 0;
}

/* 0, -EAGAIN when there is no room, or the communicator's result. */
static int post_message(struct net_send *s, struct net_request *m)
{
    bool stripes = s->base.live_lanes > 1 && m->bytes[0] >= (uint64_t)STRIPE_LEAST * 2 &&
                   (s->base.live_paths > 1 || s->split);

    return stripes ? post_striped(s, m) : post_whole(s, m);
}

/* Nothing can be done now: is the other end still there? */
static int not_now(struct net_send *s)
{
    struct net_comm *c = &s->base;

    if (net_failover_due(c)) {
        return net_failover_step(c);
    }
    return ++c->idle % NET_IDLE_TURNS == 0 ? net_comm_check(c) : c->failed;
}

static int bad_send(struct net_send *s, const struct net_cts *cts, uint64_t size,
                    const void *mhandle)
{
    if (size <= cts->bytes) {
        return net_comm_fail(&s->base, GEMMAR_NCCL_INVALID_ARGUMENT, "a send of %llu bytes %s",
                             (unsigned long long)size,
                             mhandle == NULL ? "of memory that is not registered"
                                             : "is longer than the device takes");
    }
    return net_comm_fail(&s->base, GEMMAR_NCCL_INVALID_USAGE,
                         "a send of %llu bytes meets a receive of %llu bytes (tag 0x%x)",
                         (unsigned long long)size, (unsigned long long)cts->bytes, cts->tag);
}

int net_send_again(struct net_send *s, struct net_request *request)
{
    request->phandle = NULL; /* the events of the first attempt end with the request */
    return post_message(s, request);
}

int gemmar_net_isend(void *send, void *data, size_t size, int tag, void *mhandle, void *phandle,
                     void **out_request)
{
    struct net_send *s = send;
    uint64_t slot = s->base.head % NET_SLOTS;
    const struct net_cts *group = s->words->cts[slot];
    struct net_request *request;
    int part, rc;

    *out_request = NULL;
    if (s->base.failed != 0) {
        return s->base.failed;
    }
    if (net_failover_blocks(&s->base)) {
        rc = net_failover_step(&s->base);
        if (rc != 0 || net_failover_blocks(&s->base)) {
            return rc;
        }
    }
    if (gemmar_load_acquire(&group[0].stamp) != s->base.head + 1) {
        return not_now(s);
    }
    part = match(s, group, tag);
    if (part < 0) {
        return not_now(s);
    }
    request = &s->request[slot * NET_PARTS + (uint32_t)part];
    if (request->state != NET_REQUEST_FREE) {
        return GEMMAR_NCCL_SUCCESS; /* its predecessor was not tested to the end yet */
    }
    if (size > group[part].bytes || size > s->longest || (size > 0 && mhandle == NULL)) {
        return bad_send(s, &group[part], size, mhandle);
    }
    request->pending = 0;
    request->sequence = s->base.head;
    request->cts = &group[part];
    request->data = (uintptr_t)data;
    request->bytes[0] = size;
    request->mr = mhandle;
    request->phandle = phandle;
    rc = post_message(s, request);
    if (rc != 0) { /* without room: make some, for callers that send again before they test */
        return rc == -EAGAIN ? net_comm_poll(&s->base) : rc;
    }
    request->state = NET_REQUEST_SEND;
    take(s, group, (uint32_t)part);
    *out_request = request;
    return GEMMAR_NCCL_SUCCESS;
}
