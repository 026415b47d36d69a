// SPDX-License-Identifier: Apache-2.0
// A connection of several paths lives on when one of them fails, and takes it back when it heals.
//
// Two rules keep data right. Before anything is sent again both ends have stopped the failed path's
// queue pairs and drained them, so that no late copy of a message can land behind its repetition.
// And the sender repeats only what the receiver, asked over a live path, says has not arrived, into
// receives that it says are still open.
//
// The sender leads. A failure that the receiver sees first is told to it. Then:
//   QUIET   nothing new is sent; what was under way completes, or is flushed and counts as lost
//   ASKED   note with a new round; the receiver stops the same paths, drains them, takes all that
//           came, forgets the stripes of messages that are not whole, announces its open receives
//           again, and answers the round with what is complete
//   REPEAT  lost messages that are not complete go out on the paths that are left
// The last live path may fail while another one is about to be taken back. QUIET then lasts until
// that has happened, and notes go over the connection of the set-up. That needs a receiver that
// makes calls: an idle one is waited for as long as GEMMAR_TIMEOUT says.
// A receiver that has all it waits for may have nobody there to answer, for as long as it has
// nothing else to do. So in ASKED the sender also reads from its memory which groups have come as a
// whole: their messages are done, and only new ones wait for the answer. A path whose port is
// active on both ends again is revived: both ends reset and connect its queue pairs, the receiver
// first, and the sender trusts it after a few empty writes came through.
#include <errno.h>
#include <string.h>

#include "plugin/net_comm.h"
#include "plugin/net_profiler.h"
#include "transport/wait.h"

#define MS            1000000u
#define MAX_BACKOFF   6u /* doublings of the wait before a revival */
#define ANNOUNCE_ROOM (NET_SLOTS + 1u)
#define LOOK_NS       (10u * MS) /* between two looks at what the receiver has */

/* Between the first packet numbers of a queue pair's lives. A packet of a former life that comes
 * when the path is in use again must not have the number that is expected: the lives are millions
 * apart (the golden section of 2^24 spreads them evenly), and the former one is behind, where
 * packets count as repeated and are not executed. */
#define NUMBER_STRIDE 0x61c887u

static bool is_down(const struct net_comm *c, uint32_t path)
{
    return c->failover.path[path].state != NET_PATH_LIVE;
}

static struct gemmar_ib_device *device_of(const struct net_comm *c, uint32_t path)
{
    return c->rail[path % c->rails].device;
}

/* What the data path may use. */
static void list_live(struct net_comm *c)
{
    struct net_failover *f = &c->failover;

    c->live_lanes = 0;
    c->live_paths = 0;
    for (uint32_t i = 0; i < c->lanes; i++) {
        if (!is_down(c, i % c->paths)) {
            c->live[c->live_lanes++] = &c->lane[i];
            c->lane[i].served = 0;
        }
    }
    for (uint32_t p = 0; p < c->paths; p++) {
        if (!is_down(c, p)) {
            c->live_path[c->live_paths++] = (uint8_t)p;
        }
    }
    if (c->live_paths == 0) {
        c->live[0] = &c->nowhere;
    }
    f->trouble = f->recovery != NET_RECOVERY_NONE || c->live_paths < c->paths;
}

/* NCCL's variables where they are set, else the plugin's own. */
static bool wanted(const struct gemmar_knobs *k, bool recovery)
{
    bool set = k->origin[recovery ? GEMMAR_KNOB_port_recovery : GEMMAR_KNOB_port_failover] !=
               GEMMAR_KNOB_DEFAULT;

    if (set) {
        return recovery ? k->port_recovery != 0 : k->port_failover != 0;
    }
    return k->net_failover != 0;
}

bool net_failover_wanted(const struct net_comm *c)
{
    return wanted(&c->hold.core->knobs, false);
}

void net_failover_open(struct net_comm *c)
{
    struct net_failover *f = &c->failover;

    f->possible = c->paths > 1 && net_failover_wanted(c) && c->peer_fails_over;
    f->healing = NET_MAX_RAILS;
    if (c->sends) {
        struct net_send_words *w = c->words;

        f->inbox = &w->inbox;
        f->outbox = w->outbox;
        f->peer_inbox = offsetof(struct net_recv_words, inbox);
    } else {
        struct net_recv_words *w = c->words;

        f->inbox = &w->inbox;
        f->outbox = w->outbox;
        f->peer_inbox = offsetof(struct net_send_words, inbox);
    }
    list_live(c);
}

