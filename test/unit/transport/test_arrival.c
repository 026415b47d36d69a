// SPDX-License-Identifier: Apache-2.0
// Step 6 in imm mode: the receiving proxy's stamps, and the flush that they wait for when the data
// lies in GPU memory.
#include <check.h>
#include <errno.h>
#include <string.h>

#include "test/unit/transport/two_channels.h"

#define GPU_SETUP                                                                                  \
    {                                                                                              \
        .queue_pairs = 2, .ring_entries = 512, .first_epoch = 1, .signal = GEMMAR_SIGNAL_IMM,      \
        .gpu = true                                                                                \
    }

static uint32_t flush_qp(uint32_t rail)
{
    return gemmar_ib_flush_qp(b.channel->rails[rail].flush);
}

static void send(uint32_t slot, uint64_t epoch)
{
    push(slot, epoch);
    turns(1);
    ck_assert_uint_eq(fake_execute(qp(slot), 1, IBV_WC_SUCCESS), 1);
}

START_TEST(imm_is_stamped_by_the_receiver)
{
    struct setup o = {
        .queue_pairs = 1, .ring_entries = 64, .first_epoch = 1, .signal = GEMMAR_SIGNAL_IMM};

    ck_assert_int_eq(open_all(&o), 0);
    send(5, 1);
    ck_assert_uint_eq(stamp_of(5, 1), 0);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(5, 1), 1);
    ck_assert_uint_eq(gemmar_load_relaxed(&a.channel->counters.stamp_bytes), 0);
    ck_assert_uint_eq(gemmar_load_relaxed(&b.channel->counters.imm_received), 1);
    close_both();
}
END_TEST

START_TEST(stamp_is_not_written_before_its_flush_completed)
{
    struct setup o = GPU_SETUP;

    ck_assert_int_eq(open_all(&o), 0);
    send(5, 1);
    for (int i = 0; i < 3; i++) {
        (void)gemmar_proxy_turn(b.channel);
        ck_assert_uint_eq(stamp_of(5, 1), 0);
    }
    ck_assert_int_eq(fake.reads, 1);
    ck_assert_uint_eq(fake_execute(flush_qp(0), 1, IBV_WC_SUCCESS), 1);
    ck_assert_uint_eq(stamp_of(5, 1), 0); /* executed, but the proxy has not seen it */
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(5, 1), 1);
    ck_assert(data_of(5, 1));
    close_both();
}
END_TEST

START_TEST(flushes_on_the_way_keep_the_order_of_the_stamps)
{
    struct setup o = GPU_SETUP;
    uint32_t sent = 3 * GEMMAR_FLUSHES;

    ck_assert_int_eq(open_all(&o), 0);
    for (uint32_t slot = 0; slot < sent; slot++) {
        send(slot, 1);
        (void)gemmar_proxy_turn(b.channel);
    }
    ck_assert_int_eq(fake.reads, GEMMAR_FLUSHES); /* the others came when it was full */
    for (uint32_t done = 1; done <= GEMMAR_FLUSHES; done++) {
        ck_assert_uint_eq(fake_execute(flush_qp(0), 1, IBV_WC_SUCCESS), 1);
        (void)gemmar_proxy_turn(b.channel);
        for (uint32_t slot = 0; slot < sent; slot++) {
            ck_assert_uint_eq(stamp_of(slot, 1), slot < done);
        }
    }
    ck_assert_int_eq(fake.reads, GEMMAR_FLUSHES + 1); /* one for all that waited */
    ck_assert_uint_eq(fake_execute(flush_qp(0), 1, IBV_WC_SUCCESS), 1);
    (void)gemmar_proxy_turn(b.channel);
    for (uint32_t slot = 0; slot < sent; slot++) {
        ck_assert_uint_eq(stamp_of(slot, 1), 1);
    }
    close_both();
}
END_TEST

/* A flush covers what came before its post, not what came while it was on the way. */
START_TEST(flush_does_not_cover_what_came_after_its_post)
{
    struct setup o = GPU_SETUP;

    ck_assert_int_eq(open_all(&o), 0);
    send(1, 1);
    (void)gemmar_proxy_turn(b.channel);
    send(2, 1);
    ck_assert_uint_eq(fake_execute(flush_qp(0), 1, IBV_WC_SUCCESS), 1);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(1, 1), 1);
    ck_assert_uint_eq(stamp_of(2, 1), 0);
    close_both();
}
END_TEST

