// SPDX-License-Identifier: Apache-2.0
// What goes wrong outside of the library: every other rank gets an error that names rank, peer and
// stage within the timeout, nothing hangs, nothing is left behind.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "test/protocol/problem.h"
#include "test/protocol/ranks.h"
#include "transport/order.h"

#define TIMEOUT_MS 3000
#define LONG_MS    60000 /* no case waits for it */
#define CALLS_MAX  20000

/* No rank may need longer than this to give up: the timeout, and a machine that is busy. */
#define GIVE_UP_MS (TIMEOUT_MS * 5)

static void note(struct rank *rank, gemmarComm_t comm, gemmarResult_t result)
{
    rank->report->result = result;
    (void)strncpy(rank->report->text, gemmarGetLastError(comm), sizeof(rank->report->text) - 1);
}

/* Every later call says the same; nothing of it waits. */
static void check_broken(struct rank *rank, gemmarComm_t comm)
{
    gemmarResult_t again = gemmarSuccess, first = rank->report->result;
    gemmarCommInfo_t info = {.size = sizeof(info)};
    uint64_t began = ranks_ms();
    uint16_t x[3] = {0};

    if (gemmarCommGetAsyncError(comm, &again) != gemmarSuccess || again != first) {
        ranks_fail(rank, "asynchronous error %d, first error %d", again, first);
    }
    if (gemmar_fused(x, x + 1, x + 2, 1, 1, 1, gemmarBfloat16, comm, NULL) != first ||
        gemmarCommGetInfo(comm, &info) != first ||
        gemmarCommReserve(comm, 9000, 9000, 1, gemmarBfloat16) != first ||
        strcmp(gemmarGetLastError(comm), rank->report->text) != 0) {
        ranks_fail(rank, "a later call said '%s' instead of '%s'", gemmarGetLastError(comm),
                   rank->report->text);
    }
    (void)gemmarCommDestroy(comm);
    if (ranks_ms() - began > 2000) {
        ranks_fail(rank, "a broken communicator took %llu ms to go",
                   (unsigned long long)(ranks_ms() - began));
    }
}

/* Calls without end until one fails. The argument is a timeout of its own. */
static void work(struct rank *rank)
{
    const uint32_t *timeout_ms = rank->argument;
    struct problem p = {64, 600, 32, gemmarBfloat16, rank->ranks, 3};
    struct operands o = problem_make(&p, rank->rank);
    gemmarResult_t result = gemmarSuccess;
    uint64_t began = 0;
    gemmarComm_t comm;

    rank->config.timeoutMs = timeout_ms != NULL ? *timeout_ms : TIMEOUT_MS;
    comm = ranks_create(rank);
    for (int i = 0; result == gemmarSuccess && i < CALLS_MAX; i++) {
        began = ranks_ms();
        result = gemmar_fused(o.a, o.b, o.c, p.m, p.n, p.k, p.datatype, comm, NULL);
        if (i == 5 && rank->rank == 0) {
            gemmar_store_release(&rank->shared[0], 1);
        }
        if (gemmar_load_acquire(&rank->shared[0]) == 0) {
            ranks_sleep_ms(1);
        }
    }
    rank->report->ms = ranks_ms() - began;
    problem_free(&o);
    if (result == gemmarSuccess) {
        ranks_fail(rank, "%d calls and no error", CALLS_MAX);
    }
    note(rank, comm, result);
    check_broken(rank, comm);
}

/* All but `but` failed in time with a sentence that has all the parts. */
static void check_failed(const struct report *reports, int ranks, int but)
{
    int with_qp = 0;

    for (int r = 0; r < ranks; r++) {
        const struct report *x = &reports[r];

        if (r == but) {
            continue;
        }
        ck_assert_msg(x->result != gemmarSuccess, "rank %d has no error", r);
        ck_assert_msg(strstr(x->text, "rank ") != NULL, "rank %d: %s", r, x->text);
        ck_assert_msg(strstr(x->text, "stage") != NULL, "rank %d: %s", r, x->text);
        ck_assert_msg(x->ms < GIVE_UP_MS, "rank %d needed %llu ms: %s", r,
                      (unsigned long long)x->ms, x->text);
        with_qp += strstr(x->text, "qp 0x") != NULL;
    }
    ck_assert_msg(with_qp > 0, "nobody names a queue pair: %s", reports[0].text);
}

