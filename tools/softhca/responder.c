// SPDX-License-Identifier: Apache-2.0
// The receiving half of a queue pair: checks and executes messages, owes acknowledges and answers.
#include <errno.h>
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

#define ANSWERS     (2 * SOFTHCA_MAX_RD_ATOM)
#define ANSWER_STEP (256u * 1024u) // bytes of READ answers of one queue pair in one pass

static struct softhca_rq *rq_of(struct softhca_qp *qp)
{
    struct ibv_srq *srq = qp->ex.qp_base.srq;
    return srq ? &((struct softhca_srq *)srq)->rq : &qp->rq;
}

static struct softhca_cqe recv_cqe(struct softhca_qp *qp, uint32_t status, uint32_t opcode,
                                   const struct softhca_packet *p)
{
    struct softhca_cqe e = {
        .wr_id = qp->recv.wr_id,
        .status = status,
        .opcode = opcode,
        .byte_len = p ? p->total : 0,
        .qp_num = qp->ex.qp_base.qp_num,
        .src_qp = qp->attr.dest_qp_num,
        .qp = qp->ex.qp_base.srq ? NULL : qp,
        .release = qp->recv_slot + 1,
        .is_recv = 1,
    };
    if (p && status == IBV_WC_SUCCESS) {
        e.solicited = (p->flags & SOFTHCA_FLAG_SOLICITED) != 0;
        if (p->flags & SOFTHCA_FLAG_IMM) {
            e.imm = p->imm;
            e.wc_flags = IBV_WC_WITH_IMM;
        }
    }
    qp->has_recv = 0;
    return e;
}

static void complete_recv(struct softhca_qp *qp, uint32_t status, uint32_t opcode,
                          const struct softhca_packet *p)
{
    struct softhca_cqe e = recv_cqe(qp, status, opcode, p);
    softhca_cq_push((struct softhca_cq *)(void *)qp->ex.qp_base.recv_cq, &e);
}

// The oldest posted receive becomes the message's. 0, or -1 when there is none.
static int take_recv(struct softhca_qp *qp)
{
    struct softhca_rq *rq = rq_of(qp);
    if (qp->has_recv) {
        return 0; // kept from an earlier try of this message
    }
    if (rq->depth == 0 || rq->head == SOFTHCA_LOAD_ACQUIRE(&rq->tail)) {
        return -1;
    }
    const struct softhca_rwqe *w = softhca_rwqe_at(rq, rq->head);
    qp->recv.wr_id = w->wr_id;
    qp->recv.num_sge = w->num_sge;
    memcpy(qp->recv_list, w->sge, w->num_sge * sizeof *w->sge);
    qp->recv_slot = rq->head++;
    qp->has_recv = 1;
    struct softhca_srq *srq = (struct softhca_srq *)qp->ex.qp_base.srq;
    if (srq) {
        SOFTHCA_STORE_RELEASE(&rq->freed, rq->head);
        if (srq->limit && SOFTHCA_LOAD_ACQUIRE(&rq->tail) - rq->head < srq->limit) {
            struct ibv_async_event ev = {.element.srq = &srq->srq,
                                         .event_type = IBV_EVENT_SRQ_LIMIT_REACHED};
            srq->limit = 0;
            softhca_event_raise(qp->ctx, &ev);
        }
    }
    return 0;
}

static int recv_waits(struct softhca_qp *qp)
{
    struct softhca_rq *rq = rq_of(qp);
    return qp->has_recv || (rq->depth && rq->head != SOFTHCA_LOAD_ACQUIRE(&rq->tail));
}

void softhca_responder_flush(struct softhca_qp *qp)
{
    if (qp->has_recv) {
        complete_recv(qp, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, NULL);
    }
    while (!qp->ex.qp_base.srq && take_recv(qp) == 0) {
        complete_recv(qp, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, NULL);
    }
    qp->answer_head = qp->answer_tail;
    qp->ack_pending = 0;
}

// Not now: the peer goes back to this message. Packets are ignored until it does.
static void refuse(struct softhca_qp *qp, enum softhca_syndrome why)
{
    qp->nak = why;
    qp->nak_psn = qp->expected;
    qp->in_off = 0;
    qp->ignoring = 1;
}

