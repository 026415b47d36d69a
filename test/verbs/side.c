// SPDX-License-Identifier: Apache-2.0
// Two connected sides, and the small steps that every check is made of.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC,
    REMOTE_ACCESS = ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE,
    RD_ATOMIC = 4,
    PSN_A = 0x123456, // far from 0, near nothing
    POLL_SPINS = 200,
};

double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); // cannot fail on Linux
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    (void)nanosleep(&t, NULL); // a shorter nap does no harm
}

struct ibv_context *device_open(int which)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    MUST(list && count > 0, "a device list");
    struct ibv_device *found = NULL;
    const char *name = options.device[which];
    for (int i = 0; i < count && name; i++) {
        if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
            found = list[i];
        }
    }
    if (!name) {
        found = list[count > 1 ? which : 0];
    }
    MUST(found, "device %s exists", name);
    struct ibv_context *ctx = ibv_open_device(found);
    MUST(ctx, "ibv_open_device");
    ibv_free_device_list(list);
    return ctx;
}

static int choose_gid(struct ibv_context *ctx, int entries)
{
    static const uint8_t ipv4[12] = {[10] = 0xff, [11] = 0xff};
    if (options.gid_index >= 0) {
        return options.gid_index;
    }
    for (int i = 0; i < entries; i++) {
        union ibv_gid gid;
        if (ibv_query_gid(ctx, (uint8_t)options.port, i, &gid) == 0 &&
            memcmp(gid.raw, ipv4, sizeof(ipv4)) == 0) {
            return i;
        }
    }
    return 0;
}

static void fill_defaults(struct setup *s)
{
    s->size = s->size ? s->size : 1 << 20;
    s->mr_access = s->mr_access ? s->mr_access : ALL_ACCESS;
    s->qp_access = s->qp_access ? s->qp_access : REMOTE_ACCESS;
    s->send_wr = s->send_wr ? s->send_wr : 128;
    s->recv_wr = s->recv_wr ? s->recv_wr : 128;
    s->sge = s->sge ? s->sge : 4;
    s->cqe = s->cqe ? s->cqe : 512;
    s->timeout = s->timeout ? s->timeout : 14;
    s->retry_cnt = s->no_retry ? 0 : s->retry_cnt ? s->retry_cnt : 6;
    s->rnr_retry = s->no_rnr_retry ? 0 : s->rnr_retry ? s->rnr_retry : 6;
    s->rnr_timer = s->rnr_timer ? s->rnr_timer : 1;
}

struct ibv_qp *side_create_qp(struct side *s)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = s->send_cq,
        .recv_cq = s->recv_cq,
        .srq = s->srq,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = s->setup.sig_all,
        .cap = {.max_send_wr = s->setup.send_wr,
                .max_recv_wr = s->srq ? 0 : s->setup.recv_wr,
                .max_send_sge = s->setup.sge,
                .max_recv_sge = s->srq ? 0 : s->setup.sge,
                .max_inline_data = s->setup.inline_data},
    };
    struct ibv_qp *qp = ibv_create_qp(s->pd, &attr);
    MUST(qp, "ibv_create_qp");
    s->cap = attr.cap;
    return qp;
}

void side_open(struct side *s, int device, const struct setup *setup)
{
    memset(s, 0, sizeof(*s));
    s->setup = setup ? *setup : (struct setup){0};
    fill_defaults(&s->setup);
    s->ctx = device_open(device);
    MUST(ibv_query_port(s->ctx, (uint8_t)options.port, &s->port) == 0, "ibv_query_port");
    s->gid_index = choose_gid(s->ctx, s->port.gid_tbl_len);
    MUST(ibv_query_gid(s->ctx, (uint8_t)options.port, s->gid_index, &s->gid) == 0, "ibv_query_gid");
    s->pd = ibv_alloc_pd(s->ctx);
    MUST(s->pd, "ibv_alloc_pd");
    if (s->setup.channel) {
        s->channel = ibv_create_comp_channel(s->ctx);
        MUST(s->channel, "ibv_create_comp_channel");
    }
    s->send_cq = ibv_create_cq(s->ctx, s->setup.cqe, s, s->channel, 0);
    s->recv_cq = ibv_create_cq(s->ctx, s->setup.cqe, s, s->channel, 0);
    MUST(s->send_cq && s->recv_cq, "ibv_create_cq");
    if (s->setup.srq) {
        struct ibv_srq_init_attr attr = {.attr = {.max_wr = s->setup.recv_wr, .max_sge = 1}};
        s->srq = ibv_create_srq(s->pd, &attr);
        MUST(s->srq, "ibv_create_srq");
    }
    s->buf = aligned_alloc(4096, (s->setup.size + 4095) / 4096 * 4096);
    MUST(s->buf, "memory");
    memset(s->buf, 0, s->setup.size);
    s->mr = ibv_reg_mr(s->pd, s->buf, s->setup.size, s->setup.mr_access);
    MUST(s->mr, "ibv_reg_mr");
    s->qp = side_create_qp(s);
}

