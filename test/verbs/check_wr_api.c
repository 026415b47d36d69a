// SPDX-License-Identifier: Apache-2.0
// Checks: the builder interface ibv_wr_*, which perftest uses by default.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <string.h>

enum {
    OPERATIONS = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                 IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
};

// A pair whose first side posts through the builder.
static struct ibv_qp_ex *builder_open(struct pair *p)
{
    side_open(&p->a, 0, NULL);
    side_open(&p->b, 1, NULL);
    MUST(ibv_destroy_qp(p->a.qp) == 0, "ibv_destroy_qp");
    struct ibv_qp_init_attr_ex attr = {
        .qp_context = p,
        .send_cq = p->a.send_cq,
        .recv_cq = p->a.recv_cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 32,
                .max_recv_wr = 32,
                .max_send_sge = 3,
                .max_recv_sge = 3,
                .max_inline_data = 32},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = p->a.pd,
        .send_ops_flags = OPERATIONS,
    };
    p->a.qp = ibv_create_qp_ex(p->a.ctx, &attr);
    MUST(p->a.qp, "ibv_create_qp_ex");
    p->a.cap = attr.cap;
    struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(p->a.qp);
    MUST(qpx, "ibv_qp_to_qp_ex");
    struct address a = side_address(&p->a), b = side_address(&p->b);
    qp_connect(&p->a, p->a.qp, &b);
    qp_connect(&p->b, p->b.qp, &a);
    return qpx;
}

static void begin(struct ibv_qp_ex *qpx, uint64_t id, unsigned flags)
{
    qpx->wr_id = id;
    qpx->wr_flags = flags;
}

static void every_operation(void)
{
    struct pair p;
    struct ibv_qp_ex *q = builder_open(&p);
    uint32_t lkey = p.a.mr->lkey, rkey = p.b.mr->rkey;
    uint64_t at = (uintptr_t)p.b.buf;
    uint8_t *buf = p.a.buf;
    pattern_fill(buf, 10000, 1);
    pattern_fill(p.b.buf + 500000, 10000, 2);
    recv_post(&p.b, 50, 200000, 10000);
    recv_post(&p.b, 51, 300000, 10000);
    recv_post(&p.b, 52, 400000, 10000);

    ibv_wr_start(q);
    begin(q, 1, IBV_SEND_SIGNALED);
    ibv_wr_rdma_write(q, rkey, at);
    ibv_wr_set_sge(q, lkey, (uintptr_t)buf, 10000);
    begin(q, 2, IBV_SEND_SIGNALED);
    ibv_wr_rdma_write_imm(q, rkey, at + 100000, 0x55);
    ibv_wr_set_sge(q, lkey, (uintptr_t)buf, 10000);
    begin(q, 3, IBV_SEND_SIGNALED);
    ibv_wr_send(q);
    ibv_wr_set_sge(q, lkey, (uintptr_t)buf, 10000);
    begin(q, 4, IBV_SEND_SIGNALED);
    ibv_wr_send_imm(q, 0x66);
    ibv_wr_set_sge(q, lkey, (uintptr_t)buf, 5000);
    begin(q, 5, IBV_SEND_SIGNALED);
    ibv_wr_rdma_read(q, rkey, at + 500000);
    ibv_wr_set_sge(q, lkey, (uintptr_t)buf + 100000, 10000);
    begin(q, 6, IBV_SEND_SIGNALED);
    ibv_wr_atomic_fetch_add(q, rkey, at + 600000, 7);
    ibv_wr_set_sge(q, lkey, (uintptr_t)buf + 200000, 8);
    begin(q, 7, IBV_SEND_SIGNALED);
    ibv_wr_atomic_cmp_swp(q, rkey, at + 600000, 7, 9);
    ibv_wr_set_sge(q, lkey, (uintptr_t)buf + 200008, 8);
    MUST(ibv_wr_complete(q) == 0, "ibv_wr_complete");
    for (uint64_t id = 1; id <= 7; id++) {
        wc_expect(p.a.send_cq, id, IBV_WC_SUCCESS);
    }
    MUST(wc_expect(p.b.recv_cq, 50, IBV_WC_SUCCESS).imm_data == 0x55,
         "immediate data of the write");
    MUST(wc_expect(p.b.recv_cq, 51, IBV_WC_SUCCESS).byte_len == 10000, "the message");
    MUST(wc_expect(p.b.recv_cq, 52, IBV_WC_SUCCESS).imm_data == 0x66, "immediate data");
    MUST(pattern_is(p.b.buf, 10000, 1) && pattern_is(p.b.buf + 100000, 10000, 1), "the writes");
    MUST(pattern_is(p.b.buf + 300000, 10000, 1) && pattern_is(p.b.buf + 400000, 5000, 1), "sends");
    MUST(pattern_is(buf + 100000, 10000, 2), "the read");
    MUST(word_acquire(buf + 200000) == 0 && word_acquire(buf + 200008) == 7, "old values");
    MUST(word_acquire(p.b.buf + 600000) == 9, "added, then swapped");
    pair_close(&p);
}

