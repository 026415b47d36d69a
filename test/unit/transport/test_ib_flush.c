// SPDX-License-Identifier: Apache-2.0
// The loopback READ by itself: its queue pair, its limits, its errors, on both kinds of queue.
#include <check.h>
#include <errno.h>
#include <string.h>

#include "test/unit/transport/fake_verbs.h"
#include "transport/ib_flush.h"

static struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
static uint32_t count;
static struct gemmar_ib_flush *flush;
static struct ibv_cq *cq;
static struct ibv_mr *memory;
static char bytes[4096];

static void setup(void)
{
    fake_reset();
    ck_assert_int_eq(
        gemmar_ib_devices_open(fake_table(), fake_knobs(), fake_logger(), devices, &count), 0);
    memory = fake_table()->reg_mr(devices[0].pd, bytes, sizeof(bytes), IBV_ACCESS_REMOTE_READ);
    cq = fake_table()->create_cq(devices[0].context, 16, NULL, NULL, 0);
    flush = NULL;
    fake.calls = 0;
}

static void teardown(void)
{
    gemmar_ib_flush_close(flush);
    ck_assert_int_eq(fake_table()->destroy_cq(cq), 0);
    (void)fake_table()->dereg_mr(memory);
    gemmar_ib_devices_close(devices, count);
    ck_assert_int_eq(fake.live, 0);
}

static int post(uint64_t wr_id)
{
    return gemmar_ib_flush_post(flush, wr_id, (uintptr_t)bytes + 4095, memory->rkey);
}

START_TEST(queue_pair_is_connected_to_itself)
{
    const struct ibv_qp_attr *rtr, *rts;

    ck_assert_int_eq(gemmar_ib_flush_open(&devices[0], NULL, 4, &flush), 0);
    ck_assert_int_eq(fake.modifications, 3);
    rtr = &fake.modified[1].attr;
    rts = &fake.modified[2].attr;
    ck_assert_int_eq(rtr->qp_state, IBV_QPS_RTR);
    ck_assert_uint_eq(rtr->dest_qp_num, gemmar_ib_flush_qp(flush));
    ck_assert_uint_eq(rtr->rq_psn, rts->sq_psn);
    ck_assert_int_ge(rtr->max_dest_rd_atomic, 1);
    ck_assert_int_ge(rts->max_rd_atomic, 1);
    ck_assert_int_eq(fake.registered[1].access, IBV_ACCESS_LOCAL_WRITE);
}
END_TEST

START_TEST(no_more_reads_than_the_depth)
{
    uint64_t seen = 0;

    ck_assert_int_eq(gemmar_ib_flush_open(&devices[0], NULL, 3, &flush), 0);
    for (uint64_t i = 0; i < 3; i++) {
        ck_assert_int_eq(post(100 + i), 0);
    }
    ck_assert_int_eq(post(103), -EAGAIN);
    ck_assert_uint_eq(gemmar_ib_flush_pending(flush), 3);
    ck_assert_int_eq(gemmar_ib_flush_poll(flush, &seen), 0);
    (void)fake_execute(gemmar_ib_flush_qp(flush), 2, IBV_WC_SUCCESS);
    ck_assert_int_eq(post(103), -EAGAIN); /* the completion queue is still full */
    ck_assert_int_eq(gemmar_ib_flush_poll(flush, &seen), 1);
    ck_assert_uint_eq(seen, 100);
    ck_assert_int_eq(post(103), 0);
    ck_assert_int_eq(gemmar_ib_flush_poll(flush, &seen), 1);
    ck_assert_uint_eq(seen, 101);
    ck_assert_int_eq(gemmar_ib_flush_poll(flush, &seen), 0);
    ck_assert_uint_eq(gemmar_ib_flush_pending(flush), 2);
    ck_assert_int_eq(fake.reads, 4);
    ck_assert_int_eq(fake_warnings(), 0);
}
END_TEST