void side_close(struct side *s)
{
    MUST(ibv_destroy_qp(s->qp) == 0, "ibv_destroy_qp");
    MUST(ibv_dereg_mr(s->mr) == 0, "ibv_dereg_mr");
    MUST(!s->srq || ibv_destroy_srq(s->srq) == 0, "ibv_destroy_srq");
    MUST(ibv_destroy_cq(s->send_cq) == 0, "ibv_destroy_cq");
    MUST(ibv_destroy_cq(s->recv_cq) == 0, "ibv_destroy_cq");
    MUST(!s->channel || ibv_destroy_comp_channel(s->channel) == 0, "ibv_destroy_comp_channel");
    MUST(ibv_dealloc_pd(s->pd) == 0, "ibv_dealloc_pd");
    MUST(ibv_close_device(s->ctx) == 0, "ibv_close_device");
    free(s->buf);
}

struct address side_address(const struct side *s)
{
    return (struct address){.gid = s->gid,
                            .qp_num = s->qp->qp_num,
                            .rkey = s->mr->rkey,
                            .addr = (uintptr_t)s->buf,
                            .lid = s->port.lid};
}

void pair_open(struct pair *p, const struct setup *setup)
{
    side_open(&p->a, 0, setup);
    side_open(&p->b, setup && setup->same_device ? 0 : 1, setup);
    struct address a = side_address(&p->a), b = side_address(&p->b);
    qp_connect(&p->a, p->a.qp, &b);
    qp_connect(&p->b, p->b.qp, &a);
}

void pair_close(struct pair *p)
{
    side_close(&p->a);
    side_close(&p->b);
}

int init_attr(const struct side *s, struct ibv_qp_attr *attr)
{
    *attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
                                 .port_num = (uint8_t)options.port,
                                 .qp_access_flags = (unsigned)s->setup.qp_access};
    return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

int rtr_attr(const struct side *s, const struct address *to, struct ibv_qp_attr *attr)
{
    *attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                 .path_mtu = s->port.active_mtu,
                                 .dest_qp_num = to->qp_num,
                                 .rq_psn = PSN_A,
                                 .max_dest_rd_atomic = RD_ATOMIC,
                                 .min_rnr_timer = s->setup.rnr_timer,
                                 .ah_attr = {.dlid = to->lid, .port_num = (uint8_t)options.port}};
    if (s->port.link_layer == IBV_LINK_LAYER_ETHERNET || options.gid_index >= 0) {
        attr->ah_attr.is_global = 1;
        attr->ah_attr.grh.dgid = to->gid;
        attr->ah_attr.grh.sgid_index = (uint8_t)s->gid_index;
        attr->ah_attr.grh.hop_limit = 64;
    }
    return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

int rts_attr(const struct side *s, struct ibv_qp_attr *attr)
{
    *attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                 .sq_psn = PSN_A,
                                 .timeout = s->setup.timeout,
                                 .retry_cnt = s->setup.retry_cnt,
                                 .rnr_retry = s->setup.rnr_retry,
                                 .max_rd_atomic = RD_ATOMIC};
    return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
           IBV_QP_MAX_QP_RD_ATOMIC;
}

void qp_init(const struct side *s, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    int mask = init_attr(s, &attr);
    MUST(ibv_modify_qp(qp, &attr, mask) == 0, "RESET to INIT");
}

void qp_rtr(const struct side *s, struct ibv_qp *qp, const struct address *to)
{
    struct ibv_qp_attr attr;
    int mask = rtr_attr(s, to, &attr);
    MUST(ibv_modify_qp(qp, &attr, mask) == 0, "INIT to RTR");
}