static const struct report *disturbed(int nodes, int per_node, int signal_rank, int number,
                                      const char *ctl)
{
    struct run run = {.nodes = nodes,
                      .per_node = per_node,
                      .body = work,
                      .signal = number,
                      .signal_rank = signal_rank,
                      .ctl = ctl};

    ck_assert_int_eq(setenv("NCCL_IB_TIMEOUT", "14", 1), 0);
    return ranks_run(&run);
}

/* E-05 for the fused path: a peer that is killed, this one and those below, or stopped. */
START_TEST(killed_peer_of_another_node)
{
    const struct report *reports = disturbed(2, 1, 1, SIGKILL, NULL);

    check_failed(reports, 2, 1);
    ck_assert_msg(strstr(reports[0].text, "rank 1") != NULL, "%s", reports[0].text);
}
END_TEST

START_TEST(killed_peer_of_two_by_two)
{
    check_failed(disturbed(2, 2, 3, SIGKILL, NULL), 4, 3);
}
END_TEST

START_TEST(killed_local_peer)
{
    static const uint32_t timeout_ms = LONG_MS;
    struct run run = {.nodes = 1,
                      .per_node = 3,
                      .body = work,
                      .argument = &timeout_ms,
                      .signal = SIGKILL,
                      .signal_rank = 1};
    const struct report *reports = ranks_run(&run);

    for (int r = 0; r < 3; r += 2) {
        ck_assert_int_eq(reports[r].result, gemmarRemoteError);
        ck_assert_msg(strstr(reports[r].text, "rank 1") != NULL, "%s", reports[r].text);
        ck_assert_msg(strstr(reports[r].text, "stage") != NULL, "%s", reports[r].text);
        ck_assert_msg(reports[r].ms < GIVE_UP_MS, "death was not noticed, only the timeout: %s",
                      reports[r].text);
    }
}
END_TEST

START_TEST(stopped_peer)
{
    check_failed(disturbed(2, 2, 2, SIGSTOP, NULL), 4, 2);
}
END_TEST

/* A stage of its own that waits for the same stopped rank must not be the first to give up. */
START_TEST(stopped_local_peer_is_named)
{
    const struct report *reports = disturbed(2, 2, 2, SIGSTOP, NULL);

    check_failed(reports, 4, 2);
    ck_assert_msg(strstr(reports[3].text, "for rank ") != NULL, "%s", reports[3].text);
}
END_TEST

START_TEST(port_that_stays_down)
{
    check_failed(disturbed(2, 1, 0, 0, "port node1 0 1 down"), 2, -1);
}
END_TEST

/* E-04: an error inside the proxy ends the calls of all ranks. */
START_TEST(failed_completion)
{
    const struct report *reports;

    /* 10: remote access error */
    ck_assert_int_eq(setenv("SOFTHCA_FAULTS", "complete nth=20 status=10 node=node1", 1), 0);
    reports = disturbed(2, 1, 0, 0, NULL);
    check_failed(reports, 2, -1);
    ck_assert_msg(strstr(reports[1].text, "rank 0") != NULL, "%s", reports[1].text);
}
END_TEST

START_TEST(refused_post)
{
    ck_assert_int_eq(setenv("SOFTHCA_FAULTS", "call name=post_send nth=20 errno=22 node=node1", 1),
                     0);
    check_failed(disturbed(2, 1, 0, 0, NULL), 2, -1);
}
END_TEST

