// SPDX-License-Identifier: Apache-2.0
// Each way to fail has the status that the InfiniBand specification gives it, on both ends.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/softhca/harness.h"

static struct side a, b;
static struct address to_b;

static void open_loop(const struct side_options *o, const struct link_options *l)
{
    harness_loop_open(&a, &b, o, l);
    to_b = harness_address(&b);
}

static void close_loop(void)
{
    struct ibv_context *ctx = a.ctx;
    harness_side_close(&a);
    harness_side_close(&b);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}

static enum ibv_qp_state state_of(struct side *s)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    ck_assert_int_eq(ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

static void expect_async(enum ibv_event_type type)
{
    struct ibv_async_event e;
    do {
        ck_assert_int_eq(ibv_get_async_event(a.ctx, &e), 0);
        ibv_ack_async_event(&e);
    } while (e.event_type == IBV_EVENT_COMM_EST && type != e.event_type);
    ck_assert_str_eq(ibv_event_type_str(e.event_type), ibv_event_type_str(type));
}

START_TEST(data_and_opcodes_of_success)
{
    open_loop(NULL, NULL);
    for (int i = 0; i < 64; i++) {
        a.buf[i] = (uint8_t)(i + 1);
    }
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 1, 0, 64, &to_b, 100), 0);
    ck_assert_int_eq(harness_expect(&a, IBV_WC_SUCCESS, 1).opcode, IBV_WC_RDMA_WRITE);
    ck_assert_mem_eq(a.buf, b.buf + 100, 64);
    ck_assert_int_eq(harness_post_recv(&b, 2, 200, 64), 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_SEND_WITH_IMM, 3, 0, 60, &to_b, 0), 0);
    ck_assert_int_eq(harness_expect(&a, IBV_WC_SUCCESS, 3).opcode, IBV_WC_SEND);
    struct ibv_wc wc = harness_expect(&b, IBV_WC_SUCCESS, 2);
    ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
    ck_assert_uint_eq(wc.byte_len, 60);
    ck_assert_uint_eq(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
    ck_assert_uint_eq(wc.imm_data, 3);
    ck_assert_mem_eq(a.buf, b.buf + 200, 60);
    ck_assert_int_eq(harness_post_recv(&b, 4, 0, 0), 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, 64, &to_b, 300), 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 5);
    wc = harness_expect(&b, IBV_WC_SUCCESS, 4);
    ck_assert_int_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    ck_assert_uint_eq(wc.imm_data, 5);
    ck_assert_uint_eq(wc.byte_len, 64);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_READ, 6, 500, 64, &to_b, 300), 0);
    ck_assert_int_eq(harness_expect(&a, IBV_WC_SUCCESS, 6).opcode, IBV_WC_RDMA_READ);
    ck_assert_mem_eq(a.buf, a.buf + 500, 64);
    *(uint64_t *)(void *)(b.buf + 1024) = 41;
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, 7, 512, 8, &to_b, 1024), 0);
    ck_assert_int_eq(harness_expect(&a, IBV_WC_SUCCESS, 7).opcode, IBV_WC_FETCH_ADD);
    ck_assert_uint_eq(*(uint64_t *)(void *)(a.buf + 512), 41);
    ck_assert_uint_eq(*(uint64_t *)(void *)(b.buf + 1024), 42);
    close_loop();
}
END_TEST

START_TEST(unknown_lkey_is_a_local_protection_error)
{
    open_loop(NULL, NULL);
    struct ibv_sge sge = {.addr = (uintptr_t)a.buf, .length = 8, .lkey = a.mr->rkey};
    struct ibv_send_wr wr = {.wr_id = 9,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE},
                       *bad;
    wr.wr.rdma.remote_addr = to_b.addr;
    wr.wr.rdma.rkey = to_b.rkey;
    ck_assert_int_eq(ibv_post_send(a.qp, &wr, &bad), 0);
    (void)harness_expect(&a, IBV_WC_LOC_PROT_ERR, 9);
    ck_assert_int_eq(state_of(&a), IBV_QPS_ERR);
    close_loop();
}
END_TEST

START_TEST(write_outside_of_the_region_is_a_remote_access_error)
{
    open_loop(NULL, NULL);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &to_b, 65536 - 7), 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 2, 0, 8, &to_b, 0), 0);
    (void)harness_expect(&a, IBV_WC_REM_ACCESS_ERR, 1);
    (void)harness_expect(&a, IBV_WC_WR_FLUSH_ERR, 2);
    expect_async(IBV_EVENT_QP_ACCESS_ERR);
    ck_assert_int_eq(state_of(&b), IBV_QPS_ERR);
    close_loop();
}
END_TEST