void qp_rts(const struct side *s, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    int mask = rts_attr(s, &attr);
    MUST(ibv_modify_qp(qp, &attr, mask) == 0, "RTR to RTS");
}

void qp_connect(const struct side *s, struct ibv_qp *qp, const struct address *to)
{
    qp_init(s, qp);
    qp_rtr(s, qp, to);
    qp_rts(s, qp);
}

void qp_move(struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to state %d", state);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    MUST(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
    return attr.qp_state;
}

struct job *job_fill(struct job *j, enum ibv_wr_opcode opcode, uint64_t id, const struct side *s,
                     size_t from, const struct side *t, size_t to, size_t length)
{
    *j = (struct job){
        .wr = {.wr_id = id, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1},
        .sge = {.addr = (uintptr_t)s->buf + from, .length = (uint32_t)length, .lkey = s->mr->lkey},
    };
    j->wr.sg_list = &j->sge;
    if (!t) {
        return j; // a message, or the caller fills in a remote address of another process
    }
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        j->wr.wr.atomic.remote_addr = (uintptr_t)t->buf + to;
        j->wr.wr.atomic.rkey = t->mr->rkey;
    } else {
        j->wr.wr.rdma.remote_addr = (uintptr_t)t->buf + to;
        j->wr.wr.rdma.rkey = t->mr->rkey;
    }
    return j;
}

int job_try(struct ibv_qp *qp, struct job *j)
{
    struct ibv_send_wr *bad = NULL;
    return ibv_post_send(qp, &j->wr, &bad);
}

void job_post(struct ibv_qp *qp, struct job *j)
{
    errno = job_try(qp, j);
    MUST(errno == 0, "ibv_post_send");
}

void recv_post(struct side *s, uint64_t id, size_t at, size_t length)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)s->buf + at, .length = (uint32_t)length, .lkey = s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    errno = s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
    MUST(errno == 0, "ibv_post_recv");
}

int wc_poll(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
    double end = now() + ms / 1e3;
    for (unsigned turn = 0;; turn++) {
        int n = ibv_poll_cq(cq, 1, wc);
        MUST(n >= 0, "ibv_poll_cq gives no error");
        if (n > 0) {
            return 1;
        }
        if (now() > end) {
            return 0;
        }
        if (turn < POLL_SPINS) {
            (void)sched_yield();
        } else {
            nap(50e-6);
        }
    }
}

struct ibv_wc wc_expect_or(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status,
                           enum ibv_wc_status other, enum difference difference)
{
    struct ibv_wc wc = {0};
    MUST(wc_poll(cq, &wc, WAIT_MS), "a completion of request %llu", (unsigned long long)id);
    MUST(wc.wr_id == id, "request %llu completes next, not %llu (%s)", (unsigned long long)id,
         (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
    MUST(wc.status == status || (wc.status == other && allowed(difference)),
         "request %llu ends as '%s', not '%s'", (unsigned long long)id, ibv_wc_status_str(status),
         ibv_wc_status_str(wc.status));
    return wc;
}

struct ibv_wc wc_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
    return wc_expect_or(cq, id, status, status, DIFFERENCES);
}

void wc_none(struct ibv_cq *cq, int ms)
{
    struct ibv_wc wc = {0};
    MUST(!wc_poll(cq, &wc, ms), "no completion, not one of request %llu (%s)",
         (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}

void pair_works(struct pair *p)
{
    struct job j;
    pattern_fill(p->a.buf, 100, 99);
    memset(p->b.buf, 0, 100);
    job_post(p->a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 990, &p->a, 0, &p->b, 0, 100));
    wc_expect(p->a.send_cq, 990, IBV_WC_SUCCESS);
    MUST(pattern_is(p->b.buf, 100, 99), "the written bytes");
}

// A byte's value depends on its place and the seed, so that a shifted copy is noticed.
static uint8_t pattern_byte(size_t i, uint32_t seed)
{
    uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint8_t)(x >> 56);
}

void pattern_fill(uint8_t *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = pattern_byte(i, seed);
    }
}

bool pattern_is(const uint8_t *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != pattern_byte(i, seed)) {
            return false;
        }
    }
    return true;
}

bool bytes_are(const uint8_t *p, size_t n, uint8_t value)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != value) {
            return false;
        }
    }
    return true;
}

uint64_t word_acquire(const void *p)
{
    return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}
