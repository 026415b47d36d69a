// SPDX-License-Identifier: Apache-2.0
// Two channels in one process over fake verbs: the test decides when a work request is executed.
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/unit/transport/two_channels.h"

START_TEST(no_step_that_fails_leaves_anything)
{
    static const uint32_t signals[] = {GEMMAR_SIGNAL_STAMP, GEMMAR_SIGNAL_IMM};
    struct setup o = {.queue_pairs = 3, .ring_entries = 8, .signal = signals[_i]};
    int steps, stride;

    (void)fake_add_device("fake1", 1, false);
    ck_assert_int_eq(open_all(&o), 0);
    steps = fake.calls;
    close_both();
    stride = steps > 200 ? steps / 200 : 1; /* imm mode posts hundreds of receives */
    for (int step = 1; step <= steps; step += step < 100 ? 1 : stride) {
        fake_reset();
        (void)fake_add_device("fake1", 1, false);
        fake.fail_call = step;
        if (open_all(&o) != 0) {
            ck_assert_msg(fake_warnings() > 0, "step %d failed without a warning", step);
        }
        close_both();
    }
}
END_TEST

/* O-03 for the fused path: a flag must not overtake its data. */
START_TEST(stamp_follows_its_data_when_a_queue_pair_is_late)
{
    struct setup o = {.queue_pairs = 2, .ring_entries = 64, .first_epoch = 1};

    ck_assert_int_eq(open_all(&o), 0);
    for (uint32_t slot = 0; slot < 8; slot++) {
        push(slot, 1);
    }
    turns(2);
    ck_assert_uint_ne(qp(0), qp(1));
    ck_assert_uint_eq(fake_queued(qp(0)), 8);
    (void)fake_execute(qp(1), 100, IBV_WC_SUCCESS); /* slots 1, 3, 5, 7; the other one waits */
    for (uint32_t slot = 0; slot < 8; slot++) {
        ck_assert_uint_eq(stamp_of(slot, 1), slot % 2);
    }
    for (uint32_t done = 0; fake_queued(qp(0)) > 0; done++) {
        (void)fake_execute(qp(0), 1, IBV_WC_SUCCESS);
        for (uint32_t slot = 0; slot < 8; slot++) {
            ck_assert(stamp_of(slot, 1) == 0 || data_of(slot, 1));
        }
    }
    turns(2);
    ck_assert_uint_eq(retired(), 8);
    close_both();
}
END_TEST

/* The frontier is contiguous: a command that is still on the way holds back all behind it. */
START_TEST(staging_is_retired_only_when_all_queue_pairs_are_done)
{
    struct setup o = {.queue_pairs = 4, .ring_entries = 64, .first_epoch = 1};

    ck_assert_int_eq(open_all(&o), 0);
    for (uint32_t slot = 0; slot < 16; slot++) {
        push(slot, 1);
    }
    turns(2);
    (void)fake_execute(qp(3), 100, IBV_WC_SUCCESS);
    (void)fake_execute(qp(1), 100, IBV_WC_SUCCESS);
    turns(2);
    ck_assert_uint_eq(retired(), 0);
    (void)fake_execute(qp(0), 100, IBV_WC_SUCCESS);
    turns(2);
    ck_assert_uint_eq(retired(), 2); /* slot 2 is the hole */
    (void)fake_execute(qp(2), 100, IBV_WC_SUCCESS);
    turns(2);
    ck_assert_uint_eq(retired(), 16);
    close_both();
}
END_TEST

START_TEST(no_command_is_lost_after_a_failed_post)
{
    for (int at = 1; at <= 17; at++) {
        struct setup o = {.queue_pairs = 2, .ring_entries = 64, .first_epoch = 1};

        fake_reset();
        memset(b.stamps, 0, 16 * SLOTS);
        memset(b.data, 0, 4 * WINDOW);
        ck_assert_int_eq(open_all(&o), 0);
        fake.post_fail = at;
        for (uint32_t slot = 0; slot < 8; slot++) {
            push(slot, 1);
        }
        for (int i = 0; i < 8; i++) {
            turns(1);
            (void)fake_execute(qp(0), 3, IBV_WC_SUCCESS);
            (void)fake_execute(qp(1), 3, IBV_WC_SUCCESS);
        }
        turns(2);
        ck_assert_int_eq(fake.posted, 16);
        for (uint32_t slot = 0; slot < 8; slot++) {
            ck_assert(stamp_of(slot, 1) == 1 && data_of(slot, 1));
        }
        ck_assert_uint_eq(retired(), 8);
        ck_assert_uint_eq(gemmar_load_relaxed(&a.channel->counters.post_retries), at <= 16);
        ck_assert_int_eq(gemmar_channel_code(a.channel), 0);
        close_both();
    }
}
END_TEST

