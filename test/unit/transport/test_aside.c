// SPDX-License-Identifier: Apache-2.0
// Commands whose send queue is full: others pass them, their own order and the frontier stay.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/transport/two_channels.h"

#define FIT (GEMMAR_SEND_DEPTH / 2) /* commands of one send queue: a write and a stamp each */

static uint64_t taken(void)
{
    return gemmar_load_acquire(a.channel->fifo.ring.tail);
}

START_TEST(full_send_queue_holds_back_no_other_queue_pair)
{
    struct setup o = {.queue_pairs = 2, .ring_entries = 1024, .first_epoch = 1};

    ck_assert_int_eq(open_all(&o), 0);
    for (uint32_t i = 0; i < FIT + 70; i++) {
        push(2 * i, 1);
    }
    for (uint32_t i = 0; i < 100; i++) {
        push(2 * i + 1, 1);
    }
    for (int i = 0; i < 20; i++) {
        turns(1);
        (void)fake_execute(qp(1), 100, IBV_WC_SUCCESS);
    }
    for (uint32_t i = 0; i < 100; i++) {
        ck_assert(stamp_of(2 * i + 1, 1) == 1 && data_of(2 * i + 1, 1));
        ck_assert_uint_eq(stamp_of(2 * i, 1), 0);
    }
    ck_assert_uint_eq(taken(), FIT + 170);
    ck_assert_uint_eq(retired(), 0); /* the oldest one is still on the way */
    ck_assert_uint_eq(gemmar_load_relaxed(&a.channel->counters.send_queue_full), 70);
    for (int i = 0; i < 20; i++) {
        (void)fake_execute(qp(0), 100, IBV_WC_SUCCESS);
        turns(2);
    }
    for (uint32_t i = 0; i < FIT + 70; i++) {
        ck_assert(stamp_of(2 * i, 1) == 1 && data_of(2 * i, 1));
    }
    ck_assert_uint_eq(retired(), FIT + 170);
    ck_assert_uint_le(fake.deepest, GEMMAR_SEND_DEPTH);
    close_both();
}
END_TEST

/* Everything in the send queue has completed, and nothing of what waits has been posted. */
START_TEST(command_that_was_set_aside_is_neither_posted_nor_retired)
{
    struct setup o = {.queue_pairs = 2, .ring_entries = 1024, .first_epoch = 1};

    ck_assert_int_eq(open_all(&o), 0);
    for (uint32_t i = 0; i < FIT + 10; i++) {
        push(2 * i, 1);
    }
    push(1, 1);
    turns(10);
    ck_assert_uint_eq(taken(), FIT + 11);
    ck_assert_uint_eq(gemmar_load_acquire(&a.posted_word), FIT);
    (void)fake_execute(qp(1), 2, IBV_WC_SUCCESS);
    (void)fake_execute(qp(0), GEMMAR_SEND_DEPTH, IBV_WC_SUCCESS);
    for (int i = 0; i < 64 && retired() < FIT; i++) {
        turns(1);
    }
    ck_assert_uint_eq(retired(), FIT);
    ck_assert_uint_eq(stamp_of(2 * FIT, 1), 0);
    turns(2);
    ck_assert_uint_eq(gemmar_load_acquire(&a.posted_word), FIT + 11);
    (void)fake_execute(qp(0), GEMMAR_SEND_DEPTH, IBV_WC_SUCCESS);
    turns(2);
    ck_assert_uint_eq(retired(), FIT + 11);
    close_both();
}
END_TEST

/* With short messages a command without data needs less room than one with: it may fit where the
 * one before it does not. */
static void push_some(uint32_t slot, uint64_t epoch)
{
    if (slot / 4 % 3 == 1) {
        push_empty(slot, epoch);
    } else {
        push(slot, epoch);
    }
}