/* Creation fails on all ranks with the sentence of the rank that could not. */
static void create_and_note(struct rank *rank)
{
    gemmarComm_t comm = NULL;

    if (rank->rank == 1 && rank->argument != NULL) {
        const char *const *variable = rank->argument;

        (void)setenv(variable[0], variable[1], 1);
    }
    note(rank, NULL, gemmarCommCreateHost(&comm, &rank->bootstrap, &rank->config));
    note(rank, NULL, rank->report->result);
    if (comm != NULL) {
        ranks_fail(rank, "a communicator came out");
    }
}

static void check_refused(const struct report *reports, int ranks, gemmarResult_t result,
                          const char *part)
{
    for (int r = 0; r < ranks; r++) {
        ck_assert_msg(reports[r].result == result, "rank %d: %d %s", r, reports[r].result,
                      reports[r].text);
        ck_assert_msg(strstr(reports[r].text, "rank 1") != NULL &&
                          strstr(reports[r].text, part) != NULL,
                      "rank %d: '%s' does not say '%s'", r, reports[r].text, part);
    }
}

/* The cause is in the sentence also where no line is shown. */
START_TEST(no_device_on_one_rank)
{
    static const char *const variable[] = {"NCCL_IB_HCA", "=nothing"};
    static const char *const levels[] = {"warn", "none"};

    ck_assert_int_eq(setenv("GEMMAR_DEBUG", levels[_i], 1), 0);
    check_refused(ranks_simple(2, 2, create_and_note, variable), 4, gemmarSystemError,
                  "NCCL_IB_HCA");
}
END_TEST

START_TEST(bad_knob_on_one_rank)
{
    static const char *const variable[] = {"GEMMAR_TIMEOUT", "soon"};

    check_refused(ranks_simple(2, 1, create_and_note, variable), 2, gemmarInvalidArgument,
                  "GEMMAR_TIMEOUT");
}
END_TEST

START_TEST(settings_that_differ)
{
    static const char *const variable[] = {"GEMMAR_CHUNK", "3"};

    check_refused(ranks_simple(2, 2, create_and_note, variable), 4, gemmarInvalidUsage, "chunk");
}
END_TEST

START_TEST(no_transport_on_one_rank)
{
    static const char *const variable[] = {"GEMMAR_TRANSPORT", "/nowhere/at/all.so"};

    check_refused(ranks_simple(2, 1, create_and_note, variable), 2, gemmarSystemError,
                  "/nowhere/at/all.so");
}
END_TEST

static void uneven(struct rank *rank)
{
    rank->bootstrap.node = rank->rank == 2 ? "b" : "a";
    create_and_note(rank);
}

START_TEST(nodes_of_different_size)
{
    const struct report *reports = ranks_simple(1, 3, uneven, NULL);

    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(reports[r].result, gemmarInvalidUsage);
        ck_assert_msg(strstr(reports[r].text, "same number of ranks") != NULL, "%s",
                      reports[r].text);
    }
}
END_TEST

static void little_memory(struct rank *rank)
{
    struct rlimit limit = {64 << 10, 64 << 10};

    if (rank->rank == 1) {
        (void)setrlimit(RLIMIT_MEMLOCK, &limit);
        (void)setenv("SOFTHCA_NO_IPC_LOCK", "1", 1);
    }
    create_and_note(rank);
}

START_TEST(memlock_limit)
{
    check_refused(ranks_simple(2, 1, little_memory, NULL), 2, gemmarSystemError, "MEMLOCK");
}
END_TEST

