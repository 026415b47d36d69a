// SPDX-License-Identifier: Apache-2.0
// Waiting ends at its deadline, never before it, and does not burn the CPU.
#include "transport/wait.h"

#include <time.h>

#include "run_suite.h"

#define MS UINT64_C(1000000)

static uint64_t cpu_ns(void)
{
    struct timespec now;

    ck_assert_int_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

START_TEST(deadline_is_kept_and_most_of_it_is_slept)
{
    struct gemmar_wait wait;
    uint64_t cpu = cpu_ns(), start = gemmar_now_ns(), took;

    gemmar_wait_init(&wait, 300 * MS);
    while (gemmar_wait_step(&wait)) {
    }
    took = gemmar_now_ns() - start;
    ck_assert_uint_ge(took, 300 * MS);
    ck_assert_uint_lt(took, 20 * 300 * MS);
    ck_assert(gemmar_wait_sleeps(&wait));
    /* Sleeps of up to 100 us leave under a tenth of a CPU even where each costs several us. */
    ck_assert_uint_lt(cpu_ns() - cpu, took / 2);
}
END_TEST

START_TEST(first_turns_neither_sleep_nor_end)
{
    struct gemmar_wait wait = {0};

    for (int i = 0; i < 64; i++) {
        ck_assert(gemmar_wait_step(&wait));
        ck_assert(!gemmar_wait_sleeps(&wait));
    }
}
END_TEST

START_TEST(no_deadline_never_ends)
{
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, 0);
    for (int i = 0; i < 2000; i++) {
        ck_assert(gemmar_wait_step(&wait));
    }
    ck_assert(gemmar_wait_sleeps(&wait));
}
END_TEST

START_TEST(a_second_wait_starts_afresh)
{
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, 1);
    while (gemmar_wait_step(&wait)) {
    }
    gemmar_wait_init(&wait, 10000 * MS);
    ck_assert(gemmar_wait_step(&wait));
    ck_assert(!gemmar_wait_sleeps(&wait));
}
END_TEST

START_TEST(the_longest_deadline_does_not_wrap)
{
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, UINT64_MAX);
    for (int i = 0; i < 200; i++) {
        ck_assert(gemmar_wait_step(&wait));
    }
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, deadline_is_kept_and_most_of_it_is_slept);
    tcase_add_test(tests, first_turns_neither_sleep_nor_end);
    tcase_add_test(tests, no_deadline_never_ends);
    tcase_add_test(tests, a_second_wait_starts_afresh);
    tcase_add_test(tests, the_longest_deadline_does_not_wrap);
    return run_suite("wait", tests, 60);
}