START_TEST(rights_of_the_region_are_checked)
{
    static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                             IBV_WR_ATOMIC_FETCH_AND_ADD};
    struct side_options o = {.access = IBV_ACCESS_LOCAL_WRITE};
    open_loop(&o, NULL);
    ck_assert_int_eq(harness_post_send(&a, ops[_i], 1, 0, 8, &to_b, 0), 0);
    (void)harness_expect(&a, IBV_WC_REM_ACCESS_ERR, 1);
    close_loop();
}
END_TEST

START_TEST(rights_of_the_queue_pair_are_checked)
{
    static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                             IBV_WR_ATOMIC_FETCH_AND_ADD};
    struct link_options l = {.qp_access = -1};
    open_loop(NULL, &l);
    ck_assert_int_eq(harness_post_send(&a, ops[_i], 1, 0, 8, &to_b, 0), 0);
    (void)harness_expect(&a, IBV_WC_REM_INV_REQ_ERR, 1);
    close_loop();
}
END_TEST

START_TEST(key_of_another_protection_domain_is_refused)
{
    open_loop(NULL, NULL);
    struct address other = to_b;
    other.rkey = a.mr->rkey;
    other.addr = (uintptr_t)a.buf;
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &other, 0), 0);
    (void)harness_expect(&a, IBV_WC_REM_ACCESS_ERR, 1);
    close_loop();
}
END_TEST

START_TEST(key_of_a_deregistered_region_is_refused)
{
    open_loop(NULL, NULL);
    struct ibv_mr *old = ibv_reg_mr(b.pd, b.buf, 4096, ALL_ACCESS);
    ck_assert_ptr_nonnull(old);
    struct address gone = to_b;
    gone.rkey = old->rkey;
    ck_assert_int_eq(ibv_dereg_mr(old), 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &gone, 0), 0);
    (void)harness_expect(&a, IBV_WC_REM_ACCESS_ERR, 1);
    close_loop();
}
END_TEST

START_TEST(short_receive_is_a_length_error_here_and_an_invalid_request_there)
{
    open_loop(NULL, NULL);
    ck_assert_int_eq(harness_post_recv(&b, 1, 0, 16), 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_SEND, 2, 0, 17, NULL, 0), 0);
    (void)harness_expect(&b, IBV_WC_LOC_LEN_ERR, 1);
    (void)harness_expect(&a, IBV_WC_REM_INV_REQ_ERR, 2);
    ck_assert_uint_eq(b.buf[0], 0);
    close_loop();
}
END_TEST

START_TEST(bad_receive_list_is_a_protection_error_here_and_an_operation_error_there)
{
    open_loop(NULL, NULL);
    struct ibv_sge sge = {.addr = (uintptr_t)b.buf, .length = 64, .lkey = 0x7777};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    ck_assert_int_eq(ibv_post_recv(b.qp, &wr, &bad), 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_SEND, 2, 0, 17, NULL, 0), 0);
    (void)harness_expect(&b, IBV_WC_LOC_PROT_ERR, 1);
    (void)harness_expect(&a, IBV_WC_REM_OP_ERR, 2);
    close_loop();
}
END_TEST

START_TEST(no_receive_ends_in_rnr_retry_exceeded)
{
    struct link_options l = {.rnr_retry = 2};
    open_loop(NULL, &l);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_SEND, 1, 0, 17, NULL, 0), 0);
    (void)harness_expect(&a, IBV_WC_RNR_RETRY_EXC_ERR, 1);
    close_loop();
}
END_TEST

START_TEST(late_receive_is_found_by_an_rnr_retry)
{
    open_loop(NULL, NULL); // rnr_retry 7: for ever
    a.buf[0] = 77;
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_SEND, 1, 0, 40000, NULL, 0), 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 40000, &to_b, 0), 0);
    harness_sleep_ms(20);
    ck_assert_int_eq(harness_post_recv(&b, 3, 0, 65536), 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 1);
    (void)harness_expect(&b, IBV_WC_SUCCESS, 3);
    ck_assert_uint_eq(b.buf[0], 77);
    ck_assert_int_eq(harness_post_recv(&b, 4, 0, 0), 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 2);
    (void)harness_expect(&b, IBV_WC_SUCCESS, 4);
    close_loop();
}
END_TEST

