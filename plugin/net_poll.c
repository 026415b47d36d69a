// SPDX-License-Identifier: Apache-2.0
// Completions: what has come is booked on its request; test tells.
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "plugin/net_comm.h"
#include "plugin/net_profiler.h"
#include "transport/order.h"

#define BATCH        8u /* completions taken at once */
#define FLUSH_TRIALS 3u /* failures in a row, of a rail's reads, that may be a path's */

int net_recv_post(struct net_recv *r, struct net_lane *l, uint32_t count)
{
    struct net_comm *c = &r->base;
    struct ibv_recv_wr *bad;
    int rc = 0;

    for (uint32_t i = 0; i < NET_RECV_BATCH; i++) {
        r->again[i] =
            (struct ibv_recv_wr){.wr_id = net_wr_id(NET_WORK_RECV, l->index, 0, 0),
                                 .next = i + 1 < NET_RECV_BATCH ? &r->again[i + 1] : NULL};
    }
    while (rc == 0 && count > 0) {
        uint32_t n = count < NET_RECV_BATCH ? count : NET_RECV_BATCH;

        r->again[n - 1].next = NULL;
        rc = ibv_post_recv(l->qp, r->again, &bad);
        count -= n;
    }
    if (rc != 0) {
        const struct gemmar_ib_device *d = c->rail[l->rail].device;

        gemmar_warn(&c->hold.log, "net: device %s:%d qp 0x%x does not take receives: %s", d->name,
                    d->port, l->qp->qp_num, strerror(rc));
    }
    return rc > 0 ? -rc : rc;
}

static int part_done(struct net_recv *r, struct net_request *request, uint32_t part, uint64_t bytes)
{
    if (bytes > request->bytes[part]) {
        return net_comm_fail(&r->base, GEMMAR_NCCL_INVALID_USAGE,
                             "%llu bytes came for a receive of %llu bytes",
                             (unsigned long long)bytes, (unsigned long long)request->bytes[part]);
    }
    request->bytes[part] = bytes;
    r->base.received += bytes;
    request->pending &= (uint16_t) ~(1u << part);
    if (request->pending == 0 && r->base.failover.possible) { /* its sender may look */
        gemmar_store_release(&r->words->finished[request->index], request->sequence + 1);
    }
    if (request->event[part] != NULL) {
        gemmar_net_profile_stop(r->base.profiler, &request->event[part]);
    }
    return 0;
}

static int not_open(struct net_recv *r, const struct net_request *request, uint32_t part,
                    uint32_t imm)
{
    bool again = request->state == NET_REQUEST_RECV && part < request->parts &&
                 net_imm_lap(imm) == (request->sequence / NET_SLOTS & 1);

    return net_comm_fail(&r->base, GEMMAR_NCCL_INTERNAL_ERROR,
                         again ? "a message came twice: 0x%x for part %u of receive %llu"
                               : "an immediate 0x%x (part %u) belongs to no receive near %llu",
                         imm, part, (unsigned long long)request->sequence);
}

/* An immediate: a stripe of a receive is in place. */
static int arrived(struct net_recv *r, const struct ibv_wc *wc)
{
    uint32_t imm = ntohl(wc->imm_data), slot = net_imm_slot(imm), part = net_imm_part(imm);
    struct net_request *request = &r->request[slot];
    struct net_lane *l = &r->base.lane[wc->wr_id >> 8 & 0xff];
    uint64_t bytes = net_imm_bytes(imm);

    if (++l->used >= NET_RECV_BATCH && !l->stopped) {
        l->used -= NET_RECV_BATCH;
        if (net_recv_post(r, l, NET_RECV_BATCH) != 0) {
            return net_comm_fail(&r->base, GEMMAR_NCCL_SYSTEM_ERROR, "receives cannot be posted");
        }
    }
    l->messages++;
    if ((request->pending >> part & 1) == 0 ||
        net_imm_lap(imm) != (request->sequence / NET_SLOTS & 1)) {
        return not_open(r, request, part, imm);
    }
    if ((imm & NET_IMM_STRIPED) != 0) {
        if (++request->arrived[part] < net_imm_stripes(imm)) {
            return 0;
        }
        request->arrived[part] = 0;
        bytes = gemmar_load_acquire(&r->words->bytes[slot][part]);
    }
    return part_done(r, request, part, bytes);
}

/* A read that went down with its path is repeated, unless it keeps failing: then it is no path that
 * comes and goes. */