// Never: both ends of the connection are broken.
static void reject(struct softhca_qp *qp, enum softhca_syndrome why)
{
    qp->nak = why;
    qp->nak_psn = qp->expected;
    if (why != SOFTHCA_NAK_OPERATION) {
        softhca_qp_event(qp, why == SOFTHCA_NAK_ACCESS ? IBV_EVENT_QP_ACCESS_ERR
                                                       : IBV_EVENT_QP_REQ_ERR);
    }
    softhca_qp_to_error(qp);
}

static void message_done(struct softhca_qp *qp)
{
    qp->expected = (qp->expected + 1) & 0xffffff;
    qp->in_off = 0;
}

static int reach(const struct softhca_qp *qp, const struct softhca_packet *p, uint32_t offset,
                 uint32_t len, unsigned need, struct softhca_place *out_place)
{
    return softhca_mr_reach(qp->ex.qp_base.pd, SOFTHCA_RKEY, p->rkey, p->remote_addr + offset, len,
                            need, out_place);
}

int softhca_write_reach(const struct softhca_qp *qp, const struct softhca_packet *p,
                        uint32_t offset, uint32_t len, struct softhca_place *out_place)
{
    if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) {
        return SOFTHCA_NAK_INVALID;
    }
    return len && reach(qp, p, offset, len, IBV_ACCESS_REMOTE_WRITE, out_place) ? SOFTHCA_NAK_ACCESS
                                                                                : 0;
}

// The first packet of a WRITE. 0, or the answer that is owed.
static int check_write(struct softhca_qp *qp, const struct softhca_packet *p)
{
    struct softhca_place to;
    int why = softhca_write_reach(qp, p, 0, p->total, &to);
    if (why) {
        return why;
    }
    return (p->flags & SOFTHCA_FLAG_IMM) && !recv_waits(qp) ? SOFTHCA_NAK_RNR : 0;
}

// Would the bytes of this packet be there before those of earlier messages?
static int overtakes(const struct softhca_qp *qp, const struct softhca_packet *p,
                     const struct softhca_place *to)
{
    if ((to->gpu || qp->unfinished || qp->pull_gpu) && softhca_pulls_full()) {
        return 1; // no room to put the rest of this message off
    }
    if (qp->unfinished && p->offset == 0 && p->total && (!to->gpu || to->gpu != qp->copied_by)) {
        return 1;
    }
    return to->gpu && !p->copied && softhca_pull_waits(qp, to, p->span, softhca_pull_way(p, to));
}

// Host bytes to device memory. What does not fit the staging memory goes in pieces.
static int stage_data(struct softhca_qp *qp, const uint8_t *data, uint32_t len,
                      struct softhca_place to)
{
    while (len) {
        uint32_t part = len < SOFTHCA_CUDA_BYTES ? len : SOFTHCA_CUDA_BYTES;
        uint64_t from = 0;
        int err = softhca_cuda_stage(to.gpu, data, part, &from);
        err = err ? err : softhca_pull_from(qp, &to, from, part, UINT32_MAX, SOFTHCA_SMALL);
        if (err) {
            return err;
        }
        data += part;
        to.at += part;
        len -= part;
    }
    return 0;
}

// The data of one packet.
static int write_data(struct softhca_qp *qp, const struct softhca_packet *p,
                      const struct softhca_place *to)
{
    enum softhca_way way = softhca_pull_way(p, to);
    if (to->gpu && p->copied) {
        softhca_pull_begun(qp, to->gpu, p->copied);
        return 0;
    }
    if (to->gpu && way == SOFTHCA_WORD) {
        softhca_pull_word(qp, to, p);
        return 0;
    }
    if (!(p->flags & SOFTHCA_FLAG_PULL)) {
        const uint8_t *data = (const uint8_t *)(p + 1);
        return to->gpu ? stage_data(qp, data, p->length, *to)
                       : softhca_place_write(to, data, p->length);
    }
    uint64_t from =
        softhca_import_at((uint32_t)p->operand, (uint32_t)(p->operand >> 32), p->swap, p->span);
    if (!from) { // the sender deregistered it with the message under way
        return -EIO;
    }
    return to->gpu ? softhca_pull_from(qp, to, from, p->span, (uint32_t)p->operand, way)
                   : softhca_cuda_fetch(to->at, from, p->span);
}