START_TEST(post_refused_for_good_breaks_the_channel)
{
    struct setup o = {.queue_pairs = 1, .ring_entries = 64, .first_epoch = 1};
    struct gemmar_transport_error e = {.size = sizeof(e)};

    ck_assert_int_eq(open_all(&o), 0);
    fake.post_fail = 3;
    fake.post_errno = EINVAL;
    for (uint32_t slot = 0; slot < 4; slot++) {
        push(slot, 1);
    }
    turns(3);
    gemmar_channel_error(a.channel, &e);
    ck_assert_int_eq(e.code, -EINVAL);
    ck_assert_uint_eq(e.peer_rank, 1);
    ck_assert_uint_eq(e.qp_number, qp(0));
    ck_assert_str_eq(e.stage, "rdma_write");
    ck_assert_uint_eq(a.abort_word, 1);
    ck_assert_int_eq(fake_warnings(), 1);
    close_both();
}
END_TEST

/* More commands than the send queue and the ring hold, and nothing completes for a while. */
START_TEST(full_send_queue_is_not_overrun)
{
    struct setup o = {.queue_pairs = 1, .ring_entries = 1024, .first_epoch = 1, .signal = _i != 0};

    ck_assert_int_eq(open_all(&o), 0);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        push(slot, 1);
    }
    turns(100);
    ck_assert_uint_le(fake.deepest, GEMMAR_SEND_DEPTH);
    ck_assert_uint_gt(gemmar_load_relaxed(&a.channel->counters.send_queue_full), 0);
    ck_assert_uint_lt(gemmar_load_acquire(a.channel->fifo.ring.tail), SLOTS);
    for (int i = 0; i < 400; i++) {
        (void)fake_execute(qp(0), 7, IBV_WC_SUCCESS);
        turns(1);
        (void)gemmar_proxy_turn(b.channel);
    }
    ck_assert_uint_le(fake.deepest, GEMMAR_SEND_DEPTH);
    ck_assert_uint_eq(retired(), SLOTS);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        ck_assert(stamp_of(slot, 1) == 1 && data_of(slot, 1));
    }
    close_both();
}
END_TEST

/* R-01 for the fused path. */
START_TEST(epochs_go_on_over_the_edge_of_32_bits)
{
    uint64_t first = (UINT64_C(1) << 32) - 2;
    struct setup o = {
        .queue_pairs = 2, .ring_entries = 64, .first_epoch = first, .signal = _i != 0};

    ck_assert_int_eq(open_all(&o), 0);
    for (uint64_t epoch = first; epoch < first + 5; epoch++) {
        for (uint32_t slot = 0; slot < 4; slot++) {
            push(slot, epoch);
        }
        turns(2);
        for (uint32_t q = 0; q < 2; q++) {
            (void)fake_execute(qp(q), 100, IBV_WC_SUCCESS);
        }
        turns(2);
        (void)gemmar_proxy_turn(b.channel);
        for (uint32_t slot = 0; slot < 4; slot++) {
            ck_assert_uint_eq(stamp_of(slot, epoch), epoch);
            ck_assert(data_of(slot, epoch));
        }
    }
    ck_assert_uint_eq(retired(), 20);
    close_both();
}
END_TEST

/* A port that takes messages shorter than a command: the stamp still comes last, and the send queue
 * is not overrun by the pieces. */
START_TEST(long_command_leaves_in_pieces_before_its_stamp)
{
    struct setup o = {.queue_pairs = 1, .ring_entries = 512, .first_epoch = 1};

    o.signal = _i == 0 ? GEMMAR_SIGNAL_STAMP : GEMMAR_SIGNAL_IMM;
    fake.device[0].port[0].attr.max_msg_sz = 48; /* pieces of 48, 48 and 32 bytes */
    ck_assert_int_eq(open_all(&o), 0);
    push(0, 1);
    turns(1);
    ck_assert_uint_eq(fake_queued(qp(0)), _i == 0 ? 4 : 3);
    while (fake_queued(qp(0)) > 0) {
        ck_assert_uint_eq(stamp_of(0, 1), 0);
        (void)fake_execute(qp(0), 1, IBV_WC_SUCCESS);
        ck_assert(stamp_of(0, 1) == 0 || data_of(0, 1));
    }
    (void)gemmar_proxy_turn(b.channel);
    ck_assert_uint_eq(stamp_of(0, 1), 1);
    ck_assert(data_of(0, 1));
    for (uint32_t slot = 1; slot < 200; slot++) {
        push(slot, 1);
    }
    turns(100);
    ck_assert_uint_le(fake.deepest, GEMMAR_SEND_DEPTH);
    for (int i = 0; i < 100 && retired() < 200; i++) {
        (void)fake_execute(qp(0), 32, IBV_WC_SUCCESS);
        turns(2);
        (void)gemmar_proxy_turn(b.channel);
    }
    ck_assert_uint_eq(retired(), 200);
    for (uint32_t slot = 0; slot < 200; slot++) {
        ck_assert_uint_eq(stamp_of(slot, 1), 1);
        ck_assert(data_of(slot, 1));
    }
    close_both();
}
END_TEST

