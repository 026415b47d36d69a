// SPDX-License-Identifier: Apache-2.0
// Long runs of mixed calls: epochs near 2^31 and 2^32, calls without chunks and refused calls in
// between, ranks with different local facts, growth in the middle, calls that are compared.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/protocol/problem.h"
#include "test/protocol/ranks.h"

#define CALLS 40

static const struct problem mix[] = {
    {64, 256, 40, gemmarBfloat16, 0, 1}, {1, 1, 1, gemmarFloat16, 0, 1},
    {0, 64, 64, gemmarBfloat16, 0, 1},   {130, 260, 17, gemmarFloat32, 0, 1},
    {33, 700, 64, gemmarBfloat16, 0, 1}, {16, 16, 0, gemmarFloat16, 0, 1},
};
#define MIX (int)(sizeof(mix) / sizeof(mix[0]))

static uint64_t one_call(struct rank *rank, gemmarComm_t comm, const struct problem *shape,
                         int index)
{
    struct problem p = *shape;
    struct operands o;
    gemmarResult_t result;
    uint64_t hash;

    p.ranks = rank->ranks;
    p.seed = (uint64_t)index + 1;
    p.datatype = problem_type(p.datatype);
    o = problem_make(&p, rank->rank);
    result = gemmar_fused(o.a, o.b, o.c, p.m, p.n, p.k, p.datatype, comm, NULL);
    if (result != gemmarSuccess) {
        ranks_fail(rank, "call %d: %d %s", index, result, gemmarGetLastError(comm));
    }
    if (problem_wrong(&p, &o) != 0) {
        ranks_fail(rank, "call %d: %lld wrong", index, (long long)problem_wrong(&p, &o));
    }
    hash = problem_hash(&o);
    problem_free(&o);
    return hash;
}

/* A call that every rank refuses; nothing may have moved by it. */
static void refused_call(struct rank *rank, gemmarComm_t comm)
{
    uint16_t x[4] = {0};

    if (gemmar_fused(x, x + 1, x, 1, 1, 1, gemmarBfloat16, comm, NULL) != gemmarInvalidArgument ||
        strstr(gemmarGetLastError(comm), "C overlaps A") == NULL) {
        ranks_fail(rank, "an overlap was taken: %s", gemmarGetLastError(comm));
    }
    if (gemmar_fused(x, x + 1, x + 2, 1, 1, 1, gemmarBfloat16, comm, (gemmarStream_t)x) !=
        gemmarInvalidArgument) {
        ranks_fail(rank, "a stream was taken");
    }
}

static uint64_t epoch_of(struct rank *rank, gemmarComm_t comm)
{
    gemmarCommInfo_t info = {.size = sizeof(info)};

    if (gemmarCommGetInfo(comm, &info) != gemmarSuccess) {
        ranks_fail(rank, "info: %s", gemmarGetLastError(comm));
    }
    return info.epoch;
}

static void many_calls(struct rank *rank)
{
    unsigned seed = (unsigned)rank->rank * 7919u + 1;
    uint64_t hash = 0, first;
    int ran = 0;
    gemmarComm_t comm;

    rank->config.ctas = 1 + (uint32_t)rank->rank % 4; /* local facts differ */
    comm = ranks_create(rank);
    first = epoch_of(rank, comm);
    for (int i = 0; i < CALLS; i++) {
        const struct problem *shape = &mix[i * 5 % MIX];

        if (rand_r(&seed) % 4 == 0) {
            ranks_sleep_ms((unsigned)rand_r(&seed) % 4);
        }
        if (i % 7 == 3) {
            refused_call(rank, comm);
        }
        hash = hash * 31 + one_call(rank, comm, shape, i);
        ran += shape->m != 0;
    }
    if (epoch_of(rank, comm) != first + (uint64_t)ran) {
        ranks_fail(rank, "epoch %llu after %llu and %d calls",
                   (unsigned long long)epoch_of(rank, comm), (unsigned long long)first, ran);
    }
    rank->report->number[0] = hash;
    rank->report->number[1] = first;
    ranks_destroy(rank, comm);
}

static void check_hashes(const struct report *reports, int ranks)
{
    for (int r = 1; r < ranks; r++) {
        ck_assert_uint_eq(reports[r].number[0], reports[0].number[0]);
    }
}

