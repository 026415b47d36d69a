// SPDX-License-Identifier: Apache-2.0
// A rank that failed is heard by all; ranks in different calls find out.
#include <pthread.h>
#include <string.h>

#include <check.h>

#include "kernels/agree.h"

#define RANKS 3

/* An all-gather between threads. */
static struct {
    pthread_barrier_t barrier;
    char record[RANKS][4096];
    int fail;
} meeting;

struct rank {
    int index;
    enum gemmar_agree_step step;
    struct gemmar_error error;
    uint32_t payload;
    uint32_t all[RANKS];
    gemmarResult_t result;
};

static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    const int *index = context;

    memcpy(meeting.record[*index], mine, bytes);
    (void)pthread_barrier_wait(&meeting.barrier);
    for (int r = 0; r < RANKS; r++) {
        memcpy((char *)all + (size_t)r * bytes, meeting.record[r], bytes);
    }
    (void)pthread_barrier_wait(&meeting.barrier);
    return meeting.fail;
}

static void *take_part(void *argument)
{
    struct rank *r = argument;
    gemmarHostBootstrap_t b = {.size = sizeof(b),
                               .rank = r->index,
                               .nranks = RANKS,
                               .allGather = gather,
                               .context = &r->index};

    r->result = gemmar_agree(&b, r->step, &r->error, &r->payload, sizeof(r->payload), r->all);
    return NULL;
}

static void run(struct rank *ranks)
{
    pthread_t threads[RANKS];

    (void)pthread_barrier_init(&meeting.barrier, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        ranks[r].index = r;
        ranks[r].payload = 100u + (uint32_t)r;
        ranks[r].step = ranks[r].step != 0 ? ranks[r].step : GEMMAR_AGREE_HELLO;
        ck_assert_int_eq(pthread_create(&threads[r], NULL, take_part, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        (void)pthread_join(threads[r], NULL);
    }
    (void)pthread_barrier_destroy(&meeting.barrier);
}

START_TEST(all_are_well)
{
    struct rank ranks[RANKS] = {0};

    run(ranks);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(ranks[r].result, gemmarSuccess);
        ck_assert_uint_eq(ranks[r].all[2], 102);
    }
}
END_TEST

START_TEST(one_failed_and_all_say_so)
{
    struct rank ranks[RANKS] = {0};

    (void)gemmar_error_set(&ranks[1].error, gemmarSystemError, "no room");
    run(ranks);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(ranks[r].result, gemmarSystemError);
        ck_assert_str_eq(ranks[r].error.text, "rank 1: no room");
        ck_assert(!ranks[r].error.fatal);
    }
}
END_TEST

START_TEST(one_is_in_another_call)
{
    struct rank ranks[RANKS] = {[2] = {.step = GEMMAR_AGREE_GROW}};

    run(ranks);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(ranks[r].result, gemmarInvalidUsage);
        ck_assert_ptr_nonnull(strstr(ranks[r].error.text, "another call"));
        ck_assert(ranks[r].error.fatal);
    }
}
END_TEST

START_TEST(the_all_gather_fails)
{
    struct rank ranks[RANKS] = {0};

    meeting.fail = 5;
    run(ranks);
    ck_assert_int_eq(ranks[0].result, gemmarSystemError);
    ck_assert_ptr_nonnull(strstr(ranks[0].error.text, "returned 5"));
    ck_assert(ranks[0].error.fatal);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agree");
    TCase *all = tcase_create("agree");
    SRunner *runner;
    int failed;

    tcase_add_test(all, all_are_well);
    tcase_add_test(all, one_failed_and_all_say_so);
    tcase_add_test(all, one_is_in_another_call);
    tcase_add_test(all, the_all_gather_fails);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