START_TEST(each_rail_flushes_its_own_writes)
{
    struct setup o = GPU_SETUP;

    (void)fake_add_device("fake1", 1, false);
    ck_assert_int_eq(open_all(&o), 0);
    send(0, 1);
    send(1, 1);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_int_eq(fake.reads, 2);
    ck_assert_uint_eq(fake_execute(flush_qp(1), 1, IBV_WC_SUCCESS), 1);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(0, 1), 0);
    ck_assert_uint_eq(stamp_of(1, 1), 1);
    ck_assert_uint_eq(fake_execute(flush_qp(0), 1, IBV_WC_SUCCESS), 1);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(0, 1), 1);
    close_both();
}
END_TEST

/* More arrivals than receives are posted, over and over: none is lost, and the receives come back.
 */
START_TEST(arrivals_that_wait_for_a_flush_are_not_lost)
{
    struct setup o = GPU_SETUP;

    ck_assert_int_eq(open_all(&o), 0);
    for (uint64_t epoch = 1; epoch < 6; epoch++) {
        for (uint32_t slot = 0; slot < 400; slot++) {
            send(slot, epoch);
            if (slot % 7 == 0) {
                (void)gemmar_proxy_turn(b.channel);
            }
            turns(1);
        }
        for (int i = 0; i < 100 && stamp_of(399, epoch) != epoch; i++) {
            (void)gemmar_proxy_turn(b.channel);
            (void)fake_execute(flush_qp(0), 3, IBV_WC_SUCCESS);
        }
        for (uint32_t slot = 0; slot < 400; slot++) {
            ck_assert_uint_eq(stamp_of(slot, epoch), epoch);
        }
    }
    close_both();
}
END_TEST

START_TEST(failed_flush_breaks_the_channel)
{
    static const enum ibv_wc_status statuses[] = {IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_PROT_ERR,
                                                  IBV_WC_RETRY_EXC_ERR};
    struct setup o = GPU_SETUP;
    struct gemmar_transport_error e = {.size = sizeof(e)};

    ck_assert_int_eq(open_all(&o), 0);
    send(1, 1);
    (void)gemmar_proxy_turn(b.channel);
    send(3, 1);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(fake_execute(flush_qp(0), 1, statuses[_i]), 1);
    ck_assert_uint_eq(fake_execute(flush_qp(0), 1, IBV_WC_WR_FLUSH_ERR), 1);
    ck_assert(!gemmar_proxy_turn(b.channel));
    (void)gemmar_proxy_turn(b.channel);
    gemmar_channel_error(b.channel, &e);
    ck_assert_int_eq(e.code, -EIO);
    ck_assert_uint_eq(e.peer_rank, 0);
    ck_assert_uint_eq(e.qp_number, gemmar_rdma_write_qp(b.channel, 0, 1)->qp->qp_num);
    ck_assert_str_eq(e.stage, "arrival");
    ck_assert_ptr_nonnull(strstr(e.text, "flush failed: device fake0 port 1 qp 0x"));
    ck_assert_ptr_nonnull(strstr(e.text, "vendor 0x81"));
    ck_assert_uint_eq(stamp_of(1, 1), 0);
    ck_assert_uint_eq(stamp_of(3, 1), 0);
    ck_assert_uint_eq(b.abort_word, 1);
    ck_assert_int_eq(fake_warnings(), 1);
    close_both();
}
END_TEST

START_TEST(flush_that_is_refused_breaks_the_channel)
{
    struct setup o = GPU_SETUP;
    struct gemmar_transport_error e = {.size = sizeof(e)};

    ck_assert_int_eq(open_all(&o), 0);
    send(1, 1);
    fake.post_fail = fake.posted + 1;
    fake.post_errno = EINVAL;
    ck_assert(!gemmar_proxy_turn(b.channel));
    gemmar_channel_error(b.channel, &e);
    ck_assert_int_eq(e.code, -EINVAL);
    ck_assert_uint_eq(e.peer_rank, 0);
    ck_assert_ptr_nonnull(strstr(e.text, "flush not posted: device fake0"));
    ck_assert_int_eq(fake_warnings(), 1);
    close_both();
}
END_TEST

/* For want of room it is only put off. */
START_TEST(flush_without_room_is_tried_again)
{
    struct setup o = GPU_SETUP;

    ck_assert_int_eq(open_all(&o), 0);
    send(1, 1);
    fake.post_fail = fake.posted + 1;
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_int_eq(fake.reads, 0);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_int_eq(fake.reads, 1);
    ck_assert_uint_eq(fake_execute(flush_qp(0), 1, IBV_WC_SUCCESS), 1);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(1, 1), 1);
    close_both();
}
END_TEST

