// SPDX-License-Identifier: Apache-2.0
// Receive queues: of a queue pair, and shared ones.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

int softhca_rq_init(struct softhca_rq *rq, uint32_t depth, uint32_t max_sge)
{
    rq->depth = depth;
    rq->max_sge = max_sge;
    rq->stride = (uint32_t)(sizeof(struct softhca_rwqe) + max_sge * sizeof(struct ibv_sge));
    (void)pthread_mutex_init(&rq->lock, NULL); // cannot fail without attributes
    rq->slots = depth ? calloc(depth, rq->stride) : NULL;
    return depth && !rq->slots ? -ENOMEM : 0;
}

void softhca_rq_release(struct softhca_rq *rq)
{
    free(rq->slots);
    rq->slots = NULL;
}

int softhca_rq_post(struct softhca_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int err = 0;
    (void)pthread_mutex_lock(&rq->lock);
    uint64_t tail = rq->tail;
    for (; wr; wr = wr->next) {
        err = softhca_fault_call(SOFTHCA_CALL_POST_RECV);
        if (!err && (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)) {
            err = EINVAL;
        } else if (!err && tail - SOFTHCA_LOAD_ACQUIRE(&rq->freed) >= rq->depth) {
            err = ENOMEM;
        }
        if (err) {
            *bad = wr;
            break;
        }
        struct softhca_rwqe *w = softhca_rwqe_at(rq, tail);
        w->wr_id = wr->wr_id;
        w->num_sge = (uint32_t)wr->num_sge;
        if (wr->num_sge) {
            memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof *w->sge);
        }
        tail++;
    }
    SOFTHCA_STORE_RELEASE(&rq->tail, tail);
    (void)pthread_mutex_unlock(&rq->lock);
    return err;
}

int softhca_post_srq_recv(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return softhca_rq_post(&((struct softhca_srq *)base)->rq, wr, bad);
}

SOFTHCA_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    int err = softhca_fault_call(SOFTHCA_CALL_CREATE_SRQ);
    if (!err && (attr->attr.max_wr < 1 || attr->attr.max_wr > softhca_hca->config.max_qp_wr ||
                 attr->attr.max_sge > SOFTHCA_MAX_SGE)) {
        err = EINVAL;
    }
    struct softhca_srq *srq = err ? NULL : calloc(1, sizeof *srq);
    if (srq && softhca_rq_init(&srq->rq, attr->attr.max_wr, attr->attr.max_sge)) {
        free(srq);
        srq = NULL;
    }
    if (!srq) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    srq->srq.context = pd->context;
    srq->srq.srq_context = attr->srq_context;
    srq->srq.pd = pd;
    (void)pthread_mutex_init(&srq->srq.mutex, NULL); // cannot fail without attributes
    (void)pthread_cond_init(&srq->srq.cond, NULL);
    softhca_lock();
    ((struct softhca_pd *)pd)->refs++;
    softhca_unlock();
    return &srq->srq;
}

SOFTHCA_EXPORT int ibv_modify_srq(struct ibv_srq *base, struct ibv_srq_attr *attr, int mask)
{
    struct softhca_srq *srq = (struct softhca_srq *)base;
    if ((mask & ~IBV_SRQ_LIMIT) || attr->srq_limit > srq->rq.depth) {
        return EINVAL; // IBV_SRQ_MAX_WR: the device cannot resize
    }
    softhca_lock();
    srq->limit = mask & IBV_SRQ_LIMIT ? attr->srq_limit : srq->limit;
    softhca_unlock();
    return 0;
}

SOFTHCA_EXPORT int ibv_query_srq(struct ibv_srq *base, struct ibv_srq_attr *attr)
{
    const struct softhca_srq *srq = (const struct softhca_srq *)base;
    softhca_lock();
    attr->max_wr = srq->rq.depth;
    attr->max_sge = srq->rq.max_sge;
    attr->srq_limit = srq->limit;
    softhca_unlock();
    return 0;
}

SOFTHCA_EXPORT int ibv_destroy_srq(struct ibv_srq *base)
{
    struct softhca_srq *srq = (struct softhca_srq *)base;
    softhca_lock();
    int busy = srq->refs != 0;
    if (!busy) {
        ((struct softhca_pd *)base->pd)->refs--;
    }
    softhca_unlock();
    if (busy) {
        return EBUSY;
    }
    softhca_event_forget((struct softhca_context *)(void *)verbs_get_ctx(base->context), srq);
    (void)pthread_mutex_lock(&base->mutex); // as documented: wait for every acknowledgement
    while (base->events_completed != SOFTHCA_LOAD_ACQUIRE(&srq->async_reported)) {
        (void)pthread_cond_wait(&base->cond, &base->mutex);
    }
    (void)pthread_mutex_unlock(&base->mutex);
    softhca_rq_release(&srq->rq);
    free(srq);
    return 0;
}
