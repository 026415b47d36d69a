// SPDX-License-Identifier: Apache-2.0
// One end of a connection: its rails, words, completion queues and queue pairs.
#include "plugin/net_comm.h"
#include "plugin/net_hello.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/net_hello.h"
#include "transport/wait.h"

#define DRAIN_ROOM 1 /* for the mark behind all sends of a queue pair that is stopped */

int net_comm_ends(struct gemmar_core *core, int dev, uint32_t *out_rails)
{
    int rc = net_device_open_count(dev, core, out_rails);

    return rc == 0 ? (int)core->knobs.ib_qps : rc;
}

static int open_words(struct net_comm *c)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = c->sends ? sizeof(struct net_send_words) : sizeof(struct net_recv_words);
    void *at;

    bytes = (bytes + page - 1) / page * page;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return -errno;
    }
    c->words = at;
    c->words_bytes = bytes;
    return 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Paths that a rail of one end serves. A path is a pair of rails, and its lanes are queue pairs of
 * these; the numbers of rails need not divide each other. */
static uint32_t paths_of(const struct net_comm *c, uint32_t rails, uint32_t rail)
{
    return (c->paths - 1 - rail) / rails + 1;
}

/* Of a rail, at most: the first one has as many as any. */
static uint32_t lanes_of_rail(const struct net_comm *c)
{
    return paths_of(c, c->rails, 0) * c->queue_pairs;
}

/* Queue depths that the device has: one completion queue serves a rail's lanes and its flushes. */
static void depths(const struct net_comm *c, const struct gemmar_ib_device *d, uint32_t *send,
                   uint32_t *recv)
{
    uint32_t lanes = lanes_of_rail(c);
    uint32_t entries = UINT32_MAX;
    uint32_t most = d->attr.max_qp_wr > 0 ? (uint32_t)d->attr.max_qp_wr : UINT32_MAX;

    if (d->attr.max_cqe > NET_SLOTS) {
        entries = ((uint32_t)d->attr.max_cqe - NET_SLOTS) / lanes;
    }
    most = least(most, entries / 2);
    *send = least((c->sends ? NET_SEND_DEPTH : 4 * NET_SLOTS) + DRAIN_ROOM, most);
    *recv = c->sends ? 1 : least(NET_RECV_DEPTH, most);
}

static int open_rail(struct net_comm *c, struct net_rail *rail)
{
    struct gemmar_ib_device *d = rail->device;
    struct gemmar_memory words = {.address = c->words, .length = c->words_bytes, .dmabuf_fd = -1};
    uint32_t lanes = lanes_of_rail(c), send, recv;
    int rc = gemmar_ib_mr_get(d, &words, GEMMAR_MR_STRICT, &rail->words);

    if (rc != 0) {
        return rc;
    }
    depths(c, d, &send, &recv);
    errno = 0;
    rail->cq =
        d->verbs->create_cq(d->context, (int)(lanes * (send + recv) + NET_SLOTS), NULL, NULL, 0);
    if (rail->cq == NULL) {
        rc = errno != 0 ? -errno : -EIO;
        gemmar_warn(&c->hold.log, "net: device %s:%d: cannot create a completion queue: %s",
                    d->name, d->port, strerror(-rc));
    }
    return rc;
}

/* Event thread. The flushed work requests tell which path it was, if there is another one. */
static void qp_failed(void *user, struct ibv_qp *qp, enum ibv_event_type type)
{
    struct net_comm *c = user;

    gemmar_store_release(&c->qp_event, (uint64_t)qp->qp_num << 32 | ((uint32_t)type + 1));
}

