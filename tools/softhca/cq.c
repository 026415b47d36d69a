// SPDX-License-Identifier: Apache-2.0
// Completion queues: filled by the progress thread, polled by the program.
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

enum { NOT_ARMED, ARMED_SOLICITED, ARMED_ANY };

void softhca_cq_push(struct softhca_cq *cq, const struct softhca_cqe *e)
{
    uint64_t tail = SOFTHCA_LOAD_RELAXED(&cq->tail);
    if (tail - SOFTHCA_LOAD_ACQUIRE(&cq->head) >= cq->size) {
        if (!cq->overrun) {
            cq->overrun = 1;
            struct ibv_async_event ev = {.element.cq = &cq->cq, .event_type = IBV_EVENT_CQ_ERR};
            softhca_event_raise((struct softhca_context *)(void *)verbs_get_ctx(cq->cq.context),
                                &ev);
        }
        return;
    }
    cq->ring[tail % cq->size] = *e;
    SOFTHCA_STORE_SC(&cq->tail, tail + 1);
    uint32_t armed = SOFTHCA_LOAD_SC(&cq->armed);
    if (armed == NOT_ARMED || (armed == ARMED_SOLICITED && !e->solicited && !e->status)) {
        return;
    }
    if (SOFTHCA_EXCHANGE_SC(&cq->armed, NOT_ARMED) != NOT_ARMED) {
        softhca_channel_raise(cq);
    }
}

// The queue pair goes: its entries stay to be polled, but give nothing back.
void softhca_cq_forget(struct softhca_cq *cq, const struct softhca_qp *qp)
{
    (void)pthread_mutex_lock(&cq->lock);
    for (uint64_t i = cq->head; i != cq->tail; i++) {
        struct softhca_cqe *e = &cq->ring[i % cq->size];
        if (e->qp == qp) {
            e->qp = NULL;
        }
    }
    (void)pthread_mutex_unlock(&cq->lock);
}

// Slots become free when their completion is polled, as with hardware: a program that never polls
// a signalled send runs out of them.
static void give_back(const struct softhca_cqe *e)
{
    if (!e->qp) {
        return;
    }
    uint64_t *freed = e->is_recv ? &e->qp->rq.freed : &e->qp->sq_freed;
    if (e->release > SOFTHCA_LOAD_RELAXED(freed)) {
        SOFTHCA_STORE_RELEASE(freed, e->release);
    }
}

// Under cq.lock.
static int take(struct softhca_cq *cq, struct softhca_cqe *out)
{
    uint64_t head = cq->head;
    if (head == SOFTHCA_LOAD_SC(&cq->tail)) {
        return 0;
    }
    *out = cq->ring[head % cq->size];
    give_back(out);
    SOFTHCA_STORE_RELEASE(&cq->head, head + 1);
    return 1;
}

int softhca_poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
    struct softhca_cq *cq = (struct softhca_cq *)(void *)base;
    struct softhca_cqe e;
    int got = 0;
    if (SOFTHCA_LOAD_RELAXED(&softhca_hca->faults.has_calls)) {
        int err = softhca_fault_call(SOFTHCA_CALL_POLL_CQ);
        if (err) {
            return -err;
        }
    }
    if (SOFTHCA_LOAD_SC(&cq->tail) == SOFTHCA_LOAD_ACQUIRE(&cq->head)) {
        (void)sched_yield(); // there may be fewer processors than pollers
        return 0;
    }
    (void)pthread_mutex_lock(&cq->lock);
    while (got < n && take(cq, &e)) {
        struct ibv_wc *w = &wc[got++];
        memset(w, 0, sizeof *w);
        w->wr_id = e.wr_id;
        w->status = (enum ibv_wc_status)e.status;
        w->opcode = (enum ibv_wc_opcode)e.opcode;
        w->vendor_err = e.vendor_err;
        w->byte_len = e.byte_len;
        w->imm_data = e.imm;
        w->qp_num = e.qp_num;
        w->src_qp = e.src_qp;
        w->wc_flags = e.wc_flags;
    }
    (void)pthread_mutex_unlock(&cq->lock);
    return got;
}