static int flushed(struct net_comm *c, struct net_rail *rail, const struct ibv_wc *wc)
{
    struct net_request *request = &((struct net_recv *)c)->flush[wc->wr_id >> 32];
    char text[256];

    if (gemmar_ib_flush_done(rail->flush, wc) == 0) {
        rail->flush_failures = 0;
        request->pending--;
        return 0;
    }
    rail->flush_failures += !rail->flush_failed; /* the rest of its queue is flushed */
    if (c->failover.possible && net_failover_is_of_path(wc->status) &&
        rail->flush_failures <= FLUSH_TRIALS) {
        rail->flush_failed = true;
        request->again |= (uint8_t)(1u << (wc->wr_id >> 8 & 0xff));
        return 0;
    }
    gemmar_ib_flush_fault(rail->flush, wc, text, sizeof(text));
    return net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR, "%s", text);
}

/* Of the stripes of a send: each ends with the last one, so that none outlives its handle. */
static void stop_events(struct net_comm *c, struct net_request *request)
{
    for (int i = 0; request->pending == 0 && i < NET_PARTS; i++) {
        gemmar_net_profile_stop(c->profiler, &request->event[i]);
    }
}

static int completed(struct net_comm *c, struct net_rail *rail, const struct ibv_wc *wc)
{
    enum net_work work = (enum net_work)(wc->wr_id & 0xff);

    if (work == NET_WORK_RECV && wc->status == IBV_WC_SUCCESS) {
        return arrived((struct net_recv *)c, wc);
    }
    if (work == NET_WORK_FLUSH) {
        return flushed(c, rail, wc);
    }
    if (wc->status != IBV_WC_SUCCESS) {
        return net_comm_bad_completion(c, wc);
    }
    c->lane[wc->wr_id >> 8 & 0xff].room += (uint32_t)(wc->wr_id >> 16 & 0xffff);
    if (work == NET_WORK_LOOK) {
        c->failover.looking = false;
    }
    if (work == NET_WORK_TRIAL) {
        c->failover.path[(wc->wr_id >> 8 & 0xff) % c->paths].answers--;
    }
    if (work == NET_WORK_DATA) {
        struct net_request *request = &((struct net_send *)c)->request[wc->wr_id >> 32];

        request->pending--;
        if (request->event[0] != NULL) {
            stop_events(c, request);
        }
    }
    return 0;
}

/* What came with an error is not looked at any more. */
static void count_flushed(struct net_comm *c, const struct ibv_wc *wc, int n)
{
    for (int i = 0; i < n; i++) {
        c->flushed += wc[i].status == IBV_WC_WR_FLUSH_ERR;
    }
}

int net_comm_poll(struct net_comm *c)
{
    struct ibv_wc wc[BATCH];

    for (uint32_t i = 0; i < c->rails; i++) {
        struct net_rail *rail = &c->rail[i];
        int n = ibv_poll_cq(rail->cq, BATCH, wc);

        if (n < 0) {
            return net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR, "device %s:%d: polling failed",
                                 rail->device->name, rail->device->port);
        }
        c->completions += (uint64_t)n;
        for (int k = 0; k < n; k++) {
            int rc = completed(c, rail, &wc[k]);

            if (rc != 0) {
                count_flushed(c, wc + k + 1, n - k - 1);
                return rc;
            }
        }
    }
    return c->failed;
}

static int size_of(uint64_t bytes)
{
    return bytes < INT_MAX ? (int)bytes : INT_MAX;
}

static void finish(struct net_request *request, int *out_done, int *sizes)
{
    for (int i = 0; sizes != NULL && i < request->parts; i++) {
        sizes[i] = size_of(request->bytes[i]);
    }
    request->state = NET_REQUEST_FREE;
    request->comm->idle = 0;
    *out_done = 1;
}

int gemmar_net_test(void *handle, int *out_done, int *sizes)
{
    struct net_request *request = handle;
    struct net_comm *c = request->comm;
    int rc;

    *out_done = 0;
    if (request->pending != 0) {
        rc = net_comm_poll(c);
        if (request->pending != 0) {
            if (rc == 0 && net_failover_due(c)) {
                rc = net_failover_step(c);
            }
            if (rc == 0 && request->state == NET_REQUEST_FLUSH && request->again != 0) {
                rc = net_recv_flush_again(request);
            }
            if (rc == 0 && ++c->idle % NET_IDLE_TURNS == 0) {
                rc = net_comm_check(c);
            }
            return rc;
        }
    }
    finish(request, out_done, sizes);
    return GEMMAR_NCCL_SUCCESS;
}
