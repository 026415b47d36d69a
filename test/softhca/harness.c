// SPDX-License-Identifier: Apache-2.0
// What the softhca tests share.
#include "test/softhca/harness.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char fabric[64];

void harness_setup(void)
{
    struct stat st;
    strcpy(fabric, stat("/dev/shm", &st) == 0 ? "/dev/shm/softhca-test.XXXXXX"
                                              : "/tmp/softhca-test.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fabric));
    ck_assert_int_eq(setenv("SOFTHCA_FABRIC", fabric, 1), 0);
    ck_assert_int_eq(setenv("SOFTHCA_NODE", "near", 1), 0);
}

void harness_teardown(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", fabric);
    (void)!system(command); // a leftover folder is no failure
}

uint64_t harness_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void harness_sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t)) {
    }
}

struct ibv_context *harness_open(void)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    ck_assert_ptr_nonnull(list);
    ck_assert_int_ge(n, 1);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    ck_assert_ptr_nonnull(ctx);
    ibv_free_device_list(list);
    return ctx;
}

void harness_side_open(struct side *s, struct ibv_context *ctx, const struct side_options *o)
{
    static const struct side_options none;
    static uint32_t psn = 0xfffff0; // wraps early
    o = o ? o : &none;
    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->psn = (psn += 5) & 0xffffff;
    s->bytes = o->bytes ? o->bytes : 65536;
    s->buf = aligned_alloc(4096, (s->bytes + 4095) & ~(size_t)4095);
    ck_assert_ptr_nonnull(s->buf);
    memset(s->buf, 0, s->bytes);
    s->pd = ibv_alloc_pd(ctx);
    ck_assert_ptr_nonnull(s->pd);
    s->mr = ibv_reg_mr(s->pd, s->buf, s->bytes, o->access ? o->access : ALL_ACCESS);
    ck_assert_ptr_nonnull(s->mr);
    s->cq = ibv_create_cq(ctx, o->cqe ? (int)o->cqe : 256, NULL, NULL, 0);
    ck_assert_ptr_nonnull(s->cq);
    struct ibv_qp_init_attr a = {.send_cq = s->cq,
                                 .recv_cq = s->cq,
                                 .cap = {.max_send_wr = o->send_wr ? o->send_wr : 64,
                                         .max_recv_wr = o->recv_wr ? o->recv_wr : 64,
                                         .max_send_sge = o->send_sge ? o->send_sge : 4,
                                         .max_recv_sge = 4,
                                         .max_inline_data = o->inline_data ? o->inline_data : 64},
                                 .qp_type = IBV_QPT_RC,
                                 .sq_sig_all = o->sig_all};
    s->qp = ibv_create_qp(s->pd, &a);
    ck_assert_ptr_nonnull(s->qp);
}

void harness_side_close(struct side *s)
{
    ck_assert_int_eq(ibv_destroy_qp(s->qp), 0);
    ck_assert_int_eq(ibv_destroy_cq(s->cq), 0);
    ck_assert_int_eq(ibv_dereg_mr(s->mr), 0);
    ck_assert_int_eq(ibv_dealloc_pd(s->pd), 0);
    free(s->buf);
}

struct address harness_address(const struct side *s)
{
    struct ibv_port_attr port;
    struct address a = {
        .qpn = s->qp->qp_num, .psn = s->psn, .rkey = s->mr->rkey, .addr = (uintptr_t)s->buf};
    ck_assert_int_eq(ibv_query_port(s->ctx, 1, &port), 0);
    a.lid = port.lid;
    ck_assert_int_eq(ibv_query_gid(s->ctx, 1, 0, &a.gid), 0);
    return a;
}

static uint8_t or_default(uint8_t v, uint8_t def)
{
    return v == 255 ? 0 : v ? v : def;
}

