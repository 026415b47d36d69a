// SPDX-License-Identifier: Apache-2.0
// Asynchronous events: queues of a context, ports that went down or up.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

void softhca_count_up(int fd)
{
    const uint64_t one = 1;
    (void)!write(fd, &one, sizeof one); // an eventfd only fails near 2^64
}

void softhca_count_down(int fd)
{
    uint64_t n;
    struct iovec v = {.iov_base = &n, .iov_len = sizeof n};
    // nothing there: somebody already took it and will find the list empty
    (void)!preadv2(fd, &v, 1, -1, RWF_NOWAIT);
}

void softhca_event_raise(struct softhca_context *ctx, const struct ibv_async_event *event)
{
    struct softhca_event *e = calloc(1, sizeof *e);
    if (!e) {
        return; // as a device whose event queue is full
    }
    e->event = *event;
    (void)pthread_mutex_lock(&ctx->lock);
    struct softhca_event **link = &ctx->events;
    while (*link) {
        link = &(*link)->next;
    }
    *link = e;
    (void)pthread_mutex_unlock(&ctx->lock);
    softhca_count_up(ctx->v.context.async_fd);
}

void softhca_qp_event(struct softhca_qp *qp, enum ibv_event_type type)
{
    struct ibv_async_event e = {.element.qp = &qp->ex.qp_base, .event_type = type};
    softhca_event_raise(qp->ctx, &e);
}

static int is_port_event(enum ibv_event_type t)
{
    return t == IBV_EVENT_PORT_ERR || t == IBV_EVENT_PORT_ACTIVE;
}

// Undelivered events of an object that goes away; NULL: all of the context.
void softhca_event_forget(struct softhca_context *ctx, const void *element)
{
    (void)pthread_mutex_lock(&ctx->lock);
    struct softhca_event **link = &ctx->events;
    while (*link) {
        struct softhca_event *e = *link;
        if (element && (is_port_event(e->event.event_type) || e->event.element.qp != element)) {
            link = &e->next;
            continue;
        }
        *link = e->next;
        free(e);
        softhca_count_down(ctx->v.context.async_fd);
    }
    (void)pthread_mutex_unlock(&ctx->lock);
}

// Under hca.lock: the ports of this node against what each context was last told.
void softhca_ports_report(void)
{
    struct softhca_hca *h = softhca_hca;
    for (struct softhca_context *ctx = h->contexts; ctx; ctx = ctx->next) {
        for (uint32_t p = 0; p < h->config.ports; p++) {
            uint32_t lid = softhca_lid(h->member.node, ctx->device, p);
            struct softhca_port_state *s = softhca_fabric_port(h->member.fabric, lid);
            uint32_t seq = SOFTHCA_LOAD_ACQUIRE(&s->seq);
            uint32_t down = SOFTHCA_LOAD_ACQUIRE(&s->down);
            if (seq == ctx->port_seq[p]) {
                continue;
            }
            struct ibv_async_event e = {.element.port_num = (int)p + 1};
            int two = seq - ctx->port_seq[p] > 1; // the change in between, too
            if (two) {
                e.event_type = down ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
                softhca_event_raise(ctx, &e);
            }
            e.event_type = down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE;
            softhca_event_raise(ctx, &e);
            ctx->port_seq[p] = seq;
        }
    }
}

static struct softhca_context *to_context(struct ibv_context *c)
{
    return (struct softhca_context *)(void *)((char *)c - offsetof(struct softhca_context, v) -
                                              offsetof(struct verbs_context, context));
}

// What must be acknowledged before the object can be destroyed.
static void note_reported(const struct ibv_async_event *e)
{
    switch (e->event_type) {
    case IBV_EVENT_CQ_ERR:
        (void)SOFTHCA_ADD(&((struct softhca_cq *)e->element.cq)->async_reported, 1);
        break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        (void)SOFTHCA_ADD(&((struct softhca_srq *)e->element.srq)->async_reported, 1);
        break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR: break;
    default: (void)SOFTHCA_ADD(&((struct softhca_qp *)e->element.qp)->async_reported, 1); break;
    }
}

SOFTHCA_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct softhca_context *ctx = to_context(context);
    for (;;) {
        uint64_t n;
        ssize_t r = read(context->async_fd, &n, sizeof n); // blocks unless the program said not to
        if (r != (ssize_t)sizeof n) {
            return -1; // EINTR included, as the kernel's descriptor does
        }
        (void)pthread_mutex_lock(&ctx->lock);
        struct softhca_event *e = ctx->events;
        if (e) {
            ctx->events = e->next;
            *event = e->event;
            note_reported(event);
        }
        (void)pthread_mutex_unlock(&ctx->lock);
        if (e) {
            free(e);
            return 0;
        }
    }
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
    (void)pthread_mutex_lock(mutex);
    (*completed)++;
    (void)pthread_cond_signal(cond);
    (void)pthread_mutex_unlock(mutex);
}

SOFTHCA_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: {
        struct ibv_cq *cq = event->element.cq;
        ack(&cq->mutex, &cq->cond, &cq->async_events_completed);
        break;
    }
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
        struct ibv_srq *srq = event->element.srq;
        ack(&srq->mutex, &srq->cond, &srq->events_completed);
        break;
    }
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR: break;
    default: {
        struct ibv_qp *qp = event->element.qp;
        ack(&qp->mutex, &qp->cond, &qp->events_completed);
        break;
    }
    }
}
