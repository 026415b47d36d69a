// SPDX-License-Identifier: Apache-2.0
// Posting: ibv_post_send, ibv_post_recv and the ibv_wr_* calls fill send queue slots.
#include <errno.h>
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

static struct softhca_qp *to_qp(struct ibv_qp *base)
{
    return (struct softhca_qp *)(void *)base;
}

static uint8_t *wqe_body(struct softhca_wqe *w)
{
    return (uint8_t *)(w + 1);
}

static int can_send(const struct softhca_qp *qp)
{
    uint32_t s = SOFTHCA_LOAD_ACQUIRE(&qp->state);
    return s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE || s == IBV_QPS_ERR;
}

static int is_atomic(uint32_t opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int fill_lists(struct softhca_qp *qp, struct softhca_wqe *w, const struct ibv_send_wr *wr)
{
    uint64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        length += wr->sg_list[i].length;
        qp->empty_sges += wr->sg_list[i].length == 0;
    }
    w->length = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
    w->is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
    if (!w->is_inline) {
        w->num_sge = (uint32_t)wr->num_sge;
        if (wr->num_sge) {
            memcpy(wqe_body(w), wr->sg_list, (size_t)wr->num_sge * sizeof(struct ibv_sge));
        }
        return 0;
    }
    if (length > qp->cap.max_inline_data || wr->opcode == IBV_WR_RDMA_READ ||
        is_atomic(wr->opcode)) {
        return EINVAL;
    }
    uint8_t *to = wqe_body(w);
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        to += wr->sg_list[i].length;
    }
    return 0;
}

// Under sq_lock.
static int fill_wqe(struct softhca_qp *qp, struct softhca_wqe *w, const struct ibv_send_wr *wr)
{
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge) {
        return EINVAL;
    }
    memset(w, 0, sizeof *w);
    w->wr_id = wr->wr_id;
    w->opcode = wr->opcode;
    w->flags = wr->send_flags;
    switch (wr->opcode) {
    case IBV_WR_SEND: break;
    case IBV_WR_SEND_WITH_IMM: w->imm = wr->imm_data; break;
    case IBV_WR_RDMA_WRITE_WITH_IMM: w->imm = wr->imm_data; // fallthrough
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
        w->remote_addr = wr->wr.rdma.remote_addr;
        w->rkey = wr->wr.rdma.rkey;
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        w->remote_addr = wr->wr.atomic.remote_addr;
        w->rkey = wr->wr.atomic.rkey;
        w->operand = wr->wr.atomic.compare_add;
        w->swap = wr->wr.atomic.swap;
        break;
    default: return EINVAL;
    }
    return fill_lists(qp, w, wr);
}

static int has_room(const struct softhca_qp *qp, uint64_t tail)
{
    return tail - SOFTHCA_LOAD_ACQUIRE(&qp->sq_freed) < qp->cap.max_send_wr;
}

int softhca_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct softhca_qp *qp = to_qp(base);
    int err = 0;
    (void)pthread_mutex_lock(&qp->sq_lock);
    uint64_t first = qp->sq_tail, tail = first;
    for (; wr; wr = wr->next) {
        err = softhca_fault_call(SOFTHCA_CALL_POST_SEND);
        if (!err && !can_send(qp)) {
            err = EINVAL;
        }
        if (!err && !has_room(qp, tail)) {
            err = ENOMEM;
        }
        if (!err) {
            err = fill_wqe(qp, softhca_wqe_at(qp, tail), wr);
        }
        if (err) {
            *bad = wr;
            break;
        }
        tail++;
    }
    SOFTHCA_STORE_RELEASE(&qp->sq_tail, tail);
    (void)pthread_mutex_unlock(&qp->sq_lock);
    if (tail != first) {
        softhca_qp_activate(qp);
    }
    return err;
}

int softhca_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct softhca_qp *qp = to_qp(base);
    uint32_t state = SOFTHCA_LOAD_ACQUIRE(&qp->state);
    if (state == IBV_QPS_RESET || base->srq) {
        *bad = wr;
        return EINVAL;
    }
    int err = softhca_rq_post(&qp->rq, wr, bad);
    if (SOFTHCA_LOAD_ACQUIRE(&qp->state) == IBV_QPS_ERR) {
        softhca_qp_activate(qp); // to be flushed
    }
    return err;
}

// ibv_wr_*: the slot is built in place between wr_start and wr_complete, which hold sq_lock.

static void wr_start(struct ibv_qp_ex *ex)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)ex;
    (void)pthread_mutex_lock(&qp->sq_lock);
    qp->wr_next = qp->sq_tail;
    qp->wr_err = can_send(qp) ? 0 : EINVAL;
}

