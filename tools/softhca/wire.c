// SPDX-License-Identifier: Apache-2.0
// From a queue pair to its peer's ring: routing, ports, and the model of the NIC's speed.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

#define NO_RING_WAIT 100000000ull // after a ring could not be made

// The slot that owns the destination, or -1: nobody there takes packets from us.
static int route(const struct softhca_qp *qp)
{
    struct softhca_fabric *f = softhca_hca->member.fabric;
    uint32_t qpn = qp->attr.dest_qp_num;
    uint64_t r = SOFTHCA_LOAD_ACQUIRE(&f->qps[SOFTHCA_QP_INDEX(qpn)]);
    if (!(r & SOFTHCA_ROUTE_LIVE) || SOFTHCA_ROUTE_QPN(r) != qpn || !qp->dlid ||
        SOFTHCA_ROUTE_LID(r) != qp->dlid || SOFTHCA_ROUTE_SLOT(r) >= SOFTHCA_MAX_PROCS) {
        return -1;
    }
    if (SOFTHCA_LOAD_ACQUIRE(&softhca_fabric_port(f, qp->lid)->down) ||
        SOFTHCA_LOAD_ACQUIRE(&softhca_fabric_port(f, qp->dlid)->down)) {
        return -1;
    }
    return (int)SOFTHCA_ROUTE_SLOT(r);
}

static struct softhca_ring *ring_to(uint32_t slot)
{
    struct softhca_hca *h = softhca_hca;
    struct softhca_peer *peer = &h->peers[slot];
    uint32_t gen = SOFTHCA_LOAD_ACQUIRE(&h->member.fabric->procs[slot].gen);
    if (peer->out.control && peer->out.gen != gen) {
        softhca_ring_release(&peer->out); // it was to a process that is gone
    }
    if (!peer->out.control) {
        if (h->now_ns < peer->retry_ns) {
            return NULL;
        }
        if (softhca_ring_create(&h->member, slot, h->config.ring_kib * 1024, &peer->out)) {
            peer->retry_ns = h->now_ns + NO_RING_WAIT;
            return NULL;
        }
    }
    return &peer->out;
}

// The state letter of a process of this host, or 0.
static char process_state(int pid)
{
    char path[32], text[256];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid); // fits
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        (void)close(fd); // was only read
    }
    text[n > 0 ? n : 0] = 0;
    const char *end = strrchr(text, ')'); // the name before it may hold anything
    return end && end[1] == ' ' ? end[2] : 0;
}

int softhca_peer_is_starved(const struct softhca_qp *qp)
{
    const struct softhca_hca *h = softhca_hca;
    int slot = route(qp);
    if (slot < 0) {
        return 0;
    }
    const struct softhca_ring *out = &h->peers[slot].out;
    const struct softhca_proc *p = &h->member.fabric->procs[slot];
    if (!out->control || out->gen != SOFTHCA_LOAD_ACQUIRE(&p->gen) ||
        SOFTHCA_LOAD_ACQUIRE(&out->control->head) == out->pos ||
        SOFTHCA_LOAD_ACQUIRE(&h->member.fabric->nodes[p->node].silent) ||
        !softhca_fabric_alive(&h->member, (uint32_t)slot)) {
        return 0;
    }
    char state = process_state(p->pid);
    return state == 'R' || state == 'S' || state == 'D';
}

int softhca_peer_has_mapped(const struct softhca_qp *qp, uint32_t e, uint32_t gen)
{
    int slot = route(qp);
    return slot >= 0 && SOFTHCA_LOAD_ACQUIRE(&softhca_hca->member.fabric->mapped[e][slot]) == gen;
}

struct softhca_packet *softhca_packet_begin(struct softhca_qp *qp, uint32_t payload, int *out_lost)
{
    int slot = route(qp);
    struct softhca_ring *ring = slot < 0 ? NULL : ring_to((uint32_t)slot);
    *out_lost = !ring;
    if (!ring) {
        return NULL;
    }
    struct softhca_packet *p = softhca_ring_reserve(ring, payload);
    if (p) {
        p->dst_qpn = qp->attr.dest_qp_num;
        p->src_qpn = qp->ex.qp_base.qp_num;
        p->src_lid = qp->lid;
        p->dst_lid = qp->dlid;
    }
    return p;
}

void softhca_packet_end(struct softhca_qp *qp, struct softhca_packet *p)
{
    struct softhca_hca *h = softhca_hca;
    int slot = route(qp);
    if (slot < 0) {
        return; // went away since begin: the room is reused
    }
    softhca_model_charge(qp, p);
    qp->tx_bytes += p->span;
    qp->tx_msgs++;
    softhca_ring_push(&h->peers[slot].out, p);
    softhca_wake_sleeper(&h->member.fabric->procs[slot]);
}

int softhca_model_may_send(const struct softhca_qp *qp)
{
    struct softhca_hca *h = softhca_hca;
    if (!h->config.mbps && !h->config.msg_rate) {
        return 1;
    }
    uint64_t free_ns = h->port_free_ns[(qp->lid - 1) % SOFTHCA_PORTS_PER_NODE];
    if (free_ns > softhca_now_ns() + h->config.ahead_ns) {
        softhca_wake_at(free_ns - h->config.ahead_ns);
        return 0;
    }
    return 1;
}

void softhca_model_charge(const struct softhca_qp *qp, struct softhca_packet *p)
{
    struct softhca_hca *h = softhca_hca;
    const struct softhca_config *c = &h->config;
    if (!c->mbps && !c->msg_rate && !c->latency_ns) {
        return;
    }
    uint32_t port = (qp->lid - 1) % SOFTHCA_PORTS_PER_NODE;
    uint64_t *free_ns = &h->port_free_ns[port];
    uint64_t now = softhca_now_ns();
    uint64_t start = *free_ns > now ? *free_ns : now;
    if (c->mbps) { // of a port with the speed that all report; slower devices carry less
        uint64_t gbps = c->device_gbps[port / SOFTHCA_MAX_PORTS];
        start += (uint64_t)p->span * 8000 * c->speed_gbps / (c->mbps * gbps);
    }
    if (c->msg_rate && p->kind <= SOFTHCA_FETCH_ADD && p->offset == 0) {
        start += 1000000000u / c->msg_rate;
    }
    *free_ns = start;
    p->ready_ns = start + c->latency_ns;
}