/* While some wait, later ones of the same queue pair find room and must not take it. */
START_TEST(commands_of_a_queue_pair_keep_their_order)
{
    struct setup o = {.queue_pairs = 2, .ring_entries = 1024, .first_epoch = 1, .signal = _i != 0};
    uint32_t next = 0, all = SLOTS / 2, reached;

    fake.device[0].port[0].attr.max_msg_sz = 48; /* three pieces */
    ck_assert_int_eq(open_all(&o), 0);
    for (uint32_t i = 0; i < FIT; i++) {
        push_some(2 * next++, 1);
    }
    turns(20);
    for (int round = 0; round < 2000 && stamp_of(2 * (all - 1), 1) == 0; round++) {
        (void)fake_execute(qp(0), 1 + (uint32_t)round % 3, IBV_WC_SUCCESS);
        (void)gemmar_proxy_turn(b.channel);
        if (next < all) {
            push_some(2 * next++, 1);
        }
        turns(1);
        for (reached = 0; reached < all && stamp_of(2 * reached, 1) == 1; reached++) {
        }
        for (uint32_t i = reached; i < all; i++) {
            ck_assert_msg(stamp_of(2 * i, 1) == 0, "command %u before command %u", i, reached);
        }
    }
    ck_assert_uint_eq(stamp_of(2 * (all - 1), 1), 1);
    close_both();
}
END_TEST

START_TEST(no_more_commands_are_set_aside_than_the_bound)
{
    struct setup o = {.queue_pairs = 2, .ring_entries = 1024, .first_epoch = 1};

    ck_assert_int_eq(open_all(&o), 0);
    for (uint64_t epoch = 1; epoch < 3; epoch++) {
        for (uint32_t i = 0; i < SLOTS / 2; i++) {
            push(2 * i, epoch);
        }
    }
    turns(100);
    ck_assert_uint_eq(taken(), FIT + GEMMAR_ASIDE);
    for (int i = 0; i < 100 && retired() < SLOTS; i++) {
        (void)fake_execute(qp(0), 50, IBV_WC_SUCCESS);
        turns(2);
    }
    ck_assert_uint_eq(retired(), SLOTS);
    for (uint32_t i = 0; i < SLOTS / 2; i++) {
        ck_assert(stamp_of(2 * i, 1) == 1 && stamp_of(2 * i, 2) == 2);
    }
    close_both();
}
END_TEST

/* Position p of the ring is slot p % SLOTS of epoch 1 + p / SLOTS. */
static void check_frontier(uint64_t from)
{
    for (uint64_t p = from; p < retired(); p++) {
        ck_assert_uint_ge(stamp_of((uint32_t)(p % SLOTS), 1 + p / SLOTS), 1 + p / SLOTS);
    }
}

START_TEST(frontier_is_contiguous_whatever_completes_first)
{
    struct setup o = {.queue_pairs = 4, .ring_entries = 512, .first_epoch = 1};
    uint64_t pushed = 0, all = 6 * SLOTS;

    srand((unsigned)_i + 1);
    if (_i % 2 == 1) {
        fake.device[0].port[0].attr.max_msg_sz = 48; /* pieces: the batch is full before 32 */
    }
    ck_assert_int_eq(open_all(&o), 0);
    for (int round = 0; round < 100000 && retired() < all; round++) {
        uint64_t before = retired();
        uint32_t slow = (uint32_t)(pushed / 300 % 4); /* this one hardly moves for a while */

        /* an epoch begins when the one before the last is retired, as in a kernel */
        while (pushed < all && pushed - taken() < 500 && rand() % 64 != 0 &&
               (pushed / SLOTS < 2 || retired() >= (pushed / SLOTS - 1) * SLOTS)) {
            push_some((uint32_t)(pushed % SLOTS), 1 + pushed / SLOTS);
            pushed++;
        }
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t most = (uint32_t)(rand() % 8 == 0 ? GEMMAR_SEND_DEPTH : rand() % 40);

            (void)fake_execute(qp(i), i == slow ? most / 16 : most, IBV_WC_SUCCESS);
        }
        turns(1);
        ck_assert_uint_ge(retired(), before);
        check_frontier(before);
    }
    ck_assert_uint_eq(retired(), all);
    ck_assert_uint_le(fake.deepest, GEMMAR_SEND_DEPTH);
    ck_assert_uint_eq(a.channel->aside_count, 0);
    ck_assert_int_eq(fake_warnings(), 0);
    close_both();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("aside");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, full_send_queue_holds_back_no_other_queue_pair);
    tcase_add_test(tcase, command_that_was_set_aside_is_neither_posted_nor_retired);
    tcase_add_loop_test(tcase, commands_of_a_queue_pair_keep_their_order, 0, 2);
    tcase_add_test(tcase, no_more_commands_are_set_aside_than_the_bound);
    tcase_add_loop_test(tcase, frontier_is_contiguous_whatever_completes_first, 0, 6);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