START_TEST(misaligned_atomic_is_an_invalid_request)
{
    open_loop(NULL, NULL);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 0, 8, &to_b, 4), 0);
    (void)harness_expect(&a, IBV_WC_REM_INV_REQ_ERR, 1);
    close_loop();
}
END_TEST

START_TEST(destroyed_peer_ends_in_retry_exceeded)
{
    struct link_options l = {.timeout = 1, .retry_cnt = 1};
    open_loop(NULL, &l);
    struct address gone = to_b;
    struct ibv_context *ctx = b.ctx;
    harness_side_close(&b);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &gone, 0), 0);
    (void)harness_expect(&a, IBV_WC_RETRY_EXC_ERR, 1);
    harness_side_close(&a);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

START_TEST(error_state_flushes_sends_and_receives_in_order)
{
    open_loop(NULL, NULL);
    ck_assert_int_eq(harness_post_recv(&a, 1, 0, 8), 0);
    ck_assert_int_eq(harness_post_recv(&a, 2, 0, 8), 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    ck_assert_int_eq(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    (void)harness_expect(&a, IBV_WC_WR_FLUSH_ERR, 1);
    (void)harness_expect(&a, IBV_WC_WR_FLUSH_ERR, 2);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 3, 0, 8, &to_b, 0), 0);
    (void)harness_expect(&a, IBV_WC_WR_FLUSH_ERR, 3);
    ck_assert_int_eq(harness_post_recv(&a, 4, 0, 8), 0);
    (void)harness_expect(&a, IBV_WC_WR_FLUSH_ERR, 4);
    close_loop();
}
END_TEST

START_TEST(reset_forgets_and_the_pair_can_be_used_again)
{
    open_loop(NULL, NULL);
    struct address to_a = harness_address(&a);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_SEND, 1, 0, 8, NULL, 0), 0); // RNR for ever
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    ck_assert_int_eq(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    ck_assert_int_eq(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
    harness_connect(&a, &to_b, NULL);
    harness_connect(&b, &to_a, NULL);
    a.buf[0] = 5;
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 2, 0, 8, &to_b, 8), 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 2);
    ck_assert_uint_eq(b.buf[8], 5);
    close_loop();
}
END_TEST

START_TEST(state_machine_wants_its_attributes)
{
    open_loop(NULL, NULL);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET, .port_num = 1};
    ck_assert_int_eq(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    ck_assert_int_eq(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = IBV_QPS_INIT;
    ck_assert_int_eq(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX),
                     EINVAL);
    attr.port_num = 2;
    int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
    ck_assert_int_eq(ibv_modify_qp(a.qp, &attr, mask), EINVAL);
    attr.port_num = 1;
    ck_assert_int_eq(ibv_modify_qp(a.qp, &attr, mask | IBV_QP_SQ_PSN), EINVAL);
    ck_assert_int_eq(ibv_modify_qp(a.qp, &attr, mask), 0);
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_SEND, 1, 0, 8, NULL, 0), EINVAL);
    ck_assert_int_eq(harness_post_recv(&a, 1, 0, 8), 0);
    close_loop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("softhca-status");
    TCase *t = tcase_create("status");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, harness_setup, harness_teardown);
    tcase_add_test(t, data_and_opcodes_of_success);
    tcase_add_test(t, unknown_lkey_is_a_local_protection_error);
    tcase_add_test(t, write_outside_of_the_region_is_a_remote_access_error);
    tcase_add_loop_test(t, rights_of_the_region_are_checked, 0, 3);
    tcase_add_loop_test(t, rights_of_the_queue_pair_are_checked, 0, 3);
    tcase_add_test(t, key_of_another_protection_domain_is_refused);
    tcase_add_test(t, key_of_a_deregistered_region_is_refused);
    tcase_add_test(t, short_receive_is_a_length_error_here_and_an_invalid_request_there);
    tcase_add_test(t, bad_receive_list_is_a_protection_error_here_and_an_operation_error_there);
    tcase_add_test(t, no_receive_ends_in_rnr_retry_exceeded);
    tcase_add_test(t, late_receive_is_found_by_an_rnr_retry);
    tcase_add_test(t, misaligned_atomic_is_an_invalid_request);
    tcase_add_test(t, destroyed_peer_ends_in_retry_exceeded);
    tcase_add_test(t, error_state_flushes_sends_and_receives_in_order);
    tcase_add_test(t, reset_forgets_and_the_pair_can_be_used_again);
    tcase_add_test(t, state_machine_wants_its_attributes);
    suite_add_tcase(s, t);
    return harness_main(s);
}