int softhca_req_notify_cq(struct ibv_cq *base, int solicited_only)
{
    struct softhca_cq *cq = (struct softhca_cq *)(void *)base;
    int err = softhca_fault_call(SOFTHCA_CALL_REQ_NOTIFY);
    if (err) {
        return err;
    }
    uint32_t want = solicited_only ? ARMED_SOLICITED : ARMED_ANY;
    uint32_t now = SOFTHCA_LOAD_SC(&cq->armed);
    while (now < want && !SOFTHCA_CAS(&cq->armed, &now, want)) {
    } // a request for any completion is not weakened by a later one for solicited ones
    return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    struct softhca_cq *cq = (struct softhca_cq *)(void *)ex;
    if (attr && attr->comp_mask) {
        return EINVAL;
    }
    (void)pthread_mutex_lock(&cq->lock);
    if (!take(cq, &cq->current)) {
        (void)pthread_mutex_unlock(&cq->lock);
        (void)sched_yield();
        return ENOENT;
    }
    ex->wr_id = cq->current.wr_id;
    ex->status = (enum ibv_wc_status)cq->current.status;
    cq->timestamp = softhca_now_ns();
    return 0;
}

static int next_poll(struct ibv_cq_ex *ex)
{
    struct softhca_cq *cq = (struct softhca_cq *)(void *)ex;
    if (!take(cq, &cq->current)) {
        return ENOENT;
    }
    ex->wr_id = cq->current.wr_id;
    ex->status = (enum ibv_wc_status)cq->current.status;
    return 0;
}

static void end_poll(struct ibv_cq_ex *ex)
{
    (void)pthread_mutex_unlock(&((struct softhca_cq *)(void *)ex)->lock);
}

static struct softhca_cqe *current_of(struct ibv_cq_ex *ex)
{
    return &((struct softhca_cq *)(void *)ex)->current;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
    return (enum ibv_wc_opcode)current_of(ex)->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
    return current_of(ex)->vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
    return current_of(ex)->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
    return current_of(ex)->imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
    return current_of(ex)->qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
    return current_of(ex)->src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
    return current_of(ex)->wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
    (void)ex; // not defined for reliable connections
    return 0;
}

static uint8_t read_zero(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static uint64_t read_timestamp(struct ibv_cq_ex *ex)
{
    return ((struct softhca_cq *)(void *)ex)->timestamp;
}

static void fill_ex(struct softhca_cq *cq)
{
    struct ibv_cq_ex *ex = &cq->ex;
    ex->start_poll = start_poll;
    ex->next_poll = next_poll;
    ex->end_poll = end_poll;
    ex->read_opcode = read_opcode;
    ex->read_vendor_err = read_vendor_err;
    ex->read_byte_len = read_byte_len;
    ex->read_imm_data = read_imm_data;
    ex->read_qp_num = read_qp_num;
    ex->read_src_qp = read_src_qp;
    ex->read_wc_flags = read_wc_flags;
    ex->read_slid = read_slid;
    ex->read_sl = read_zero;
    ex->read_dlid_path_bits = read_zero;
    ex->read_completion_ts = read_timestamp;
    ex->read_completion_wallclock_ns = read_timestamp;
}

static struct softhca_cq *make_cq(struct ibv_context *context, uint64_t cqe, void *user,
                                  struct ibv_comp_channel *channel, uint32_t vector)
{
    int err = softhca_fault_call(SOFTHCA_CALL_CREATE_CQ);
    if (!err && (cqe < 1 || cqe > softhca_hca->config.max_cqe ||
                 vector >= (uint32_t)context->num_comp_vectors)) {
        err = EINVAL;
    }
    struct softhca_cq *cq = err ? NULL : calloc(1, sizeof *cq);
    if (cq && !(cq->ring = calloc(cqe, sizeof *cq->ring))) {
        free(cq);
        cq = NULL;
    }
    if (!cq) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    cq->cq.context = context;
    cq->cq.channel = channel;
    cq->cq.cq_context = user;
    cq->cq.cqe = (int)cqe;
    cq->size = cqe;
    (void)pthread_mutex_init(&cq->cq.mutex, NULL); // cannot fail without attributes
    (void)pthread_cond_init(&cq->cq.cond, NULL);
    (void)pthread_mutex_init(&cq->lock, NULL);
    fill_ex(cq);
    (void)SOFTHCA_ADD(&softhca_hca->cq_count, 1);
    if (channel) {
        softhca_lock();
        channel->refcnt++;
        softhca_unlock();
    }
    return cq;
}

SOFTHCA_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                            struct ibv_comp_channel *channel, int comp_vector)
{
    struct softhca_cq *cq =
        make_cq(context, cqe < 0 ? 0 : (uint64_t)cqe, cq_context, channel, (uint32_t)comp_vector);
    return cq ? &cq->cq : NULL;
}