static void begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr,
                  uint32_t imm, uint64_t operand, uint64_t swap)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)ex;
    if (!qp->wr_err) {
        qp->wr_err = softhca_fault_call(SOFTHCA_CALL_POST_SEND);
    }
    if (!qp->wr_err && !has_room(qp, qp->wr_next)) {
        qp->wr_err = ENOMEM;
    }
    if (qp->wr_err) {
        return;
    }
    struct softhca_wqe *w = softhca_wqe_at(qp, qp->wr_next++);
    *w = (struct softhca_wqe){.wr_id = ex->wr_id,
                              .opcode = opcode,
                              .flags = ex->wr_flags,
                              .rkey = rkey,
                              .remote_addr = addr,
                              .imm = imm,
                              .operand = operand,
                              .swap = swap};
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
    begin(ex, IBV_WR_RDMA_WRITE, rkey, addr, 0, 0, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
    begin(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm, 0, 0);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
    begin(ex, IBV_WR_RDMA_READ, rkey, addr, 0, 0, 0);
}

static void wr_send(struct ibv_qp_ex *ex)
{
    begin(ex, IBV_WR_SEND, 0, 0, 0, 0, 0);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
    begin(ex, IBV_WR_SEND_WITH_IMM, 0, 0, imm, 0, 0);
}

static void wr_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare,
                       uint64_t swap)
{
    begin(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, 0, compare, swap);
}

static void wr_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
    begin(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, 0, add, 0);
}

static void fail(struct ibv_qp_ex *ex)
{
    ((struct softhca_qp *)(void *)ex)->wr_err = EOPNOTSUPP;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *info)
{
    (void)mw, (void)rkey, (void)info;
    fail(ex);
}

static void wr_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
    (void)rkey;
    fail(ex);
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
    (void)hdr, (void)hdr_sz, (void)mss;
    fail(ex);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, const void *value)
{
    (void)rkey, (void)addr, (void)value;
    fail(ex);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    (void)ah, (void)qpn, (void)qkey;
    fail(ex);
}

// The slot that the last builder began, or NULL when the post already fails.
static struct softhca_wqe *building(struct softhca_qp *qp)
{
    if (!qp->wr_err && qp->wr_next == qp->sq_tail) {
        qp->wr_err = EINVAL; // data without an operation
    }
    return qp->wr_err ? NULL : softhca_wqe_at(qp, qp->wr_next - 1);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)ex;
    struct softhca_wqe *w = building(qp);
    if (!w) {
        return;
    }
    if (n > qp->cap.max_send_sge) {
        qp->wr_err = EINVAL;
        return;
    }
    uint64_t length = 0;
    for (size_t i = 0; i < n; i++) {
        length += list[i].length;
    }
    w->num_sge = (uint32_t)n;
    w->length = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
    memcpy(wqe_body(w), list, n * sizeof *list);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
    struct ibv_sge one = {.addr = addr, .length = length, .lkey = lkey};
    wr_set_sge_list(ex, 1, &one);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)ex;
    struct softhca_wqe *w = building(qp);
    if (!w) {
        return;
    }
    uint8_t *to = wqe_body(w);
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        length += list[i].length;
    }
    if (length > qp->cap.max_inline_data || w->opcode == IBV_WR_RDMA_READ || is_atomic(w->opcode)) {
        qp->wr_err = EINVAL;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(to, list[i].addr, list[i].length);
        to += list[i].length;
    }
    w->is_inline = 1;
    w->length = (uint32_t)length;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
    struct ibv_data_buf one = {.addr = addr, .length = length};
    wr_set_inline_data_list(ex, 1, &one);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
    struct softhca_qp *qp = (struct softhca_qp *)(void *)ex;
    int err = qp->wr_err;
    int news = !err && qp->wr_next != qp->sq_tail;
    if (news) {
        SOFTHCA_STORE_RELEASE(&qp->sq_tail, qp->wr_next);
    }
    (void)pthread_mutex_unlock(&qp->sq_lock);
    if (news) {
        softhca_qp_activate(qp);
    }
    return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
    (void)pthread_mutex_unlock(&((struct softhca_qp *)(void *)ex)->sq_lock);
}

void softhca_wr_api_init(struct softhca_qp *qp)
{
    struct ibv_qp_ex *ex = &qp->ex;
    ex->wr_atomic_cmp_swp = wr_cmp_swp;
    ex->wr_atomic_fetch_add = wr_fetch_add;
    ex->wr_bind_mw = wr_bind_mw;
    ex->wr_local_inv = wr_inv;
    ex->wr_rdma_read = wr_rdma_read;
    ex->wr_rdma_write = wr_rdma_write;
    ex->wr_rdma_write_imm = wr_rdma_write_imm;
    ex->wr_send = wr_send;
    ex->wr_send_imm = wr_send_imm;
    ex->wr_send_inv = wr_inv;
    ex->wr_send_tso = wr_send_tso;
    ex->wr_set_ud_addr = wr_set_ud_addr;
    ex->wr_set_xrc_srqn = wr_inv;
    ex->wr_set_inline_data = wr_set_inline_data;
    ex->wr_set_inline_data_list = wr_set_inline_data_list;
    ex->wr_set_sge = wr_set_sge;
    ex->wr_set_sge_list = wr_set_sge_list;
    ex->wr_start = wr_start;
    ex->wr_complete = wr_complete;
    ex->wr_abort = wr_abort;
    ex->wr_atomic_write = wr_atomic_write;
}