static void end_write(struct softhca_qp *qp, const struct softhca_packet *p)
{
    int imm = (p->flags & SOFTHCA_FLAG_IMM) != 0;
    struct softhca_cqe e;
    if (imm) {
        if (take_recv(qp)) { // another queue pair took the shared one
            refuse(qp, SOFTHCA_NAK_RNR);
            return;
        }
        e = recv_cqe(qp, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, p);
    }
    message_done(qp);
    if (qp->unfinished || qp->pull_gpu) {
        softhca_pull_defer(qp, imm ? &e : NULL, p->ready_ns);
        return;
    }
    if (imm) {
        softhca_cq_push((struct softhca_cq *)(void *)qp->ex.qp_base.recv_cq, &e);
    }
    qp->ack_pending = 1;
}

static int write_packet(struct softhca_qp *qp, const struct softhca_packet *p)
{
    struct softhca_place to = {0};
    int why = p->offset == 0 ? check_write(qp, p) : 0;
    if (why == SOFTHCA_NAK_RNR) {
        refuse(qp, SOFTHCA_NAK_RNR);
        return 0;
    }
    if (!why && p->span && reach(qp, p, p->offset, p->span, IBV_ACCESS_REMOTE_WRITE, &to)) {
        why = SOFTHCA_NAK_ACCESS; // deregistered in the middle of the message
    }
    if (!why && overtakes(qp, p, &to)) {
        return -EAGAIN;
    }
    if (!why && p->span && write_data(qp, p, &to)) {
        why = SOFTHCA_NAK_OPERATION;
    }
    if (why) {
        reject(qp, (enum softhca_syndrome)why);
        return 0;
    }
    qp->in_off += p->span;
    if (qp->in_off >= p->total) {
        end_write(qp, p);
    }
    return 0;
}

static uint64_t recv_room(const struct softhca_qp *qp)
{
    uint64_t room = 0;
    for (uint32_t i = 0; i < qp->recv.num_sge; i++) {
        room += qp->recv_list[i].length;
    }
    return room;
}

static void send_packet(struct softhca_qp *qp, const struct softhca_packet *p)
{
    if (p->offset == 0) {
        if (take_recv(qp)) {
            refuse(qp, SOFTHCA_NAK_RNR);
            return;
        }
        if (p->total > recv_room(qp)) {
            complete_recv(qp, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV, p);
            reject(qp, SOFTHCA_NAK_INVALID);
            return;
        }
    }
    if (softhca_scatter(qp, qp->recv_list, qp->recv.num_sge, p->offset, (const uint8_t *)(p + 1),
                        p->length)) {
        complete_recv(qp, IBV_WC_LOC_PROT_ERR, IBV_WC_RECV, p);
        reject(qp, SOFTHCA_NAK_OPERATION);
        return;
    }
    qp->in_off += p->length;
    if (qp->in_off < p->total) {
        return;
    }
    complete_recv(qp, IBV_WC_SUCCESS, IBV_WC_RECV, p);
    message_done(qp);
    qp->ack_pending = 1;
}

static uint32_t answers_owed(const struct softhca_qp *qp)
{
    return qp->answer_tail - qp->answer_head;
}

// Requests that the peer may still count as outstanding. It may have received the first answer to a
// repeated one and gone on, so that one takes no place in its window.
static uint32_t window_used(const struct softhca_qp *qp)
{
    uint32_t used = 0;

    for (uint32_t i = qp->answer_head; i != qp->answer_tail; i++) {
        used += !qp->answers[i % ANSWERS].is_repeat;
    }
    return used;
}

static void owe(struct softhca_qp *qp, const struct softhca_answer *a)
{
    if (answers_owed(qp) < ANSWERS) { // else a repeated request: the peer will ask once more
        qp->answers[qp->answer_tail++ % ANSWERS] = *a;
    }
}

static int read_allowed(struct softhca_qp *qp, const struct softhca_packet *p)
{
    struct softhca_place from;
    return !p->total || reach(qp, p, 0, p->total, IBV_ACCESS_REMOTE_READ, &from) == 0;
}