/* Can `path` be given up? Another one is live, or is about to be: its ports are active. */
static bool can_spare(const struct net_comm *c, uint32_t path)
{
    const struct net_failover *f = &c->failover;
    uint32_t trials = (uint32_t)c->hold.core->knobs.port_recovery_attempts;
    bool soon = false;

    for (uint32_t p = 0; p < c->paths; p++) {
        bool active = (f->healthy & f->heard.healthy) >> p & 1;

        soon = soon || (p != path && f->path[p].trials < trials &&
                        (f->path[p].state == NET_PATH_REVIVED || (is_down(c, p) && active)));
    }
    return c->live_paths > 1 || (soon && wanted(&c->hold.core->knobs, true));
}

/* ---- Stopping a path ---- */

/* The last entry of a stopped send queue: when it has been flushed, so has everything before it.
 * The receives are counted instead: not every device flushes what is posted to a stopped queue
 * pair. */
static int post_mark(struct net_comm *c, struct net_lane *l)
{
    struct ibv_send_wr *bad,
        send = {.wr_id = net_wr_id(NET_WORK_DRAIN, l->index, 0, 0),
                .opcode = IBV_WR_RDMA_WRITE,
                .send_flags = IBV_SEND_SIGNALED,
                .wr.rdma = {.remote_addr = c->peer_words, .rkey = l->peer_words_rkey}};
    int rc = ibv_post_send(l->qp, &send, &bad);

    l->draining = rc == 0;
    return rc;
}

static void stop_path(struct net_comm *c, uint32_t path, const char *why)
{
    struct net_failover *f = &c->failover;
    struct gemmar_ib_device *d = device_of(c, path);
    uint64_t now = gemmar_now_ns();

    f->path[path].trials += f->path[path].state == NET_PATH_REVIVED;
    f->lost += f->path[path].state == NET_PATH_LIVE;
    f->path[path].state = NET_PATH_DOWN;
    f->path[path].down_ns = now;
    f->path[path].answers = 0;
    f->healing = f->healing == path ? NET_MAX_RAILS : f->healing;
    f->tell = true;
    if (f->recovery == NET_RECOVERY_NONE) {
        f->since_ns = now;
    }
    if (c->sends) {
        f->recovery = NET_RECOVERY_QUIET;
    }
    list_live(c);
    gemmar_warn(&c->hold.log,
                "net: %s peer %s: device %s:%d to %s failed (%s); %u of %u paths left",
                c->sends ? "to" : "from", c->peer_text, d->name, d->port,
                c->peer_device[path % c->peer_rails], why, c->live_paths, c->paths);
    for (uint32_t i = path; i < c->lanes; i += c->paths) {
        int rc = gemmar_ib_qp_stop(d, c->lane[i].qp);

        c->lane[i].stopped = true;
        if (rc == 0) {
            rc = post_mark(c, &c->lane[i]);
        }
        if (rc != 0) {
            (void)net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR,
                                "device %s:%d qp 0x%x: cannot stop: %s", d->name, d->port,
                                c->lane[i].qp->qp_num, strerror(rc > 0 ? rc : -rc));
        }
    }
}

/* All paths that are not live are drained. */
static bool drained(const struct net_comm *c)
{
    for (uint32_t i = 0; i < c->lanes; i++) {
        const struct net_lane *l = &c->lane[i];

        if (l->stopped && (l->draining || (!c->sends && l->used < l->recv_depth))) {
            return false;
        }
    }
    return true;
}

/* Book what a stopped queue pair flushes. */
static void flushed(struct net_comm *c, const struct ibv_wc *wc)
{
    struct net_lane *l = &c->lane[wc->wr_id >> 8 & 0xff];

    switch ((enum net_work)(wc->wr_id & 0xff)) {
    case NET_WORK_DATA: {
        struct net_request *request = &((struct net_send *)c)->request[wc->wr_id >> 32];

        request->pending -= request->lost; /* the first loss keeps it pending */
        request->lost = true;
        break;
    }
    case NET_WORK_DRAIN: l->draining = false; break;
    case NET_WORK_RECV: l->used++; break;
    case NET_WORK_LOOK: c->failover.looking = false; break;
    case NET_WORK_CTS:
    case NET_WORK_FLUSH:
    case NET_WORK_PIECE:
    case NET_WORK_TRIAL: break; /* announcements are repeated as a whole */
    }
}