START_TEST(flush_that_never_completes_is_found_by_its_deadline)
{
    struct setup o = GPU_SETUP;

    o.timeout_ns = 1000000000;
    ck_assert_int_eq(open_all(&o), 0);
    send(1, 1);
    (void)gemmar_proxy_turn(b.channel);
    gemmar_arrival_check(b.channel, &b.channel->rails[0], b.channel->rails[0].flush_ns + 999999999);
    ck_assert_int_eq(gemmar_channel_code(b.channel), 0);
    gemmar_arrival_check(b.channel, &b.channel->rails[0],
                         b.channel->rails[0].flush_ns + 1000000001);
    ck_assert_int_eq(gemmar_channel_code(b.channel), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "no flush for 1.0 s: device fake0 qp 0x"));
    close_both();
}
END_TEST

/* Data in host memory, the knob, and stamp mode. */
START_TEST(no_flush_where_none_is_needed)
{
    struct setup o = GPU_SETUP;

    o.gpu = _i != 0;
    o.no_flush = _i == 1;
    o.signal = _i == 2 ? GEMMAR_SIGNAL_STAMP : GEMMAR_SIGNAL_IMM;
    ck_assert_int_eq(open_all(&o), 0);
    push(1, 1);
    turns(1);
    (void)fake_execute(qp(1), 2, IBV_WC_SUCCESS);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(1, 1), 1);
    ck_assert_int_eq(fake.reads, 0);
    ck_assert_ptr_null(b.channel->rails[0].flush);
    close_both();
}
END_TEST

/* Nothing was written, so there is nothing to flush; but it does not overtake. */
START_TEST(empty_command_needs_no_flush_of_its_own)
{
    struct setup o = GPU_SETUP;
    ck_assert_int_eq(open_all(&o), 0);
    for (int round = 0; round < 2; round++) {
        uint32_t slot = round == 0 ? 7 : 9;

        if (round == 1) {
            send(1, 1);
        }
        push_empty(slot, 1);
        turns(1);
        (void)fake_execute(qp(slot), 1, IBV_WC_SUCCESS);
        (void)gemmar_proxy_turn(b.channel);
        ck_assert_uint_eq(stamp_of(slot, 1), round == 0);
        ck_assert_int_eq(fake.reads, round);
    }
    (void)fake_execute(flush_qp(0), 1, IBV_WC_SUCCESS);
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(9, 1), 1);
    close_both();
}
END_TEST

START_TEST(stamps_in_gpu_memory_are_refused)
{
    struct setup o = GPU_SETUP;

    o.gpu_stamps = true;
    ck_assert_int_eq(open_all(&o), -EINVAL);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "must be in host memory"));
    close_both();
}
END_TEST

START_TEST(no_step_that_fails_leaves_anything)
{
    struct setup o = GPU_SETUP;
    int steps;

    ck_assert_int_eq(open_all(&o), 0);
    steps = fake.calls;
    close_both();
    for (int step = 1; step <= steps; step += step < 40 || step > steps - 30 ? 1 : 17) {
        fake_reset();
        fake.fail_call = step;
        if (open_all(&o) != 0) {
            ck_assert_msg(fake_warnings() > 0, "step %d failed without a warning", step);
        }
        close_both();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arrival");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, imm_is_stamped_by_the_receiver);
    tcase_add_test(tcase, stamp_is_not_written_before_its_flush_completed);
    tcase_add_test(tcase, flushes_on_the_way_keep_the_order_of_the_stamps);
    tcase_add_test(tcase, flush_does_not_cover_what_came_after_its_post);
    tcase_add_test(tcase, each_rail_flushes_its_own_writes);
    tcase_add_test(tcase, arrivals_that_wait_for_a_flush_are_not_lost);
    tcase_add_loop_test(tcase, failed_flush_breaks_the_channel, 0, 3);
    tcase_add_test(tcase, flush_that_is_refused_breaks_the_channel);
    tcase_add_test(tcase, flush_without_room_is_tried_again);
    tcase_add_test(tcase, flush_that_never_completes_is_found_by_its_deadline);
    tcase_add_loop_test(tcase, no_flush_where_none_is_needed, 0, 3);
    tcase_add_test(tcase, empty_command_needs_no_flush_of_its_own);
    tcase_add_test(tcase, stamps_in_gpu_memory_are_refused);
    tcase_add_test(tcase, no_step_that_fails_leaves_anything);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
