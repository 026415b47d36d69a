// SPDX-License-Identifier: Apache-2.0
// The state machine of a queue pair: which attributes each step needs and may have.
#include <errno.h>
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

// InfiniBand specification, chapter 11.2.4.2, table of QP state transition properties, for RC.
static const struct transition {
    int from, to, needed, allowed;
} transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
         IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
};

static int check_transition(int from, int to, int mask)
{
    int rest = mask & ~IBV_QP_STATE;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
        return rest & ~IBV_QP_CUR_STATE ? EINVAL : 0; // from any state
    }
    for (size_t i = 0; i < sizeof transitions / sizeof *transitions; i++) {
        const struct transition *t = &transitions[i];
        if (t->from == from && t->to == to) {
            int known = t->needed | t->allowed;
            return (rest & t->needed) == t->needed && !(rest & ~known) ? 0 : EINVAL;
        }
    }
    return EINVAL;
}

static int check_values(const struct ibv_qp_attr *a, int mask)
{
    const struct softhca_config *c = &softhca_hca->config;
    const struct ibv_ah_attr *ah = &a->ah_attr;
    int bad = 0;
    bad |= (mask & IBV_QP_PKEY_INDEX) && a->pkey_index != 0;
    bad |= (mask & IBV_QP_PORT) && (a->port_num < 1 || a->port_num > c->ports);
    bad |= (mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096);
    bad |= (mask & IBV_QP_TIMEOUT) && a->timeout > 31;
    bad |= (mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7;
    bad |= (mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7;
    bad |= (mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31;
    bad |= (mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > SOFTHCA_MAX_RD_ATOM;
    bad |= (mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > SOFTHCA_MAX_RD_ATOM;
    bad |= (mask & (IBV_QP_ALT_PATH | IBV_QP_CUR_STATE)) && (mask & IBV_QP_ALT_PATH);
    if (mask & IBV_QP_AV) {
        bad |= ah->port_num < 1 || ah->port_num > c->ports;
        bad |= c->roce && !ah->is_global;
        bad |= ah->is_global && ah->grh.sgid_index >= (c->roce ? 4 : 1);
    }
    return bad ? EINVAL : 0;
}

static void copy_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
#define COPY(bit, field) to->field = mask & (bit) ? a->field : to->field
    COPY(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    COPY(IBV_QP_PKEY_INDEX, pkey_index);
    COPY(IBV_QP_PORT, port_num);
    COPY(IBV_QP_AV, ah_attr);
    COPY(IBV_QP_PATH_MTU, path_mtu);
    COPY(IBV_QP_TIMEOUT, timeout);
    COPY(IBV_QP_RETRY_CNT, retry_cnt);
    COPY(IBV_QP_RNR_RETRY, rnr_retry);
    COPY(IBV_QP_RQ_PSN, rq_psn);
    COPY(IBV_QP_SQ_PSN, sq_psn);
    COPY(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    COPY(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    COPY(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    COPY(IBV_QP_DEST_QPN, dest_qp_num);
    COPY(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
#undef COPY
    to->rq_psn &= 0xffffff;
    to->sq_psn &= 0xffffff;
    to->dest_qp_num &= 0xffffff;
}

// The port behind the address vector: 0 when nobody is there, which a packet finds out, or, where
// a neighbour has to be resolved (RoCE), this call.
static int resolve(struct softhca_qp *qp, const struct ibv_qp_attr *attr)
{
    const struct ibv_ah_attr *ah = &attr->ah_attr;
    uint32_t lid = ah->is_global ? softhca_gid_lid(&ah->grh.dgid) : 0;
    if (!lid && !softhca_hca->config.roce) {
        lid = ah->dlid <= SOFTHCA_MAX_LID ? ah->dlid : 0;
    }
    if (!lid && softhca_hca->config.roce) {
        return ETIMEDOUT;
    }
    qp->dlid = lid;
    return 0;
}

static void enter_rtr(struct softhca_qp *qp)
{
    qp->expected = qp->attr.rq_psn;
    qp->in_off = 0;
    qp->ignoring = 0;
    qp->ack_pending = 0;
    qp->nak = 0;
    qp->answer_head = qp->answer_tail = 0;
    memset(qp->atomics, 0, sizeof qp->atomics);
    qp->comm_est = 0;
}

static void enter_rts(struct softhca_qp *qp, int from)
{
    if (from == IBV_QPS_RTR) {
        // slot una has the first number
        qp->first_psn = (qp->attr.sq_psn - (uint32_t)qp->una) & 0xffffff;
        qp->retries = qp->rnr_retries = 0;
    }
}

static void set_state(struct softhca_qp *qp, enum ibv_qp_state state)
{
    qp->ex.qp_base.state = state;
    qp->attr.qp_state = state;
    SOFTHCA_STORE_RELEASE(&qp->state, (uint32_t)state);
}

static void publish(struct softhca_qp *qp, int live)
{
    softhca_fabric_publish_qp(&softhca_hca->member, qp->ex.qp_base.qp_num, qp->lid, live);
}

void softhca_qp_to_error(struct softhca_qp *qp)
{
    if (qp->state == IBV_QPS_ERR) {
        return;
    }
    if (qp->unfinished) {
        softhca_pull_finish(); // these completions come before the flushed ones
    }
    set_state(qp, IBV_QPS_ERR);
    softhca_qp_activate(qp); // to flush
    if (qp->ex.qp_base.srq) {
        softhca_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
    }
}

// Everything that was posted is forgotten without a completion.
void softhca_qp_to_reset(struct softhca_qp *qp)
{
    softhca_pull_finish();
    (void)softhca_take_active();
    softhca_qp_drop_live(qp);
    softhca_cq_forget((struct softhca_cq *)(void *)qp->ex.qp_base.send_cq, qp);
    softhca_cq_forget((struct softhca_cq *)(void *)qp->ex.qp_base.recv_cq, qp);
    (void)pthread_mutex_lock(&qp->sq_lock);
    set_state(qp, IBV_QPS_RESET);
    qp->una = qp->next = qp->highest = qp->sq_tail;
    SOFTHCA_STORE_RELEASE(&qp->sq_freed, qp->sq_tail);
    (void)pthread_mutex_unlock(&qp->sq_lock);
    (void)pthread_mutex_lock(&qp->rq.lock);
    qp->rq.head = qp->rq.tail;
    SOFTHCA_STORE_RELEASE(&qp->rq.freed, qp->rq.tail);
    (void)pthread_mutex_unlock(&qp->rq.lock);
    qp->tx_off = qp->rd_outstanding = 0;
    qp->timer_ns = qp->starved_ns = qp->rnr_ns = qp->hold_ns = 0;
    qp->has_recv = 0;
    qp->nak = qp->ack_pending = 0;
    qp->pull_gpu = qp->copied_by = NULL;
    qp->pull_first = qp->pull_last = qp->copied_in = qp->worded_in = 0;
    qp->pull_word = 0;
    qp->lid = qp->dlid = 0;
    memset(&qp->attr, 0, sizeof qp->attr);
    publish(qp, 0);
}

int softhca_qp_modify(struct softhca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    int from = (int)qp->state;
    int to = mask & IBV_QP_STATE ? (int)attr->qp_state : from;
    if ((mask & IBV_QP_CUR_STATE) && (int)attr->cur_qp_state != from) {
        return EINVAL;
    }
    int err = check_transition(from, to, mask);
    err = err ? err : check_values(attr, mask);
    if (!err && (mask & IBV_QP_AV)) {
        err = resolve(qp, attr);
    }
    if (err) {
        return err;
    }
    if (to == IBV_QPS_RESET) {
        softhca_qp_to_reset(qp);
        return 0;
    }
    if (to == IBV_QPS_ERR) {
        softhca_qp_to_error(qp);
        return 0;
    }
    copy_attr(&qp->attr, attr, mask);
    if (mask & (IBV_QP_PORT | IBV_QP_AV)) {
        qp->lid = softhca_lid(softhca_hca->member.node, qp->ctx->device, qp->attr.port_num - 1u);
    }
    if (to == IBV_QPS_RTR) {
        enter_rtr(qp);
    } else if (to == IBV_QPS_RTS) {
        enter_rts(qp, from);
    }
    set_state(qp, (enum ibv_qp_state)to);
    publish(qp, to >= IBV_QPS_RTR);
    softhca_qp_activate(qp);
    return 0;
}

SOFTHCA_EXPORT int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int attr_mask)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)base;
    int err = softhca_fault_call(SOFTHCA_CALL_MODIFY_QP);
    if (!err) {
        softhca_lock();
        err = softhca_qp_modify(qp, attr, attr_mask);
        softhca_unlock();
    }
    if (err) {
        errno = err;
    }
    return err;
}