bool net_failover_is_of_path(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
           status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RESP_TIMEOUT_ERR ||
           status == IBV_WC_FATAL_ERR || status == IBV_WC_GENERAL_ERR;
}

bool net_failover_takes(struct net_comm *c, const struct ibv_wc *wc)
{
    uint32_t lane = (uint32_t)(wc->wr_id >> 8 & 0xff), path;
    struct net_failover *f = &c->failover;

    if (!f->possible || lane >= c->lanes || (wc->wr_id & 0xff) == NET_WORK_FLUSH) {
        return false;
    }
    path = lane % c->paths;
    if (f->path[path].state != NET_PATH_DOWN) {
        bool last = f->path[path].state == NET_PATH_LIVE && !can_spare(c, path);

        if (last || !net_failover_is_of_path(wc->status)) {
            return false;
        }
        stop_path(c, path, device_of(c, path)->verbs->wc_status_str(wc->status));
    }
    flushed(c, wc);
    return true;
}

/* ---- The sender's part of a recovery ---- */

static bool quiet(const struct net_comm *c)
{
    for (uint32_t i = 0; i < c->live_lanes; i++) {
        if (c->live[i]->room != c->live[i]->depth) {
            return false;
        }
    }
    return drained(c);
}

/* Does the receiver have the whole of it? Its slot's last receive is the one before `head` with the
 * same remainder. */
static bool has_arrived(const struct net_note *note, const struct net_request *request)
{
    uint64_t slot = request->sequence % NET_SLOTS;
    uint64_t last = note->head - 1 - (note->head - 1 - slot) % NET_SLOTS;

    return request->sequence < last || (note->done[slot] >> request->part & 1) != 0;
}

static void has_all(struct net_comm *c, struct net_request *request)
{
    request->lost = false;
    request->pending = 0;
    for (int i = 0; i < NET_PARTS; i++) {
        gemmar_net_profile_stop(c->profiler, &request->event[i]);
    }
}

/* Is a message still lost, as far as the last look at the receiver tells? */
static bool still_lost(struct net_send *s)
{
    bool lost = false;

    for (uint32_t i = 0; i < NET_SLOTS * NET_PARTS; i++) {
        struct net_request *request = &s->request[i];
        uint64_t slot = request->sequence % NET_SLOTS;

        if (request->state != NET_REQUEST_SEND || !request->lost) {
            continue;
        }
        if (gemmar_load_acquire(&s->words->finished[slot]) > request->sequence) {
            has_all(&s->base, request);
        } else {
            lost = true;
        }
    }
    return lost;
}

static int look(struct net_send *s)
{
    struct net_comm *c = &s->base;
    struct net_failover *f = &c->failover;
    struct net_lane *l = c->live[0];
    struct ibv_sge sge = {.addr = (uintptr_t)s->words->finished,
                          .length = sizeof(s->words->finished),
                          .lkey = l->words_lkey};
    struct ibv_send_wr *bad,
        wr = {.wr_id = net_wr_id(NET_WORK_LOOK, l->index, 1, 0),
              .sg_list = &sge,
              .num_sge = 1,
              .opcode = IBV_WR_RDMA_READ,
              .send_flags = IBV_SEND_SIGNALED,
              .wr.rdma = {.remote_addr = c->peer_words + offsetof(struct net_recv_words, finished),
                          .rkey = l->peer_words_rkey}};
    int rc = l->room > 0 ? ibv_post_send(l->qp, &wr, &bad) : ENOMEM;

    if (rc == ENOMEM) {
        return -EAGAIN;
    }
    if (rc != 0) {
        return net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR, "the receiver cannot be looked at: %s",
                             strerror(rc));
    }
    l->room--;
    f->looking = true;
    f->looked_ns = gemmar_now_ns();
    return 0;
}

/* The receiver has been asked. It is late only when it owes something: the fate of a message, or
 * the room for the next one that it has announced. */