START_TEST(command_of_too_many_pieces_breaks_the_channel)
{
    struct setup o = {.queue_pairs = 1, .ring_entries = 64, .first_epoch = 1};

    fake.device[0].port[0].attr.max_msg_sz = 2; /* 64 pieces and a stamp: more than a batch */
    ck_assert_int_eq(open_all(&o), 0);
    push(0, 1);
    ck_assert(!gemmar_proxy_turn(a.channel));
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "the port takes messages of 2"));
    close_both();
}
END_TEST

static double cpu_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The test sleeps meanwhile: what the process uses is the proxy's. */
START_TEST(idle_proxy_leaves_the_cpu_alone_and_keeps_the_mask)
{
    struct setup o = {.queue_pairs = 1, .ring_entries = 64, .first_epoch = 1};
    cpu_set_t mine, its, both;
    double before;

    ck_assert_int_eq(open_all(&o), 0);
    ck_assert_int_eq(gemmar_channel_start(a.channel), 0);
    ck_assert_int_eq(pthread_getaffinity_np(pthread_self(), sizeof(mine), &mine), 0);
    ck_assert_int_eq(pthread_getaffinity_np(a.channel->proxy, sizeof(its), &its), 0);
    CPU_AND(&both, &mine, &its);
    ck_assert(CPU_EQUAL(&both, &its));
    ck_assert_int_gt(CPU_COUNT(&its), 0);
    (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    before = cpu_seconds();
    (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    ck_assert_double_lt(cpu_seconds() - before, 0.2);
    close_both();
}
END_TEST

/* Flushes follow any first error; they must not bury it. */
/* E-01 for the fused path: the first error is told, what is flushed behind it is not. */
START_TEST(first_error_wins)
{
    static const enum ibv_wc_status statuses[] = {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
                                                  IBV_WC_REM_OP_ERR,    IBV_WC_REM_INV_REQ_ERR,
                                                  IBV_WC_LOC_PROT_ERR,  IBV_WC_REM_ACCESS_ERR};
    struct setup o = {.queue_pairs = 1, .ring_entries = 64, .first_epoch = 1};
    struct gemmar_transport_error e = {.size = sizeof(e)};
    char text[64];

    ck_assert_int_eq(open_all(&o), 0);
    for (uint32_t slot = 0; slot < 16; slot++) {
        push(slot, 1);
    }
    turns(2);
    (void)fake_execute(qp(0), 1, statuses[_i]);
    (void)fake_execute(qp(0), 100, IBV_WC_WR_FLUSH_ERR);
    turns(5);
    gemmar_channel_error(a.channel, &e);
    ck_assert_int_eq(e.code, -EIO);
    (void)snprintf(text, sizeof(text), "status %d (", (int)statuses[_i]);
    ck_assert_ptr_nonnull(strstr(e.text, text));
    ck_assert_ptr_nonnull(strstr(e.text, "vendor 0x81"));
    ck_assert_ptr_nonnull(strstr(e.text, "device fake0 port 1"));
    ck_assert_ptr_nonnull(strstr(e.text, "gid fe80::"));
    ck_assert_ptr_nonnull(strstr(e.text, "peer qp 0x"));
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_uint_eq(a.abort_word, 1);
    ck_assert_int_eq(gemmar_channel_drain(a.channel, a.ticket, 0), -EIO);
    close_both();
}
END_TEST

static void wait_broken(const struct side *s)
{
    struct timespec nap = {.tv_nsec = 1000000};

    for (int i = 0; i < 20000 && gemmar_load_acquire(&s->abort_word) == 0; i++) {
        (void)nanosleep(&nap, NULL);
    }
    ck_assert_uint_eq(gemmar_load_acquire(&s->abort_word), 1);
}

/* The adapter says nothing at all. */
START_TEST(stuck_send_is_found_by_its_deadline)
{
    struct setup o = {
        .queue_pairs = 2, .ring_entries = 64, .first_epoch = 1, .timeout_ns = 200000000};
    struct gemmar_transport_error e = {.size = sizeof(e)};

    ck_assert_int_eq(open_all(&o), 0);
    ck_assert_int_eq(gemmar_channel_start(a.channel), 0);
    push(1, 1);
    wait_broken(&a);
    gemmar_channel_error(a.channel, &e);
    ck_assert_int_eq(e.code, -ETIMEDOUT);
    ck_assert_uint_eq(e.peer_rank, 1);
    ck_assert_uint_eq(e.qp_number, qp(1));
    ck_assert_ptr_nonnull(strstr(e.text, "no completion for"));
    close_both();
}
END_TEST

START_TEST(dead_device_breaks_its_channels)
{
    struct setup o = {.queue_pairs = 1, .ring_entries = 64, .first_epoch = 1};
    struct gemmar_transport_error e = {.size = sizeof(e)};

    ck_assert_int_eq(open_all(&o), 0);
    ck_assert_int_eq(gemmar_channel_start(a.channel), 0);
    fake_event(IBV_EVENT_DEVICE_FATAL, 0);
    wait_broken(&a);
    gemmar_channel_error(a.channel, &e);
    ck_assert_ptr_nonnull(strstr(e.text, "local catastrophic error"));
    close_both();
}
END_TEST

/* No completion tells of it: nothing is on the way. */
START_TEST(event_of_a_queue_pair_breaks_its_channel)
{
    static const struct {
        enum ibv_event_type type;
        const char *text;
    } row[] = {{IBV_EVENT_QP_FATAL, "local work queue catastrophic error"},
               {IBV_EVENT_QP_REQ_ERR, "invalid request local work queue error"},
               {IBV_EVENT_QP_ACCESS_ERR, "local access violation work queue error"}};
    struct setup o = {.queue_pairs = 3, .ring_entries = 64, .first_epoch = 1};
    struct gemmar_transport_error e = {.size = sizeof(e)};

    ck_assert_int_eq(open_all(&o), 0);
    ck_assert_int_eq(gemmar_channel_start(a.channel), 0);
    fake_qp_event(row[_i].type, qp(1));
    wait_broken(&a);
    gemmar_channel_error(a.channel, &e);
    ck_assert_int_eq(e.code, -EIO);
    ck_assert_uint_eq(e.peer_rank, 1);
    ck_assert_uint_eq(e.qp_number, qp(1));
    ck_assert_str_eq(e.stage, "ib_event");
    ck_assert_ptr_nonnull(strstr(e.text, "device fake0 port 1: "));
    ck_assert_ptr_nonnull(strstr(e.text, row[_i].text));
    ck_assert_int_eq(gemmar_channel_code(b.channel), 0); /* the other owner is left alone */
    ck_assert_int_eq(fake_warnings(), 1);
    close_both();
}
END_TEST

static void *send_events(void *number)
{
    for (int i = 0; i < 200; i++) {
        fake_qp_event(IBV_EVENT_QP_FATAL, *(uint32_t *)number);
        if (i % 16 == 0) {
            (void)sched_yield();
        }
    }
    return NULL;
}

START_TEST(event_while_its_channel_closes_does_no_harm)
{
    struct setup o = {.queue_pairs = 2, .ring_entries = 64, .first_epoch = 1};

    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        uint32_t number;

        fake_reset();
        ck_assert_int_eq(open_all(&o), 0);
        number = qp(0);
        ck_assert_int_eq(pthread_create(&thread, NULL, send_events, &number), 0);
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000 * (i % 7)}, NULL);
        gemmar_channel_close(a.channel);
        a.channel = NULL;
        (void)pthread_join(thread, NULL);
        close_both();
    }
}
END_TEST

