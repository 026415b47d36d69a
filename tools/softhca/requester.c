// SPDX-License-Identifier: Apache-2.0
// The sending half of a queue pair: messages out, acknowledges in, timers, retries, completions.
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

#define TX_BYTES    (256u * 1024u) // of one queue pair in one pass, copied by this thread
#define TX_MESSAGES 128u
#define STARVED_NS  10000000000ull // how long a peer that gets no processor is waited for

static uint32_t psn_of(const struct softhca_qp *qp, uint64_t n)
{
    return (qp->first_psn + (uint32_t)n) & 0xffffff;
}

static int has_answer(const struct softhca_wqe *w) // READ and atomics: the peer sends data back
{
    return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
           w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static struct ibv_sge *list_of(struct softhca_wqe *w)
{
    return (struct ibv_sge *)(void *)(w + 1);
}

static uint32_t wc_opcode(uint32_t opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    default: return IBV_WC_SEND;
    }
}

// The oldest send is over.
static void complete_head(struct softhca_qp *qp, uint32_t status)
{
    const struct softhca_wqe *w = softhca_wqe_at(qp, qp->una);
    qp->una++;
    if (status == IBV_WC_SUCCESS && !qp->sig_all && !(w->flags & IBV_SEND_SIGNALED)) {
        return;
    }
    struct softhca_cqe e = {
        .wr_id = w->wr_id,
        .status = status,
        .opcode = wc_opcode(w->opcode),
        .byte_len = w->length,
        .qp_num = qp->ex.qp_base.qp_num,
        .src_qp = qp->attr.dest_qp_num,
        .qp = qp,
        .release = qp->una,
    };
    softhca_cq_push((struct softhca_cq *)(void *)qp->ex.qp_base.send_cq, &e);
}

static void fail_head(struct softhca_qp *qp, uint32_t status)
{
    complete_head(qp, status);
    softhca_qp_to_error(qp);
}

// 0 when a fault rule turned the success into a failure.
static int succeed_head(struct softhca_qp *qp)
{
    const struct softhca_rule *r =
        softhca_fault_hit(&softhca_hca->faults, SOFTHCA_FAULT_COMPLETE, qp->ex.qp_base.qp_num);
    if (r) {
        fail_head(qp, r->status);
        return 0;
    }
    if (has_answer(softhca_wqe_at(qp, qp->una))) {
        qp->rd_outstanding--;
    }
    complete_head(qp, IBV_WC_SUCCESS);
    qp->retries = qp->rnr_retries = 0;
    return 1;
}

static void note_progress(struct softhca_qp *qp)
{
    qp->next = qp->next < qp->una ? qp->una : qp->next;
    qp->starved_ns = 0;
    qp->timer_ns = qp->una < qp->next || qp->tx_off ? softhca_hca->now_ns : 0;
}

// Everything before slot end was executed by the peer. 0 when the queue pair failed.
static int acknowledge(struct softhca_qp *qp, uint64_t end)
{
    while (qp->una < end) {
        const struct softhca_wqe *w = softhca_wqe_at(qp, qp->una);
        if (has_answer(w) && !w->done) {
            return 1; // its answer was lost; the timer asks again
        }
        if (qp->una >= qp->next) { // acknowledged after we had gone back to send it again
            qp->next = qp->una + 1;
            qp->tx_off = 0;
            qp->rd_outstanding += (uint32_t)has_answer(w); // going back had taken it off
        }
        if (!succeed_head(qp)) {
            return 0;
        }
    }
    note_progress(qp);
    return 1;
}

static void go_back(struct softhca_qp *qp)
{
    qp->next = qp->una;
    qp->tx_off = 0;
    qp->rd_outstanding = 0;
    qp->timer_ns = 0;
}

