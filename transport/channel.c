// SPDX-License-Identifier: Apache-2.0
// A channel's life: open, describe itself to a peer, connect, drain, close.
#include "transport/channel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/advice.h"
#include "transport/build_id.h"
#include "transport/order.h"
#include "transport/wait.h"

/* -- errors ------------------------------------------------------------------------------------ */

int gemmar_channel_code(struct gemmar_channel *c)
{
    int code;

    (void)pthread_mutex_lock(&c->error_lock);
    code = c->error.code;
    (void)pthread_mutex_unlock(&c->error_lock);
    return code;
}

void gemmar_channel_break(struct gemmar_channel *c, int code, uint32_t peer,
                          const struct gemmar_channel_qp *qp, const char *stage, const char *format,
                          ...)
{
    struct gemmar_transport_error e = {.size = sizeof(e), .code = code, .rank = c->rank};
    bool first;
    va_list args;

    e.peer_rank = peer < c->peer_count ? c->peers[peer].rank : UINT32_MAX;
    e.qp_number = qp != NULL && qp->qp != NULL ? qp->qp->qp_num : 0;
    (void)snprintf(e.stage, sizeof(e.stage), "%s", stage);
    va_start(args, format);
    (void)vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    (void)pthread_mutex_lock(&c->error_lock);
    first = c->error.code == 0;
    if (first) {
        c->error = e;
    }
    (void)pthread_mutex_unlock(&c->error_lock);
    gemmar_add_relaxed(&c->counters.errors, 1);
    if (!first) {
        return;
    }
    gemmar_store_release(&c->broken, 1);
    if (e.peer_rank != UINT32_MAX) {
        gemmar_warn(&c->log, "%s: rank %u peer %u qp 0x%x: %s", e.stage, e.rank, e.peer_rank,
                    e.qp_number, e.text);
    } else {
        gemmar_warn(&c->log, "%s: rank %u: %s", e.stage, e.rank, e.text);
    }
    if (c->abort_word != NULL) {
        gemmar_store_release(c->abort_word, 1);
    }
}

void gemmar_channel_error(struct gemmar_channel *c, struct gemmar_transport_error *out)
{
    size_t size = out->size < sizeof(*out) ? out->size : sizeof(*out);

    (void)pthread_mutex_lock(&c->error_lock);
    memcpy(out, &c->error, size);
    (void)pthread_mutex_unlock(&c->error_lock);
    out->size = size;
}

/* -- open -------------------------------------------------------------------------------------- */

static int check_settings(const struct gemmar_channel *c, const struct gemmar_channel_settings *s)
{
    uint64_t data = s->data.length, stamps = s->stamps.length;

    if (s->signal == GEMMAR_SIGNAL_IMM && s->stamps.is_gpu) {
        gemmar_warn(&c->log,
                    "channel: rank %u: in imm mode the CPU writes the stamps: they must "
                    "be in host memory",
                    s->rank);
        return -EINVAL;
    }
    for (uint32_t i = 0; i < s->route_count; i++) {
        const struct gemmar_route_settings *r = &s->routes[i];

        if (r->peer == GEMMAR_ROUTE_UNUSED) {
            continue;
        }
        for (int p = 0; p < 2; p++) {
            if (r->peer >= s->peer_count || r->window_bytes > data ||
                r->source_offset[p] > data - r->window_bytes ||
                r->sink_offset[p] > data - r->window_bytes || r->slots > stamps / 8 ||
                r->stamp_offset[p] > stamps - 8 * r->slots || r->stamp_offset[p] % 8 != 0) {
                gemmar_warn(&c->log, "channel: rank %u: route %u does not fit its memory", s->rank,
                            i);
                return -EINVAL;
            }
        }
    }
    return 0;
}

