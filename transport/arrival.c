// SPDX-License-Identifier: Apache-2.0
// Step 6, arrival, in imm mode: the receiving proxy writes the stamp that an immediate stands for.
//
// Input: completions of WRITE_WITH_IMM, which come after their data whatever way it took. Output:
// arrival stamps. Proxy thread only. (In stamp mode the NIC writes the stamps by itself.)
//
// Data in GPU memory and the stamp in host memory are two PCIe targets without any order between
// them: there the stamp waits for a flush that was posted after the completion. The stamps of one
// rail are written in the order of their immediates.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/channel.h"
#include "transport/order.h"
#include "transport/wait.h"

uint32_t gemmar_arrival_immediate(uint32_t slot, uint32_t lane, uint64_t epoch)
{
    return slot | lane << GEMMAR_FIFO_SLOT_BITS |
           (uint32_t)epoch << (GEMMAR_FIFO_SLOT_BITS + GEMMAR_IMM_LANE_BITS);
}

int gemmar_arrival_post(struct gemmar_channel *c, struct gemmar_channel_qp *q, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ibv_recv_wr wr = {.wr_id = 0}, *bad;
        int rc = ibv_post_recv(q->qp, &wr, &bad);

        if (rc != 0) {
            rc = rc > 0 ? -rc : rc;
            gemmar_channel_break(c, rc, q->peer, q, "arrival", "cannot post a receive: %s",
                                 strerror(-rc));
            return rc;
        }
    }
    return 0;
}

/* Low epoch bits that are nearest to the last epoch of this peer: it is never more than one ahead.
 */
static uint64_t extend(uint64_t last, uint32_t low)
{
    uint32_t bits = GEMMAR_IMM_EPOCH_BITS;
    int32_t step = (int32_t)((low - (uint32_t)last) << (32 - bits)) >> (32 - bits);

    return last + (uint64_t)(int64_t)step;
}

bool gemmar_arrival_take(struct gemmar_channel *c, struct gemmar_channel_qp *q, uint32_t immediate,
                         uint32_t bytes)
{
    struct gemmar_channel_peer *peer = &c->peers[q->peer];
    struct gemmar_channel_rail *rail = &c->rails[q->rail];
    uint32_t slot = immediate & ((1u << GEMMAR_FIFO_SLOT_BITS) - 1);
    uint32_t lane = immediate >> GEMMAR_FIFO_SLOT_BITS & ((1u << GEMMAR_IMM_LANE_BITS) - 1);
    uint64_t epoch =
        extend(peer->epoch, immediate >> (GEMMAR_FIFO_SLOT_BITS + GEMMAR_IMM_LANE_BITS));
    const struct gemmar_route_settings *route =
        lane < peer->routes ? &c->routes[peer->route_of[lane]].local : NULL;
    char *stamps = c->stamps.address;
    uint64_t *stamp;

    if (route == NULL || slot >= route->slots) {
        gemmar_channel_break(c, -EPROTO, q->peer, q, "arrival",
                             "immediate 0x%x names no stamp: slot %u lane %u", immediate, slot,
                             lane);
        return false;
    }
    peer->epoch = epoch;
    gemmar_count(&c->counters.imm_received, 1);
    stamp = (uint64_t *)(void *)(stamps + route->stamp_offset[epoch & 1] + 8 * (uint64_t)slot);
    if (rail->flush == NULL || (bytes == 0 && rail->head == rail->tail)) {
        gemmar_store_release(stamp, epoch);
        return gemmar_arrival_post(c, q, 1) == 0;
    }
    if (bytes > 0) {
        rail->flush_address = (uintptr_t)c->data.address + route->sink_offset[epoch & 1];
    }
    if (rail->head == rail->tail) {
        rail->flush_ns = gemmar_now_ns();
    }
    rail->arrivals[rail->tail++ % rail->arrival_entries] =
        (struct gemmar_arrival){.stamp = stamp, .epoch = epoch, .qp = q};
    return true;
}

/* -- data in GPU memory ------------------------------------------------------------------------ */

int gemmar_arrival_open(struct gemmar_channel_rail *rail, uint32_t receives)
{
    rail->arrivals = calloc(receives, sizeof(*rail->arrivals));
    if (rail->arrivals == NULL) {
        return -ENOMEM;
    }
    rail->arrival_entries = receives;
    return gemmar_ib_flush_open(rail->device, rail->cq, GEMMAR_FLUSHES, &rail->flush);
}

void gemmar_arrival_close(struct gemmar_channel_rail *rail)
{
    gemmar_ib_flush_close(rail->flush);
    free(rail->arrivals);
}

/* The one whose flush is the oldest: whom an error concerns. */
static struct gemmar_channel_qp *oldest(const struct gemmar_channel_rail *rail)
{
    return rail->arrivals[rail->head % rail->arrival_entries].qp;
}

/* One READ for all that came since the last one: it pushes every earlier write of its device. */
bool gemmar_arrival_flush(struct gemmar_channel *c, struct gemmar_channel_rail *rail)
{
    int rc;

    if (rail->asked == rail->tail) {
        return true;
    }
    rc = gemmar_ib_flush_post(rail->flush, rail->tail, rail->flush_address, rail->data->mr->rkey);
    if (rc == -EAGAIN) {
        return true;
    }
    if (rc != 0) {
        gemmar_channel_break(c, rc, oldest(rail)->peer, oldest(rail), "arrival",
                             "flush not posted: device %s qp 0x%x: %s", rail->device->name,
                             gemmar_ib_flush_qp(rail->flush), strerror(-rc));
        return false;
    }
    rail->flush_ns = gemmar_now_ns();
    rail->asked = rail->tail;
    return true;
}

bool gemmar_arrival_flushed(struct gemmar_channel *c, struct gemmar_channel_rail *rail,
                            const struct ibv_wc *wc)
{
    char fault[GEMMAR_ERROR_TEXT_BYTES];

    if (gemmar_ib_flush_done(rail->flush, wc) != 0) {
        gemmar_ib_flush_fault(rail->flush, wc, fault, sizeof(fault));
        gemmar_channel_break(c, -EIO, oldest(rail)->peer, oldest(rail), "arrival", "%s", fault);
        return false;
    }
    gemmar_count(&c->counters.completions, 1);
    rail->flush_ns = gemmar_now_ns();
    while (rail->head != wc->wr_id) {
        struct gemmar_arrival *a = &rail->arrivals[rail->head++ % rail->arrival_entries];

        gemmar_store_release(a->stamp, a->epoch);
        if (gemmar_arrival_post(c, a->qp, 1) != 0) {
            return false;
        }
    }
    return true;
}

void gemmar_arrival_check(struct gemmar_channel *c, const struct gemmar_channel_rail *rail,
                          uint64_t now_ns)
{
    if (rail->head != rail->tail && now_ns > rail->flush_ns + c->timeout_ns) {
        gemmar_channel_break(c, -ETIMEDOUT, oldest(rail)->peer, oldest(rail), "arrival",
                             "no flush for %.1f s: device %s qp 0x%x, %llu stamps wait",
                             (double)(now_ns - rail->flush_ns) / 1e9, rail->device->name,
                             gemmar_ib_flush_qp(rail->flush),
                             (unsigned long long)(rail->tail - rail->head));
    }
}