START_TEST(completions_come_on_the_callers_queue)
{
    struct ibv_wc wc;

    ck_assert_int_eq(gemmar_ib_flush_open(&devices[0], cq, 2, &flush), 0);
    ck_assert_int_eq(post(UINT64_MAX - 7), 0);
    (void)fake_execute(gemmar_ib_flush_qp(flush), 1, IBV_WC_SUCCESS);
    ck_assert_int_eq(ibv_poll_cq(cq, 1, &wc), 1);
    ck_assert_uint_eq(wc.wr_id, UINT64_MAX - 7);
    ck_assert_uint_eq(wc.qp_num, gemmar_ib_flush_qp(flush));
    ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_READ);
    ck_assert_int_eq(gemmar_ib_flush_done(flush, &wc), 0);
    ck_assert_uint_eq(gemmar_ib_flush_pending(flush), 0);
}
END_TEST

/* Whose queue it is decides who writes the line. */
START_TEST(failed_read_is_named_once)
{
    uint64_t seen = 77;
    struct ibv_wc wc;
    char text[256];

    ck_assert_int_eq(gemmar_ib_flush_open(&devices[0], _i == 0 ? NULL : cq, 4, &flush), 0);
    ck_assert_int_eq(post(1), 0);
    ck_assert_int_eq(post(2), 0);
    (void)fake_execute(gemmar_ib_flush_qp(flush), 1, IBV_WC_RETRY_EXC_ERR);
    (void)fake_execute(gemmar_ib_flush_qp(flush), 1, IBV_WC_WR_FLUSH_ERR);
    if (_i == 0) {
        ck_assert_int_eq(gemmar_ib_flush_poll(flush, &seen), -EIO);
        ck_assert_int_eq(gemmar_ib_flush_poll(flush, &seen), -EIO);
        ck_assert_int_eq(fake_warnings(), 1);
        ck_assert_uint_eq(seen, 77);
    } else {
        ck_assert_int_eq(ibv_poll_cq(cq, 1, &wc), 1);
        ck_assert_int_eq(gemmar_ib_flush_done(flush, &wc), -EIO);
        ck_assert_int_eq(fake_warnings(), 0);
        gemmar_ib_flush_fault(flush, &wc, text, sizeof(text));
        gemmar_warn(fake_logger(), "%s", text);
    }
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "flush failed: device fake0 port 1 qp 0x"));
    ck_assert_ptr_nonnull(
        strstr(fake_log_text(), "status 12 (transport retry counter exceeded) vendor 0x81"));
}
END_TEST

START_TEST(refused_post_is_not_counted)
{
    ck_assert_int_eq(gemmar_ib_flush_open(&devices[0], NULL, 2, &flush), 0);
    fake.post_fail = 1;
    ck_assert_int_eq(post(1), -EAGAIN); /* ENOMEM: no room now */
    fake.post_fail = 1;
    fake.post_errno = EINVAL;
    ck_assert_int_eq(post(1), -EINVAL);
    ck_assert_uint_eq(gemmar_ib_flush_pending(flush), 0);
}
END_TEST

START_TEST(no_step_that_fails_leaves_anything)
{
    int steps, live = fake.live;

    ck_assert_int_eq(gemmar_ib_flush_open(&devices[0], _i == 0 ? NULL : cq, 2, &flush), 0);
    steps = fake.calls;
    ck_assert_int_ge(steps, 5);
    gemmar_ib_flush_close(flush);
    flush = NULL;
    for (int step = 1; step <= steps; step++) {
        fake_log_clear();
        fake.calls = 0;
        fake.fail_call = step;
        ck_assert_int_lt(gemmar_ib_flush_open(&devices[0], _i == 0 ? NULL : cq, 2, &flush), 0);
        ck_assert_int_eq(fake_warnings(), 1);
        ck_assert_ptr_null(flush);
        ck_assert_int_eq(fake.live, live);
    }
    fake.fail_call = 0;
    ck_assert_int_eq(gemmar_ib_flush_open(&devices[0], NULL, 0, &flush), -EINVAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ib_flush");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, queue_pair_is_connected_to_itself);
    tcase_add_test(tcase, no_more_reads_than_the_depth);
    tcase_add_test(tcase, completions_come_on_the_callers_queue);
    tcase_add_loop_test(tcase, failed_read_is_named_once, 0, 2);
    tcase_add_test(tcase, refused_post_is_not_counted);
    tcase_add_loop_test(tcase, no_step_that_fails_leaves_anything, 0, 2);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
