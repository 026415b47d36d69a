// SPDX-License-Identifier: Apache-2.0
// Queue depths, list lengths, inline sizes, locked memory: enforced as a NIC and the kernel do.
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "test/softhca/harness.h"
#include "tools/softhca/softhca.h"

static struct side a, b;
static struct address to_b;

static void open_loop(const struct side_options *o)
{
    harness_loop_open(&a, &b, o, NULL);
    to_b = harness_address(&b);
}

static void close_loop(void)
{
    struct ibv_context *ctx = a.ctx;
    harness_side_close(&a);
    harness_side_close(&b);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}

START_TEST(full_send_queue_is_enomem_until_a_completion_is_polled)
{
    struct side_options o = {.send_wr = 3};
    open_loop(&o);
    for (uint64_t i = 0; i < 3; i++) {
        ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, i, 0, 8, &to_b, 0), 0);
    }
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 3, 0, 8, &to_b, 0), ENOMEM);
    harness_sleep_ms(50); // executed, but nobody has polled
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 3, 0, 8, &to_b, 0), ENOMEM);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 3, 0, 8, &to_b, 0), 0);
    for (uint64_t i = 1; i < 4; i++) {
        (void)harness_expect(&a, IBV_WC_SUCCESS, i);
    }
    close_loop();
}
END_TEST

START_TEST(unsignalled_sends_come_back_with_the_next_signalled_one)
{
    struct side_options o = {.send_wr = 4};
    open_loop(&o);
    struct ibv_sge sge = {.addr = (uintptr_t)a.buf, .length = 8, .lkey = a.mr->lkey};
    struct ibv_send_wr wr[5], *bad = NULL;
    for (int i = 0; i < 5; i++) {
        wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i,
                                     .next = i < 4 ? &wr[i + 1] : NULL,
                                     .sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_RDMA_WRITE,
                                     .send_flags = i == 3 ? IBV_SEND_SIGNALED : 0u};
        wr[i].wr.rdma.remote_addr = to_b.addr;
        wr[i].wr.rdma.rkey = to_b.rkey;
    }
    ck_assert_int_eq(ibv_post_send(a.qp, wr, &bad), ENOMEM);
    ck_assert_ptr_eq(bad, &wr[4]); // the four before it were taken
    (void)harness_expect(&a, IBV_WC_SUCCESS, 3);
    wr[3].next = NULL;
    ck_assert_int_eq(ibv_post_send(a.qp, wr, &bad), 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 3);
    close_loop();
}
END_TEST

START_TEST(full_receive_queue_is_enomem)
{
    struct side_options o = {.recv_wr = 2};
    open_loop(&o);
    ck_assert_int_eq(harness_post_recv(&b, 0, 0, 8), 0);
    ck_assert_int_eq(harness_post_recv(&b, 1, 0, 8), 0);
    ck_assert_int_eq(harness_post_recv(&b, 2, 0, 8), ENOMEM);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_SEND, 5, 0, 8, NULL, 0), 0);
    (void)harness_expect(&b, IBV_WC_SUCCESS, 0);
    ck_assert_int_eq(harness_post_recv(&b, 2, 0, 8), 0);
    close_loop();
}
END_TEST