static uint64_t rnr_delay_ns(uint32_t timer) // specification, table of RNR NAK timer values
{
    static const uint32_t us10[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                      16,    24,   32,   48,    64,    96,    128,   192,
                                      256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                      4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return us10[timer & 31] * 10000ull;
}

static void refused(struct softhca_qp *qp, const struct softhca_packet *p)
{
    const struct softhca_hca *h = softhca_hca;
    switch (p->syndrome) {
    case SOFTHCA_NAK_RNR:
        if (qp->attr.rnr_retry != 7 && qp->rnr_retries++ >= qp->attr.rnr_retry) {
            fail_head(qp, IBV_WC_RNR_RETRY_EXC_ERR);
            break;
        }
        go_back(qp);
        qp->rnr_ns = h->now_ns + rnr_delay_ns(p->rnr_timer);
        break;
    case SOFTHCA_NAK_SEQUENCE:
        if (qp->retries++ >= qp->attr.retry_cnt) {
            fail_head(qp, IBV_WC_RETRY_EXC_ERR);
            break;
        }
        go_back(qp);
        break;
    case SOFTHCA_NAK_INVALID: fail_head(qp, IBV_WC_REM_INV_REQ_ERR); break;
    case SOFTHCA_NAK_ACCESS: fail_head(qp, IBV_WC_REM_ACCESS_ERR); break;
    default: fail_head(qp, IBV_WC_REM_OP_ERR); break;
    }
}

int softhca_scatter(const struct softhca_qp *qp, const struct ibv_sge *list, uint32_t n,
                    uint32_t offset, const uint8_t *from, uint32_t len)
{
    for (uint32_t i = 0; i < n && len > 0; i++) {
        if (offset >= list[i].length) {
            offset -= list[i].length;
            continue;
        }
        uint32_t part = list[i].length - offset < len ? list[i].length - offset : len;
        struct softhca_place to;
        if (softhca_mr_reach(qp->ex.qp_base.pd, SOFTHCA_LKEY, list[i].lkey, list[i].addr + offset,
                             part, IBV_ACCESS_LOCAL_WRITE, &to) ||
            softhca_place_write(&to, from, part)) {
            return -1;
        }
        from += part;
        len -= part;
        offset = 0;
    }
    return len ? -1 : 0;
}

static int gather(const struct softhca_qp *qp, struct softhca_wqe *w, uint32_t offset, uint8_t *to,
                  uint32_t len)
{
    if (w->is_inline) {
        memcpy(to, (const uint8_t *)(w + 1) + offset, len);
        return 0;
    }
    const struct ibv_sge *list = list_of(w);
    for (uint32_t i = 0; i < w->num_sge && len > 0; i++) {
        if (offset >= list[i].length) {
            offset -= list[i].length;
            continue;
        }
        uint32_t part = list[i].length - offset < len ? list[i].length - offset : len;
        struct softhca_place from;
        if (softhca_mr_reach(qp->ex.qp_base.pd, SOFTHCA_LKEY, list[i].lkey, list[i].addr + offset,
                             part, 0, &from) ||
            softhca_place_read(to, &from, part)) {
            return -1;
        }
        to += part;
        len -= part;
        offset = 0;
    }
    return len ? -1 : 0;
}

static void answered(struct softhca_qp *qp, uint64_t n, const struct softhca_packet *p)
{
    struct softhca_wqe *w = softhca_wqe_at(qp, n);
    qp->timer_ns = qp->timer_ns ? softhca_hca->now_ns : 0; // a sign of life, also of an earlier try
    qp->starved_ns = 0;
    if (!has_answer(w) || w->done || (p->kind == SOFTHCA_READ_DATA && p->offset != w->received) ||
        (p->kind == SOFTHCA_READ_DATA) != (w->opcode == IBV_WR_RDMA_READ)) {
        return; // of an earlier try
    }
    const uint8_t *data = (const uint8_t *)(p + 1);
    uint32_t len = p->length, offset = p->offset;
    if (p->kind == SOFTHCA_ATOMIC_RESULT) {
        data = (const uint8_t *)&p->operand;
        len = 8;
        offset = 0;
    }
    if (softhca_scatter(qp, list_of(w), w->num_sge, offset, data, len)) {
        fail_head(qp, IBV_WC_LOC_PROT_ERR);
        return;
    }
    w->received += len;
    if (w->received == w->length) {
        w->done = 1;
        (void)acknowledge(qp, n + 1);
    }
}

void softhca_requester_receive(struct softhca_qp *qp, const struct softhca_packet *p)
{
    if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) {
        return;
    }
    int ahead = softhca_psn_diff(p->psn, psn_of(qp, qp->una));
    uint64_t n = qp->una + (uint64_t)(int64_t)ahead;
    if (ahead < 0 || n >= qp->highest) {
        return; // of a message that is over
    }
    if (p->kind == SOFTHCA_ACK) {
        (void)acknowledge(qp, n + 1);
        return;
    }
    if (!acknowledge(qp, n) || qp->una != n) { // an answer to n tells about all before it
        return;
    }
    if (p->kind == SOFTHCA_NAK) {
        refused(qp, p);
    } else {
        answered(qp, n, p);
    }
}