START_TEST(stop_while_busy_ends)
{
    for (int i = 0; i < 20; i++) {
        struct setup o = {.queue_pairs = 2, .ring_entries = 64, .first_epoch = 1};

        fake_reset();
        ck_assert_int_eq(open_all(&o), 0);
        ck_assert_int_eq(gemmar_channel_start(a.channel), 0);
        ck_assert_int_eq(gemmar_channel_start(b.channel), 0);
        for (uint32_t slot = 0; slot < 40; slot++) {
            push(slot, 1);
            if (slot % 5 == 0) {
                (void)fake_execute(qp(slot), 3, IBV_WC_SUCCESS);
            }
        }
        close_both();
    }
}
END_TEST

/* Each field that two ranks must agree on, changed in turn. */
START_TEST(blob_of_other_terms_is_refused_with_a_sentence)
{
    struct setup o = {.queue_pairs = 2, .ring_entries = 64, .first_epoch = 1};
    struct gemmar_wire_blob blob;
    char raw[GEMMAR_CONNECT_BLOB_BYTES];

    ck_assert_int_eq(open_all(&o), 0);
    ck_assert_int_eq(gemmar_channel_blob(b.channel, 0, raw), 0);
    memcpy(&blob, raw, sizeof(blob));
    switch (_i) {
    case 0: blob.magic++; break;
    case 1: blob.version++; break;
    case 2: blob.bytes--; break;
    case 3: memset(blob.build, 'x', sizeof(blob.build)); break;
    case 4: blob.rank++; break;
    case 5: blob.to++; break;
    case 6: blob.signal = 1; break;
    case 7: blob.qp_count++; break;
    case 8: blob.rail_count = GEMMAR_WIRE_MAX_RAILS + 1; break;
    case 9: blob.route_count = 0; break;
    case 10: blob.route[0].route = 1; break;
    case 11: blob.route[0].slots--; break;
    case 12: blob.route[0].window_bytes--; break;
    case 13: blob.qp[1].rail = blob.rail_count; break;
    case 14: blob.qp[0].qp_number = 0x1000000; break;
    case 15: blob.qp[0].packet_number = 0x1000000; break;
    case 16: blob.qp[1].mtu = 6; break;
    case 17: blob.qp[1].link_layer = 0; break;
    default: ck_abort();
    }
    memcpy(raw, &blob, sizeof(blob));
    ck_assert_int_eq(gemmar_channel_connect(a.channel, 0, raw), -EPROTO);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "connect blob refused"));
    close_both();
}
END_TEST