struct ibv_cq_ex *softhca_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *a)
{
    const uint64_t known = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                           IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    if ((a->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
        (a->wc_flags & ~known) ||
        ((a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (a->flags & ~flags))) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct softhca_cq *cq = make_cq(context, a->cqe, a->cq_context, a->channel, a->comp_vector);
    if (cq) {
        cq->wc_flags = a->wc_flags;
    }
    return cq ? &cq->ex : NULL;
}

SOFTHCA_EXPORT int ibv_resize_cq(struct ibv_cq *base, int cqe)
{
    struct softhca_cq *cq = (struct softhca_cq *)(void *)base;
    if (cqe < 1 || (uint64_t)cqe > softhca_hca->config.max_cqe) {
        return EINVAL;
    }
    struct softhca_cqe *ring = calloc((size_t)cqe, sizeof *ring);
    if (!ring) {
        return ENOMEM;
    }
    softhca_lock();
    (void)pthread_mutex_lock(&cq->lock);
    uint64_t held = cq->tail - cq->head;
    int err = held > (uint64_t)cqe ? EINVAL : 0;
    if (!err) {
        for (uint64_t i = 0; i < held; i++) {
            ring[(cq->head + i) % (uint64_t)cqe] = cq->ring[(cq->head + i) % cq->size];
        }
        struct softhca_cqe *old = cq->ring;
        cq->ring = ring;
        ring = old;
        cq->size = (uint64_t)cqe;
        base->cqe = cqe;
    }
    (void)pthread_mutex_unlock(&cq->lock);
    softhca_unlock();
    free(ring);
    return err;
}

SOFTHCA_EXPORT int ibv_destroy_cq(struct ibv_cq *base)
{
    struct softhca_cq *cq = (struct softhca_cq *)(void *)base;
    softhca_lock();
    int busy = cq->refs != 0;
    if (!busy && base->channel) {
        softhca_channel_forget(cq);
        base->channel->refcnt--;
    }
    softhca_unlock();
    if (busy) {
        return EBUSY;
    }
    softhca_event_forget((struct softhca_context *)(void *)verbs_get_ctx(base->context), cq);
    (void)pthread_mutex_lock(&base->mutex); // as documented: wait for every acknowledgement
    while (base->comp_events_completed != SOFTHCA_LOAD_ACQUIRE(&cq->comp_reported) ||
           base->async_events_completed != SOFTHCA_LOAD_ACQUIRE(&cq->async_reported)) {
        (void)pthread_cond_wait(&base->cond, &base->mutex);
    }
    (void)pthread_mutex_unlock(&base->mutex);
    (void)SOFTHCA_SUB(&softhca_hca->cq_count, 1);
    free(cq->ring);
    free(cq);
    return 0;
}
