// SPDX-License-Identifier: Apache-2.0
// Checks: errors that the requester's own device finds.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Posts a request that must fail as a protection error, or as `other` where the difference about
// keys that name no region is allowed, and one behind it that must be flushed.
static void fails(struct pair *p, struct job *j, enum ibv_wc_status other)
{
    struct job behind;
    job_fill(&behind, IBV_WR_RDMA_WRITE, 71, &p->a, 0, &p->b, 0, 8);
    j->wr.wr_id = 70;
    j->wr.next = &behind.wr;
    job_post(p->a.qp, j);
    struct ibv_wc wc =
        wc_expect_or(p->a.send_cq, 70, IBV_WC_LOC_PROT_ERR, other, DIFF_BAD_LKEY_IS_LOC_QP_OP_ERR);
    MUST(wc.qp_num == p->a.qp->qp_num, "a failed completion names its queue pair");
    wc_expect(p->a.send_cq, 71, IBV_WC_WR_FLUSH_ERR);
    MUST(qp_state(p->a.qp) == IBV_QPS_ERR, "the queue pair is in ERR");
}

static void protection(size_t from, size_t length, uint32_t key_change, enum ibv_wr_opcode opcode,
                       enum ibv_wc_status other)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    job_fill(&j, opcode, 1, &p.a, from, &p.b, 0, length);
    j.sge.lkey ^= key_change;
    fails(&p, &j, other);
    pair_close(&p);
}

static void bad_lkey(void)
{
    protection(0, 64, 0x5500, IBV_WR_RDMA_WRITE, IBV_WC_LOC_QP_OP_ERR);
}

static void bad_lkey_read(void)
{
    protection(0, 64, 0x5500, IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR);
}

static void past_the_end(void)
{
    protection((1 << 20) - 60, 64, 0, IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR);
}

static void before_the_start(void)
{
    protection((size_t)-4, 64, 0, IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR);
}

static void other_domain(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    struct ibv_pd *pd = ibv_alloc_pd(p.a.ctx);
    MUST(pd, "ibv_alloc_pd");
    struct ibv_mr *mr = ibv_reg_mr(pd, p.a.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
    MUST(mr, "ibv_reg_mr");
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 64);
    j.sge.lkey = mr->lkey;
    fails(&p, &j, IBV_WC_LOC_QP_OP_ERR);
    MUST(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0, "both go");
    pair_close(&p);
}

static void deregistered(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
    MUST(mr, "ibv_reg_mr");
    uint32_t key = mr->lkey;
    MUST(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 64);
    j.sge.lkey = key;
    fails(&p, &j, IBV_WC_LOC_QP_OP_ERR);
    pair_close(&p);
}

static void read_into_read_only(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, IBV_ACCESS_REMOTE_READ);
    MUST(mr, "a read-only region");
    job_fill(&j, IBV_WR_RDMA_READ, 1, &p.a, 0, &p.b, 0, 64);
    j.sge.lkey = mr->lkey;
    memset(p.b.buf, 9, 64);
    fails(&p, &j, IBV_WC_LOC_PROT_ERR);
    MUST(bytes_are(p.a.buf, 64, 0), "nothing was written");
    MUST(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    pair_close(&p);
}

// More bytes than max_msg_sz, gathered from one small region many times.
static void too_long(void)
{
    struct pair p;
    struct job j;
    struct ibv_device_attr attr;
    struct ibv_context *ctx = device_open(0);
    MUST(ibv_query_device(ctx, &attr) == 0 && ibv_close_device(ctx) == 0, "ibv_query_device");
    unsigned n = attr.max_sge > 16 ? 16 : (unsigned)attr.max_sge;
    pair_open(&p, &(struct setup){.sge = n});
    size_t piece = ((size_t)p.a.port.max_msg_sz + n) / n;
    void *big = mmap(NULL, piece, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(big != MAP_FAILED, "mmap");
    struct ibv_mr *mr = ibv_reg_mr(p.a.pd, big, piece, IBV_ACCESS_LOCAL_WRITE);
    MUST(mr, "ibv_reg_mr of %zu bytes", piece);
    struct ibv_sge *sge = calloc(n, sizeof(*sge));
    MUST(sge, "memory");
    for (unsigned i = 0; i < n; i++) {
        sge[i] =
            (struct ibv_sge){.addr = (uintptr_t)big, .length = (uint32_t)piece, .lkey = mr->lkey};
    }
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 0);
    j.wr.sg_list = sge;
    j.wr.num_sge = (int)n;
    int rc = job_try(p.a.qp, &j);
    if (rc == 0) { // refused at once or later: both are right
        struct ibv_wc wc = {0};
        MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS), "a completion");
        MUST(wc.status == IBV_WC_LOC_LEN_ERR || allowed(DIFF_MAX_MSG_SZ_NOT_CHECKED),
             "a length error, not '%s'", ibv_wc_status_str(wc.status));
    } else {
        MUST(rc == EINVAL, "refused as EINVAL, not %d", rc);
    }
    MUST(ibv_dereg_mr(mr) == 0 && munmap(big, piece) == 0, "both go");
    free(sge);
    pair_close(&p);
}

