// SPDX-License-Identifier: Apache-2.0
// Queue pairs: made, asked, destroyed.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/softhca.h"
#include "tools/softhca/sync.h"

static int check_init(const struct ibv_qp_init_attr_ex *a)
{
    const struct softhca_config *c = &softhca_hca->config;
    const struct ibv_qp_cap *cap = &a->cap;
    if (a->qp_type != IBV_QPT_RC) {
        return EOPNOTSUPP;
    }
    if (!a->pd || !a->send_cq || !a->recv_cq || cap->max_send_wr > c->max_qp_wr ||
        cap->max_send_sge > SOFTHCA_MAX_SGE || cap->max_inline_data > SOFTHCA_MAX_INLINE) {
        return EINVAL;
    }
    if (!a->srq && (cap->max_recv_wr > c->max_qp_wr || cap->max_recv_sge > SOFTHCA_MAX_SGE)) {
        return EINVAL;
    }
    return 0;
}

static int alloc_queues(struct softhca_qp *qp)
{
    struct ibv_qp_cap *cap = &qp->cap;
    if (qp->ex.qp_base.srq) {
        cap->max_recv_wr = cap->max_recv_sge = 0;
    }
    cap->max_send_wr = cap->max_send_wr ? cap->max_send_wr : 1;
    uint32_t list = cap->max_send_sge * (uint32_t)sizeof(struct ibv_sge);
    uint32_t body = list > cap->max_inline_data ? list : cap->max_inline_data;
    qp->sq_stride = ((uint32_t)sizeof(struct softhca_wqe) + body + 63) & ~63u;
    qp->sq = calloc(cap->max_send_wr, qp->sq_stride);
    if (!qp->sq || softhca_rq_init(&qp->rq, cap->max_recv_wr, cap->max_recv_sge)) {
        free(qp->sq);
        return ENOMEM;
    }
    return 0;
}

static void count_refs(const struct ibv_qp *b, uint32_t by)
{
    ((struct softhca_pd *)b->pd)->refs += by;
    ((struct softhca_cq *)(void *)b->send_cq)->refs += by;
    ((struct softhca_cq *)(void *)b->recv_cq)->refs += by;
    if (b->srq) {
        ((struct softhca_srq *)b->srq)->refs += by;
    }
}

static void fill_base(struct softhca_qp *qp, const struct ibv_qp_init_attr_ex *a)
{
    struct ibv_qp *b = &qp->ex.qp_base;
    b->context = a->pd->context;
    b->qp_context = a->qp_context;
    b->pd = a->pd;
    b->send_cq = a->send_cq;
    b->recv_cq = a->recv_cq;
    b->srq = a->srq;
    b->state = IBV_QPS_RESET;
    b->qp_type = a->qp_type;
    (void)pthread_mutex_init(&b->mutex, NULL); // cannot fail without attributes
    (void)pthread_cond_init(&b->cond, NULL);
    (void)pthread_mutex_init(&qp->sq_lock, NULL);
    qp->ctx = (struct softhca_context *)(void *)verbs_get_ctx(b->context);
    qp->cap = a->cap;
    qp->sig_all = a->sq_sig_all;
    softhca_wr_api_init(qp);
}

static struct ibv_qp *create(const struct ibv_qp_init_attr_ex *a)
{
    struct softhca_qp *qp = NULL;
    int err = softhca_fault_call(SOFTHCA_CALL_CREATE_QP);
    err = err ? err : check_init(a);
    if (!err && !(qp = calloc(1, sizeof *qp))) {
        err = ENOMEM;
    }
    if (err) {
        errno = err;
        return NULL;
    }
    fill_base(qp, a);
    err = alloc_queues(qp);
    if (err) {
        goto undo_qp;
    }
    uint32_t qpn;
    softhca_lock();
    err = -softhca_fabric_claim_qp(&softhca_hca->member, &qpn);
    if (!err) {
        qp->ex.qp_base.qp_num = qp->ex.qp_base.handle = qpn;
        softhca_hca->qps[SOFTHCA_QP_INDEX(qpn)] = qp;
        count_refs(&qp->ex.qp_base, 1);
    }
    softhca_unlock();
    if (err) {
        goto undo_queues;
    }
    return &qp->ex.qp_base;
undo_queues:
    softhca_rq_release(&qp->rq);
    free(qp->sq);
undo_qp:
    free(qp);
    errno = err;
    return NULL;
}

SOFTHCA_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr_ex ex;
    memset(&ex, 0, sizeof ex);
    memcpy(&ex, attr, sizeof *attr); // the longer struct starts with the shorter one
    ex.pd = pd;
    struct ibv_qp *qp = create(&ex);
    if (qp) {
        attr->cap = ((struct softhca_qp *)(void *)qp)->cap;
    }
    return qp;
}

struct ibv_qp *softhca_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    const uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                         IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                         IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    (void)context; // the protection domain knows it
    if ((attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) ||
        ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr->send_ops_flags & ~ops))) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct ibv_qp *qp = create(attr);
    if (qp) {
        attr->cap = ((struct softhca_qp *)(void *)qp)->cap;
    }
    return qp;
}

SOFTHCA_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    return &((struct softhca_qp *)(void *)qp)->ex;
}