static void lists(void)
{
    struct pair p;
    struct ibv_qp_ex *q = builder_open(&p);
    uint8_t bytes[32];
    pattern_fill(p.a.buf, 600, 1);
    pattern_fill(bytes, sizeof(bytes), 2);
    struct ibv_sge sge[3];
    for (unsigned i = 0; i < 3; i++) {
        sge[i] = (struct ibv_sge){
            .addr = (uintptr_t)p.a.buf + i * 200, .length = 200, .lkey = p.a.mr->lkey};
    }
    struct ibv_data_buf buf[2] = {{.addr = bytes, .length = 10},
                                  {.addr = bytes + 10, .length = 22}};
    ibv_wr_start(q);
    begin(q, 1, 0);
    ibv_wr_rdma_write(q, p.b.mr->rkey, (uintptr_t)p.b.buf);
    ibv_wr_set_sge_list(q, 3, sge);
    begin(q, 2, IBV_SEND_INLINE);
    ibv_wr_rdma_write(q, p.b.mr->rkey, (uintptr_t)p.b.buf + 1000);
    ibv_wr_set_inline_data(q, bytes, sizeof(bytes));
    begin(q, 3, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    ibv_wr_rdma_write(q, p.b.mr->rkey, (uintptr_t)p.b.buf + 2000);
    ibv_wr_set_inline_data_list(q, 2, buf);
    MUST(ibv_wr_complete(q) == 0, "ibv_wr_complete");
    memset(bytes, 0, sizeof(bytes));
    wc_expect(p.a.send_cq, 3, IBV_WC_SUCCESS);
    wc_none(p.a.send_cq, 20);
    MUST(pattern_is(p.b.buf, 600, 1), "three gather entries");
    MUST(pattern_is(p.b.buf + 1000, 32, 2), "inline");
    MUST(pattern_is(p.b.buf + 2000, 32, 2) || allowed(DIFF_INLINE_LIST_IS_LOST),
         "inline from two buffers");
    pair_close(&p);
}

static void aborted(void)
{
    struct pair p;
    struct ibv_qp_ex *q = builder_open(&p);
    memset(p.a.buf, 1, 8);
    ibv_wr_start(q);
    begin(q, 1, IBV_SEND_SIGNALED);
    ibv_wr_rdma_write(q, p.b.mr->rkey, (uintptr_t)p.b.buf);
    ibv_wr_set_sge(q, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
    ibv_wr_abort(q);
    wc_none(p.a.send_cq, 50);
    MUST(bytes_are(p.b.buf, 8, 0), "nothing of an aborted list is carried out");
    pair_works(&p);
    pair_close(&p);
}

// A full queue shows at the end of the list, and none of the list is carried out.
static void too_many(void)
{
    struct pair p;
    struct ibv_qp_ex *q = builder_open(&p);
    memset(p.a.buf, 1, 8);
    ibv_wr_start(q);
    for (unsigned i = 0; i < 5000; i++) {
        begin(q, i, IBV_SEND_SIGNALED);
        ibv_wr_rdma_write(q, p.b.mr->rkey, (uintptr_t)p.b.buf);
        ibv_wr_set_sge(q, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
    }
    MUST(ibv_wr_complete(q) != 0, "an error");
    wc_none(p.a.send_cq, 50);
    MUST(bytes_are(p.b.buf, 8, 0), "nothing was carried out");
    pair_works(&p);
    pair_close(&p);
}

const struct check wr_api_checks[] = {
    {"wr_api.every_operation", every_operation, 0},
    {"wr_api.lists", lists, 0},
    {"wr_api.aborted_list", aborted, 0},
    {"wr_api.list_longer_than_the_queue", too_many, 0},
    {0},
};