static int await(struct net_send *s)
{
    struct net_comm *c = &s->base;
    struct net_failover *f = &c->failover;
    const struct net_cts *group = s->words->cts[c->head % NET_SLOTS];
    uint64_t now = gemmar_now_ns();
    bool lost = still_lost(s);

    if (!lost && gemmar_load_acquire(&group[0].stamp) != c->head + 1) {
        f->since_ns = now;
    }
    return lost && !f->looking && now - f->looked_ns >= LOOK_NS ? look(s) : 0;
}

/* 0, -EAGAIN, or the communicator's result. */
static int repeat(struct net_send *s)
{
    for (uint32_t i = 0; i < NET_SLOTS * NET_PARTS; i++) {
        struct net_request *request = &s->request[i];
        int rc;

        if (request->state != NET_REQUEST_SEND || !request->lost) {
            continue;
        }
        if (has_arrived(&s->base.failover.heard, request)) {
            has_all(&s->base, request);
            continue;
        }
        request->pending = 0;
        rc = net_send_again(s, request);
        if (rc != 0) {
            request->pending = 1;
            return rc;
        }
        request->lost = false;
        s->base.failover.repeated++;
    }
    return 0;
}

static int lead(struct net_send *s)
{
    struct net_comm *c = &s->base;
    struct net_failover *f = &c->failover;
    uint64_t wait = (uint64_t)c->hold.core->knobs.port_failover_delay_ms * MS;
    int rc = 0;

    if (f->recovery == NET_RECOVERY_QUIET && c->live_paths > 0 && quiet(c) &&
        gemmar_now_ns() - f->since_ns >= wait) {
        f->round++;
        rc = net_note_tell(c);
        f->round -= rc != 0;
        f->recovery = rc == 0 ? NET_RECOVERY_ASKED : f->recovery;
        f->looked_ns = gemmar_now_ns(); /* give it time to answer */
    }
    if (rc == 0 && f->recovery == NET_RECOVERY_ASKED) {
        rc = f->heard.round == f->round ? 0 : await(s);
        f->recovery = f->heard.round == f->round ? NET_RECOVERY_REPEAT : f->recovery;
    }
    if (rc == 0 && f->recovery == NET_RECOVERY_REPEAT) {
        rc = repeat(s);
        if (rc == 0) {
            f->recovery = NET_RECOVERY_NONE;
            list_live(c);
        }
    }
    return rc == -EAGAIN ? c->failed : rc;
}

/* ---- The receiver's part ---- */

/* Take all that came, until nothing comes. */
static int take_all(struct net_comm *c)
{
    for (uint64_t before = 0; before != c->completions;) {
        before = c->completions;
        if (net_comm_poll(c) != 0) {
            return c->failed;
        }
    }
    return 0;
}

/* Are the paths that the sender has given up stopped here, too? */
static bool has_followed(const struct net_comm *c)
{
    for (uint32_t p = 0; p < c->paths; p++) {
        if ((c->failover.heard.down >> p & 1) != 0 && !is_down(c, p)) {
            return false;
        }
    }
    return true;
}

static int answer(struct net_recv *r)
{
    struct net_comm *c = &r->base;
    struct net_failover *f = &c->failover;
    int rc = take_all(c);

    if (rc != 0 || !has_followed(c) || !drained(c) || c->live[0]->room < ANNOUNCE_ROOM) {
        return rc;
    }
    for (uint32_t i = 0; rc == 0 && i < NET_SLOTS; i++) {
        struct net_request *request = &r->request[i];

        if (request->state != NET_REQUEST_RECV || request->pending == 0) {
            continue;
        }
        for (uint32_t part = 0; part < request->parts; part++) {
            request->arrived[part] = 0;
        }
        rc = net_recv_announce(r, i, request->parts);
    }
    if (rc != 0) {
        return rc == -EAGAIN ? 0 : rc;
    }
    f->round = f->heard.round;
    f->tell = true;
    return 0;
}

/* ---- Reviving a path ---- */

