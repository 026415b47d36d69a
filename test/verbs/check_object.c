// SPDX-License-Identifier: Apache-2.0
// Checks: life of protection domains, completion queues, memory regions and queue pairs.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LOCAL = IBV_ACCESS_LOCAL_WRITE, REMOTE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static void domain_busy(void)
{
    struct side s;
    side_open(&s, 0, NULL);
    struct ibv_pd *pd = ibv_alloc_pd(s.ctx);
    MUST(pd, "ibv_alloc_pd");
    struct ibv_mr *mr = ibv_reg_mr(pd, s.buf, 4096, LOCAL);
    MUST(mr, "ibv_reg_mr");
    MUST(ibv_dealloc_pd(pd) == EBUSY, "a domain with a region is busy");
    MUST(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    MUST(ibv_dealloc_pd(pd) == 0, "an empty domain goes");
    MUST(ibv_dealloc_pd(s.pd) == EBUSY, "a domain with a queue pair is busy");
    side_close(&s);
}

static void queue_busy(void)
{
    struct side s;
    side_open(&s, 0, NULL);
    MUST(ibv_destroy_cq(s.send_cq) == EBUSY, "a completion queue in use is busy");
    MUST(ibv_destroy_cq(s.recv_cq) == EBUSY, "a completion queue in use is busy");
    side_close(&s);
}

static void channel_busy(void)
{
    struct side s;
    side_open(&s, 0, &(struct setup){.channel = true});
    MUST(ibv_destroy_comp_channel(s.channel) == EBUSY, "a channel in use is busy");
    side_close(&s);
}

static void queue_size(void)
{
    struct ibv_context *ctx = device_open(0);
    struct ibv_device_attr attr;
    MUST(ibv_query_device(ctx, &attr) == 0, "ibv_query_device");
    MUST(!ibv_create_cq(ctx, attr.max_cqe + 1, NULL, NULL, 0), "more than max_cqe is refused");
    MUST(!ibv_create_cq(ctx, 0, NULL, NULL, 0), "a queue of nothing is refused");
    MUST(!ibv_create_cq(ctx, -1, NULL, NULL, 0), "a negative size is refused");
    struct ibv_cq *cq = ibv_create_cq(ctx, 77, &attr, NULL, 0);
    MUST(cq, "ibv_create_cq");
    MUST(cq->cqe >= 77, "at least what was asked for");
    MUST(cq->cq_context == &attr && cq->context == ctx && cq->channel == NULL, "its fields");
    MUST(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
    MUST(ibv_close_device(ctx) == 0, "ibv_close_device");
}

static void qp_limits(void)
{
    struct side s;
    side_open(&s, 0, &(struct setup){.send_wr = 33, .recv_wr = 17, .sge = 3, .inline_data = 60});
    MUST(s.cap.max_send_wr >= 33 && s.cap.max_recv_wr >= 17, "at least the queues asked for");
    MUST(s.cap.max_send_sge >= 3 && s.cap.max_recv_sge >= 3, "at least the entries asked for");
    MUST(s.cap.max_inline_data >= 60, "at least the inline bytes asked for");

    struct ibv_device_attr dev;
    MUST(ibv_query_device(s.ctx, &dev) == 0, "ibv_query_device");
    struct ibv_qp_init_attr good = {
        .send_cq = s.send_cq,
        .recv_cq = s.recv_cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp_init_attr attr = good;
    attr.cap.max_send_wr = (uint32_t)dev.max_qp_wr + 1;
    MUST(!ibv_create_qp(s.pd, &attr), "more than max_qp_wr sends are refused");
    attr = good;
    attr.cap.max_recv_wr = (uint32_t)dev.max_qp_wr + 1;
    MUST(!ibv_create_qp(s.pd, &attr), "more than max_qp_wr receives are refused");
    attr = good;
    attr.cap.max_send_sge = (uint32_t)dev.max_sge + 1;
    MUST(!ibv_create_qp(s.pd, &attr), "more than max_sge gather entries are refused");
    attr = good;
    attr.cap.max_recv_sge = (uint32_t)dev.max_sge + 1;
    MUST(!ibv_create_qp(s.pd, &attr), "more than max_sge scatter entries are refused");
    attr = good;
    attr.cap.max_inline_data = 1 << 20;
    MUST(!ibv_create_qp(s.pd, &attr), "inline of 1 MiB is refused");
    side_close(&s);
}

static void qp_numbers(void)
{
    enum { N = 32 };
    struct side s;
    struct ibv_qp *qp[N];
    side_open(&s, 0, NULL);
    for (int i = 0; i < N; i++) {
        qp[i] = side_create_qp(&s);
        MUST(qp[i]->qp_num > 1 && qp[i]->qp_num < 1 << 24, "a number of 24 bits, not 0 or 1");
        MUST(qp[i]->state == IBV_QPS_RESET && qp_state(qp[i]) == IBV_QPS_RESET,
             "it starts in RESET");
        for (int k = 0; k < i; k++) {
            MUST(qp[k]->qp_num != qp[i]->qp_num, "numbers are unique");
        }
    }
    for (int i = 0; i < N; i++) {
        MUST(ibv_destroy_qp(qp[i]) == 0, "ibv_destroy_qp");
    }
    side_close(&s);
}

static void region_fields(void)
{
    struct side s;
    side_open(&s, 0, NULL);
    struct ibv_mr *mr = ibv_reg_mr(s.pd, s.buf + 13, 1001, REMOTE);
    MUST(mr, "a region at an odd address");
    MUST(mr->addr == s.buf + 13 && mr->length == 1001 && mr->pd == s.pd, "its fields");
    MUST(mr->lkey != s.mr->lkey && mr->rkey != s.mr->rkey, "keys of its own");
    MUST(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    side_close(&s);
}

// Remote writes and atomics need the local right as well.
static void region_rights(void)
{
    struct side s;
    side_open(&s, 0, NULL);
    MUST(!ibv_reg_mr(s.pd, s.buf, 4096, IBV_ACCESS_REMOTE_WRITE), "remote without local write");
    MUST(!ibv_reg_mr(s.pd, s.buf, 4096, IBV_ACCESS_REMOTE_ATOMIC), "atomics without local write");
    struct ibv_mr *mr = ibv_reg_mr(s.pd, s.buf, 4096, IBV_ACCESS_REMOTE_READ);
    MUST(mr, "read-only regions are allowed");
    MUST(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    side_close(&s);
}

static void region_unmapped(void)
{
    struct side s;
    side_open(&s, 0, NULL);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED && munmap(p + page, page) == 0, "a hole in the address space");
    errno = 0;
    MUST(!ibv_reg_mr(s.pd, p, 4 * page, LOCAL), "memory with a hole is refused");
    MUST(errno == EFAULT, "as a bad address");
    MUST(munmap(p, 4 * page) == 0, "munmap");
    side_close(&s);
}

static void region_relaxed(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                               IBV_ACCESS_RELAXED_ORDERING});
    pair_works(&p);
    pair_close(&p);
}

// NCCL's and our own probe for dma-buf support: EBADF means yes, EOPNOTSUPP means no.
static void dmabuf_probe(void)
{
    struct side s;
    side_open(&s, 0, NULL);
    errno = 0;
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(s.pd, 0, 0, 0, -1, 0);
    MUST(!mr, "a region from no file is refused");
    MUST(errno == EBADF || errno == EOPNOTSUPP || errno == EPROTONOSUPPORT, "with a fitting error");
    side_close(&s);
}

static void region_reregistered(void)
{
    struct pair p;
    pair_open(&p, NULL);
    uint32_t old = p.b.mr->rkey;
    for (int i = 0; i < 20; i++) {
        MUST(ibv_dereg_mr(p.b.mr) == 0, "ibv_dereg_mr");
        p.b.mr = ibv_reg_mr(p.b.pd, p.b.buf, p.b.setup.size, REMOTE);
        MUST(p.b.mr, "ibv_reg_mr again");
        MUST(p.b.mr->rkey != old, "a new key is not the last one");
        old = p.b.mr->rkey;
        pair_works(&p);
    }
    pair_close(&p);
}

static void regions_overlap(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    struct ibv_mr *inner = ibv_reg_mr(p.b.pd, p.b.buf + 4096, 4096, REMOTE);
    MUST(inner, "a second region over the same bytes");
    pattern_fill(p.a.buf, 4096, 3);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 4096, 4096);
    j.wr.wr.rdma.rkey = inner->rkey;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    MUST(pattern_is(p.b.buf + 4096, 4096, 3), "written through the inner region");
    MUST(ibv_dereg_mr(inner) == 0, "ibv_dereg_mr");
    pair_works(&p);
    pair_close(&p);
}

static void open_often(void)
{
    for (int i = 0; i < 30; i++) {
        struct pair p;
        pair_open(&p, &(struct setup){.size = 8192});
        pair_works(&p);
        pair_close(&p);
    }
}

const struct check object_checks[] = {
    {"object.domain_in_use_is_busy", domain_busy, 0},
    {"object.completion_queue_in_use_is_busy", queue_busy, 0},
    {"object.channel_in_use_is_busy", channel_busy, 0},
    {"object.completion_queue_size", queue_size, 0},
    {"object.queue_pair_limits", qp_limits, 0},
    {"object.queue_pair_numbers", qp_numbers, 0},
    {"object.region_fields", region_fields, 0},
    {"object.region_rights", region_rights, 0},
    {"object.region_over_unmapped_memory_is_refused", region_unmapped, 0},
    {"object.region_with_relaxed_ordering", region_relaxed, 0},
    {"object.dmabuf_probe", dmabuf_probe, 0},
    {"object.region_registered_again", region_reregistered, 0},
    {"object.regions_overlap", regions_overlap, 0},
    {"object.opened_and_closed_often", open_often, 0},
    {0},
};
