// SPDX-License-Identifier: Apache-2.0
// What a communicator has moved: per peer, device and queue pair, told when it is closed and, with
// what is under way, when it fails.
#include <inttypes.h>
#include <stdio.h>

#include "plugin/net_comm.h"

static void report_lane(const struct net_comm *c, const struct net_lane *l)
{
    const struct gemmar_ib_device *d = c->rail[l->rail].device;
    const char *state = l->stopped ? "stopped" : "in use";

    if (c->sends) {
        gemmar_info(&c->hold.log,
                    "net: to peer %s: device %s:%d qp 0x%x to device %s qp 0x%x: %" PRIu64
                    " messages, %" PRIu64 " bytes, %u of %u send requests under way, %s",
                    c->peer_text, d->name, d->port, l->qp->qp_num, c->peer_device[l->peer_rail],
                    l->peer.qp_number, l->messages, l->bytes, l->depth - l->room, l->depth, state);
    } else {
        gemmar_info(&c->hold.log,
                    "net: from peer %s: device %s:%d qp 0x%x from device %s qp 0x%x: %" PRIu64
                    " messages, %s",
                    c->peer_text, d->name, d->port, l->qp->qp_num, c->peer_device[l->peer_rail],
                    l->peer.qp_number, l->messages, state);
    }
}

void net_comm_report(const struct net_comm *c)
{
    uint64_t messages = 0, bytes = c->received;

    for (uint32_t i = 0; i < c->lanes; i++) {
        messages += c->lane[i].messages;
        bytes += c->lane[i].bytes;
        if (c->lane[i].messages > 0 || c->failed != 0) {
            report_lane(c, &c->lane[i]);
        }
    }
    if (messages == 0 && c->failed == 0) {
        return;
    }
    gemmar_info(&c->hold.log,
                "net: %s peer %s: %" PRIu64 " messages, %" PRIu64
                " bytes over %u queue pairs; %" PRIu64 " paths lost, %" PRIu64
                " taken back, %" PRIu64 " messages sent again",
                c->sends ? "to" : "from", c->peer_text, messages, bytes, c->lanes, c->failover.lost,
                c->failover.revived, c->failover.repeated);
}