static int revive_connect(struct net_comm *c, uint32_t path)
{
    uint32_t shift = (uint32_t)(c->failover.heal * NUMBER_STRIDE);
    int rc = 0;

    for (uint32_t i = path; rc == 0 && i < c->lanes; i += c->paths) {
        struct net_lane *l = &c->lane[i];
        struct gemmar_wire_qp own = l->own, peer = l->peer;

        own.packet_number = (own.packet_number + shift) & 0xffffffu;
        peer.packet_number = (peer.packet_number + shift) & 0xffffffu;
        rc = gemmar_ib_qp_reconnect(device_of(c, path), l->qp, &own, &peer, c->traffic_class);
    }
    return rc;
}

static int revive_reset(struct net_comm *c, uint32_t path)
{
    int rc = 0;

    for (uint32_t i = path; rc == 0 && i < c->lanes; i += c->paths) {
        struct net_lane *l = &c->lane[i];

        rc = gemmar_ib_qp_restart(device_of(c, path), l->qp);
        l->stopped = false;
        l->draining = false;
        l->room = l->depth;
        l->unsignalled = 0;
        l->used = 0;
        if (rc == 0 && !c->sends) {
            rc = net_recv_post((struct net_recv *)c, l, l->recv_depth);
        }
    }
    return rc;
}

static uint32_t path_of(uint8_t bits)
{
    uint32_t path = 0;

    while (path < NET_MAX_RAILS && (bits >> path & 1) == 0) {
        path++;
    }
    return path;
}

/* The receiver's side: paths that the sender uses again. */
static void take_back(struct net_comm *c)
{
    struct net_failover *f = &c->failover;

    for (uint32_t p = 0; p < c->paths; p++) {
        if (f->path[p].state == NET_PATH_REVIVED && (f->heard.down >> p & 1) == 0) {
            f->path[p].state = NET_PATH_LIVE;
            f->path[p].trials = 0;
            f->revived++;
            f->tell = true;
            list_live(c);
        }
    }
}

/* The receiver's side: a revival that the sender asks for. */
static void follow_revival(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    uint32_t path = path_of(f->heard.healing);

    if (f->heard.heal > f->heal && path < c->paths && is_down(c, path) && drained(c)) {
        f->heal = f->heard.heal;
        if (revive_reset(c, path) == 0 && revive_connect(c, path) == 0) {
            f->path[path].state = NET_PATH_REVIVED;
        } /* else the sender's trial fails */
        f->tell = true;
    }
}

static bool may_revive(const struct net_comm *c, uint32_t p)
{
    const struct gemmar_knobs *k = &c->hold.core->knobs;
    const struct net_path *path = &c->failover.path[p];
    uint32_t doublings = path->trials < MAX_BACKOFF ? path->trials : MAX_BACKOFF;
    uint64_t wait = ((uint64_t)k->port_recovery_start_ms * MS) << doublings;

    return path->state == NET_PATH_DOWN && path->trials < (uint32_t)k->port_recovery_attempts &&
           (c->failover.healthy >> p & 1) != 0 && (c->failover.heard.healthy >> p & 1) != 0 &&
           (c->failover.heard.down >> p & 1) != 0 && gemmar_now_ns() - path->down_ns >= wait;
}

static void begin_revival(struct net_comm *c)
{
    struct net_failover *f = &c->failover;

    for (uint32_t p = 0; p < c->paths && f->healing == NET_MAX_RAILS; p++) {
        if (may_revive(c, p) && drained(c)) {
            f->path[p].down_ns = gemmar_now_ns(); /* of the next one, should this one fail */
            f->path[p].answers = 0;
            if (revive_reset(c, p) != 0) {
                f->path[p].trials++;
                continue;
            }
            f->healing = p;
            f->heal++;
            f->tell = true;
        }
    }
}

static int post_trials(struct net_comm *c, uint32_t path)
{
    uint32_t count = (uint32_t)c->hold.core->knobs.port_recovery_batch;
    int rc = 0;

    for (uint32_t i = path; rc == 0 && i < c->lanes; i += c->paths) {
        struct net_lane *l = &c->lane[i];
        struct ibv_send_wr *bad,
            wr = {.wr_id = net_wr_id(NET_WORK_TRIAL, i, 1, 0),
                  .opcode = IBV_WR_RDMA_WRITE,
                  .send_flags = IBV_SEND_SIGNALED,
                  .wr.rdma = {.remote_addr = c->peer_words, .rkey = l->peer_words_rkey}};

        for (uint32_t n = 0; rc == 0 && n < count; n++) {
            rc = ibv_post_send(l->qp, &wr, &bad);
            l->room -= rc == 0;
            c->failover.path[path].answers += rc == 0;
        }
    }
    return rc;
}

