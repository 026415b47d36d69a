// SPDX-License-Identifier: Apache-2.0
// Messages whose bytes the copy engines are still moving: what a program can see of them (the
// receive's completion, the acknowledge) waits for the copies, in the order of the messages.
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

int softhca_pulls_full(void)
{
    const struct softhca_hca *h = softhca_hca;
    return h->pull_tail - h->pull_head == SOFTHCA_CUDA_MARKS;
}

#define SMALL_BYTES 256u // a message of a GPU's bytes up to this may be a flag

enum softhca_way softhca_pull_way(const struct softhca_packet *p, const struct softhca_place *to)
{
    if (p->flags & SOFTHCA_FLAG_PULL) {
        return p->total > SMALL_BYTES ? SOFTHCA_BULK : SOFTHCA_SMALL;
    }
    return p->total == p->length && (p->total == 8 || p->total == 4) &&
                   ((uintptr_t)to->at & (p->total - 1)) == 0
               ? SOFTHCA_WORD
               : SOFTHCA_SMALL;
}

int softhca_pull_waits(const struct softhca_qp *qp, const struct softhca_place *to, uint64_t len,
                       enum softhca_way way)
{
    if (way == SOFTHCA_BULK) {
        return softhca_cuda_word_near(to->gpu, to->at, len);
    }
    return way == SOFTHCA_SMALL && qp->unfinished && qp->worded_in &&
           !softhca_cuda_passed(to->gpu, qp->worded_in, 0, 0);
}

// Of the expected message, before and after its work in a batch.
static void note(struct softhca_qp *qp, struct softhca_gpu *gpu, uint64_t batch)
{
    qp->pull_gpu = gpu;
    qp->pull_first = qp->pull_first ? qp->pull_first : batch;
    qp->pull_last = batch > qp->pull_last ? batch : qp->pull_last;
}

static void forget(struct softhca_qp *qp)
{
    qp->pull_gpu = NULL;
    qp->pull_first = qp->pull_last = 0;
    qp->pull_word = 0;
}

void softhca_pull_defer(struct softhca_qp *qp, const struct softhca_cqe *cqe, uint64_t ready_ns)
{
    struct softhca_hca *h = softhca_hca;
    struct softhca_pull *pull = &h->pulls[h->pull_tail++ % SOFTHCA_CUDA_MARKS];
    *pull = (struct softhca_pull){.qp = qp,
                                  .gpu = qp->pull_gpu,
                                  .first = qp->pull_first,
                                  .last = qp->pull_last,
                                  .ready_ns = ready_ns,
                                  .has_cqe = cqe != NULL};
    if (cqe) {
        pull->cqe = *cqe;
    }
    if (pull->gpu) {
        pull->number = softhca_cuda_follow(pull->gpu, pull->last, (int)qp->pull_word);
        if (qp->copied_by != pull->gpu) {
            qp->copied_by = pull->gpu;
            qp->copied_in = qp->worded_in = 0;
        }
        qp->copied_in = pull->last > qp->copied_in ? pull->last : qp->copied_in;
        qp->worded_in = qp->pull_word ? pull->number : qp->worded_in;
    }
    qp->unfinished++;
    forget(qp);
}

int softhca_pull_from(struct softhca_qp *qp, const struct softhca_place *to, uint64_t from,
                      uint32_t len, uint32_t e, enum softhca_way way)
{
    struct softhca_gpu *gpu = to->gpu;
    struct softhca_cuda_kin kin = {to->mr, e, softhca_import_device(e)};
    if (e == UINT32_MAX) {
        kin = (struct softhca_cuda_kin){NULL, UINT64_MAX, SOFTHCA_CUDA_HOST};
    }
    uint64_t batch = 0;
    if (way == SOFTHCA_SMALL && qp->copied_by == gpu && qp->copied_in == softhca_cuda_batch(gpu)) {
        softhca_cuda_start(gpu); // an earlier message of this queue pair comes first
    }
    int err = softhca_cuda_pull(gpu, to->at, from, len, kin, (int)softhca_hca->config.pull_overlap,
                                0, &batch);
    note(qp, gpu, batch);
    return err;
}

void softhca_pull_begun(struct softhca_qp *qp, struct softhca_gpu *gpu, uint64_t batch)
{
    note(qp, gpu, batch);
}

void softhca_pull_word(struct softhca_qp *qp, const struct softhca_place *to,
                       const struct softhca_packet *p)
{
    uint64_t value = 0;
    memcpy(&value, p + 1, p->length);
    softhca_cuda_word(to->gpu, to->at, value, p->length,
                      qp->copied_by == to->gpu ? qp->copied_in : 0);
    qp->pull_gpu = to->gpu;
    qp->pull_word = 1;
}

// The oldest message. 0: its copies are under way, or it is too early.
static int finish_oldest(struct softhca_hca *h, uint64_t now_ns)
{
    struct softhca_pull pull = h->pulls[h->pull_head % SOFTHCA_CUDA_MARKS];
    if (pull.ready_ns > now_ns) {
        softhca_wake_at(pull.ready_ns);
        return 0;
    }
    int passed = pull.gpu ? softhca_cuda_passed(pull.gpu, pull.number, pull.first, pull.last) : 1;
    if (!passed) {
        return 0;
    }
    h->pull_head++;
    pull.qp->unfinished--;
    if (passed < 0) {
        pull.qp->nak = SOFTHCA_NAK_OPERATION;
        pull.qp->nak_psn = (pull.qp->expected - 1 - pull.qp->unfinished) & 0xffffff;
        softhca_qp_to_error(pull.qp);
    } else {
        if (pull.has_cqe) {
            softhca_cq_push((struct softhca_cq *)(void *)pull.qp->ex.qp_base.recv_cq, &pull.cqe);
        }
        pull.qp->ack_pending = 1;
    }
    softhca_qp_make_live(pull.qp);
    return 1;
}

int softhca_pull_poll(void)
{
    struct softhca_hca *h = softhca_hca;
    int did = 0;
    while (h->pull_head != h->pull_tail && finish_oldest(h, h->now_ns)) {
        did = 1;
    }
    return did;
}

void softhca_pull_finish(void)
{
    struct softhca_hca *h = softhca_hca;
    softhca_cuda_drain_all(); // also what belongs to messages that have not ended
    while (h->pull_head != h->pull_tail && finish_oldest(h, UINT64_MAX)) {
    }
}