static void owe_read(struct softhca_qp *qp, const struct softhca_packet *p, uint32_t is_repeat)
{
    struct softhca_answer a = {.addr = p->remote_addr,
                               .rkey = p->rkey,
                               .total = p->total,
                               .psn = p->psn,
                               .is_read = 1,
                               .is_repeat = is_repeat};
    owe(qp, &a);
}

static void read_packet(struct softhca_qp *qp, const struct softhca_packet *p)
{
    if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) ||
        window_used(qp) >= qp->attr.max_dest_rd_atomic) {
        reject(qp, SOFTHCA_NAK_INVALID);
        return;
    }
    if (!read_allowed(qp, p)) {
        reject(qp, SOFTHCA_NAK_ACCESS);
        return;
    }
    owe_read(qp, p, 0);
    message_done(qp);
}

static uint64_t execute_atomic(uint64_t *word, const struct softhca_packet *p)
{
    if (p->kind == SOFTHCA_FETCH_ADD) {
        return SOFTHCA_ADD(word, p->operand);
    }
    uint64_t seen = p->operand;
    (void)SOFTHCA_CAS(word, &seen, p->swap); // on failure seen is what was there
    return seen;
}

// Atomic among the NICs' accesses only: they are all ours. 0 or a negative errno.
static int atomic_at(const struct softhca_place *place, const struct softhca_packet *p,
                     uint64_t *out_seen)
{
    if (!place->gpu) {
        *out_seen = execute_atomic((uint64_t *)(void *)place->at, p);
        return 0;
    }
    uint64_t word = 0;
    int err = softhca_place_read(&word, place, sizeof word);
    *out_seen = err ? 0 : execute_atomic(&word, p);
    return err ? err : softhca_place_write(place, &word, sizeof word);
}

static void atomic_packet(struct softhca_qp *qp, const struct softhca_packet *p)
{
    if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || (p->remote_addr & 7) ||
        window_used(qp) >= qp->attr.max_dest_rd_atomic) {
        reject(qp, SOFTHCA_NAK_INVALID);
        return;
    }
    struct softhca_place word;
    if (reach(qp, p, 0, 8, IBV_ACCESS_REMOTE_ATOMIC, &word) || ((uintptr_t)word.at & 7)) {
        reject(qp, SOFTHCA_NAK_ACCESS);
        return;
    }
    struct softhca_answer a = {.psn = p->psn};
    if (atomic_at(&word, p, &a.addr)) {
        reject(qp, SOFTHCA_NAK_OPERATION);
        return;
    }
    uint32_t keep = qp->atomic_next++ % SOFTHCA_MAX_RD_ATOM;
    qp->atomics[keep].psn = p->psn;
    qp->atomics[keep].valid = 1;
    qp->atomics[keep].result = a.addr;
    owe(qp, &a);
    message_done(qp);
}

// The peer went back to a message: what is still owed from there on it will ask for again.
static void forget_answers(struct softhca_qp *qp, uint32_t psn)
{
    for (uint32_t i = qp->answer_head; i != qp->answer_tail; i++) {
        if (softhca_psn_diff(qp->answers[i % ANSWERS].psn, psn) >= 0) {
            qp->answer_tail = i;
            return;
        }
    }
}

// Executed before: answer again, do not do it again.
static void repeated(struct softhca_qp *qp, const struct softhca_packet *p)
{
    if (p->kind == SOFTHCA_READ) {
        forget_answers(qp, p->psn);
        if (read_allowed(qp, p)) {
            owe_read(qp, p, 1);
        }
        return;
    }
    if (p->kind == SOFTHCA_CMP_SWP || p->kind == SOFTHCA_FETCH_ADD) {
        forget_answers(qp, p->psn);
        for (uint32_t i = 0; i < SOFTHCA_MAX_RD_ATOM; i++) {
            if (qp->atomics[i].valid && qp->atomics[i].psn == p->psn) {
                struct softhca_answer a = {
                    .addr = qp->atomics[i].result, .psn = p->psn, .is_repeat = 1};
                owe(qp, &a);
                return;
            }
        }
        return;
    }
    qp->ack_pending = 1;
}