// What can be seen to be wrong before sending. 0 or a completion status.
static uint32_t check_local(const struct softhca_qp *qp, struct softhca_wqe *w)
{
    if (w->length > SOFTHCA_MAX_MSG) {
        return IBV_WC_LOC_LEN_ERR;
    }
    if (!has_answer(w)) {
        return 0; // gather looks at the list
    }
    if (qp->attr.max_rd_atomic == 0) {
        return IBV_WC_LOC_QP_OP_ERR;
    }
    if (w->opcode != IBV_WR_RDMA_READ && w->length != 8) {
        return IBV_WC_LOC_LEN_ERR;
    }
    const struct ibv_sge *list = list_of(w);
    for (uint32_t i = 0; i < w->num_sge; i++) {
        struct softhca_place to;
        if (list[i].length &&
            softhca_mr_reach(qp->ex.qp_base.pd, SOFTHCA_LKEY, list[i].lkey, list[i].addr,
                             list[i].length, IBV_ACCESS_LOCAL_WRITE, &to)) {
            return IBV_WC_LOC_PROT_ERR;
        }
    }
    return 0;
}

// How many bytes from tx_off on the receiver can copy from device memory by itself; 0: none.
static uint32_t pull_part(const struct softhca_qp *qp, struct softhca_wqe *w,
                          struct softhca_place *out_from)
{
    uint32_t offset = qp->tx_off, i = 0;
    uint64_t most = softhca_hca->config.pull_kib * 1024;
    if (w->is_inline || !most ||
        (w->opcode != IBV_WR_RDMA_WRITE && w->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)) {
        return 0;
    }
    const struct ibv_sge *list = list_of(w);
    while (i < w->num_sge && offset >= list[i].length) {
        offset -= list[i++].length;
    }
    if (i == w->num_sge) {
        return 0;
    }
    uint32_t part = list[i].length - offset < most ? list[i].length - offset : (uint32_t)most;
    if (softhca_mr_reach(qp->ex.qp_base.pd, SOFTHCA_LKEY, list[i].lkey, list[i].addr + offset, part,
                         0, out_from) ||
        !out_from->gpu || out_from->mr->export == SOFTHCA_NO_EXPORT) {
        return 0;
    }
    const struct softhca_mr *mr = out_from->mr;
    return softhca_peer_has_mapped(qp, mr->export, mr->export_gen) ? part : 0;
}

// The bytes of a packet, or where the receiver finds them.
static int fill(const struct softhca_qp *qp, struct softhca_wqe *w, struct softhca_packet *p,
                uint32_t part, const struct softhca_place *pull)
{
    if (!pull) {
        return gather(qp, w, qp->tx_off, (uint8_t *)(p + 1), part);
    }
    p->flags |= SOFTHCA_FLAG_PULL;
    p->span = part;
    p->operand = pull->mr->export | (uint64_t)pull->mr->export_gen << 32;
    p->swap = (uintptr_t)pull->at - pull->mr->export_base;
    return 0;
}

enum send_result { SENT, NO_ROOM, LOCAL_ERROR };