static int open_lane(struct net_comm *c, uint32_t index)
{
    struct net_lane *l = &c->lane[index];
    struct gemmar_ib_device *d;
    struct gemmar_ib_qp_options options = {.inline_bytes = NET_INLINE_BYTES};
    uint32_t longest;
    int rc;

    l->index = index;
    l->rail = index % c->paths % c->rails;
    l->peer_rail = index % c->paths % c->peer_rails;
    d = c->rail[l->rail].device;
    depths(c, d, &options.send_depth, &options.recv_depth);
    rc = gemmar_ib_qp_create(d, c->rail[l->rail].cq, &options, &l->qp, &l->inline_bytes);
    if (rc != 0) {
        return rc;
    }
    l->watch = (struct gemmar_ib_qp_watch){.qp = l->qp, .fn = qp_failed, .user = c};
    gemmar_ib_qp_watch(d, &l->watch);
    l->depth = options.send_depth - DRAIN_ROOM;
    l->room = l->depth;
    l->recv_depth = c->sends ? 0 : options.recv_depth;
    longest = d->port_attr.max_msg_sz > 0 ? d->port_attr.max_msg_sz : UINT32_MAX;
    l->longest = longest / NET_STRIPE_ALIGN * NET_STRIPE_ALIGN;
    gemmar_ib_qp_describe(d, l->qp, (index * 4099u + 17u) & 0xffffffu, &l->own);
    l->own.rail = l->rail;
    return c->sends ? 0 : net_recv_post((struct net_recv *)c, l, l->recv_depth);
}

int net_comm_open(struct net_comm *c, int dev, uint32_t peer_rails, uint32_t peer_queue_pairs)
{
    struct gemmar_ib_device *ports[NET_MAX_RAILS];
    int rc = gemmar_core_hold(&c->hold);

    c->fd = -1;
    if (rc == 0) {
        rc = net_device_open_ports(dev, c->hold.core, &c->hold.log, ports, &c->rails);
    }
    if (rc != 0) {
        return rc;
    }
    c->dev = dev;
    c->peer_rails = peer_rails;
    c->queue_pairs = (uint32_t)c->hold.core->knobs.ib_qps;
    c->queue_pairs = peer_queue_pairs > c->queue_pairs ? peer_queue_pairs : c->queue_pairs;
    c->paths = c->rails > peer_rails ? c->rails : peer_rails;
    if (c->queue_pairs > NET_MAX_LANES / c->paths) {
        gemmar_info(&c->hold.log,
                    "net: %u queue pairs for each of %u paths are too many, %u are used",
                    c->queue_pairs, c->paths, NET_MAX_LANES / c->paths);
        c->queue_pairs = NET_MAX_LANES / c->paths;
    }
    c->lanes = c->paths * c->queue_pairs;
    c->lane = calloc(c->lanes, sizeof(*c->lane));
    if (c->lane == NULL) {
        return -ENOMEM;
    }
    rc = open_words(c);
    for (uint32_t i = 0; rc == 0 && i < c->rails; i++) {
        c->rail[i].device = ports[i];
        rc = open_rail(c, &c->rail[i]);
    }
    for (uint32_t i = 0; rc == 0 && i < c->lanes; i++) {
        rc = open_lane(c, i);
    }
    return rc;
}

void net_comm_describe(const struct net_comm *c, struct net_wire_hello *out)
{
    out->magic = NET_WIRE_MAGIC;
    out->version = NET_WIRE_VERSION;
    out->bytes = sizeof(*out);
    net_hello_build(out->build, sizeof(out->build));
    out->end = c->sends ? NET_WIRE_CONNECT : NET_WIRE_ACCEPT;
    out->rails = c->rails;
    out->lanes = c->lanes;
    out->failover = net_failover_wanted(c);
    out->first = c->head;
    out->words = (uintptr_t)c->words;
    for (uint32_t i = 0; i < c->rails; i++) {
        const struct gemmar_ib_device *d = c->rail[i].device;

        (void)snprintf(out->rail[i].device, sizeof(out->rail[i].device), "%.32s:%d", d->name,
                       d->port);
        out->rail[i].speed_mbps = d->speed_mbps;
        out->rail[i].rkey = c->rail[i].words->mr->rkey;
    }
    for (uint32_t i = 0; i < c->lanes; i++) {
        out->lane[i] = c->lane[i].own;
    }
}