/* A 32-bit comparison anywhere would take a later epoch for an earlier one. */
START_TEST(epochs_that_wrap_32_bits)
{
    static const char *const starts[] = {"2147483645", "4294967293"};
    static const char *const signals[] = {"stamp", "imm"};
    const struct report *reports;

    ck_assert_int_eq(setenv("GEMMAR_EPOCH_START", starts[_i % 2], 1), 0);
    ck_assert_int_eq(setenv("GEMMAR_SIGNAL", signals[_i / 2], 1), 0);
    reports = ranks_simple(2, 2, many_calls, NULL);
    ck_assert_uint_eq(reports[0].number[1], strtoull(starts[_i % 2], NULL, 10));
    check_hashes(reports, 4);
}
END_TEST

START_TEST(three_nodes_two_shot)
{
    ck_assert_int_eq(setenv("GEMMAR_ALGO", "two-shot", 1), 0);
    check_hashes(ranks_simple(3, 1, many_calls, NULL), 3);
}
END_TEST

/* Direct and two-shot calls in turn use the same memory. */
START_TEST(algorithms_in_turn)
{
    check_hashes(ranks_simple(3, 2, many_calls, NULL), 6);
}
END_TEST

START_TEST(a_ring_of_one_entry)
{
    ck_assert_int_eq(setenv("GEMMAR_RING_ENTRIES", "1", 1), 0);
    check_hashes(ranks_simple(2, 1, many_calls, NULL), 2);
}
END_TEST

static void growing(struct rank *rank)
{
    static const struct problem sizes[] = {{64, 64, 16, gemmarBfloat16, 0, 1},
                                           {300, 1000, 32, gemmarBfloat16, 0, 1},
                                           {64, 64, 16, gemmarBfloat16, 0, 1},
                                           {700, 2000, 16, gemmarFloat32, 0, 1}};
    gemmarComm_t comm = ranks_create(rank);
    gemmarCommInfo_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    size_t bytes = 0;

    for (int i = 0; i < 4; i++) {
        rank->report->number[0] += one_call(rank, comm, &sizes[i], i);
    }
    if (gemmarCommReserve(comm, 2048, 2048, 8, problem_type(gemmarFloat32)) != gemmarSuccess ||
        gemmarCommGetInfo(comm, &before) != gemmarSuccess) {
        ranks_fail(rank, "reserve: %s", gemmarGetLastError(comm));
    }
    rank->report->number[0] += one_call(rank, comm, &sizes[3], 5);
    if (gemmarCommGetInfo(comm, &after) != gemmarSuccess ||
        after.workspaceBytes != before.workspaceBytes || after.epoch != before.epoch + 1) {
        ranks_fail(rank, "the workspace grew after it was reserved");
    }
    if (gemmarWorkspaceBytes(2048, 2048, 8, problem_type(gemmarFloat32), after.nodes,
                             after.localRanks, NULL, &bytes) != gemmarSuccess ||
        bytes != after.workspaceBytes) {
        ranks_fail(rank, "%zu bytes by query, %llu mapped", bytes,
                   (unsigned long long)after.workspaceBytes);
    }
    ranks_destroy(rank, comm);
}

START_TEST(growth_in_the_middle)
{
    check_hashes(ranks_simple(2, 2, growing, NULL), 4);
}
END_TEST

/* A call without chunks is a last call too: it sent nothing. */
static void no_chunks_last(struct rank *rank)
{
    static const struct problem none = {0, 64, 64, gemmarBfloat16, 0, 1};
    gemmarCommInfo_t info = {.size = sizeof(info)};
    gemmarComm_t comm = ranks_create(rank);

    (void)one_call(rank, comm, &mix[0], 1);
    (void)one_call(rank, comm, &none, 2);
    if (gemmarCommGetInfo(comm, &info) != gemmarSuccess || info.wireBytesFormula != 0 ||
        info.chunks != 0 || info.algo != gemmarAlgoNone) {
        ranks_fail(rank, "%llu chunks, %llu bytes", (unsigned long long)info.chunks,
                   (unsigned long long)info.wireBytesFormula);
    }
    ranks_destroy(rank, comm);
}

START_TEST(info_after_a_call_without_chunks)
{
    (void)ranks_simple(2, 1, no_chunks_last, NULL);
}
END_TEST