/* Each rank another shape; `check` on, and off where the workspace has to grow. */
static void mismatched(struct rank *rank)
{
    struct problem p = {64, rank->rank == 1 ? 65 : 64, 8, gemmarBfloat16, rank->ranks, 1};
    struct operands o;
    gemmarComm_t comm;

    rank->config.check = rank->argument == NULL;
    if (rank->argument != NULL) {
        p.m = 3000;
        p.n = rank->rank == 1 ? 4000 : 3000;
        p.k = 1;
    }
    comm = ranks_create(rank);
    o = problem_make(&p, rank->rank);
    note(rank, comm, gemmar_fused(o.a, o.b, o.c, p.m, p.n, p.k, p.datatype, comm, NULL));
    note(rank, comm, rank->report->result);
    problem_free(&o);
    /* nothing was started: the communicator still works */
    p = (struct problem){64, 64, 8, gemmarBfloat16, rank->ranks, 1};
    o = problem_make(&p, rank->rank);
    if (gemmar_fused(o.a, o.b, o.c, p.m, p.n, p.k, p.datatype, comm, NULL) != gemmarSuccess ||
        problem_wrong(&p, &o) != 0) {
        ranks_fail(rank, "after the refusal: %s", gemmarGetLastError(comm));
    }
    problem_free(&o);
    ranks_destroy(rank, comm);
}

START_TEST(shapes_that_differ)
{
    static const int unchecked = 1;

    check_refused(ranks_simple(2, 2, mismatched, _i == 0 ? NULL : &unchecked), 4,
                  gemmarInvalidUsage, _i == 0 ? "another N" : "another shape");
}
END_TEST

/* One rank refuses its arguments: with `check` the others do not start without it. */
static void one_refuses(struct rank *rank)
{
    uint16_t x[3] = {0};
    gemmarComm_t comm;
    int64_t m = rank->rank == 1 ? -1 : 1;

    rank->config.check = 1;
    comm = ranks_create(rank);
    note(rank, comm, gemmar_fused(x, x + 1, x + 2, m, 1, 1, gemmarBfloat16, comm, NULL));
    note(rank, comm, rank->report->result);
    ranks_destroy(rank, comm);
}

START_TEST(one_rank_refuses)
{
    check_refused(ranks_simple(2, 1, one_refuses, NULL), 2, gemmarInvalidArgument, "negative");
}
END_TEST

/* Rank 1 cannot make its segment: nobody grows, and all go on with what they have. */
static void cannot_grow(struct rank *rank)
{
    struct problem p = {64, 300, 8, gemmarBfloat16, rank->ranks, 1};
    struct operands o = problem_make(&p, rank->rank);
    struct rlimit limit;
    gemmarComm_t comm = ranks_create(rank);

    (void)getrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 2; i++) {
        struct rlimit small = {i == 0 && rank->rank == 1 ? 1 << 20 : limit.rlim_cur,
                               limit.rlim_max};
        gemmarResult_t result;

        (void)setrlimit(RLIMIT_FSIZE, &small);
        result = gemmarCommReserve(comm, 2000, 2000, 1, gemmarFloat32);
        if (i == 0) {
            note(rank, comm, result);
        } else if (result != gemmarSuccess) {
            ranks_fail(rank, "with memory: %s", gemmarGetLastError(comm));
        }
        if (gemmar_fused(o.a, o.b, o.c, p.m, p.n, p.k, p.datatype, comm, NULL) != gemmarSuccess ||
            problem_wrong(&p, &o) != 0) {
            ranks_fail(rank, "after the growth: %s", gemmarGetLastError(comm));
        }
    }
    problem_free(&o);
    ranks_destroy(rank, comm);
}

START_TEST(growth_that_fails_on_one_rank)
{
    check_refused(ranks_simple(2, 2, cannot_grow, NULL), 4, gemmarSystemError, "ulimit -f");
}
END_TEST

static void *abort_soon(void *comm)
{
    ranks_sleep_ms(200);
    (void)gemmarCommAbort(comm);
    return NULL;
}