/* What a pair of rails can carry; a rail that serves several paths shares its speed among them. */
static uint32_t weight_of(const struct net_comm *c, const struct net_lane *l, uint32_t peer_mbps)
{
    uint32_t mine = c->rail[l->rail].device->speed_mbps / paths_of(c, c->rails, l->rail);
    uint32_t theirs = peer_mbps / paths_of(c, c->peer_rails, l->peer_rail);
    uint32_t weight = least(mine, theirs);

    return weight > 0 ? weight : 1;
}

int net_comm_connect(struct net_comm *c, const struct net_wire_hello *peer, int traffic_class)
{
    if (peer->rails != c->peer_rails || peer->lanes != c->lanes) {
        gemmar_warn(&c->hold.log,
                    "net: peer %s has %u ports and %u queue pairs, expected %u and %u",
                    c->peer_text, peer->rails, peer->lanes, c->peer_rails, c->lanes);
        return -EPROTO;
    }
    c->peer_words = peer->words;
    c->peer_fails_over = peer->failover != 0;
    c->traffic_class = traffic_class;
    if (c->sends) {
        c->head = peer->first;
    }
    for (uint32_t i = 0; i < c->peer_rails; i++) {
        net_hello_text(c->peer_device[i], sizeof(c->peer_device[i]), peer->rail[i].device,
                       sizeof(peer->rail[i].device));
    }
    for (uint32_t i = 0; i < c->lanes; i++) {
        struct net_lane *l = &c->lane[i];
        int rc;

        l->peer = peer->lane[i];
        l->words_lkey = c->rail[l->rail].words->mr->lkey;
        l->peer_words_rkey = peer->rail[l->peer_rail].rkey;
        l->weight = weight_of(c, l, peer->rail[l->peer_rail].speed_mbps);
        rc = gemmar_ib_qp_connect(c->rail[l->rail].device, l->qp, &l->own, &l->peer, traffic_class);
        if (rc != 0) {
            return rc;
        }
    }
    net_failover_open(c);
    return 0;
}

static void close_rail(struct net_comm *c, struct net_rail *rail)
{
    if (rail->device == NULL) {
        return;
    }
    gemmar_ib_flush_close(rail->flush);
    if (rail->cq != NULL && rail->device->verbs->destroy_cq(rail->cq) != 0) {
        gemmar_warn(&c->hold.log, "net: device %s:%d: a completion queue is still in use",
                    rail->device->name, rail->device->port);
    }
    gemmar_ib_mr_put(rail->device, rail->words);
}

void net_comm_close(struct net_comm *c)
{
    /* In a forked child the objects are the parent's. */
    bool ours = gemmar_core_is_ours(&c->hold);

    if (c->failed != 0 && c->flushed != 0) {
        gemmar_info(&c->hold.log,
                    "net: %s peer %s: %llu work requests were flushed after the error",
                    c->sends ? "to" : "from", c->peer_text, (unsigned long long)c->flushed);
    }
    for (uint32_t i = 0; c->lane != NULL && ours && i < c->lanes; i++) {
        struct net_lane *l = &c->lane[i];
        struct gemmar_ib_device *d = c->rail[l->rail].device;

        if (l->qp == NULL) {
            continue;
        }
        gemmar_ib_qp_unwatch(d, &l->watch);
        if (d->verbs->destroy_qp(l->qp) != 0) {
            gemmar_warn(&c->hold.log, "net: device %s: a queue pair cannot be destroyed", d->name);
        }
    }
    for (uint32_t i = 0; ours && i < c->rails; i++) {
        close_rail(c, &c->rail[i]);
    }
    free(c->lane);
    if (c->words != NULL) {
        (void)munmap(c->words, c->words_bytes); /* mapped above, whole */
    }
    gemmar_socket_close(c->fd);
    gemmar_core_release(&c->hold);
}

void net_comm_free(struct net_comm *c)
{
    if (c != NULL) {
        net_comm_close(c);
        free(c);
        net_devices_leave();
    }
}

int net_comm_end(struct net_comm *c)
{
    if (c != NULL && gemmar_core_is_ours(&c->hold) && c->failed == 0) {
        net_comm_report(c); /* a failed one was told when it failed */
    }
    net_comm_free(c);
    return GEMMAR_NCCL_SUCCESS;
}