/* Every option of the extended form, against values computed by hand. */
static void extended(struct rank *rank)
{
    enum { M = 5, N = 70, K = 3, LDA = 4, LDB = 6, LDC = 75 };
    static float a[M * LDA], b[N * LDB], c[M * LDC], bias[N];
    gemmarFusedArgs_t args = {.size = sizeof(args),
                              .A = a,
                              .B = b,
                              .C = c,
                              .bias = bias,
                              .M = M,
                              .N = N,
                              .K = K,
                              .lda = LDA,
                              .ldb = LDB,
                              .ldc = LDC,
                              .datatype = gemmarFloat32,
                              .transB = 1,
                              .alpha = 0.5f,
                              .beta = 2.0f};
    gemmarComm_t comm = ranks_create(rank);

    for (int i = 0; i < M * LDA; i++) {
        a[i] = i % LDA < K ? (float)(i % 7 + rank->rank) : 1e9f; /* the gap must not be read */
    }
    for (int i = 0; i < N * LDB; i++) {
        b[i] = i % LDB < K ? (float)(i % 5 - 2) : 1e9f;
    }
    for (int i = 0; i < M * LDC; i++) {
        c[i] = (float)(i % 11);
    }
    for (int j = 0; j < N; j++) {
        bias[j] = (float)(j % 13);
    }
    if (gemmar_fused_ex(&args, comm, NULL) != gemmarSuccess) {
        ranks_fail(rank, "%s", gemmarGetLastError(comm));
    }
    for (int i = 0; i < M * LDC; i++) {
        float expected = (float)(i % 11), sum = 0;

        for (int r = 0; r < rank->ranks && i % LDC < N; r++) {
            for (int k = 0; k < K; k++) {
                int at = i / LDC * LDA + k, bt = i % LDC * LDB + k;

                sum += (float)(at % 7 + r) * (float)(bt % 5 - 2);
            }
        }
        if (i % LDC < N) {
            expected = 0.5f * sum + 2.0f * expected + (float)(i % LDC % 13);
        }
        if (c[i] != expected) {
            ranks_fail(rank, "element %d is %g, not %g", i, (double)c[i], (double)expected);
        }
    }
    ranks_destroy(rank, comm);
}

START_TEST(alpha_beta_bias_strides)
{
    (void)ranks_simple(_i == 0 ? 1 : 2, 2, extended, NULL);
}
END_TEST

/* Ranks are free to be on any node in any order. */
static void shuffled(struct rank *rank)
{
    static char node[2][8] = {"x", "y"};

    rank->bootstrap.node = node[rank->rank % 2];
    (void)setenv("SOFTHCA_NODE", rank->bootstrap.node, 1);
    many_calls(rank);
}

START_TEST(ranks_dealt_round_robin)
{
    check_hashes(ranks_simple(2, 2, shuffled, NULL), 4);
}
END_TEST

/* A child of a rank may not use its communicator, and does no harm by ending. */
static void forking(struct rank *rank)
{
    gemmarComm_t comm = ranks_create(rank);
    gemmarResult_t result;
    pid_t pid;

    (void)one_call(rank, comm, &mix[0], 1);
    pid = fork();
    if (pid == 0) {
        uint16_t x[4] = {0};

        result = gemmar_fused(x, x + 1, x + 2, 1, 1, 1, gemmarBfloat16, comm, NULL);
        _exit(result == gemmarInvalidUsage && gemmarCommDestroy(comm) == gemmarInvalidUsage &&
                      strstr(gemmarGetLastError(comm), "child") != NULL
                  ? 0
                  : 1);
    }
    rank->report->number[0] = one_call(rank, comm, &mix[0], 2);
    rank->report->number[1] = (uint64_t)pid;
    ranks_destroy(rank, comm);
}

START_TEST(a_child_of_a_fork)
{
    check_hashes(ranks_simple(2, 1, forking, NULL), 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history");
    TCase *all = tcase_create("history");

    tcase_set_timeout(all, RANKS_SECONDS + 20);
    tcase_add_loop_test(all, epochs_that_wrap_32_bits, 0, 4);
    tcase_add_test(all, three_nodes_two_shot);
    tcase_add_test(all, algorithms_in_turn);
    tcase_add_test(all, a_ring_of_one_entry);
    tcase_add_test(all, growth_in_the_middle);
    tcase_add_test(all, info_after_a_call_without_chunks);
    if (problem_type(gemmarFloat32) == gemmarFloat32) { /* it is written for fp32 */
        tcase_add_loop_test(all, alpha_beta_bias_strides, 0, 2);
    }
    tcase_add_test(all, ranks_dealt_round_robin);
    tcase_add_test(all, a_child_of_a_fork);
    suite_add_tcase(suite, all);
    return ranks_main(suite);
}
