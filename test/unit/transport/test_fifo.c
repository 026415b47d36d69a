// SPDX-License-Identifier: Apache-2.0
// The FIFO: any payload is seen, once, in its producer's order, at any ratio of producers to slots.
#include "transport/fifo.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "run_suite.h"
#include "fifo_stream.h"
#include "transport/order.h"
#include "transport/wait.h"

static const uint32_t sizes[] = {1, 2, 4, 128};
#define SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

static struct gemmar_fifo open_at(uint32_t entries, uint64_t start)
{
    struct gemmar_fifo fifo;

    ck_assert_int_eq(gemmar_fifo_open(entries, &fifo), 0);
    fifo.head = start;
    *fifo.tail = start;
    return fifo;
}

static bool same(const struct gemmar_fifo_request *a, const struct gemmar_fifo_request *b)
{
    return a->offset == b->offset && a->length == b->length && a->slot == b->slot &&
           a->route == b->route && a->epoch == b->epoch;
}

START_TEST(invalid_sizes_are_errors)
{
    static const uint32_t bad[] = {0, 3, 5, 6, 127, 129, 0x80000000u, UINT32_MAX};
    struct gemmar_fifo fifo, before;

    memset(&fifo, 0x5a, sizeof(fifo));
    memcpy(&before, &fifo, sizeof(fifo));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(gemmar_fifo_open(bad[i], &fifo), -EINVAL);
        ck_assert_mem_eq(&fifo, &before, sizeof(fifo));
    }
}
END_TEST

START_TEST(ring_begins_empty_and_closes_twice)
{
    struct gemmar_fifo fifo = open_at(sizes[_i], 0);
    struct gemmar_fifo_request got;

    for (uint32_t i = 0; i < sizes[_i]; i++) {
        ck_assert(!gemmar_fifo_peek(&fifo, i, &got));
    }
    ck_assert_uint_eq((uintptr_t)fifo.ring.base % 4096, 0);
    ck_assert_uint_eq(fifo.ring.bytes % 4096, 0);
    ck_assert_uint_ge((uintptr_t)fifo.ring.retired - (uintptr_t)fifo.ring.tail, 64);
    ck_assert_uint_ge((uintptr_t)fifo.ring.tail - (uintptr_t)fifo.ring.commands,
                      sizes[_i] * sizeof(*fifo.ring.commands));
    gemmar_fifo_close(&fifo);
    gemmar_fifo_close(&fifo);
}
END_TEST

START_TEST(extreme_commands_come_out_as_they_went_in)
{
    static const struct gemmar_fifo_request cases[] = {
        {0, 0, 0, 0, 0},
        {((UINT64_C(1) << 38) - 1) * 128, (1u << 24) - 1, (1u << 21) - 1, 1023, UINT32_MAX},
        {((UINT64_C(1) << 38) - 1) * 128, 0, 0, 0, 0},
        {0, (1u << 24) - 1, 0, 0, 0},
        {0, 0, (1u << 21) - 1, 0, 0},
        {0, 0, 0, 1023, 0},
        {0, 0, 0, 0, UINT32_MAX},
    };
    struct gemmar_fifo fifo = open_at(sizes[_i], 0);
    uint64_t ticket = 0, known = 0;
    struct gemmar_fifo_request got;

    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            ck_assert(gemmar_fifo_produce(&fifo.ring, &ticket, &known, &cases[i], NULL));
            ck_assert(gemmar_fifo_peek(&fifo, 0, &got));
            ck_assert(same(&got, &cases[i]));
            gemmar_fifo_advance(&fifo, 1);
            ck_assert(!gemmar_fifo_peek(&fifo, 0, &got));
        }
    }
    gemmar_fifo_close(&fifo);
}
END_TEST