START_TEST(long_lists_and_long_inline_data_are_einval)
{
    struct side_options o = {.send_sge = 2, .inline_data = 32};
    open_loop(&o);
    struct ibv_sge list[3];
    for (int i = 0; i < 3; i++) {
        list[i] = (struct ibv_sge){
            .addr = (uintptr_t)a.buf + 16u * (unsigned)i, .length = 16, .lkey = a.mr->lkey};
    }
    struct ibv_send_wr wr = {.sg_list = list,
                             .num_sge = 3,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    wr.wr.rdma.remote_addr = to_b.addr;
    wr.wr.rdma.rkey = to_b.rkey;
    ck_assert_int_eq(ibv_post_send(a.qp, &wr, &bad), EINVAL);
    wr.num_sge = 2;
    wr.send_flags |= IBV_SEND_INLINE;
    list[0].lkey = list[1].lkey = 0; // not looked at for inline data
    memset(a.buf, 3, 32);
    ck_assert_int_eq(ibv_post_send(a.qp, &wr, &bad), 0);
    memset(a.buf, 4, 32); // taken at the call
    (void)harness_expect(&a, IBV_WC_SUCCESS, 0);
    ck_assert_uint_eq(b.buf[0], 3);
    ck_assert_uint_eq(b.buf[31], 3);
    list[1].length = 17;
    ck_assert_int_eq(ibv_post_send(a.qp, &wr, &bad), EINVAL);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.opcode = IBV_WR_SEND_WITH_INV;
    ck_assert_int_eq(ibv_post_send(a.qp, &wr, &bad), EINVAL);
    close_loop();
}
END_TEST

START_TEST(overrun_completion_queue_raises_an_event)
{
    struct side_options o = {.cqe = 2};
    open_loop(&o);
    for (uint64_t i = 0; i < 3; i++) {
        ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, i, 0, 8, &to_b, 0), 0);
    }
    struct ibv_async_event e;
    do {
        ck_assert_int_eq(ibv_get_async_event(a.ctx, &e), 0);
        ibv_ack_async_event(&e);
    } while (e.event_type == IBV_EVENT_COMM_EST);
    ck_assert_int_eq(e.event_type, IBV_EVENT_CQ_ERR);
    ck_assert_ptr_eq(e.element.cq, a.cq);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 1);
    close_loop();
}
END_TEST

START_TEST(device_limits_are_einval)
{
    struct ibv_context *ctx = harness_open();
    struct ibv_device_attr dev;
    ck_assert_int_eq(ibv_query_device(ctx, &dev), 0);
    ck_assert_ptr_null(ibv_create_cq(ctx, dev.max_cqe + 1, NULL, NULL, 0));
    ck_assert_ptr_null(ibv_create_cq(ctx, 0, NULL, NULL, 0));
    ck_assert_ptr_null(ibv_create_cq(ctx, 1, NULL, NULL, 1));
    struct side x;
    harness_side_open(&x, ctx, NULL);
    struct ibv_qp_init_attr init = {.send_cq = x.cq, .recv_cq = x.cq, .qp_type = IBV_QPT_RC};
    init.cap.max_send_wr = (uint32_t)dev.max_qp_wr + 1;
    ck_assert_ptr_null(ibv_create_qp(x.pd, &init));
    ck_assert_int_eq(errno, EINVAL);
    init.cap.max_send_wr = 1;
    init.cap.max_send_sge = (uint32_t)dev.max_sge + 1;
    ck_assert_ptr_null(ibv_create_qp(x.pd, &init));
    init.cap.max_send_sge = 1;
    init.qp_type = IBV_QPT_UD;
    ck_assert_ptr_null(ibv_create_qp(x.pd, &init));
    ck_assert_int_eq(errno, EOPNOTSUPP);
    ck_assert_int_eq(ibv_destroy_cq(x.cq), EBUSY);
    ck_assert_int_eq(ibv_dealloc_pd(x.pd), EBUSY);
    harness_side_close(&x);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

START_TEST(locked_memory_is_charged_by_the_page)
{
    ck_assert_int_eq(setenv("SOFTHCA_NO_IPC_LOCK", "1", 1), 0);
    struct ibv_context *ctx = harness_open();
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rlimit limit = {.rlim_cur = 16 * page, .rlim_max = 16 * page};
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    uint8_t *m = mmap(NULL, 32 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(m, MAP_FAILED);
    struct ibv_mr *whole = ibv_reg_mr(pd, m, 16 * page, 0);
    ck_assert_ptr_nonnull(whole);
    errno = 0;
    ck_assert_ptr_null(ibv_reg_mr(pd, m + 20 * page, 1, 0));
    ck_assert_int_eq(errno, ENOMEM);
    ck_assert_int_eq(ibv_dereg_mr(whole), 0);
    struct ibv_mr *two = ibv_reg_mr(pd, m + page - 1, 2, 0); // two bytes, two pages
    ck_assert_ptr_nonnull(two);
    ck_assert_ptr_null(ibv_reg_mr(pd, m, 15 * page, 0));
    struct ibv_mr *rest = ibv_reg_mr(pd, m, 14 * page, 0);
    ck_assert_ptr_nonnull(rest);
    ck_assert_int_eq(ibv_dereg_mr(rest), 0);
    ck_assert_int_eq(ibv_dereg_mr(two), 0);
    ck_assert_int_eq(munmap(m, 32 * page), 0);
    ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

START_TEST(registration_checks_memory_and_rights)
{
    struct ibv_context *ctx = harness_open();
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *m = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(m, MAP_FAILED);
    ck_assert_ptr_null(ibv_reg_mr(pd, m, page, IBV_ACCESS_REMOTE_WRITE));
    ck_assert_int_eq(errno, EINVAL); // without local write
    ck_assert_ptr_null(ibv_reg_mr(pd, m, page, IBV_ACCESS_LOCAL_WRITE));
    ck_assert_int_eq(errno, EFAULT); // read-only
    struct ibv_mr *mr = ibv_reg_mr(pd, m, page, IBV_ACCESS_REMOTE_READ);
    ck_assert_ptr_nonnull(mr);
    ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    ck_assert_int_eq(munmap(m, page), 0);
    ck_assert_ptr_null(ibv_reg_mr(pd, m, page, IBV_ACCESS_REMOTE_READ));
    ck_assert_int_eq(errno, EFAULT);
    ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, page, 0, -1, 0));
    ck_assert_int_eq(errno, EBADF);
    ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

START_TEST(relaxed_ordering_is_accepted_and_can_be_asked)
{
    open_loop(NULL);
    struct ibv_mr *mr =
        ibv_reg_mr(a.pd, a.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
    ck_assert_ptr_nonnull(mr);
    struct softhca_mr_info info;
    ck_assert_int_eq(softhca_query_mr(mr, &info), 0);
    ck_assert_uint_eq(info.access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
    ck_assert_uint_eq(info.process_mrs, 3);
    ck_assert_int_eq(softhca_query_mr(a.mr, &info), 0);
    ck_assert_uint_eq(info.access & IBV_ACCESS_RELAXED_ORDERING, 0);
    ck_assert_uint_ne(a.mr->lkey, a.mr->rkey);
    ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    close_loop();
}
END_TEST

START_TEST(dma_buf_keeps_its_iova)
{
    ck_assert_int_eq(setenv("SOFTHCA_DMABUF", "2", 1), 0); // a memfd stands for a dma-buf
    open_loop(NULL);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = memfd_create("buffer", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)(4 * page)), 0);
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(b.pd, page, 2 * page, 0x7000000000, fd, ALL_ACCESS);
    ck_assert_ptr_nonnull(mr);
    uint8_t *m = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(m, MAP_FAILED);
    ck_assert_int_eq(close(fd), 0); // NCCL does so right after the registration
    struct address to = to_b;
    to.addr = 0x7000000000;
    to.rkey = mr->rkey;
    memset(a.buf, 9, 100);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 1, 0, 100, &to, page), 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 1);
    ck_assert_uint_eq(m[2 * page], 9);
    ck_assert_uint_eq(m[2 * page + 99], 9);
    ck_assert_uint_eq(m[2 * page + 100], 0);
    ck_assert_int_eq(munmap(m, 4 * page), 0);
    ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    close_loop();
}
END_TEST

