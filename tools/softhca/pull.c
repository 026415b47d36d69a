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
    uint32_t mark = (uint32_t)(h->pull_tail++ % SOFTHCA_CUDA_MARKS);
    struct softhca_pull *pull = &h->pulls[mark];
    *pull = (struct softhca_pull){.qp = qp, .gpu = qp->pull_gpu, .has_cqe = cqe != NULL};
    if (cqe) {
        pull->cqe = *cqe;
    }
    qp->unfinished++;
    qp->pull_gpu = NULL;
    if (pull->gpu && softhca_cuda_mark(pull->gpu, mark)) {
        (void)softhca_cuda_drain(pull->gpu); // said why; without a mark only waiting is right
        pull->gpu = NULL;
    }
}

// The oldest message. 0: its copies are under way.
static int finish_oldest(struct softhca_hca *h)
{
    uint32_t mark = (uint32_t)(h->pull_head % SOFTHCA_CUDA_MARKS);
    struct softhca_pull pull = h->pulls[mark];
    int passed = pull.gpu ? softhca_cuda_passed(pull.gpu, mark) : 1;
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
    while (h->pull_head != h->pull_tail) {
        struct softhca_gpu *gpu = h->pulls[h->pull_head % SOFTHCA_CUDA_MARKS].gpu;
        if (gpu) {
            (void)softhca_cuda_drain(gpu); // a failure shows at the mark
        }
        (void)finish_oldest(h);
    }
}
