// SPDX-License-Identifier: Apache-2.0
// The accepting side of a set-up. Several clients may be in their handshakes at once, so that one
// that says nothing, or something else, holds up nobody.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "plugin/net_comm.h"
#include "plugin/net_hello.h"
#include "transport/bootstrap.h"
#include "transport/wait.h"

#define CLIENTS 16

enum step {
    STEP_HELLO, /* receiving it */
    STEP_ANSWER,
    STEP_READY, /* waiting until the peer's queue pairs may be written to */
    STEP_REFUSE,
};

struct client {
    int fd; /* -1: free place, or the communicator has it */
    enum step step;
    uint64_t deadline_ns;
    struct gemmar_socket_address address;
    struct gemmar_socket_io io;
    struct net_wire_hello theirs, mine;
    uint8_t ready;
    int refusal; /* result of accept once the refusal is sent */
    struct net_recv *recv;
};

struct listener {
    struct gemmar_hold hold;
    gemmar_nccl_profiler profiler;
    int traffic_class;
    int dev, fd;
    uint64_t cookie;
    struct client *client[CLIENTS];
};

static void client_drop(struct client *c)
{
    if (c == NULL) {
        return;
    }
    if (c->recv != NULL) {
        net_comm_free(&c->recv->base);
    } else {
        gemmar_socket_close(c->fd);
    }
    free(c);
}

int gemmar_net_close_listen(void *listen)
{
    struct listener *l = listen;

    if (l == NULL) {
        return GEMMAR_NCCL_SUCCESS;
    }
    for (int i = 0; i < CLIENTS; i++) {
        client_drop(l->client[i]);
    }
    gemmar_socket_close(l->fd);
    gemmar_core_release(&l->hold);
    net_devices_leave();
    free(l);
    return GEMMAR_NCCL_SUCCESS;
}

static int open_listener(struct listener *l, int dev, struct net_handle *handle)
{
    struct gemmar_bootstrap_address where;
    struct gemmar_socket_address bound;
    uint32_t rails = 0;
    int rc = gemmar_core_hold(&l->hold), queue_pairs;

    if (rc != 0) {
        return rc;
    }
    queue_pairs = net_comm_ends(l->hold.core, dev, &rails);
    if (queue_pairs < 0) {
        gemmar_warn(&l->hold.log, "net: there is no device %d to listen on", dev);
        return queue_pairs;
    }
    rc = gemmar_bootstrap_address(&l->hold.core->knobs, &l->hold.log, &where);
    if (rc != 0) {
        return rc;
    }
    l->fd = gemmar_socket_listen(&where.address, &bound);
    if (l->fd < 0) {
        gemmar_warn(&l->hold.log, "net: cannot listen on interface %s: %s", where.interface,
                    strerror(-l->fd));
        return l->fd;
    }
    if (getrandom(&l->cookie, sizeof(l->cookie), GRND_NONBLOCK) != (ssize_t)sizeof(l->cookie)) {
        l->cookie = gemmar_now_ns(); /* it keeps strays out, not enemies */
    }
    net_handle_fill(handle, &bound, l->cookie, rails, (uint32_t)queue_pairs);
    return 0;
}

int gemmar_net_listen(void *ctx, int dev, void *handle, void **out_listen)
{
    const struct net_context *context = ctx;
    struct net_handle made;
    struct listener *l = calloc(1, sizeof(*l));
    int rc;

    *out_listen = NULL;
    if (l == NULL) {
        return GEMMAR_NCCL_SYSTEM_ERROR;
    }
    l->fd = -1;
    l->dev = dev;
    l->hold.log = context->log;
    l->profiler = context->profiler;
    l->traffic_class = context->traffic_class;
    net_devices_use();
    rc = open_listener(l, dev, &made);
    if (rc != 0) {
        (void)gemmar_net_close_listen(l);
        return net_result(rc);
    }
    memset(handle, 0, GEMMAR_NET_HANDLE_SIZE);
    memcpy(handle, &made, sizeof(made));
    *out_listen = l;
    return GEMMAR_NCCL_SUCCESS;
}