START_TEST(completion_events_come_once_for_each_request)
{
    struct ibv_context *ctx = harness_open();
    struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
    ck_assert_ptr_nonnull(ch);
    struct side x;
    harness_side_open(&x, ctx, NULL);
    struct ibv_cq *cq = ibv_create_cq(ctx, 8, &x, ch, 0);
    ck_assert_ptr_nonnull(cq);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    struct ibv_qp *qp = x.qp;
    x.qp = ibv_create_qp(x.pd, &init);
    ck_assert_ptr_nonnull(x.qp);
    struct address self = harness_address(&x);
    harness_connect(&x, &self, NULL); // a queue pair connected to itself
    struct pollfd pfd = {.fd = ch->fd, .events = POLLIN};
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 1, 0, 8, &self, 64), 0);
    ck_assert_int_eq(poll(&pfd, 1, 50), 0); // not asked for
    struct ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    ck_assert_int_eq(ibv_req_notify_cq(cq, 0), 0);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 2, 0, 8, &self, 64), 0);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 3, 0, 8, &self, 64), 0);
    struct ibv_cq *which;
    void *user;
    ck_assert_int_eq(ibv_get_cq_event(ch, &which, &user), 0);
    ck_assert_ptr_eq(which, cq);
    ck_assert_ptr_eq(user, &x);
    ck_assert_int_eq(poll(&pfd, 1, 50), 0); // one event only
    ibv_ack_cq_events(cq, 1);
    ck_assert_int_eq(ibv_destroy_comp_channel(ch), EBUSY);
    ck_assert_int_eq(ibv_destroy_qp(x.qp), 0);
    ck_assert_int_eq(ibv_destroy_cq(cq), 0);
    ck_assert_int_eq(ibv_destroy_comp_channel(ch), 0);
    x.qp = qp;
    harness_side_close(&x);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

