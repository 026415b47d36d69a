// SPDX-License-Identifier: Apache-2.0
// Checks: errors that the responder finds and answers with a NAK.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <string.h>

enum {
    LOCAL = IBV_ACCESS_LOCAL_WRITE,
    WRITE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
    READ = IBV_ACCESS_REMOTE_READ,
};

// Posts a request that the responder must refuse; nothing of its memory may change.
static void refused(struct pair *p, struct job *j, enum ibv_wc_status status)
{
    struct job behind;
    memset(p->a.buf, 3, 4096);
    job_fill(&behind, IBV_WR_SEND, 71, &p->a, 0, NULL, 0, 8); // flushed, so no matter what
    j->wr.wr_id = 70;
    j->wr.next = &behind.wr;
    job_post(p->a.qp, j);
    wc_expect(p->a.send_cq, 70, status);
    wc_expect(p->a.send_cq, 71, IBV_WC_WR_FLUSH_ERR);
    MUST(qp_state(p->a.qp) == IBV_QPS_ERR, "the requester is in ERR");
    MUST(bytes_are(p->b.buf, p->b.setup.size, 0), "the responder's memory is untouched");
}

static void access_error(enum ibv_wr_opcode opcode, int64_t at, size_t length, uint32_t key_change)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    job_fill(&j, opcode, 1, &p.a, 0, &p.b, (size_t)at, length);
    j.wr.wr.rdma.rkey ^= key_change;
    refused(&p, &j, IBV_WC_REM_ACCESS_ERR);
    pair_close(&p);
}

static void bad_rkey_write(void)
{
    access_error(IBV_WR_RDMA_WRITE, 0, 64, 0x5500);
}

static void bad_rkey_read(void)
{
    access_error(IBV_WR_RDMA_READ, 0, 64, 0x5500);
}

static void write_past_the_end(void)
{
    access_error(IBV_WR_RDMA_WRITE, (1 << 20) - 60, 64, 0);
}

// A long write is checked as a whole: its first packet alone would fit.
static void long_write_past_the_end(void)
{
    access_error(IBV_WR_RDMA_WRITE, (1 << 20) - 500000, 500001, 0);
}

static void write_before_the_start(void)
{
    access_error(IBV_WR_RDMA_WRITE, -4, 64, 0);
}

static void read_past_the_end(void)
{
    access_error(IBV_WR_RDMA_READ, (1 << 20) - 60, 64, 0);
}

// One operation against a region of the responder that lacks the right for it.
static void region_lacks(int access, enum ibv_wr_opcode opcode)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.mr_access = access});
    job_fill(&j, opcode, 1, &p.a, 0, &p.b, 0, 8);
    struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, LOCAL);
    MUST(mr, "ibv_reg_mr");
    j.sge.lkey = mr->lkey;
    refused(&p, &j, IBV_WC_REM_ACCESS_ERR);
    MUST(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    pair_close(&p);
}

static void no_remote_write(void)
{
    region_lacks(LOCAL | READ, IBV_WR_RDMA_WRITE);
}

static void no_remote_read(void)
{
    region_lacks(WRITE, IBV_WR_RDMA_READ);
}

static void no_remote_atomic(void)
{
    region_lacks(WRITE | READ, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

// The right is missing on the queue pair. The specification files this under invalid request,
// hardware answers with either.
static void queue_pair_lacks(int access, enum ibv_wr_opcode opcode)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.qp_access = access});
    memset(p.a.buf, 3, 8);
    job_post(p.a.qp, job_fill(&j, opcode, 1, &p.a, 0, &p.b, 0, 8));
    struct ibv_wc wc = {0};
    MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS), "a completion");
    MUST(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR,
         "refused by the responder, not '%s'", ibv_wc_status_str(wc.status));
    MUST(bytes_are(p.b.buf, 64, 0), "nothing was written");
    pair_close(&p);
}

static void qp_no_write(void)
{
    queue_pair_lacks(IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE);
}

static void qp_no_read(void)
{
    queue_pair_lacks(IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ);
}