static int open_rail(struct gemmar_channel *c, struct gemmar_channel_rail *rail)
{
    struct gemmar_ib_device *d = rail->device;
    uint32_t here = c->qps_per_peer * c->peer_count; /* at most: the rails share them */
    char advice[GEMMAR_ADVICE_BYTES];
    bool imm = c->signal == GEMMAR_SIGNAL_IMM;
    bool flush = imm && c->data.is_gpu && c->knobs->gdr_flush_disable == 0;
    int entries = (int)(here * (GEMMAR_SEND_DEPTH + (imm ? GEMMAR_RECV_DEPTH : 0)) +
                        (flush ? GEMMAR_FLUSHES : 0));
    int rc = gemmar_ib_mr_get(d, &c->data, GEMMAR_MR_DATA, &rail->data);

    if (rc == 0) {
        rc = gemmar_ib_mr_get(d, &c->stamps, GEMMAR_MR_STRICT, &rail->stamps);
    }
    if (rc != 0) {
        return rc;
    }
    if (d->attr.max_cqe > 0 && entries > d->attr.max_cqe) { /* a smaller one would overflow */
        gemmar_warn(&c->log,
                    "channel: device %s: %u queue pairs need a completion queue of %d entries, the "
                    "largest one has %d",
                    d->name, here, entries, d->attr.max_cqe);
        return -ENOSPC;
    }
    errno = 0;
    rail->cq = d->verbs->create_cq(d->context, entries, NULL, NULL, 0);
    if (rail->cq == NULL) {
        rc = errno != 0 ? -errno : -EIO;
        gemmar_warn(&c->log, "channel: device %s: no completion queue of %d entries: %s%s", d->name,
                    entries, strerror(-rc), gemmar_advice_limit(-rc, 0, advice, sizeof(advice)));
        return rc;
    }
    return flush ? gemmar_arrival_open(rail, here * GEMMAR_RECV_DEPTH) : 0;
}

/* A peer's wrong key or address is reported to this end by such an event alone, and this end may
 * have nothing on the way that would fail. */
static void on_qp_event(void *user, struct ibv_qp *qp, enum ibv_event_type type)
{
    struct gemmar_channel *c = user;

    for (uint32_t i = 0; i < c->qp_count; i++) {
        const struct gemmar_channel_qp *q = &c->qps[i];
        const struct gemmar_ib_device *d = c->rails[q->rail].device;

        if (q->qp == qp) {
            gemmar_channel_break(c, -EIO, q->peer, q, "ib_event", "device %s port %d: %s", d->name,
                                 d->port, c->verbs->event_type_str(type));
            return;
        }
    }
}

static int open_qps(struct gemmar_channel *c)
{
    const struct gemmar_ib_qp_options options = {
        .send_depth = GEMMAR_SEND_DEPTH,
        .recv_depth = c->signal == GEMMAR_SIGNAL_IMM ? GEMMAR_RECV_DEPTH : 1,
        .inline_bytes = GEMMAR_QP_STAMP_INLINE,
        .inline_least = GEMMAR_QP_STAMP_INLINE,
    };

    for (uint32_t i = 0; i < c->qp_count; i++) {
        struct gemmar_channel_qp *q = &c->qps[i];
        struct gemmar_channel_rail *rail;
        int rc;

        q->peer = i / c->qps_per_peer;
        q->rail = i % c->qps_per_peer % c->rail_count;
        rail = &c->rails[q->rail];
        q->longest = rail->device->port_attr.max_msg_sz;
        q->limit = GEMMAR_SEND_DEPTH;
        q->longest = q->longest > 0 ? q->longest : UINT32_MAX;
        q->sent = calloc(GEMMAR_SEND_DEPTH, sizeof(*q->sent));
        if (q->sent == NULL) {
            return -ENOMEM;
        }
        rc = gemmar_ib_qp_create(rail->device, rail->cq, &options, &q->qp, NULL);
        if (rc == 0) {
            c->watches[i] = (struct gemmar_ib_qp_watch){.qp = q->qp, .fn = on_qp_event, .user = c};
            gemmar_ib_qp_watch(rail->device, &c->watches[i]);
        }
        if (rc == 0 && c->signal == GEMMAR_SIGNAL_IMM) {
            rc = gemmar_arrival_post(c, q, GEMMAR_RECV_DEPTH);
        }
        if (rc != 0) {
            return rc;
        }
        gemmar_ib_qp_describe(rail->device, q->qp, (i * 4099u + c->rank) & 0xffffffu, &q->own);
        q->own.rail = q->rail;
    }
    return 0;
}

/* A route's lane is its ordinal among the RECEIVER's routes with the sender, in table order; the
 * sender learns it from the order of the routes in the receiver's blob. */
static int open_routes(struct gemmar_channel *c, const struct gemmar_channel_settings *s)
{
    for (uint32_t i = 0; i < s->route_count; i++) {
        struct gemmar_channel_route *r = &c->routes[i];
        struct gemmar_channel_peer *peer;

        r->local = s->routes[i];
        if (r->local.peer == GEMMAR_ROUTE_UNUSED) {
            continue;
        }
        peer = &c->peers[r->local.peer];
        if (peer->routes == GEMMAR_WIRE_MAX_ROUTES) {
            gemmar_warn(&c->log, "channel: rank %u: more than %d routes with one peer", c->rank,
                        GEMMAR_WIRE_MAX_ROUTES);
            return -EINVAL;
        }
        peer->route_of[peer->routes++] = i;
    }
    return 0;
}