/* It was once made as large as the device allows, and overflowed under load. */
START_TEST(completion_queue_that_would_overflow_is_refused)
{
    struct setup o = {.queue_pairs = 17, .ring_entries = 8};

    ck_assert_int_eq(open_all(&o), -ENOSPC);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "device fake0: 17 queue pairs need a completion "
                                                  "queue of 4352 entries, the largest one has "
                                                  "4096"));
    close_both();
}
END_TEST

START_TEST(settings_that_do_not_fit_are_refused)
{
    struct setup o = {.queue_pairs = GEMMAR_WIRE_MAX_QPS + 1, .ring_entries = 64};

    ck_assert_int_eq(open_all(&o), -EINVAL);
    ck_assert_int_eq(fake_warnings(), 1);
    gemmar_ib_devices_close(devices, device_count);
    fake_log_clear();
    o = (struct setup){.queue_pairs = 1, .ring_entries = 63};
    ck_assert_int_eq(open_all(&o), -EINVAL);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "power of two"));
    close_both();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("channel");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, no_step_that_fails_leaves_anything, 0, 2);
    tcase_add_test(tcase, stamp_follows_its_data_when_a_queue_pair_is_late);
    tcase_add_test(tcase, staging_is_retired_only_when_all_queue_pairs_are_done);
    tcase_add_test(tcase, no_command_is_lost_after_a_failed_post);
    tcase_add_test(tcase, post_refused_for_good_breaks_the_channel);
    tcase_add_loop_test(tcase, full_send_queue_is_not_overrun, 0, 2);
    tcase_add_loop_test(tcase, epochs_go_on_over_the_edge_of_32_bits, 0, 2);
    tcase_add_loop_test(tcase, long_command_leaves_in_pieces_before_its_stamp, 0, 2);
    tcase_add_test(tcase, command_of_too_many_pieces_breaks_the_channel);
    tcase_add_test(tcase, idle_proxy_leaves_the_cpu_alone_and_keeps_the_mask);
    tcase_add_loop_test(tcase, first_error_wins, 0, 6);
    tcase_add_test(tcase, stuck_send_is_found_by_its_deadline);
    tcase_add_test(tcase, dead_device_breaks_its_channels);
    tcase_add_loop_test(tcase, event_of_a_queue_pair_breaks_its_channel, 0, 3);
    tcase_add_test(tcase, event_while_its_channel_closes_does_no_harm);
    tcase_add_test(tcase, stop_while_busy_ends);
    tcase_add_loop_test(tcase, blob_of_other_terms_is_refused_with_a_sentence, 0, 18);
    tcase_add_test(tcase, completion_queue_that_would_overflow_is_refused);
    tcase_add_test(tcase, settings_that_do_not_fit_are_refused);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