SOFTHCA_EXPORT int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int attr_mask,
                                struct ibv_qp_init_attr *init_attr)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)base;
    (void)attr_mask; // everything is cheap to tell
    memset(init_attr, 0, sizeof *init_attr);
    softhca_lock();
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)qp->state;
    attr->cap = qp->cap;
    attr->sq_draining = qp->state == IBV_QPS_SQD && qp->una != qp->next;
    softhca_unlock();
    init_attr->qp_context = base->qp_context;
    init_attr->send_cq = base->send_cq;
    init_attr->recv_cq = base->recv_cq;
    init_attr->srq = base->srq;
    init_attr->cap = attr->cap;
    init_attr->qp_type = base->qp_type;
    init_attr->sq_sig_all = qp->sig_all;
    return 0;
}

void softhca_qp_abandon(struct softhca_qp *qp)
{
    struct softhca_hca *h = softhca_hca;
    uint32_t i = SOFTHCA_QP_INDEX(qp->ex.qp_base.qp_num);
    softhca_pull_finish();
    (void)softhca_take_active();
    softhca_qp_drop_live(qp);
    h->qps[i] = NULL;
    softhca_fabric_release_qp(&h->member, qp->ex.qp_base.qp_num);
}

SOFTHCA_EXPORT int ibv_destroy_qp(struct ibv_qp *base)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)base;
    softhca_lock();
    softhca_qp_abandon(qp);
    softhca_cq_forget((struct softhca_cq *)(void *)base->send_cq, qp);
    softhca_cq_forget((struct softhca_cq *)(void *)base->recv_cq, qp);
    count_refs(base, (uint32_t)-1);
    softhca_unlock();
    softhca_event_forget(qp->ctx, qp);
    (void)pthread_mutex_lock(&base->mutex); // as documented: wait for every acknowledgement
    while (base->events_completed != SOFTHCA_LOAD_ACQUIRE(&qp->async_reported)) {
        (void)pthread_cond_wait(&base->cond, &base->mutex);
    }
    (void)pthread_mutex_unlock(&base->mutex);
    softhca_rq_release(&qp->rq);
    free(qp->sq);
    free(qp);
    return 0;
}

SOFTHCA_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
                                              uint32_t flags)
{
    (void)qp;
    (void)op;
    return flags == 0; // bytes are written in address order, always
}

SOFTHCA_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    memset(ece, 0, sizeof *ece);
    ece->vendor_id = 0x736802; // ours; both options are free for the peers to agree on
    ece->options = ((struct softhca_qp *)(void *)qp)->ece_options;
    return 0;
}

SOFTHCA_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    if (ece->vendor_id == 0) { // libibverbs refuses this one before it asks a driver
        errno = EOPNOTSUPP;
        return EOPNOTSUPP;
    }
    if (ece->comp_mask || ece->vendor_id != 0x736802) {
        errno = EINVAL;
        return EINVAL;
    }
    ((struct softhca_qp *)(void *)qp)->ece_options = ece->options;
    return 0;
}

SOFTHCA_EXPORT int softhca_query_qp(struct ibv_qp *base, struct softhca_qp_info *out_info)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)base;
    softhca_lock();
    uint64_t tail = SOFTHCA_LOAD_ACQUIRE(&qp->sq_tail);
    out_info->sent_bytes = qp->tx_bytes;
    out_info->sent_messages = qp->tx_msgs;
    out_info->empty_sges = qp->empty_sges;
    out_info->sent_wrs = (uint32_t)(tail - qp->una);
    out_info->free_wrs =
        qp->cap.max_send_wr - (uint32_t)(tail - SOFTHCA_LOAD_ACQUIRE(&qp->sq_freed));
    softhca_unlock();
    return 0;
}

SOFTHCA_EXPORT void softhca_visit_qps(void (*visit)(void *user, const struct ibv_qp *qp,
                                                    const struct ibv_qp_attr *attr),
                                      void *user)
{
    softhca_lock();
    for (uint32_t i = 0; i < SOFTHCA_MAX_QPS; i++) {
        const struct softhca_qp *qp = softhca_hca->qps[i];
        if (qp) {
            visit(user, &qp->ex.qp_base, &qp->attr);
        }
    }
    softhca_unlock();
}

static void count_qp(void *user, const struct ibv_qp *qp, const struct ibv_qp_attr *attr)
{
    (void)qp;
    (void)attr;
    ++*(uint32_t *)user;
}

SOFTHCA_EXPORT void softhca_query_objects(struct softhca_objects *out_objects)
{
    struct softhca_objects o = {0};
    if (softhca_hca) {
        softhca_visit_qps(count_qp, &o.qps);
        softhca_lock();
        for (const struct softhca_context *c = softhca_hca->contexts; c; c = c->next) {
            o.contexts++;
        }
        o.mrs = softhca_hca->mr_count;
        o.pds = SOFTHCA_LOAD_ACQUIRE(&softhca_hca->pd_count);
        o.cqs = SOFTHCA_LOAD_ACQUIRE(&softhca_hca->cq_count);
        o.channels = SOFTHCA_LOAD_ACQUIRE(&softhca_hca->channel_count);
        softhca_unlock();
    }
    *out_objects = o;
}