static int allocate(struct gemmar_channel *c, const struct gemmar_channel_settings *s)
{
    for (size_t i = 0; i < sizeof(c->batch.wr) / sizeof(c->batch.wr[0]); i++) {
        c->batch.wr[i].sg_list = &c->batch.sge[i];
    }
    c->rails = calloc(s->device_count, sizeof(*c->rails));
    c->peers = calloc(s->peer_count, sizeof(*c->peers));
    c->routes = calloc(s->route_count, sizeof(*c->routes));
    c->qps = calloc((size_t)s->peer_count * c->qps_per_peer, sizeof(*c->qps));
    c->watches = calloc((size_t)s->peer_count * c->qps_per_peer, sizeof(*c->watches));
    if (c->rails == NULL || c->peers == NULL || c->routes == NULL || c->qps == NULL ||
        c->watches == NULL) {
        return -ENOMEM;
    }
    c->rail_count = s->device_count;
    c->peer_count = s->peer_count;
    c->route_count = s->route_count;
    c->qp_count = s->peer_count * c->qps_per_peer;
    for (uint32_t p = 0; p < c->peer_count; p++) {
        c->peers[p].rank = s->peer_ranks[p];
        c->peers[p].epoch = s->first_epoch;
    }
    return 0;
}

static int check_sizes(const struct gemmar_logger *log, const struct gemmar_channel_settings *s,
                       uint32_t device_count)
{
    bool bad = s->size < offsetof(struct gemmar_channel_settings, posted_word) ||
               s->peer_count == 0 || s->route_count == 0 ||
               s->route_count > 1u << GEMMAR_FIFO_ROUTE_BITS || s->device_count == 0 ||
               s->device_count > GEMMAR_WIRE_MAX_RAILS ||
               s->queue_pairs_per_peer > GEMMAR_WIRE_MAX_QPS || s->signal > GEMMAR_SIGNAL_IMM;

    for (uint32_t i = 0; !bad && i < s->device_count; i++) {
        bad = s->devices[i] >= device_count;
    }
    if (bad) {
        gemmar_warn(log, "channel: rank %u: settings out of range: %u peers, %u routes, %u rails",
                    s->rank, s->peer_count, s->route_count, s->device_count);
    }
    return bad ? -EINVAL : 0;
}

int gemmar_channel_open(struct gemmar_ib_device *devices, uint32_t device_count,
                        const struct gemmar_logger *log, const struct gemmar_channel_settings *s,
                        struct gemmar_channel **out)
{
    struct gemmar_channel *c;
    uint32_t qps, entries;
    int rc = check_sizes(log, s, device_count);

    if (rc != 0) {
        return rc;
    }
    c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return -ENOMEM;
    }
    (void)pthread_mutex_init(&c->error_lock, NULL); /* default attributes: cannot fail on Linux */
    c->verbs = devices[0].verbs;
    c->knobs = devices[0].knobs;
    c->log = *log;
    c->rank = s->rank;
    c->signal = s->signal;
    c->timeout_ns = s->timeout_ns != 0 ? s->timeout_ns : (uint64_t)c->knobs->timeout;
    c->numa_node = s->numa_node;
    c->abort_word = s->abort_word;
    c->posted_word = s->size >= sizeof(*s) ? s->posted_word : NULL;
    c->data = s->data;
    c->stamps = s->stamps;
    c->epoch = s->first_epoch;
    qps = s->queue_pairs_per_peer != 0 ? s->queue_pairs_per_peer
                                       : (uint32_t)c->knobs->ib_qps * s->device_count;
    c->qps_per_peer = qps < GEMMAR_WIRE_MAX_QPS ? qps : GEMMAR_WIRE_MAX_QPS;
    entries = s->ring_entries != 0 ? s->ring_entries : (uint32_t)c->knobs->ring_entries;
    rc = gemmar_fifo_open(entries, &c->fifo);
    if (rc != 0) {
        gemmar_warn(log, "channel: rank %u: no ring of %u commands: %s", s->rank, entries,
                    rc == -EINVAL ? "not a power of two" : strerror(-rc));
        goto undo;
    }
    rc = allocate(c, s);
    if (rc == 0) {
        rc = check_settings(c, s);
    }
    if (rc == 0) {
        rc = open_routes(c, s);
    }
    for (uint32_t i = 0; rc == 0 && i < c->rail_count; i++) {
        c->rails[i].device = &devices[s->devices[i]];
        rc = open_rail(c, &c->rails[i]);
    }
    if (rc == 0) {
        rc = open_qps(c);
    }
    if (rc == 0) {
        *out = c;
        return 0;
    }
