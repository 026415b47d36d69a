// SPDX-License-Identifier: Apache-2.0
// The connecting side of a set-up: TCP to the listener, both hellos, queue pairs, "ready".
//
// The handle that NCCL carries from call to call holds the number of the attempt; the attempt
// itself is kept here, so that a damaged handle can never be taken for an address.
#include "plugin/net_connect.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/net_hello.h"
#include "transport/bootstrap.h"
#include "transport/wait.h"

#define ADAPTIVE_BYTES 8192 /* NCCL_IB_AR_THRESHOLD that is not given */

enum step {
    STEP_TCP,
    STEP_HELLO,
    STEP_ANSWER,
    STEP_READY,
};

/* A connect under way. One thread at a time, except the list's fields. */
struct attempt {
    struct attempt *next;
    uint64_t number;
    const struct net_context *context;
    enum step step;
    int traffic_class;
    uint64_t deadline_ns;
    struct gemmar_socket_connect tcp;
    struct gemmar_socket_io io;
    struct net_wire_hello mine, theirs;
    uint8_t ready;
    bool told; /* the error was logged where it was found */
    struct net_send *send;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct attempt *attempts; /* under the lock */
static uint64_t last_number;     /* under the lock */

static uint64_t new_number(void)
{
    uint64_t number;

    (void)pthread_mutex_lock(&lock);
    number = ++last_number;
    (void)pthread_mutex_unlock(&lock);
    return number;
}

static void list_put(struct attempt *a)
{
    (void)pthread_mutex_lock(&lock);
    a->next = attempts;
    attempts = a;
    (void)pthread_mutex_unlock(&lock);
}

/* Take one out, by number or (0) any of a context. */
static struct attempt *list_take(uint64_t number, const struct net_context *context)
{
    struct attempt **at = &attempts, *found;