/* All zeros, so that nothing but the lap bits tells a new command from an old or absent one. */
START_TEST(zero_commands_over_many_laps)
{
    static const struct gemmar_fifo_request zero;
    struct gemmar_fifo fifo = open_at(sizes[_i], 0);
    uint64_t ticket = 0, known = 0;
    struct gemmar_fifo_request got;

    for (int lap = 0; lap < 5; lap++) {
        for (uint32_t fill = 0; fill <= sizes[_i]; fill++) {
            for (uint32_t i = 0; i < fill; i++) {
                ck_assert(gemmar_fifo_produce(&fifo.ring, &ticket, &known, &zero, NULL));
            }
            for (uint32_t i = 0; i < fill; i++) {
                ck_assert(gemmar_fifo_peek(&fifo, i, &got));
                ck_assert(same(&got, &zero));
            }
            ck_assert(fill == sizes[_i] || !gemmar_fifo_peek(&fifo, fill, &got));
            gemmar_fifo_advance(&fifo, fill);
            ck_assert_uint_eq(gemmar_load_acquire(fifo.ring.tail), ticket);
        }
    }
    gemmar_fifo_close(&fifo);
}
END_TEST

START_TEST(full_ring_stops_the_producer_until_abort)
{
    static const struct gemmar_fifo_request zero;
    struct gemmar_fifo fifo = open_at(sizes[_i], 0);
    uint64_t ticket = 0, known = 0, abort_word = 1;
    struct gemmar_fifo_request other = {.epoch = 9}, got;

    for (uint32_t i = 0; i < sizes[_i]; i++) {
        ck_assert(gemmar_fifo_produce(&fifo.ring, &ticket, &known, &zero, &abort_word));
    }
    ck_assert(!gemmar_fifo_produce(&fifo.ring, &ticket, &known, &other, &abort_word));
    for (uint32_t i = 0; i < sizes[_i]; i++) {
        ck_assert(gemmar_fifo_peek(&fifo, i, &got));
        ck_assert(same(&got, &zero));
    }
    gemmar_fifo_close(&fifo);
}
END_TEST

START_TEST(positions_pass_2_to_the_32_and_2_to_the_64)
{
    const uint64_t laps = UINT64_C(2) * sizes[_i] * 2; /* an even lap: an empty ring is zero */
    const uint64_t starts[] = {(UINT64_C(1) << 32) - laps, UINT64_C(0) - laps};

    for (int s = 0; s < 2; s++) {
        struct gemmar_fifo fifo = open_at(sizes[_i], starts[s]);
        uint64_t ticket = starts[s], known = starts[s];
        struct gemmar_fifo_request got, want;

        ck_assert(!gemmar_fifo_peek(&fifo, 0, &got));
        for (uint64_t i = 0; i < 4 * laps; i++) {
            fifo_stream_command(i, &want);
            ck_assert(gemmar_fifo_produce(&fifo.ring, &ticket, &known, &want, NULL));
            ck_assert(gemmar_fifo_peek(&fifo, 0, &got));
            ck_assert(same(&got, &want));
            gemmar_fifo_advance(&fifo, 1);
            ck_assert(!gemmar_fifo_peek(&fifo, 0, &got));
        }
        gemmar_fifo_close(&fifo);
    }
}
END_TEST

/* A wide store that reaches memory in two halves, in either order, on the first and second lap. */
START_TEST(half_a_command_is_not_a_command)
{
    struct gemmar_fifo fifo = open_at(1, 0);

    for (uint64_t position = 0; position < 6; position++) {
        int first = position % 3 == 0;
        struct gemmar_fifo_request want, got;
        struct gemmar_fifo_command command;

        fifo_stream_command(position * 77, &want);
        command = gemmar_fifo_pack(&want, gemmar_fifo_lap(position, 1));
        gemmar_store_release(&fifo.ring.commands[0].word[first], command.word[first]);
        ck_assert(!gemmar_fifo_peek(&fifo, 0, &got));
        gemmar_store_release(&fifo.ring.commands[0].word[!first], command.word[!first]);
        ck_assert(gemmar_fifo_peek(&fifo, 0, &got));
        ck_assert(same(&got, &want));
        gemmar_fifo_advance(&fifo, 1);
    }
    gemmar_fifo_close(&fifo);
}
END_TEST

START_TEST(retired_is_what_was_said)
{
    struct gemmar_fifo fifo = open_at(4, 0);

    gemmar_fifo_retire(&fifo, UINT64_C(1) << 40);
    ck_assert_uint_eq(gemmar_load_acquire(fifo.ring.retired), UINT64_C(1) << 40);
    gemmar_fifo_close(&fifo);
}
END_TEST