/* Rank 1 never comes; rank 0 is called off by a thread of its own. */
static void aborted(struct rank *rank)
{
    uint16_t x[3] = {0};
    gemmarComm_t comm;
    pthread_t thread;
    uint64_t began;

    rank->config.timeoutMs = 30000;
    comm = ranks_create(rank);
    if (rank->rank == 0) {
        if (pthread_create(&thread, NULL, abort_soon, comm) != 0) {
            ranks_fail(rank, "no thread");
        }
        began = ranks_ms();
        note(rank, comm, gemmar_fused(x, x + 1, x + 2, 1, 1, 1, gemmarBfloat16, comm, NULL));
        note(rank, comm, rank->report->result);
        rank->report->ms = ranks_ms() - began;
        (void)pthread_join(thread, NULL);
        gemmar_store_release(&rank->shared[1], 1);
    } else {
        while (gemmar_load_acquire(&rank->shared[1]) == 0) {
            ranks_sleep_ms(1);
        }
        (void)gemmarCommAbort(comm);
    }
    (void)gemmarCommDestroy(comm);
}

START_TEST(abort_from_another_thread)
{
    const struct report *reports = ranks_simple(2, 1, aborted, NULL);

    ck_assert_int_eq(reports[0].result, gemmarInvalidUsage);
    ck_assert_msg(strstr(reports[0].text, "gemmarCommAbort") != NULL, "%s", reports[0].text);
    ck_assert_uint_lt(reports[0].ms, 10000);
}
END_TEST

/* A local peer is broken, and its process goes on: the healthy rank must not wait for it. */
static void destroy_beside_a_broken_one(struct rank *rank)
{
    gemmarComm_t comm = ranks_create(rank);
    uint64_t began = ranks_ms();

    if (rank->rank == 1) {
        (void)gemmarCommAbort(comm);
        gemmar_store_release(&rank->shared[1], 1);
        while (gemmar_load_acquire(&rank->shared[2]) == 0 && ranks_ms() - began < 20000) {
            ranks_sleep_ms(1);
        }
    } else {
        while (gemmar_load_acquire(&rank->shared[1]) == 0) {
            ranks_sleep_ms(1);
        }
    }
    (void)gemmarCommDestroy(comm);
    gemmar_store_release(&rank->shared[2], 1);
    rank->report->ms = ranks_ms() - began;
}

START_TEST(destroy_does_not_wait_for_a_broken_local_rank)
{
    const struct report *reports = ranks_simple(1, 2, destroy_beside_a_broken_one, NULL);

    ck_assert_uint_lt(reports[0].ms, 10000);
}
END_TEST

/* A process may end with a communicator in use; its peers are the ones who get an error. */
static void just_leaves(struct rank *rank)
{
    gemmarComm_t comm = ranks_create(rank);

    (void)comm;
}

START_TEST(exit_without_destroy)
{
    (void)ranks_simple(2, 1, just_leaves, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("failures");
    TCase *all = tcase_create("failures");

    tcase_set_timeout(all, RANKS_SECONDS + 20);
    tcase_add_test(all, killed_peer_of_another_node);
    tcase_add_test(all, killed_peer_of_two_by_two);
    tcase_add_test(all, killed_local_peer);
    tcase_add_test(all, stopped_peer);
    tcase_add_loop_test(all, stopped_local_peer_is_named, 0, 2);
    tcase_add_test(all, port_that_stays_down);
    tcase_add_test(all, failed_completion);
    tcase_add_test(all, refused_post);
    tcase_add_loop_test(all, no_device_on_one_rank, 0, 2);
    tcase_add_test(all, bad_knob_on_one_rank);
    tcase_add_test(all, settings_that_differ);
    tcase_add_test(all, no_transport_on_one_rank);
    tcase_add_test(all, nodes_of_different_size);
    tcase_add_test(all, memlock_limit);
    tcase_add_loop_test(all, shapes_that_differ, 0, 2);
    tcase_add_test(all, one_rank_refuses);
    tcase_add_test(all, growth_that_fails_on_one_rank);
    tcase_add_test(all, abort_from_another_thread);
    tcase_add_test(all, destroy_does_not_wait_for_a_broken_local_rank);
    tcase_add_test(all, exit_without_destroy);
    suite_add_tcase(suite, all);
    return ranks_main(suite);
}