undo:
    gemmar_channel_close(c);
    return rc;
}

/* -- connect ----------------------------------------------------------------------------------- */

int gemmar_channel_blob(struct gemmar_channel *c, uint32_t peer, void *out_blob)
{
    struct gemmar_wire_blob b;
    struct gemmar_channel_peer *p;

    if (peer >= c->peer_count) {
        return -EINVAL;
    }
    p = &c->peers[peer];
    memset(&b, 0, sizeof(b));
    b.magic = GEMMAR_WIRE_MAGIC;
    b.version = GEMMAR_WIRE_VERSION;
    b.bytes = sizeof(b);
    (void)snprintf(b.build, sizeof(b.build), "%s", gemmar_build_id);
    b.rank = c->rank;
    b.to = p->rank;
    b.signal = c->signal;
    b.qp_count = c->qps_per_peer;
    b.rail_count = c->rail_count;
    b.route_count = p->routes;
    for (uint32_t i = 0; i < c->rail_count; i++) {
        b.data_rkey[i] = c->rails[i].data->mr->rkey;
        b.stamp_rkey[i] = c->rails[i].stamps->mr->rkey;
    }
    for (uint32_t i = 0; i < p->routes; i++) {
        const struct gemmar_route_settings *r = &c->routes[p->route_of[i]].local;

        b.route[i].route = r->peer_route;
        for (int parity = 0; parity < 2; parity++) {
            b.route[i].sink[parity] = (uintptr_t)c->data.address + r->sink_offset[parity];
            b.route[i].stamp[parity] = (uintptr_t)c->stamps.address + r->stamp_offset[parity];
        }
        b.route[i].window_bytes = r->window_bytes;
        b.route[i].slots = r->slots;
    }
    for (uint32_t i = 0; i < c->qps_per_peer; i++) {
        b.qp[i] = c->qps[peer * c->qps_per_peer + i].own;
    }
    memset(out_blob, 0, GEMMAR_CONNECT_BLOB_BYTES);
    memcpy(out_blob, &b, sizeof(b));
    return 0;
}

/* NULL, or what is wrong with a blob. */
static const char *blob_fault(const struct gemmar_channel *c, uint32_t peer,
                              const struct gemmar_wire_blob *b)
{
    const struct gemmar_channel_peer *p = &c->peers[peer];

    if (b->magic != GEMMAR_WIRE_MAGIC) {
        return "it is not a connect blob";
    }
    if (b->version != GEMMAR_WIRE_VERSION || b->bytes != sizeof(*b) ||
        memchr(b->build, '\0', sizeof(b->build)) == NULL ||
        strcmp(b->build, gemmar_build_id) != 0) {
        return "it is of another build; all ranks need the same version of the library";
    }
    if (b->rank != p->rank || b->to != c->rank) {
        return "it is for or from another rank";
    }
    if (b->signal != c->signal) {
        return "the signal mode differs (GEMMAR_SIGNAL)";
    }
    if (b->qp_count != c->qps_per_peer) {
        return "the number of queue pairs differs (NCCL_IB_QPS_PER_CONNECTION)";
    }
    if (b->rail_count == 0 || b->rail_count > GEMMAR_WIRE_MAX_RAILS) {
        return "the number of rails is out of range";
    }
    if (b->route_count != p->routes) {
        return "the number of routes differs";
    }
    for (uint32_t i = 0; i < b->route_count; i++) {
        uint32_t r = b->route[i].route;

        if (r >= c->route_count || c->routes[r].local.peer != peer ||
            b->route[i].window_bytes < c->routes[r].local.window_bytes ||
            b->route[i].slots < c->routes[r].local.slots) {
            return "its routes are not mine";
        }
    }
    for (uint32_t i = 0; i < b->qp_count; i++) {
        const struct gemmar_wire_qp *q = &b->qp[i];

        if (q->rail >= b->rail_count || q->qp_number == 0 || q->qp_number > 0xffffffu ||
            q->packet_number > 0xffffffu || q->mtu < IBV_MTU_256 || q->mtu > IBV_MTU_4096 ||
            (q->link_layer != GEMMAR_LINK_INFINIBAND && q->link_layer != GEMMAR_LINK_ETHERNET)) {
            return "a queue pair's description is out of range";
        }
    }
    return NULL;
}