static void describe(const struct softhca_qp *qp, const struct softhca_wqe *w, uint64_t n,
                     struct softhca_packet *p)
{
    static const uint8_t kinds[] = {
        [IBV_WR_RDMA_WRITE] = SOFTHCA_WRITE,
        [IBV_WR_RDMA_WRITE_WITH_IMM] = SOFTHCA_WRITE,
        [IBV_WR_SEND] = SOFTHCA_SEND,
        [IBV_WR_SEND_WITH_IMM] = SOFTHCA_SEND,
        [IBV_WR_RDMA_READ] = SOFTHCA_READ,
        [IBV_WR_ATOMIC_CMP_AND_SWP] = SOFTHCA_CMP_SWP,
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = SOFTHCA_FETCH_ADD,
    };
    p->kind = kinds[w->opcode];
    p->psn = psn_of(qp, n);
    p->remote_addr = w->remote_addr;
    p->rkey = w->rkey;
    p->total = w->length;
    p->operand = w->operand;
    p->swap = w->swap;
    p->imm = w->imm;
    if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        p->flags |= SOFTHCA_FLAG_IMM;
    }
    if (w->flags & IBV_SEND_SOLICITED) {
        p->flags |= SOFTHCA_FLAG_SOLICITED;
    }
}

// The packets of message next, from tx_off on.
static enum send_result send_message(struct softhca_qp *qp, struct softhca_wqe *w, uint32_t *budget)
{
    uint32_t chunk = (uint32_t)softhca_hca->config.chunk;
    uint32_t length = has_answer(w) ? 0 : w->length;
    do {
        uint32_t left = length - qp->tx_off;
        struct softhca_place from;
        uint32_t pull = length ? pull_part(qp, w, &from) : 0;
        uint32_t part = pull ? pull : left < chunk ? left : chunk;
        int lost;
        struct softhca_packet *p = softhca_packet_begin(qp, pull ? 0 : part, &lost);
        if (lost) {
            break; // into the void, all of it
        }
        if (!p) {
            return NO_ROOM;
        }
        describe(qp, w, qp->next, p);
        p->offset = qp->tx_off;
        if (fill(qp, w, p, part, pull ? &from : NULL)) {
            w->failed = IBV_WC_LOC_PROT_ERR;
            return LOCAL_ERROR;
        }
        softhca_packet_end(qp, p);
        qp->tx_off += part;
        uint32_t moved = pull ? 0 : part; // what the receiver copies takes no time here
        *budget -= moved < *budget ? moved : *budget;
        if (qp->tx_off < length && (!*budget || !softhca_model_may_send(qp))) {
            return NO_ROOM; // others take their turn
        }
    } while (qp->tx_off < length);
    return SENT;
}

// May message next be begun now?
static int may_begin(struct softhca_qp *qp, struct softhca_wqe *w)
{
    struct softhca_hca *h = softhca_hca;
    if (qp->state == IBV_QPS_SQD || !softhca_model_may_send(qp)) {
        return 0;
    }
    uint64_t not_before = qp->rnr_ns > qp->hold_ns ? qp->rnr_ns : qp->hold_ns;
    if (not_before > h->now_ns) {
        softhca_wake_at(not_before);
        return 0;
    }
    if (((w->flags & IBV_SEND_FENCE) && qp->rd_outstanding) ||
        (has_answer(w) && qp->rd_outstanding && qp->rd_outstanding >= qp->attr.max_rd_atomic)) {
        return 0; // an answer that comes makes the queue pair live again
    }
    if (qp->held != qp->next + 1) {
        const struct softhca_rule *r =
            softhca_fault_hit(&h->faults, SOFTHCA_FAULT_DELAY, qp->ex.qp_base.qp_num);
        qp->held = qp->next + 1;
        if (r) {
            qp->hold_ns = h->now_ns + r->us * 1000;
            softhca_wake_at(qp->hold_ns);
            return 0;
        }
    }
    w->failed = check_local(qp, w);
    return !w->failed;
}

// As if the program had posted it with another key: also when it is sent again.
static void spoil_key(struct softhca_qp *qp, struct softhca_wqe *w)
{
    int is_new = qp->next >= qp->highest && qp->tx_off == 0;
    if (is_new && w->opcode != IBV_WR_SEND && w->opcode != IBV_WR_SEND_WITH_IMM &&
        softhca_fault_hit(&softhca_hca->faults, SOFTHCA_FAULT_KEY, qp->ex.qp_base.qp_num)) {
        w->rkey ^= 0x5a5a00;
    }
}