int softhca_responder_receive(struct softhca_qp *qp, const struct softhca_packet *p)
{
    if (qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE) {
        return 0;
    }
    int ahead = softhca_psn_diff(p->psn, qp->expected);
    if (qp->unfinished && p->kind != SOFTHCA_WRITE) {
        return -EAGAIN;
    }
    if (ahead < 0) {
        repeated(qp, p);
        return 0;
    }
    if (ahead > 0 || (p->offset != 0 && p->offset != qp->in_off) || (p->offset && qp->ignoring)) {
        if (!qp->ignoring) { // a message is missing: say so once
            refuse(qp, SOFTHCA_NAK_SEQUENCE);
        }
        return 0;
    }
    qp->ignoring = 0;
    qp->in_off = p->offset;
    if (qp->state == IBV_QPS_RTR && !qp->comm_est) {
        qp->comm_est = 1;
        softhca_qp_event(qp, IBV_EVENT_COMM_EST);
    }
    switch (p->kind) {
    case SOFTHCA_WRITE: return write_packet(qp, p);
    case SOFTHCA_SEND: send_packet(qp, p); break;
    case SOFTHCA_READ: read_packet(qp, p); break;
    default: atomic_packet(qp, p); break;
    }
    return 0;
}

// One packet of the oldest answer. 1 when it was sent, or can never be.
static int answer(struct softhca_qp *qp, struct softhca_answer *a, uint32_t *budget)
{
    uint32_t chunk = (uint32_t)softhca_hca->config.chunk;
    uint32_t left = a->is_read ? a->total - a->offset : 0;
    uint32_t part = left < chunk ? left : chunk;
    int lost;
    if (part && !softhca_model_may_send(qp)) {
        return 0;
    }
    struct softhca_packet *p = softhca_packet_begin(qp, part, &lost);
    if (lost) {
        qp->answer_head++;
        return 1;
    }
    if (!p) {
        return 0;
    }
    p->kind = a->is_read ? SOFTHCA_READ_DATA : SOFTHCA_ATOMIC_RESULT;
    p->psn = a->psn;
    p->total = a->total;
    p->offset = a->offset;
    p->operand = a->addr;
    if (part) {
        struct softhca_place from;
        int gone = softhca_mr_reach(qp->ex.qp_base.pd, SOFTHCA_RKEY, a->rkey, a->addr + a->offset,
                                    part, IBV_ACCESS_REMOTE_READ, &from);
        if (gone || softhca_place_read(p + 1, &from, part)) {
            uint32_t psn = a->psn;
            reject(qp, gone ? SOFTHCA_NAK_ACCESS : SOFTHCA_NAK_OPERATION);
            qp->nak_psn = psn;
            return 0;
        }
    }
    softhca_packet_end(qp, p);
    a->offset += part;
    *budget -= part < *budget ? part : *budget;
    if (!a->is_read || a->offset == a->total) {
        qp->answer_head++;
    }
    return 1;
}

void softhca_responder_step(struct softhca_qp *qp)
{
    uint32_t budget = ANSWER_STEP;
    int lost;
    while (qp->state != IBV_QPS_ERR && answers_owed(qp)) {
        struct softhca_answer *a = &qp->answers[qp->answer_head % ANSWERS];
        if (!budget || !answer(qp, a, &budget)) {
            break;
        }
    }
    if ((qp->state != IBV_QPS_ERR && answers_owed(qp)) || (!qp->nak && !qp->ack_pending)) {
        return; // an acknowledge would overtake the answers
    }
    if (qp->nak && qp->unfinished) {
        return; // a refusal of a message says that all before it were executed
    }
    struct softhca_packet *p = softhca_packet_begin(qp, 0, &lost);
    if (p) {
        p->kind = qp->nak ? SOFTHCA_NAK : SOFTHCA_ACK;
        p->syndrome = (uint8_t)qp->nak;
        p->psn = qp->nak ? qp->nak_psn : (qp->expected - 1 - qp->unfinished) & 0xffffff;
        p->rnr_timer = qp->attr.min_rnr_timer;
        softhca_packet_end(qp, p);
    }
    if (p || lost) {
        qp->nak = 0;
        qp->ack_pending = 0;
    }
}