int gemmar_channel_connect(struct gemmar_channel *c, uint32_t peer, const void *blob)
{
    struct gemmar_wire_blob b;
    struct gemmar_channel_peer *p;
    const char *fault;

    if (peer >= c->peer_count) {
        return -EINVAL;
    }
    p = &c->peers[peer];
    memcpy(&b, blob, sizeof(b));
    fault = blob_fault(c, peer, &b);
    if (fault != NULL) {
        gemmar_channel_break(c, -EPROTO, peer, NULL, "connect", "connect blob refused: %s", fault);
        return -EPROTO;
    }
    memcpy(p->data_rkey, b.data_rkey, sizeof(p->data_rkey));
    memcpy(p->stamp_rkey, b.stamp_rkey, sizeof(p->stamp_rkey));
    for (uint32_t i = 0; i < b.route_count; i++) {
        struct gemmar_channel_route *r = &c->routes[b.route[i].route];

        memcpy(r->sink, b.route[i].sink, sizeof(r->sink));
        memcpy(r->stamp, b.route[i].stamp, sizeof(r->stamp));
        r->lane = i; /* the receiver counts lanes in the order of its own table */
        r->known = true;
    }
    for (uint32_t i = 0; i < c->qps_per_peer; i++) {
        struct gemmar_channel_qp *q = &c->qps[peer * c->qps_per_peer + i];
        int rc;

        q->other = b.qp[i];
        rc = gemmar_ib_qp_connect(c->rails[q->rail].device, q->qp, &q->own, &q->other, -1);
        if (rc != 0) {
            gemmar_channel_break(c, rc, peer, q, "connect", "queue pair not connected: %s",
                                 strerror(-rc));
            return rc;
        }
    }
    p->connected = true;
    return 0;
}

int gemmar_channel_start(struct gemmar_channel *c)
{
    int rc;

    for (uint32_t p = 0; p < c->peer_count; p++) {
        if (!c->peers[p].connected) {
            gemmar_warn(&c->log, "channel: rank %u: peer %u is not connected", c->rank,
                        c->peers[p].rank);
            return -ENOTCONN;
        }
    }
    rc = gemmar_proxy_start(c);
    c->started = rc == 0;
    return rc;
}

/* -- end --------------------------------------------------------------------------------------- */

int gemmar_channel_drain(struct gemmar_channel *c, uint64_t pushed, uint64_t timeout_ns)
{
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, timeout_ns != 0 ? timeout_ns : c->timeout_ns);
    while (gemmar_load_acquire(c->fifo.retired) < pushed) {
        int code = gemmar_channel_code(c);

        if (code != 0) {
            return code;
        }
        if (!gemmar_wait_step(&wait)) {
            gemmar_channel_break(c, -ETIMEDOUT, UINT32_MAX, NULL, "proxy",
                                 "drain: %llu of %llu commands retired",
                                 (unsigned long long)gemmar_load_acquire(c->fifo.retired),
                                 (unsigned long long)pushed);
            return -ETIMEDOUT;
        }
    }
    return 0;
}

static void close_rail(struct gemmar_channel *c, struct gemmar_channel_rail *rail)
{
    if (rail->device == NULL) {
        return;
    }
    gemmar_arrival_close(rail);
    if (rail->cq != NULL && c->verbs->destroy_cq(rail->cq) != 0) {
        gemmar_warn(&c->log, "channel: device %s: completion queue not destroyed",
                    rail->device->name);
    }
    gemmar_ib_mr_put(rail->device, rail->data);
    gemmar_ib_mr_put(rail->device, rail->stamps);
}

void gemmar_channel_close(struct gemmar_channel *c)
{
    if (c == NULL) {
        return;
    }
    if (c->started) {
        gemmar_proxy_stop(c);
    }
    for (uint32_t i = 0; i < c->qp_count; i++) {
        if (c->qps[i].qp != NULL) {
            gemmar_ib_qp_unwatch(c->rails[c->qps[i].rail].device, &c->watches[i]);
        }
        if (c->qps[i].qp != NULL && c->verbs->destroy_qp(c->qps[i].qp) != 0) {
            gemmar_warn(&c->log, "channel: rank %u: a queue pair was not destroyed", c->rank);
        }
        free(c->qps[i].sent);
    }
    for (uint32_t i = 0; i < c->rail_count; i++) {
        close_rail(c, &c->rails[i]);
    }
    free(c->rails);
    free(c->peers);
    free(c->routes);
    free(c->qps);
    free(c->watches);
    gemmar_fifo_close(&c->fifo);
    (void)pthread_mutex_destroy(&c->error_lock);
    free(c);
}