#define PRODUCERS 33
#define EACH      150

struct producer {
    pthread_t thread;
    const struct gemmar_fifo_ring *ring;
    uint64_t *ticket;
    uint32_t number;
};

static void *produce(void *user)
{
    struct producer *p = user;
    uint64_t known = 0;

    for (uint32_t i = 0; i < EACH; i++) {
        struct gemmar_fifo_request request = {.offset = (uint64_t)i * 128,
                                              .length = i * p->number,
                                              .slot = i,
                                              .route = p->number,
                                              .epoch = ~i};

        if (!gemmar_fifo_produce(p->ring, p->ticket, &known, &request, NULL)) {
            return p;
        }
    }
    return NULL;
}

START_TEST(many_producers_lose_and_reorder_nothing)
{
    static struct producer producers[PRODUCERS];
    uint32_t next[PRODUCERS] = {0};
    struct gemmar_fifo fifo = open_at(sizes[_i], 0);
    uint64_t ticket = 0;
    struct gemmar_wait wait;

    for (uint32_t p = 0; p < PRODUCERS; p++) {
        producers[p] = (struct producer){.ring = &fifo.ring, .ticket = &ticket, .number = p};
        ck_assert_int_eq(pthread_create(&producers[p].thread, NULL, produce, &producers[p]), 0);
    }
    gemmar_wait_init(&wait, UINT64_C(60000000000));
    for (uint32_t taken = 0; taken < PRODUCERS * EACH;) {
        struct gemmar_fifo_request got;

        if (!gemmar_fifo_peek(&fifo, 0, &got)) {
            ck_assert_msg(gemmar_wait_step(&wait), "no command for a minute");
            continue;
        }
        ck_assert_uint_lt(got.route, PRODUCERS);
        uint32_t i = next[got.route]++;
        ck_assert_uint_eq(got.slot, i);
        ck_assert_uint_eq(got.offset, (uint64_t)i * 128);
        ck_assert_uint_eq(got.length, i * got.route);
        ck_assert_uint_eq(got.epoch, ~i);
        gemmar_fifo_advance(&fifo, 1);
        taken++;
        gemmar_wait_init(&wait, UINT64_C(60000000000));
    }
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        void *failed;

        ck_assert_int_eq(pthread_join(producers[p].thread, &failed), 0);
        ck_assert_ptr_null(failed);
        ck_assert_uint_eq(next[p], EACH);
    }
    gemmar_fifo_close(&fifo);
}
END_TEST

START_TEST(stream_of_one_producer_has_no_wrong_command)
{
    struct fifo_stream result;

    ck_assert_int_eq(fifo_stream_run(sizes[_i] < 4 ? 5000 : 200000, sizes[_i], &result), 0);
    ck_assert_uint_eq(result.commands, sizes[_i] < 4 ? 5000 : 200000);
    ck_assert_uint_eq(result.wrong, 0);
    ck_assert_uint_gt(result.ns, 0);
    ck_assert_int_eq(fifo_stream_run(10, 3, &result), -EINVAL);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, invalid_sizes_are_errors);
    tcase_add_loop_test(tests, ring_begins_empty_and_closes_twice, 0, SIZES);
    tcase_add_loop_test(tests, extreme_commands_come_out_as_they_went_in, 0, SIZES);
    tcase_add_loop_test(tests, zero_commands_over_many_laps, 0, SIZES);
    tcase_add_loop_test(tests, full_ring_stops_the_producer_until_abort, 0, SIZES);
    tcase_add_loop_test(tests, positions_pass_2_to_the_32_and_2_to_the_64, 0, SIZES);
    tcase_add_test(tests, half_a_command_is_not_a_command);
    tcase_add_test(tests, retired_is_what_was_said);
    tcase_add_loop_test(tests, many_producers_lose_and_reorder_nothing, 0, SIZES);
    tcase_add_loop_test(tests, stream_of_one_producer_has_no_wrong_command, 0, SIZES);
    return run_suite("fifo", tests, 100);
}