static void sum_numbers(void *user, const struct ibv_qp *qp, const struct ibv_qp_attr *attr)
{
    *(uint32_t *)user += attr->qp_state == IBV_QPS_RTS ? qp->qp_num : 0;
}

static void count_writable(void *user, const struct ibv_mr *mr, uint32_t access)
{
    *(uint32_t *)user += (mr == a.mr || mr == b.mr) && (access & IBV_ACCESS_REMOTE_WRITE) != 0;
}

START_TEST(objects_are_counted_until_destroyed)
{
    struct softhca_objects o;
    uint32_t sum = 0, writable = 0;
    open_loop(NULL);
    softhca_query_objects(&o);
    ck_assert(o.contexts == 1 && o.pds == 2 && o.mrs == 2 && o.cqs == 2 && o.qps == 2);
    ck_assert_uint_eq(o.channels, 0);
    softhca_visit_qps(sum_numbers, &sum);
    ck_assert_uint_eq(sum, a.qp->qp_num + b.qp->qp_num);
    softhca_visit_mrs(count_writable, &writable);
    ck_assert_uint_eq(writable, 2);
    close_loop();
    softhca_query_objects(&o);
    ck_assert_uint_eq(o.contexts + o.pds + o.mrs + o.cqs + o.qps + o.channels, 0);
}
END_TEST

START_TEST(devices_report_the_speeds_they_were_given)
{
    static const uint8_t codes[] = {64, 128, 32}; // 200, 400 as all, 100
    ck_assert_int_eq(setenv("SOFTHCA_DEVICES", "3", 1), 0);
    ck_assert_int_eq(setenv("SOFTHCA_DEVICE_GBPS", "200,400,100", 1), 0);
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    ck_assert_int_eq(n, 3);
    for (int i = 0; i < n; i++) {
        struct ibv_port_attr attr;
        struct ibv_context *ctx = ibv_open_device(list[i]);
        ck_assert_ptr_nonnull(ctx);
        ck_assert_int_eq(ibv_query_port(ctx, 1, &attr), 0);
        ck_assert_uint_eq(attr.active_speed, codes[i]);
        ck_assert_int_eq(ibv_close_device(ctx), 0);
    }
    ibv_free_device_list(list);
}
END_TEST

// ulimit -f: an error, where the limit's signal would kill; then all goes on.
START_TEST(limit_of_file_sizes)
{
    struct rlimit old, low;
    int n = 0;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    struct ibv_device **list = ibv_get_device_list(&n);
    struct ibv_context *ctx = n > 0 ? ibv_open_device(list[0]) : NULL;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_ptr_null(ctx);
    if (list) {
        ibv_free_device_list(list);
    }
    open_loop(NULL);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &to_b, 0), 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 1);
    close_loop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softhca-limits");
    TCase *t = tcase_create("limits");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, harness_setup, harness_teardown);
    tcase_add_test(t, full_send_queue_is_enomem_until_a_completion_is_polled);
    tcase_add_test(t, unsignalled_sends_come_back_with_the_next_signalled_one);
    tcase_add_test(t, full_receive_queue_is_enomem);
    tcase_add_test(t, long_lists_and_long_inline_data_are_einval);
    tcase_add_test(t, overrun_completion_queue_raises_an_event);
    tcase_add_test(t, device_limits_are_einval);
    tcase_add_test(t, locked_memory_is_charged_by_the_page);
    tcase_add_test(t, registration_checks_memory_and_rights);
    tcase_add_test(t, relaxed_ordering_is_accepted_and_can_be_asked);
    tcase_add_test(t, dma_buf_keeps_its_iova);
    tcase_add_test(t, completion_events_come_once_for_each_request);
    tcase_add_test(t, objects_are_counted_until_destroyed);
    tcase_add_test(t, devices_report_the_speeds_they_were_given);
    tcase_add_test(t, limit_of_file_sizes);
    suite_add_tcase(suite, t);
    return harness_main(suite);
}