static void go(struct client *c, enum step step, void *data, size_t bytes)
{
    c->step = step;
    c->io = (struct gemmar_socket_io){.data = data, .bytes = bytes};
}

/* Everyone who is there now, as long as there is a place. */
static int welcome(struct listener *l)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct gemmar_socket_address address;
        struct client *c;
        int fd;

        if (l->client[i] != NULL) {
            continue;
        }
        fd = gemmar_socket_accept(l->fd, &address);
        if (fd < 0) {
            return fd == -EAGAIN ? 0 : fd;
        }
        c = calloc(1, sizeof(*c));
        if (c == NULL) {
            gemmar_socket_close(fd);
            return -ENOMEM;
        }
        c->fd = fd;
        c->address = address;
        c->deadline_ns = gemmar_now_ns() + (uint64_t)l->hold.core->knobs.setup_timeout;
        go(c, STEP_HELLO, &c->theirs, sizeof(c->theirs));
        l->client[i] = c;
    }
    return 0;
}

/* Tell the peer why, and keep the result for accept. */
static void refuse(const struct listener *l, struct client *c, int rc, const char *why)
{
    char text[GEMMAR_SOCKET_TEXT_BYTES];

    gemmar_warn(&l->hold.log, "net: peer %s is refused: %s",
                gemmar_socket_address_text(&c->address, text, sizeof(text)), why);
    memset(&c->mine, 0, sizeof(c->mine));
    c->mine.magic = NET_WIRE_MAGIC;
    c->mine.version = NET_WIRE_VERSION;
    c->mine.bytes = sizeof(c->mine);
    memcpy(c->mine.build, c->theirs.build, sizeof(c->mine.build)); /* so that it reads the rest */
    c->mine.end = NET_WIRE_ACCEPT;
    c->mine.status = (uint32_t)-rc;
    net_hello_text(c->mine.text, sizeof(c->mine.text), why, strlen(why));
    c->refusal = net_result(rc);
    go(c, STEP_REFUSE, &c->mine, sizeof(c->mine));
}

static void set_up_receiving(struct net_recv *r)
{
    r->words = r->base.words;
    for (int i = 0; i < NET_SLOTS; i++) {
        r->request[i].comm = r->flush[i].comm = &r->base;
        r->request[i].index = r->flush[i].index = (uint16_t)i;
    }
    r->cts_wr.opcode = IBV_WR_RDMA_WRITE;
    r->cts_wr.sg_list = &r->cts_sge;
    r->cts_wr.num_sge = 1;
}

/* This end sends nothing but clear-to-sends. As in NCCL a knob goes before what the communicator
 * says; in API v10 only the connecting side is told that. */
static int traffic_class(const struct listener *l, const struct net_wire_hello *peer)
{
    const struct gemmar_knobs *knobs = &l->hold.core->knobs;

    if (knobs->ib_fifo_tc >= 0 || knobs->ib_tc >= 0) {
        return (int)knobs->ib_fifo_tc; /* -1: NCCL_IB_TC */
    }
    return l->traffic_class >= 0 ? l->traffic_class : peer->traffic_class;
}

/* A peer with the cookie: the other end of the communicator. */
static int make_recv(struct listener *l, struct client *c)
{
    struct net_recv *r = calloc(1, sizeof(*r));
    uint32_t paths;
    int rc;

    if (r == NULL) {
        return -ENOMEM;
    }
    c->recv = r;
    net_devices_use();
    r->base.hold.log = l->hold.log;
    r->base.profiler = l->profiler;
    r->base.head = (uint64_t)l->hold.core->knobs.epoch_start;
    (void)gemmar_socket_address_text(&c->address, r->base.peer_text, sizeof(r->base.peer_text));
    (void)net_comm_ends(l->hold.core, l->dev, &paths); /* it existed at listen */
    paths = c->theirs.rails > paths ? c->theirs.rails : paths;
    rc = net_comm_open(&r->base, l->dev, c->theirs.rails, c->theirs.lanes / paths);
    r->base.fd = c->fd;
    if (rc != 0) {
        return rc;
    }
    set_up_receiving(r);
    rc = net_comm_connect(&r->base, &c->theirs, traffic_class(l, &c->theirs));
    net_comm_describe(&r->base, &c->mine);
    return rc;
}