static void qp_no_atomic(void)
{
    queue_pair_lacks(IBV_ACCESS_REMOTE_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

static void other_domain(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    struct ibv_pd *pd = ibv_alloc_pd(p.b.ctx);
    MUST(pd, "ibv_alloc_pd");
    struct ibv_mr *mr = ibv_reg_mr(pd, p.b.buf, 4096, WRITE);
    MUST(mr, "ibv_reg_mr");
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 64);
    j.wr.wr.rdma.rkey = mr->rkey;
    refused(&p, &j, IBV_WC_REM_ACCESS_ERR);
    MUST(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0, "both go");
    pair_close(&p);
}

static void deregistered(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    pair_works(&p);
    memset(p.b.buf, 0, 4096);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 64);
    MUST(ibv_dereg_mr(p.b.mr) == 0, "ibv_dereg_mr");
    refused(&p, &j, IBV_WC_REM_ACCESS_ERR);
    p.b.mr = ibv_reg_mr(p.b.pd, p.b.buf, 4096, WRITE);
    MUST(p.b.mr, "ibv_reg_mr");
    pair_close(&p);
}

static void message_too_long(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    recv_post(&p.b, 5, 0, 100);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 6, &p.a, 0, NULL, 0, 101));
    wc_expect_or(p.a.send_cq, 6, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR,
                 DIFF_LONG_MESSAGE_IS_REM_OP_ERR);
    wc_expect_or(p.b.recv_cq, 5, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR,
                 DIFF_LONG_MESSAGE_IS_REM_OP_ERR);
    MUST(qp_state(p.b.qp) == IBV_QPS_ERR, "the responder is in ERR as well");
    pair_close(&p);
}

// The responder cannot place a message: its receive names a bad key.
static void receive_with_bad_key(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    struct ibv_sge sge = {.addr = (uintptr_t)p.b.buf, .length = 64, .lkey = p.b.mr->lkey ^ 0x5500};
    struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;
    MUST(ibv_post_recv(p.b.qp, &wr, &bad) == 0, "ibv_post_recv");
    recv_post(&p.b, 7, 0, 64);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 6, &p.a, 0, NULL, 0, 64));
    wc_expect(p.a.send_cq, 6, IBV_WC_REM_OP_ERR);
    wc_expect_or(p.b.recv_cq, 5, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR,
                 DIFF_BAD_LKEY_IS_LOC_QP_OP_ERR);
    wc_expect(p.b.recv_cq, 7, IBV_WC_WR_FLUSH_ERR);
    pair_close(&p);
}

// After a refusal the responder's own direction is closed as well.
static void responder_stops(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    recv_post(&p.b, 5, 0, 64);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 64);
    j.wr.wr.rdma.rkey ^= 0x5500;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
    wc_expect(p.b.recv_cq, 5, IBV_WC_WR_FLUSH_ERR);
    MUST(qp_state(p.b.qp) == IBV_QPS_ERR, "the responder is in ERR");
    pair_close(&p);
}

static void other_queue_pairs_live(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    struct ibv_qp *a = side_create_qp(&p.a), *b = side_create_qp(&p.b);
    struct address at_a = side_address(&p.a), at_b = side_address(&p.b);
    at_a.qp_num = a->qp_num;
    at_b.qp_num = b->qp_num;
    qp_connect(&p.a, a, &at_b);
    qp_connect(&p.b, b, &at_a);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 64);
    j.wr.wr.rdma.rkey ^= 0x5500;
    job_post(a, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
    pair_works(&p);
    MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0, "ibv_destroy_qp");
    pair_close(&p);
}

const struct check remote_checks[] = {
    {"remote.bad_rkey_of_a_write", bad_rkey_write, 0},
    {"remote.bad_rkey_of_a_read", bad_rkey_read, 0},
    {"remote.write_past_the_end", write_past_the_end, 0},
    {"remote.long_write_past_the_end", long_write_past_the_end, 0},
    {"remote.write_before_the_start", write_before_the_start, 0},
    {"remote.read_past_the_end", read_past_the_end, 0},
    {"remote.region_without_write", no_remote_write, 0},
    {"remote.region_without_read", no_remote_read, 0},
    {"remote.region_without_atomic", no_remote_atomic, 0},
    {"remote.queue_pair_without_write", qp_no_write, 0},
    {"remote.queue_pair_without_read", qp_no_read, 0},
    {"remote.queue_pair_without_atomic", qp_no_atomic, 0},
    {"remote.region_of_another_domain", other_domain, 0},
    {"remote.region_deregistered", deregistered, 0},
    {"remote.message_longer_than_the_receive", message_too_long, 0},
    {"remote.receive_with_a_bad_key", receive_with_bad_key, 0},
    {"remote.responder_stops_after_a_refusal", responder_stops, 0},
    {"remote.other_queue_pairs_go_on", other_queue_pairs_live, 0},
    {0},
};
