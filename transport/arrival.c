// SPDX-License-Identifier: Apache-2.0
// Step 6, arrival, in imm mode: the receiving proxy writes the stamp that an immediate stands for.
//
// Input: completions of WRITE_WITH_IMM, which come after their data whatever way it took. Output:
// arrival stamps. Proxy thread only. (In stamp mode the NIC writes the stamps by itself.)
#include <errno.h>
#include <string.h>

#include "transport/channel.h"
#include "transport/order.h"

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

void gemmar_arrival_stamp(struct gemmar_channel *c, struct gemmar_channel_qp *q, uint32_t immediate)
{
    struct gemmar_channel_peer *peer = &c->peers[q->peer];
    uint32_t slot = immediate & ((1u << GEMMAR_FIFO_SLOT_BITS) - 1);
    uint32_t lane = immediate >> GEMMAR_FIFO_SLOT_BITS & ((1u << GEMMAR_IMM_LANE_BITS) - 1);
    uint64_t epoch =
        extend(peer->epoch, immediate >> (GEMMAR_FIFO_SLOT_BITS + GEMMAR_IMM_LANE_BITS));
    const struct gemmar_channel_route *route =
        lane < peer->routes ? &c->routes[peer->route_of[lane]] : NULL;
    char *stamps = c->stamps.address;

    if (route == NULL || slot >= route->local.slots) {
        gemmar_channel_break(c, -EPROTO, q->peer, q, "arrival",
                             "immediate 0x%x names no stamp: slot %u lane %u", immediate, slot,
                             lane);
        return;
    }
    peer->epoch = epoch;
    gemmar_count(&c->counters.imm_received, 1);
    gemmar_store_release(
        (uint64_t *)(void *)(stamps + route->local.stamp_offset[epoch & 1] + 8 * (uint64_t)slot),
        epoch);
}