// A request that can never be right is refused by the call itself.
static void refused_at_once(void)
{
    struct pair p;
    struct job j;
    struct ibv_send_wr *bad = NULL;
    pair_open(&p, &(struct setup){.inline_data = 16});
    struct ibv_sge many[64];
    MUST(p.a.cap.max_send_sge < 64 && p.a.cap.max_inline_data < p.a.setup.size, "modest limits");
    for (unsigned i = 0; i < 64; i++) {
        many[i] = (struct ibv_sge){.addr = (uintptr_t)p.a.buf, .length = 1, .lkey = p.a.mr->lkey};
    }
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 0);
    j.wr.sg_list = many;
    j.wr.num_sge = (int)p.a.cap.max_send_sge + 1;
    MUST(ibv_post_send(p.a.qp, &j.wr, &bad) != 0 && bad == &j.wr, "too many gather entries");

    bad = NULL;
    job_fill(&j, IBV_WR_RDMA_WRITE, 2, &p.a, 0, &p.b, 0, p.a.cap.max_inline_data + 1);
    j.wr.send_flags |= IBV_SEND_INLINE;
    MUST(ibv_post_send(p.a.qp, &j.wr, &bad) != 0 && bad == &j.wr, "too many inline bytes");

    struct ibv_recv_wr recv = {.wr_id = 3, .sg_list = many}, *bad_recv = NULL;
    recv.num_sge = (int)p.a.cap.max_recv_sge + 1;
    MUST(ibv_post_recv(p.a.qp, &recv, &bad_recv) != 0 && bad_recv == &recv,
         "too many scatter entries");
    wc_none(p.a.send_cq, 20);
    pair_works(&p);
    pair_close(&p);
}

// The failure of an unsignaled request is reported, and everything behind it is flushed.
static void unsignaled_failure(void)
{
    struct pair p;
    struct job bad, behind;
    pair_open(&p, NULL);
    job_fill(&bad, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 64);
    bad.sge.lkey ^= 0x5500;
    bad.wr.send_flags = 0;
    job_fill(&behind, IBV_WR_RDMA_WRITE, 2, &p.a, 0, &p.b, 0, 8);
    behind.wr.send_flags = 0;
    bad.wr.next = &behind.wr;
    job_post(p.a.qp, &bad);
    wc_expect_or(p.a.send_cq, 1, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR,
                 DIFF_BAD_LKEY_IS_LOC_QP_OP_ERR);
    wc_expect(p.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    pair_close(&p);
}

// What comes before a failing request succeeds.
static void success_before_failure(void)
{
    struct pair p;
    struct job good, bad;
    pair_open(&p, NULL);
    pattern_fill(p.a.buf, 30000, 2);
    job_post(p.a.qp, job_fill(&good, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 30000));
    job_fill(&bad, IBV_WR_RDMA_WRITE, 2, &p.a, 0, &p.b, 0, 64);
    bad.sge.lkey ^= 0x5500;
    job_post(p.a.qp, &bad);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    wc_expect_or(p.a.send_cq, 2, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR,
                 DIFF_BAD_LKEY_IS_LOC_QP_OP_ERR);
    MUST(pattern_is(p.b.buf, 30000, 2), "the first write arrived");
    pair_close(&p);
}

static void flush(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    for (unsigned i = 0; i < 5; i++) {
        recv_post(&p.a, i, 0, 8);
    }
    qp_move(p.a.qp, IBV_QPS_ERR);
    for (unsigned i = 0; i < 5; i++) {
        wc_expect(p.a.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
    }
    job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 10, &p.a, 0, &p.b, 0, 8));
    wc_expect(p.a.send_cq, 10, IBV_WC_WR_FLUSH_ERR);
    recv_post(&p.a, 11, 0, 8);
    struct ibv_wc wc = {.wr_id = 11, .status = IBV_WC_WR_FLUSH_ERR};
    MUST(wc_poll(p.a.recv_cq, &wc, 1000) || allowed(DIFF_RECEIVE_POSTED_IN_ERR_STAYS),
         "a receive posted in ERR is flushed");
    MUST(wc.wr_id == 11 && wc.status == IBV_WC_WR_FLUSH_ERR, "flushed");
    pair_close(&p);
}

const struct check local_checks[] = {
    {"local.bad_lkey", bad_lkey, 0},
    {"local.bad_lkey_of_a_read", bad_lkey_read, 0},
    {"local.past_the_end_of_a_region", past_the_end, 0},
    {"local.before_the_start_of_a_region", before_the_start, 0},
    {"local.region_of_another_domain", other_domain, 0},
    {"local.region_deregistered", deregistered, 0},
    {"local.read_into_a_read_only_region", read_into_read_only, 0},
    {"local.longer_than_max_msg_sz", too_long, 0},
    {"local.impossible_requests_are_refused", refused_at_once, 0},
    {"local.unsignaled_failure_is_reported", unsignaled_failure, 0},
    {"local.success_before_a_failure", success_before_failure, 0},
    {"local.flush_in_error_state", flush, 0},
    {0},
};
