// SPDX-License-Identifier: Apache-2.0
// Step 5, RDMA write: a command becomes a data write and its stamp behind it on the same queue
// pair.
//
// Input: a command of the ring. Output: work requests in a send queue. Proxy thread only. A
// reliable connection executes the work requests of one queue pair in order and places a later
// write after an earlier one (InfiniBand Architecture Specification, volume 1, 9.5 "Transaction
// ordering"), and the stamp's registration is strict, so whoever sees the stamp sees the data.
#include <errno.h>
#include <string.h>

#include "transport/channel.h"
#include "transport/order.h"
#include "transport/wait.h"

struct gemmar_channel_qp *gemmar_rdma_write_qp(struct gemmar_channel *c, uint32_t peer,
                                               uint32_t slot)
{
    return &c->qps[peer * c->qps_per_peer + slot % c->qps_per_peer];
}

static int check(struct gemmar_channel *c, const struct gemmar_fifo_request *r)
{
    const struct gemmar_channel_route *route =
        r->route < c->route_count ? &c->routes[r->route] : NULL;

    if (route == NULL || !route->known) {
        gemmar_channel_break(c, -EINVAL, UINT32_MAX, NULL, "proxy",
                             "command for route %u, which leads nowhere", r->route);
        return -EINVAL;
    }
    if (r->slot >= route->local.slots || r->offset > route->local.window_bytes ||
        r->length > route->local.window_bytes - r->offset) {
        gemmar_channel_break(c, -EINVAL, route->local.peer, NULL, "proxy",
                             "command outside its window: route %u offset %llu length %u slot %u; "
                             "window %llu bytes, %llu slots",
                             r->route, (unsigned long long)r->offset, r->length, r->slot,
                             (unsigned long long)route->local.window_bytes,
                             (unsigned long long)route->local.slots);
        return -EINVAL;
    }
    return 0;
}

/* The next work request of the batch, linked into the queue pair's chain. What no command ever sets
 * has been zero since the channel was made: clearing all 128 bytes is a quarter of the work. */
static struct ibv_send_wr *next_wr(struct gemmar_channel *c, struct gemmar_channel_qp *q)
{
    struct gemmar_batch *b = &c->batch;
    struct ibv_send_wr *wr = &b->wr[b->used];

    wr->next = NULL;
    wr->num_sge = 0;
    wr->send_flags = 0;
    wr->wr_id = ++q->built;
    b->used++;
    if (q->chain == NULL) {
        q->chain = wr;
        b->pending++;
    } else {
        q->chain_last->next = wr;
    }
    q->chain_last = wr;
    return wr;
}

static void add_data(struct gemmar_channel *c, struct gemmar_channel_qp *q,
                     const struct gemmar_channel_route *route, const struct gemmar_fifo_request *r,
                     uint32_t parity, uint32_t from, uint32_t length)
{
    const struct gemmar_channel_rail *rail = &c->rails[q->rail];
    struct ibv_send_wr *wr = next_wr(c, q);

    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->wr.rdma.remote_addr = route->sink[parity] + r->offset + from;
    wr->wr.rdma.rkey = c->peers[q->peer].data_rkey[q->other.rail];
    if (length > 0) { /* no entry at all for nothing: some providers read 0 as 2^31 */
        wr->num_sge = 1;
        wr->sg_list->addr =
            (uintptr_t)c->data.address + route->local.source_offset[parity] + r->offset + from;
        wr->sg_list->length = length;
        wr->sg_list->lkey = rail->data->mr->lkey;
    }
}

/* All data of a command, in as many writes as the port asks for; at least one. One call of add_data
 * and one of this, so that both are inlined: the calls cost as much as what they do. */
static void add_pieces(struct gemmar_channel *c, struct gemmar_channel_qp *q,
                       const struct gemmar_channel_route *route,
                       const struct gemmar_fifo_request *r, uint32_t parity)
{
    uint32_t most = q->longest, from = 0, left = r->length, length;

    do {
        length = left < most ? left : most;
        add_data(c, q, route, r, parity, from, length);
        from += length;
        left -= length;
    } while (left > 0);
}

static void add_stamp(struct gemmar_channel *c, struct gemmar_channel_qp *q,
                      const struct gemmar_channel_route *route, uint32_t slot, uint64_t epoch)
{
    struct gemmar_batch *b = &c->batch;
    struct ibv_send_wr *wr = next_wr(c, q);

    b->stamp[b->stamps] = epoch;
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->send_flags = IBV_SEND_INLINE;
    wr->wr.rdma.remote_addr = route->stamp[epoch & 1] + 8 * (uint64_t)slot;
    wr->wr.rdma.rkey = c->peers[q->peer].stamp_rkey[q->other.rail];
    wr->num_sge = 1;
    wr->sg_list->addr = (uintptr_t)&b->stamp[b->stamps++];
    wr->sg_list->length = 8;
}

