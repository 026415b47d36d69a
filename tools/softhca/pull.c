// SPDX-License-Identifier: Apache-2.0
// Messages whose bytes the copy engines are still moving: what a program can see of them (the
// receive's completion, the acknowledge) waits for the copies, in the order of the messages.
#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

int softhca_pulls_full(void)
{
    const struct softhca_hca *h = softhca_hca;
    return h->pull_tail - h->pull_head == SOFTHCA_CUDA_MARKS;
}

void softhca_pull_defer(struct softhca_qp *qp, const struct softhca_cqe *cqe)
{
    struct softhca_hca *h = softhca_hca;
    struct softhca_pull *pull = &h->pulls[h->pull_tail++ % SOFTHCA_CUDA_MARKS];
    *pull = (struct softhca_pull){.qp = qp, .gpu = qp->pull_gpu, .has_cqe = cqe != NULL};
    if (cqe) {
        pull->cqe = *cqe;
    }
    if (pull->gpu) {
        pull->mark = softhca_cuda_mark(pull->gpu);
        qp->copied_by = pull->gpu;
        qp->copied_in = softhca_cuda_batch(pull->gpu);
    }
    qp->unfinished++;
    qp->pull_gpu = NULL;
}

int softhca_pull_from(struct softhca_qp *qp, const struct softhca_place *to, uint64_t from,
                      uint32_t len)
{
    struct softhca_gpu *gpu = to->gpu;
    if (qp->copied_by == gpu && qp->copied_in == softhca_cuda_batch(gpu)) {
        softhca_cuda_start(gpu); // an earlier message of this queue pair comes first
    }
    qp->pull_gpu = gpu;
    return softhca_cuda_pull(gpu, to->at, from, len, (int)softhca_hca->config.pull_overlap);
}

// The oldest message. 0: its copies are under way.
static int finish_oldest(struct softhca_hca *h)
{
    struct softhca_pull pull = h->pulls[h->pull_head % SOFTHCA_CUDA_MARKS];
    int passed = pull.gpu ? softhca_cuda_passed(pull.gpu, pull.mark) : 1;
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
    while (h->pull_head != h->pull_tail && finish_oldest(h)) {
        did = 1;
    }
    return did;
}

void softhca_pull_finish(void)
{
    struct softhca_hca *h = softhca_hca;
    softhca_cuda_drain_all(); // also what belongs to messages that have not ended
    while (h->pull_head != h->pull_tail && finish_oldest(h)) {
    }
}