/* The sender's side. */
static void lead_revival(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    uint32_t p = f->healing;
    struct gemmar_ib_device *d;

    if (p == NET_MAX_RAILS) {
        begin_revival(c);
        return;
    }
    d = device_of(c, p);
    if (f->path[p].state == NET_PATH_DOWN && f->heard.heal == f->heal) {
        f->path[p].state = NET_PATH_REVIVED;
        if (revive_connect(c, p) != 0 || post_trials(c, p) != 0) {
            stop_path(c, p, "it cannot be connected again");
        }
    } else if (f->path[p].state == NET_PATH_REVIVED && f->path[p].answers == 0) {
        f->path[p].state = NET_PATH_LIVE;
        f->path[p].trials = 0;
        f->revived++;
        f->healing = NET_MAX_RAILS;
        f->tell = true;
        list_live(c);
        gemmar_info(&c->hold.log, "net: to peer %s: device %s:%d is in use again; %u of %u paths",
                    c->peer_text, d->name, d->port, c->live_paths, c->paths);
    }
}

/* ---- What both ends do ---- */

static uint8_t bits_healthy(const struct net_comm *c)
{
    uint8_t bits = 0;

    for (uint32_t p = 0; p < c->paths; p++) {
        bool active = gemmar_load_acquire(&device_of(c, p)->port_down) == 0;

        bits |= is_down(c, p) && active ? (uint8_t)(1u << p) : 0;
    }
    return bits;
}

static void look_at_ports(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    uint8_t healthy;

    for (uint32_t p = 0; p < c->paths; p++) {
        if (f->path[p].state != NET_PATH_DOWN && c->live_paths > 1 &&
            gemmar_load_acquire(&device_of(c, p)->port_down) != 0) {
            stop_path(c, p, "its port is down");
        }
    }
    healthy = bits_healthy(c);
    if (healthy != f->healthy) {
        f->healthy = healthy;
        f->tell = true;
    }
}

/* The peer's view: the sender takes over what the receiver has lost at once, the receiver with the
 * round that follows. */
static void adopt(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    bool asked = !c->sends && f->heard.round > f->round;

    for (uint32_t p = 0; p < c->paths; p++) {
        bool lost = (f->heard.down >> p & 1) != 0;

        if (!lost || f->path[p].state == NET_PATH_DOWN || (!c->sends && !asked)) {
            continue;
        }
        if (f->path[p].state == NET_PATH_LIVE ? can_spare(c, p) : !c->sends) {
            stop_path(c, p, "the peer has given it up");
        }
    }
}

static int too_long(struct net_comm *c)
{
    return net_comm_fail(c, GEMMAR_NCCL_REMOTE_ERROR,
                         "after a path failed, the peer did not answer over the others within "
                         "GEMMAR_TIMEOUT");
}

int net_failover_step(struct net_comm *c)
{
    struct net_failover *f = &c->failover;
    int rc = net_comm_poll(c);

    if (rc != 0) {
        return rc;
    }
    look_at_ports(c);
    net_note_hear(c);
    if (!c->sends) {
        take_back(c); /* before another one is given up */
    }
    adopt(c);
    if (c->sends && c->live_paths == 0) {
        lead_revival(c); /* the recovery waits for a path */
    }
    if (c->sends && f->recovery != NET_RECOVERY_NONE) {
        rc = lead((struct net_send *)c);
        if (rc == 0 && f->recovery != NET_RECOVERY_NONE &&
            gemmar_now_ns() - f->since_ns > (uint64_t)c->hold.core->knobs.timeout) {
            rc = too_long(c);
        }
    } else if (c->sends && f->trouble && wanted(&c->hold.core->knobs, true)) {
        lead_revival(c);
    } else if (!c->sends) {
        rc = f->heard.round > f->round ? answer((struct net_recv *)c) : 0;
        follow_revival(c);
    }
    if (rc == 0 && c->failed == 0 && f->tell) {
        rc = net_note_tell(c);
        rc = rc == -EAGAIN ? 0 : rc;
    }
    return rc != 0 ? rc : c->failed;
}