static void transmit(struct softhca_qp *qp)
{
    struct softhca_hca *h = softhca_hca;
    uint32_t budget = TX_BYTES;
    uint64_t tail = SOFTHCA_LOAD_ACQUIRE(&qp->sq_tail);
    for (uint32_t m = 0; m < TX_MESSAGES && budget && qp->next < tail; m++) {
        struct softhca_wqe *w = softhca_wqe_at(qp, qp->next);
        if (qp->tx_off == 0 && !may_begin(qp, w)) {
            break;
        }
        if (!qp->timer_ns) {
            qp->timer_ns = h->now_ns; // also when there is no room: the peer may be dead
        }
        spoil_key(qp, w);
        qp->highest = qp->highest > qp->next ? qp->highest : qp->next + 1;
        int drop = qp->tx_off == 0 &&
                   softhca_fault_hit(&h->faults, SOFTHCA_FAULT_DROP, qp->ex.qp_base.qp_num) != NULL;
        if (!drop && send_message(qp, w, &budget) != SENT) {
            break;
        }
        if (has_answer(w)) {
            w->received = 0;
            qp->rd_outstanding++;
        }
        qp->next++;
        qp->tx_off = 0;
    }
    if (qp->una == qp->next && qp->una < tail && softhca_wqe_at(qp, qp->una)->failed) {
        fail_head(qp, softhca_wqe_at(qp, qp->una)->failed);
    }
}

static void check_timer(struct softhca_qp *qp)
{
    struct softhca_hca *h = softhca_hca;
    if (!qp->timer_ns || !qp->attr.timeout) {
        return; // timeout 0: for ever
    }
    uint64_t ns = 4096ull << qp->attr.timeout;
    ns = ns > h->config.ack_floor_us * 1000 ? ns : h->config.ack_floor_us * 1000;
    if (h->now_ns - qp->timer_ns < ns || h->now_ns < qp->timer_ns) {
        softhca_wake_at(qp->timer_ns + ns);
        return;
    }
    if (softhca_peer_is_starved(qp)) {
        qp->starved_ns = qp->starved_ns ? qp->starved_ns : h->now_ns;
        if (h->now_ns - qp->starved_ns < STARVED_NS) {
            qp->timer_ns = h->now_ns;
            softhca_wake_at(qp->timer_ns + ns);
            return;
        }
    }
    if (qp->retries++ >= qp->attr.retry_cnt) {
        fail_head(qp, IBV_WC_RETRY_EXC_ERR);
        return;
    }
    go_back(qp);
}

static void flush(struct softhca_qp *qp)
{
    uint64_t tail = SOFTHCA_LOAD_ACQUIRE(&qp->sq_tail);
    while (qp->una < tail) {
        complete_head(qp, IBV_WC_WR_FLUSH_ERR);
    }
    qp->next = qp->highest = qp->una;
    qp->timer_ns = 0;
    softhca_responder_flush(qp);
}

static void check_drained(struct softhca_qp *qp)
{
    if (qp->una == qp->next && !qp->tx_off && qp->attr.en_sqd_async_notify) {
        qp->attr.en_sqd_async_notify = 0;
        softhca_qp_event(qp, IBV_EVENT_SQ_DRAINED);
    }
}

void softhca_requester_step(struct softhca_qp *qp)
{
    if (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) {
        transmit(qp);
        check_timer(qp);
    }
    if (qp->state == IBV_QPS_SQD) {
        check_drained(qp);
    }
    if (qp->state == IBV_QPS_ERR) {
        flush(qp);
    }
}

int softhca_qp_has_work(const struct softhca_qp *qp)
{
    if (qp->nak || qp->ack_pending || qp->answer_head != qp->answer_tail) {
        return 1;
    }
    return qp->state >= IBV_QPS_RTS && qp->una != SOFTHCA_LOAD_ACQUIRE(&qp->sq_tail);
}
