// SPDX-License-Identifier: Apache-2.0
// Completion channels: a descriptor that counts the completion events not yet taken.
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

SOFTHCA_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    int err = softhca_fault_call(SOFTHCA_CALL_CREATE_CHANNEL);
    struct softhca_channel *c = err ? NULL : calloc(1, sizeof *c);
    if (!c) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    c->ch.context = context;
    c->ch.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (c->ch.fd < 0) {
        free(c);
        return NULL; // errno says why
    }
    (void)pthread_mutex_init(&c->lock, NULL); // cannot fail without attributes
    (void)SOFTHCA_ADD(&softhca_hca->channel_count, 1);
    return &c->ch;
}

SOFTHCA_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
    softhca_lock();
    int busy = base->refcnt != 0;
    softhca_unlock();
    if (busy) {
        return EBUSY;
    }
    (void)close(base->fd);
    (void)SOFTHCA_SUB(&softhca_hca->channel_count, 1);
    free(base);
    return 0;
}

void softhca_channel_raise(struct softhca_cq *cq)
{
    struct softhca_channel *c = (struct softhca_channel *)cq->cq.channel;
    if (!c) {
        return;
    }
    (void)pthread_mutex_lock(&c->lock);
    if (cq->pending_events++ == 0) {
        cq->next_event = NULL;
        if (c->last) {
            c->last->next_event = cq;
        } else {
            c->first = cq;
        }
        c->last = cq;
    }
    (void)pthread_mutex_unlock(&c->lock);
    softhca_count_up(c->ch.fd);
}

void softhca_channel_forget(struct softhca_cq *cq)
{
    struct softhca_channel *c = (struct softhca_channel *)cq->cq.channel;
    (void)pthread_mutex_lock(&c->lock);
    struct softhca_cq *before = NULL;
    for (struct softhca_cq *q = c->first; q; before = q, q = q->next_event) {
        if (q != cq) {
            continue;
        }
        if (before) {
            before->next_event = cq->next_event;
        } else {
            c->first = cq->next_event;
        }
        if (c->last == cq) {
            c->last = before;
        }
        break;
    }
    for (; cq->pending_events; cq->pending_events--) {
        softhca_count_down(c->ch.fd);
    }
    (void)pthread_mutex_unlock(&c->lock);
}

// The oldest queue with an event, or NULL. One event is taken off it.
static struct softhca_cq *take(struct softhca_channel *c)
{
    (void)pthread_mutex_lock(&c->lock);
    struct softhca_cq *cq = c->first;
    if (cq) {
        c->first = cq->next_event;
        if (!c->first) {
            c->last = NULL;
        }
        if (--cq->pending_events) { // to the end, so that queues take turns
            cq->next_event = NULL;
            if (c->last) {
                c->last->next_event = cq;
            } else {
                c->first = cq;
            }
            c->last = cq;
        }
        (void)SOFTHCA_ADD(&cq->comp_reported, 1);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return cq;
}

SOFTHCA_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                                    void **cq_context)
{
    for (;;) {
        uint64_t n;
        if (read(channel->fd, &n, sizeof n) != (ssize_t)sizeof n) {
            return -1; // EAGAIN on a non-blocking descriptor, EINTR
        }
        struct softhca_cq *q = take((struct softhca_channel *)channel);
        if (q) {
            *cq = &q->cq;
            *cq_context = q->cq.cq_context;
            return 0;
        }
    }
}

SOFTHCA_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
    (void)pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += nevents;
    (void)pthread_cond_signal(&cq->cond);
    (void)pthread_mutex_unlock(&cq->mutex);
}