    (void)pthread_mutex_lock(&lock);
    while (*at != NULL && ((*at)->context != context || (number != 0 && (*at)->number != number))) {
        at = &(*at)->next;
    }
    found = *at;
    if (found != NULL) {
        *at = found->next;
    }
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static void drop(struct attempt *a)
{
    if (a == NULL) {
        return;
    }
    gemmar_socket_connect_release(&a->tcp);
    if (a->send != NULL) {
        net_comm_free(&a->send->base);
    }
    free(a);
}

void net_connect_abandon(const struct net_context *context)
{
    struct attempt *a;

    while ((a = list_take(0, context)) != NULL) {
        drop(a);
    }
}

/* A link-local address needs the scope of this host's own interface. */
static void adopt_scope(const struct net_send *s, struct gemmar_socket_address *peer)
{
    struct gemmar_bootstrap_address mine;

    if (gemmar_socket_address_is_link_local(peer) &&
        gemmar_bootstrap_address(&s->base.hold.core->knobs, &s->base.hold.log, &mine) == 0) {
        gemmar_bootstrap_adopt_scope(peer, &mine);
    }
}

static void set_up_sending(struct net_send *s)
{
    const struct gemmar_knobs *knobs = &s->base.hold.core->knobs;

    s->words = s->base.words;
    s->split = knobs->ib_split_data != 0;
    s->adaptive = UINT64_MAX;
    for (uint32_t i = 0; i < s->base.rails; i++) {
        bool infiniband = s->base.rail[i].device->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET;

        if (knobs->ib_adaptive_routing == 1 || (knobs->ib_adaptive_routing < 0 && infiniband)) {
            s->adaptive =
                knobs->ib_ar_threshold >= 0 ? (uint64_t)knobs->ib_ar_threshold : ADAPTIVE_BYTES;
        }
    }
    s->longest = UINT64_MAX;
    for (uint32_t i = 0; i < s->base.lanes; i++) {
        uint64_t longest = s->base.lane[i].longest * NET_PIECES;

        s->longest = longest < s->longest ? longest : s->longest;
    }
    for (uint32_t i = 0; i < NET_PIECES + 2; i++) {
        s->wr[i].sg_list = &s->sge[i];
        s->wr[i].next = &s->wr[i + 1];
    }
    for (int i = 0; i < NET_SLOTS * NET_PARTS; i++) {
        s->request[i].comm = &s->base;
        s->request[i].index = (uint16_t)i;
        s->request[i].part = (uint8_t)(i % NET_PARTS);
        s->request[i].parts = 1;
    }
}

static int begin(const struct net_context *context, int dev, int traffic_class,
                 const struct net_handle *handle, struct attempt **out)
{
    struct gemmar_socket_address peer;
    struct attempt *a;
    char why[160];
    int rc = net_handle_check(handle, &peer, why, sizeof(why));

    if (rc != 0) {
        gemmar_warn(&context->log, "net: cannot connect: %s", why);
        return rc;
    }
    a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return -ENOMEM;
    }
    a->context = context;
    a->traffic_class = traffic_class;
    a->send = calloc(1, sizeof(*a->send));
    if (a->send == NULL) {
        free(a);
        return -ENOMEM;
    }
    gemmar_socket_connect_init(&a->tcp, &peer, 0);
    net_devices_use();
    a->send->base.sends = true;
    a->send->base.hold.log = context->log;
    a->send->base.profiler = context->profiler;
    (void)gemmar_socket_address_text(&peer, a->send->base.peer_text,
                                     sizeof(a->send->base.peer_text));
    rc = net_comm_open(&a->send->base, dev, handle->rails, handle->queue_pairs);
    if (rc != 0) {
        drop(a);
        return rc;
    }
    set_up_sending(a->send);
    adopt_scope(a->send, &peer);
    a->deadline_ns = gemmar_now_ns() + (uint64_t)a->send->base.hold.core->knobs.setup_timeout;
    gemmar_socket_connect_init(&a->tcp, &peer, a->deadline_ns);
    net_comm_describe(&a->send->base, &a->mine);
    a->mine.cookie = handle->cookie;
    a->mine.traffic_class = traffic_class;
    *out = a;
    return 0;
}

static void go(struct attempt *a, enum step step, void *data, size_t bytes)
{
    a->step = step;
    a->io = (struct gemmar_socket_io){.data = data, .bytes = bytes};
}

static int take_answer(struct attempt *a)
{
    char why[256];
    int rc = net_hello_check(&a->theirs, NET_WIRE_ACCEPT, why, sizeof(why));

    if (rc != 0) {
        gemmar_warn(&a->send->base.hold.log, "net: peer %s: %s", a->send->base.peer_text, why);
        a->told = true;
        return -EPROTO;
    }
    a->told = true; /* of what comes next */
    return net_comm_connect(&a->send->base, &a->theirs,
                            a->send->base.hold.core->knobs.ib_tc >= 0 ? -1 : a->traffic_class);
}

/* 0: connected, -EAGAIN: call again. */
static int advance(struct attempt *a)
{
    struct net_comm *c = &a->send->base;
    int rc = 0;

    if (a->step == STEP_TCP) {
        rc = gemmar_socket_connect_poll(&a->tcp, &c->fd);
        if (rc == 0) {
            go(a, STEP_HELLO, &a->mine, sizeof(a->mine));
        }
    }
    if (rc == 0 && a->step == STEP_HELLO) {
        rc = gemmar_socket_send(c->fd, &a->io);
        if (rc == 0) {
            go(a, STEP_ANSWER, &a->theirs, sizeof(a->theirs));
        }
    }
    if (rc == 0 && a->step == STEP_ANSWER) {
        rc = gemmar_socket_recv(c->fd, &a->io);
        if (a->io.done >= sizeof(a->theirs.magic) && a->theirs.magic != NET_WIRE_MAGIC) {
            rc = 0; /* it will never send a whole hello: let the check say so */
        }
        if (rc == 0) {
            rc = take_answer(a);
        }
        if (rc == 0) {
            a->told = false;
            a->ready = 1;
            go(a, STEP_READY, &a->ready, sizeof(a->ready));
        }
    }
    if (rc == 0 && a->step == STEP_READY) {
        rc = gemmar_socket_send(c->fd, &a->io);
    }
    return rc;
}

static void explain(const struct attempt *a, int rc)
{
    static const char *const doing[] = {"connecting", "sending the hello", "waiting for its answer",
                                        "telling that all is ready"};
    int error =
        rc == -ETIMEDOUT && a->tcp.last_error != 0 && a->step == STEP_TCP ? a->tcp.last_error : -rc;

    gemmar_warn(&a->send->base.hold.log, "net: peer %s: %s (device %s:%d): %s%s",
                a->send->base.peer_text, doing[a->step], a->send->base.rail[0].device->name,
                a->send->base.rail[0].device->port, strerror(error),
                rc == -ETIMEDOUT ? "; GEMMAR_SETUP_TIMEOUT says how long to wait" : "");
}

static int poll(struct attempt *a)
{
    int rc = advance(a);

    if (rc == -EAGAIN && gemmar_now_ns() > a->deadline_ns) {
        rc = -ETIMEDOUT;
    }
    if (rc != 0 && rc != -EAGAIN && !a->told) {
        explain(a, rc);
    }
    return rc;
}

int gemmar_net_connect(void *ctx, int dev, int traffic_class, void *handle_buffer, void **out_send)
{
    const struct net_context *context = ctx;
    struct net_handle *handle = handle_buffer;
    struct attempt *a = NULL;
    int rc = 0;

    *out_send = NULL;
    if (handle->pending != 0 && handle->magic == NET_WIRE_MAGIC) {
        a = list_take(handle->pending, context);
    }
    if (a == NULL) {
        rc = begin(context, dev, traffic_class >= 0 ? traffic_class : context->traffic_class,
                   handle, &a);
        if (rc != 0) {
            return net_result(rc);
        }
        a->number = new_number();
        handle->pending = a->number;
    }
    rc = poll(a);
    if (rc == -EAGAIN) {
        list_put(a);
        return GEMMAR_NCCL_SUCCESS;
    }
    handle->pending = 0;
    if (rc != 0) {
        drop(a);
        return net_result(rc);
    }
    *out_send = a->send;
    a->send = NULL;
    drop(a);
    return GEMMAR_NCCL_SUCCESS;
}

int gemmar_net_close_send(void *send)
{
    return net_comm_end(send);
}