/* The hello is there, or as much of it as was needed to judge. 0, or -EBADMSG: not for us. */
static int take_hello(struct listener *l, struct client *c)
{
    char why[256];
    int rc = net_hello_check(&c->theirs, NET_WIRE_CONNECT, why, sizeof(why));

    if (rc == -EBADMSG || (rc == 0 && c->theirs.cookie != l->cookie)) {
        return -EBADMSG;
    }
    if (rc != 0) {
        refuse(l, c, rc, why);
        return 0;
    }
    rc = make_recv(l, c);
    if (rc != 0) {
        refuse(l, c, rc, "the accepting side cannot set up its queue pairs; its log says why");
        return 0;
    }
    go(c, STEP_ANSWER, &c->mine, sizeof(c->mine));
    return 0;
}

/* 0: done, -EAGAIN: call again, else the client is to be dropped. */
static int advance(struct listener *l, struct client *c)
{
    int rc = 0;

    if (c->step == STEP_HELLO) {
        rc = gemmar_socket_recv(c->fd, &c->io);
        if (rc == -EAGAIN && c->io.done >= sizeof(c->theirs.magic) &&
            c->theirs.magic != NET_WIRE_MAGIC) {
            return -EBADMSG;
        }
        rc = rc == 0 ? take_hello(l, c) : rc;
    }
    if (rc == 0 && c->step == STEP_REFUSE) {
        rc = gemmar_socket_send(c->fd, &c->io);
    }
    if (rc == 0 && c->step == STEP_ANSWER) {
        rc = gemmar_socket_send(c->fd, &c->io);
        if (rc == 0) {
            go(c, STEP_READY, &c->ready, sizeof(c->ready));
        }
    }
    if (rc == 0 && c->step == STEP_READY) {
        rc = gemmar_socket_recv(c->fd, &c->io);
    }
    return rc == -EAGAIN && gemmar_now_ns() > c->deadline_ns ? -ETIMEDOUT : rc;
}

/* A client that did not get as far as the cookie may be anybody; later it was the peer. */
static int give_up(struct listener *l, const struct client *c, int rc)
{
    char text[GEMMAR_SOCKET_TEXT_BYTES];

    (void)gemmar_socket_address_text(&c->address, text, sizeof(text));
    if (c->step == STEP_HELLO) {
        gemmar_info(&l->hold.log, "net: client %s is not a peer of this listener: %s", text,
                    rc == -EBADMSG ? "it said something else" : strerror(-rc));
        return GEMMAR_NCCL_SUCCESS;
    }
    gemmar_warn(&l->hold.log, "net: peer %s: lost during the set-up: %s", text, strerror(-rc));
    return net_result(rc);
}

int gemmar_net_accept(void *listen, void **out_recv)
{
    struct listener *l = listen;
    int rc = welcome(l), result = GEMMAR_NCCL_SUCCESS;

    *out_recv = NULL;
    if (rc != 0) {
        gemmar_warn(&l->hold.log, "net: cannot accept: %s", strerror(-rc));
        return net_result(rc);
    }
    for (int i = 0; i < CLIENTS && result == GEMMAR_NCCL_SUCCESS && *out_recv == NULL; i++) {
        struct client *c = l->client[i];

        rc = c != NULL ? advance(l, c) : -EAGAIN;
        if (rc == -EAGAIN) {
            continue;
        }
        l->client[i] = NULL;
        if (rc != 0) {
            result = give_up(l, c, rc);
        } else if (c->step == STEP_REFUSE) {
            result = c->refusal;
        } else {
            *out_recv = c->recv;
            c->recv = NULL;
            c->fd = -1;
        }
        client_drop(c);
    }
    return result;
}

int gemmar_net_close_recv(void *recv)
{
    return net_comm_end(recv);
}
