// SPDX-License-Identifier: Apache-2.0
// Checks: extended completion queues, which hand out completions field by field.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <string.h>

// A pair whose first side has an extended queue for its sends.
static struct ibv_cq_ex *extended_open(struct pair *p)
{
    side_open(&p->a, 0, NULL);
    side_open(&p->b, 1, NULL);
    MUST(ibv_destroy_qp(p->a.qp) == 0 && ibv_destroy_cq(p->a.send_cq) == 0, "the ordinary ones");
    struct ibv_cq_init_attr_ex attr = {.cqe = 64,
                                       .cq_context = p,
                                       .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
                                                   IBV_WC_EX_WITH_QP_NUM};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(p->a.ctx, &attr);
    MUST(cq, "ibv_create_cq_ex");
    p->a.send_cq = ibv_cq_ex_to_cq(cq);
    MUST(p->a.send_cq->cq_context == p && p->a.send_cq->cqe >= 64, "its fields");
    p->a.qp = side_create_qp(&p->a);
    struct address a = side_address(&p->a), b = side_address(&p->b);
    qp_connect(&p->a, p->a.qp, &b);
    qp_connect(&p->b, p->b.qp, &a);
    return cq;
}

static void start_poll(struct ibv_cq_ex *cq)
{
    struct ibv_poll_cq_attr attr = {0};
    double end = now() + WAIT_MS / 1e3;
    int rc;
    while ((rc = ibv_start_poll(cq, &attr)) == ENOENT && now() < end) {
        nap(50e-6);
    }
    MUST(rc == 0, "ibv_start_poll finds a completion, not %d", rc);
}

static void field_by_field(void)
{
    enum { N = 20 };
    struct pair p;
    struct job j;
    struct ibv_cq_ex *cq = extended_open(&p);
    struct ibv_poll_cq_attr attr = {0};
    MUST(ibv_start_poll(cq, &attr) == ENOENT, "an empty queue is ENOENT");
    for (unsigned i = 0; i < N; i++) {
        enum ibv_wr_opcode opcode = i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        job_post(p.a.qp, job_fill(&j, opcode, i, &p.a, 0, &p.b, 0, 100));
    }
    for (unsigned seen = 0; seen < N;) {
        start_poll(cq);
        do {
            MUST(cq->wr_id == seen && cq->status == IBV_WC_SUCCESS, "request %u", seen);
            MUST(ibv_wc_read_opcode(cq) == (seen % 2 ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE),
                 "its opcode");
            MUST(ibv_wc_read_qp_num(cq) == p.a.qp->qp_num, "its queue pair");
            seen++;
        } while (ibv_next_poll(cq) == 0);
        ibv_end_poll(cq);
    }
    pair_close(&p);
}

static void failure(void)
{
    struct pair p;
    struct job j;
    struct ibv_cq_ex *cq = extended_open(&p);
    job_fill(&j, IBV_WR_RDMA_WRITE, 5, &p.a, 0, &p.b, 0, 8);
    j.wr.wr.rdma.rkey ^= 0x5500;
    job_post(p.a.qp, &j);
    start_poll(cq);
    MUST(cq->wr_id == 5 && cq->status == IBV_WC_REM_ACCESS_ERR, "the failed request");
    MUST(ibv_wc_read_qp_num(cq) == p.a.qp->qp_num, "its queue pair");
    ibv_end_poll(cq);
    pair_close(&p);
}

static void both_ways_of_polling(void)
{
    struct pair p;
    struct job j;
    struct ibv_cq_ex *cq = extended_open(&p);
    job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 8));
    start_poll(cq);
    MUST(cq->wr_id == 1, "the first");
    ibv_end_poll(cq);
    job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 2, &p.a, 0, &p.b, 0, 8));
    wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);
    pair_close(&p);
}

const struct check cq_ex_checks[] = {
    {"cq_ex.field_by_field", field_by_field, 0},
    {"cq_ex.failure", failure, 0},
    {"cq_ex.both_ways_of_polling", both_ways_of_polling, 0},
    {0},
};
