// SPDX-License-Identifier: Apache-2.0
// Copies that begin before the model lets their message arrive, so that they are over by then: a
// real NIC's copy takes no time of its own. What a program can see by rights (stamp, completion,
// acknowledge) still comes when the message does.
#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

static int has_late_rules(const struct softhca_hca *h)
{
    for (uint32_t i = 0; i < h->faults.count; i++) {
        if (h->faults.rules[i].what == SOFTHCA_FAULT_LATE) {
            return 1; // such a request is executed when it comes
        }
    }
    return 0;
}

// Would the queue pair take it, if all before it comes well?
static int is_welcome(const struct softhca_qp *qp, const struct softhca_packet *p,
                      struct softhca_place *out_to)
{
    return qp && qp->state >= IBV_QPS_RTR && qp->state <= IBV_QPS_SQE && !qp->ignoring &&
           softhca_psn_diff(p->psn, qp->expected) >= 0 &&
           softhca_write_reach(qp, p, p->offset, p->span, out_to) == 0;
}

// 1 when what comes behind it may be looked at.
static int begin(struct softhca_hca *h, struct softhca_packet *p)
{
    struct softhca_place to = {0};
    if (p->copied || p->kind > SOFTHCA_FETCH_ADD) {
        return 1;
    }
    if (p->kind != SOFTHCA_WRITE || !is_welcome(softhca_addressee(h, p), p, &to)) {
        return 0;
    }
    if (!p->span) {
        return 1;
    }
    enum softhca_way way = to.gpu ? softhca_pull_way(p, &to) : SOFTHCA_SMALL;
    if (way == SOFTHCA_WORD) {
        softhca_cuda_word_comes(to.gpu, to.at, p->span);
        p->flags |= SOFTHCA_FLAG_EARLY;
        return 1;
    }
    uint64_t from = way == SOFTHCA_SMALL
                        ? 0
                        : softhca_import_at((uint32_t)p->operand, (uint32_t)(p->operand >> 32),
                                            p->swap, p->span);
    struct softhca_cuda_kin kin = {to.mr, (uint32_t)p->operand,
                                   softhca_import_device((uint32_t)p->operand)};
    if (!from || softhca_cuda_word_near(to.gpu, to.at, p->span) || softhca_cuda_is_full(to.gpu) ||
        softhca_cuda_pull(to.gpu, to.at, from, p->span, kin, (int)h->config.pull_overlap,
                          p->ready_ns, &p->copied)) {
        return 0;
    }
    p->flags |= SOFTHCA_FLAG_EARLY;
    return 1;
}

void softhca_ahead(struct softhca_hca *h, struct softhca_peer *peer)
{
    uint64_t next = 0;
    struct softhca_packet *p;
    if (peer->ahead < peer->in.pos) {
        peer->ahead = peer->in.pos;
    }
    if (!softhca_cuda_any() || has_late_rules(h)) {
        return;
    }
    while ((p = softhca_ring_at(&peer->in, peer->ahead, &next)) && begin(h, p)) {
        peer->ahead = next;
    }
}