void harness_connect(struct side *s, const struct address *to, const struct link_options *o)
{
    static const struct link_options none;
    o = o ? o : &none;
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    a.qp_access_flags = o->qp_access == -1 ? 0u : (unsigned)(o->qp_access ? o->qp_access : 0xe);
    ck_assert_int_eq(
        ibv_modify_qp(s->qp, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = to->qpn;
    a.rq_psn = to->psn;
    a.max_dest_rd_atomic = or_default(o->rd_atomic, 4);
    a.min_rnr_timer = o->min_rnr_timer ? o->min_rnr_timer : 1;
    a.ah_attr.dlid = (uint16_t)to->lid;
    a.ah_attr.port_num = 1;
    if (!to->lid) {
        a.ah_attr.is_global = 1;
        a.ah_attr.grh.dgid = to->gid;
    }
    ck_assert_int_eq(ibv_modify_qp(s->qp, &a,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER),
                     0);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = or_default(o->timeout, 14);
    a.retry_cnt = or_default(o->retry_cnt, 7);
    a.rnr_retry = or_default(o->rnr_retry, 7);
    a.sq_psn = s->psn;
    a.max_rd_atomic = or_default(o->rd_atomic, 4);
    ck_assert_int_eq(ibv_modify_qp(s->qp, &a,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

void harness_loop_open(struct side *a, struct side *b, const struct side_options *o,
                       const struct link_options *l)
{
    struct ibv_context *ctx = harness_open();
    harness_side_open(a, ctx, o);
    harness_side_open(b, ctx, o);
    struct address to_a = harness_address(a), to_b = harness_address(b);
    harness_connect(a, &to_b, l);
    harness_connect(b, &to_a, l);
}

struct ibv_wc harness_wait(struct side *s, int ms)
{
    struct ibv_wc wc;
    uint64_t end = harness_ms() + (uint64_t)ms;
    int n;
    while ((n = ibv_poll_cq(s->cq, 1, &wc)) == 0) {
        if (harness_ms() > end) {
            ck_abort_msg("no completion within %d ms", ms);
        }
        (void)sched_yield();
    }
    ck_assert_int_eq(n, 1);
    return wc;
}

struct ibv_wc harness_expect(struct side *s, enum ibv_wc_status status, uint64_t wr_id)
{
    struct ibv_wc wc = harness_wait(s, DEADLINE_MS);
    ck_assert_msg(wc.status == status, "status %s instead of %s", ibv_wc_status_str(wc.status),
                  ibv_wc_status_str(status));
    ck_assert_uint_eq(wc.wr_id, wr_id);
    ck_assert_uint_eq(wc.qp_num, s->qp->qp_num);
    return wc;
}

int harness_post_send(struct side *s, enum ibv_wr_opcode op, uint64_t wr_id, size_t offset,
                      uint32_t length, const struct address *to, size_t to_offset)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)s->buf + offset, .length = length, .lkey = s->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = length ? 1 : 0,
                             .opcode = op,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad = NULL;
    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = to->addr + to_offset;
        wr.wr.atomic.rkey = to->rkey;
        wr.wr.atomic.compare_add = 1;
    } else if (to) {
        wr.wr.rdma.remote_addr = to->addr + to_offset;
        wr.wr.rdma.rkey = to->rkey;
        wr.imm_data = (uint32_t)wr_id;
    }
    int err = ibv_post_send(s->qp, &wr, &bad);
    ck_assert(!err == !bad);
    return err;
}

int harness_post_recv(struct side *s, uint64_t wr_id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)s->buf + offset, .length = length, .lkey = s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = length ? 1 : 0};
    struct ibv_recv_wr *bad = NULL;
    int err = ibv_post_recv(s->qp, &wr, &bad);
    ck_assert(!err == !bad);
    return err;
}

struct peer harness_peer_start(const char *node, void (*body)(int sock))
{
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    struct peer p = {.pid = fork(), .sock = pair[0]};
    ck_assert_int_ge(p.pid, 0);
    if (p.pid == 0) {
        (void)close(pair[0]);
        (void)setenv("SOFTHCA_NODE", node, 1);
        body(pair[1]);
        _exit(0);
    }
    (void)close(pair[1]);
    return p;
}

int harness_peer_wait(struct peer *p)
{
    int status = 0;
    uint64_t end = harness_ms() + DEADLINE_MS;
    (void)close(p->sock);
    while (waitpid(p->pid, &status, WNOHANG) == 0) {
        if (harness_ms() > end) {
            (void)kill(p->pid, SIGKILL);
            (void)waitpid(p->pid, &status, 0);
            ck_abort_msg("the peer did not end");
        }
        harness_sleep_ms(1);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void harness_say(int sock, const void *data, size_t size)
{
    ck_assert_int_eq((int)write(sock, data, size), (int)size);
}

void harness_hear(int sock, void *data, size_t size)
{
    for (size_t got = 0; got < size;) {
        struct pollfd p = {.fd = sock, .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, DEADLINE_MS), 1);
        ssize_t n = read(sock, (char *)data + got, size - got);
        ck_assert_int_gt((int)n, 0);
        got += (size_t)n;
    }
}

struct address harness_meet(struct side *s, int sock, const struct link_options *o)
{
    struct address mine = harness_address(s), theirs;
    harness_say(sock, &mine, sizeof mine);
    harness_hear(sock, &theirs, sizeof theirs);
    harness_connect(s, &theirs, o);
    char ready = 1;
    harness_say(sock, &ready, 1);
    harness_hear(sock, &ready, 1);
    return theirs;
}

void harness_ctl(const char *arguments)
{
    char command[512];
    const char *ctl = getenv("SOFTHCA_CTL");
    ck_assert_ptr_nonnull(ctl);
    (void)snprintf(command, sizeof command, "'%s' %s", ctl, arguments);
    ck_assert_int_eq(system(command), 0);
}

int harness_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