int gemmar_rdma_write_build(struct gemmar_channel *c, const struct gemmar_fifo_request *r,
                            uint64_t position)
{
    const struct gemmar_channel_route *route;
    struct gemmar_channel_qp *q;
    uint64_t epoch, pieces;
    int rc = check(c, r);

    if (rc != 0) {
        return rc;
    }
    route = &c->routes[r->route];
    q = gemmar_rdma_write_qp(c, route->local.peer, r->slot);
    pieces = 1;
    if (r->length > q->longest) { /* rare: the division stays off the usual path */
        pieces = (r->length - 1) / q->longest + 1;
        if (pieces + 1 > 2 * GEMMAR_BATCH) {
            gemmar_channel_break(c, -EMSGSIZE, q->peer, q, "rdma_write",
                                 "command of %u bytes; the port takes messages of %u", r->length,
                                 q->longest);
            return -EMSGSIZE;
        }
    }
    if (q->built + pieces + 1 - q->completed > q->limit) {
        return -EAGAIN;
    }
    if (c->batch.used + pieces + 1 > 2 * GEMMAR_BATCH) {
        return -ENOSPC;
    }
    if (q->built == q->completed) {
        if (c->batch.began_ns == 0) { /* one look at the clock a batch, not one a queue pair */
            c->batch.began_ns = gemmar_now_ns();
        }
        q->progress_ns = c->batch.began_ns;
    }
    epoch = c->epoch + (uint64_t)(int64_t)(int32_t)(r->epoch - (uint32_t)c->epoch);
    c->epoch = epoch;
    if (r->length > 0 || c->signal == GEMMAR_SIGNAL_IMM) {
        add_pieces(c, q, route, r, (uint32_t)(epoch & 1));
    }
    if (c->signal == GEMMAR_SIGNAL_IMM) {
        q->chain_last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        q->chain_last->imm_data = htobe32(gemmar_arrival_immediate(r->slot, route->lane, epoch));
    } else {
        add_stamp(c, q, route, r->slot, epoch);
        gemmar_count(&c->counters.stamp_bytes, 8);
    }
    gemmar_count(&c->counters.commands, 1);
    gemmar_count(&c->counters.data_writes, r->length > 0 ? pieces : 0);
    gemmar_count(&c->counters.data_bytes, r->length);
    q->sent[q->sent_tail++ % GEMMAR_SEND_DEPTH] = (struct gemmar_sent){position, q->built};
    return 0;
}

/* The last work request of every chain is signalled: a completion retires the whole chain, and the
 * send queue holds several chains. */
static bool post_chain(struct gemmar_channel *c, struct gemmar_channel_qp *q)
{
    struct ibv_send_wr *bad = NULL;
    int rc;

    q->chain_last->send_flags |= IBV_SEND_SIGNALED;
    rc = ibv_post_send(q->qp, q->chain, &bad);
    gemmar_count(&c->counters.doorbells, 1);
    if (rc == 0) {
        q->chain = NULL;
        c->batch.pending--;
        return true;
    }
    rc = rc > 0 ? rc : -rc;
    if (bad != NULL) {
        q->chain = bad; /* everything before it was taken */
    }
    if (rc == ENOMEM || rc == EAGAIN) {
        gemmar_count(&c->counters.post_retries, 1);
        return true;
    }
    gemmar_channel_break(c, -rc, q->peer, q, "rdma_write", "post failed: %s", strerror(rc));
    return false;
}

bool gemmar_rdma_write_post(struct gemmar_channel *c)
{
    for (uint32_t i = 0; i < c->qp_count && c->batch.pending > 0; i++) {
        if (c->qps[i].chain != NULL && !post_chain(c, &c->qps[i])) {
            return false;
        }
    }
    if (c->batch.pending == 0) {
        c->batch.used = 0;
        c->batch.stamps = 0;
    }
    return true;
}

/* Commands before the oldest one on any queue pair have left for good. */
void gemmar_rdma_write_retire(struct gemmar_channel *c)
{
    uint64_t frontier = c->fifo.head;

    for (uint32_t i = 0; i < c->qp_count; i++) {
        const struct gemmar_channel_qp *q = &c->qps[i];

        if (q->sent_head != q->sent_tail) {
            uint64_t oldest = q->sent[q->sent_head % GEMMAR_SEND_DEPTH].position;

            frontier = oldest < frontier ? oldest : frontier;
        }
    }
    if (c->aside_count > 0) {
        frontier = gemmar_aside_frontier(c, frontier);
    }
    gemmar_fifo_retire(&c->fifo, frontier);
}

void gemmar_rdma_write_done(struct gemmar_channel_qp *q, uint64_t sequence, uint64_t now_ns)
{
    q->completed = sequence;
    q->progress_ns = now_ns;
    while (q->sent_head != q->sent_tail &&
           q->sent[q->sent_head % GEMMAR_SEND_DEPTH].sequence <= sequence) {
        q->sent_head++;
    }
}
