// SPDX-License-Identifier: Apache-2.0
// The all-gather between nodes: right for any size, and it ends on all ranks when one leaves.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "kernels/nodes_gather.h"
#include "transport/order.h"
#include "transport/wait.h"

#define NODES  3
#define LOCALS 2
#define RANKS  (NODES * LOCALS)
#define ROUNDS 60
#define MOST   20011

/* Instead of a number of bytes. */
#define STAYS_AWAY SIZE_MAX
#define LEAVES     (SIZE_MAX - 1)

static struct gemmar_local_peers peers[NODES];
static const struct gemmar_logger quiet = {.level = 0};

/* The all-gather that the ring is made with. */
static pthread_barrier_t barrier;
static char shared[RANKS][4096];

struct rank {
    struct gemmar_local_gather local;
    struct gemmar_place place;
    uint32_t rank_of[RANKS];
    struct gemmar_nodes_gather gather;
    struct gemmar_error error;
    int wrong, rc;
    uint32_t left;
    size_t bytes; /* what this rank gathers at the end */
};

static int first_gather(void *context, const void *mine, void *all, size_t bytes)
{
    const struct rank *r = context;

    if (bytes > sizeof(shared[0])) {
        return -EINVAL;
    }
    memcpy(shared[r->place.rank], mine, bytes);
    (void)pthread_barrier_wait(&barrier);
    for (int i = 0; i < RANKS; i++) {
        memcpy((char *)all + (size_t)i * bytes, shared[i], bytes);
    }
    (void)pthread_barrier_wait(&barrier);
    return 0;
}

/* Ranks go round the nodes: rank 1 is on node 1. */
static void place_rank(struct rank *r, uint32_t rank, uint64_t timeout_ns)
{
    memset(r, 0, sizeof(*r));
    r->place = (struct gemmar_place){.rank = rank,
                                     .ranks = RANKS,
                                     .node = rank % NODES,
                                     .nodes = NODES,
                                     .local = rank / NODES,
                                     .locals = LOCALS};
    for (uint32_t i = 0; i < RANKS; i++) {
        r->rank_of[i % NODES * LOCALS + i / NODES] = i;
    }
    r->local = (struct gemmar_local_gather){.peers = &peers[r->place.node],
                                            .offset = GEMMAR_PAGE,
                                            .local = r->place.local,
                                            .locals = LOCALS,
                                            .timeout_ns = timeout_ns};
    r->gather = (struct gemmar_nodes_gather){.local = &r->local,
                                             .place = &r->place,
                                             .rank_of = r->rank_of,
                                             .log = &quiet,
                                             .next = -1,
                                             .previous = -1};
}

static void open_peers(void)
{
    char why[256];

    for (int i = 0; i < RANKS; i++) {
        struct gemmar_segment *s = &peers[i % NODES].segments[i / NODES];

        ck_assert_int_eq(gemmar_segment_create(GEMMAR_PAGE + sizeof(struct gemmar_gather_area), s,
                                               why, sizeof(why)),
                         0);
        peers[i % NODES].controls[i / NODES] = (struct gemmar_control *)s->base;
    }
}

static void close_peers(void)
{
    for (int n = 0; n < NODES; n++) {
        gemmar_local_peers_close(&peers[n]);
    }
}

static void open_gather(struct rank *r)
{
    gemmarHostBootstrap_t bootstrap = {.size = sizeof(bootstrap),
                                       .nranks = RANKS,
                                       .rank = (int)r->place.rank,
                                       .allGather = first_gather,
                                       .context = r};

    (void)gemmar_nodes_gather_open(&r->gather, &bootstrap, &r->error);
}

static char value(int round, int rank, size_t i)
{
    return (char)(round * 31 + rank * 7 + (int)(i % 251));
}

static void *all_sizes_of(void *argument)
{
    struct rank *r = argument;
    char *mine = malloc(MOST), *all = malloc((size_t)RANKS * MOST);

    open_gather(r);
    for (int round = 0; r->error.result == gemmarSuccess && round < ROUNDS; round++) {
        size_t bytes = (size_t)round * 977 % MOST;

        for (size_t i = 0; i < bytes; i++) {
            mine[i] = value(round, (int)r->place.rank, i);
        }
        r->rc |= gemmar_nodes_gather_all(&r->gather, mine, all, bytes);
        for (int g = 0; g < RANKS; g++) {
            for (size_t i = 0; i < bytes; i++) {
                r->wrong += all[(size_t)g * bytes + i] != value(round, g, i);
            }
        }
    }
    gemmar_nodes_gather_close(&r->gather);
    free(mine);
    free(all);
    return NULL;
}

/* After one gather together: the next one with `bytes`, or none, or the end, which it notices. */
static void *last_gather_of(void *argument)
{
    struct rank *r = argument;
    char mine[600] = {0}, all[RANKS * sizeof(mine)];

    open_gather(r);
    r->rc = gemmar_nodes_gather_all(&r->gather, mine, all, 8);
    if (r->bytes == LEAVES) {
        gemmar_nodes_gather_leave(&r->gather);
        r->rc = gemmar_nodes_gather_all(&r->gather, mine, all, 300);
    } else if (r->rc == 0 && r->bytes != STAYS_AWAY) {
        mine[0] = (char)('a' + r->place.rank);
        r->rc = gemmar_nodes_gather_all(&r->gather, mine, all, r->bytes);
        for (int i = 0; i < RANKS; i++) {
            r->wrong += r->rc == 0 && all[(size_t)i * r->bytes] != 'a' + i;
        }
    }
    r->left = gemmar_nodes_gather_left(&r->gather);
    (void)pthread_barrier_wait(&barrier); /* who stays away keeps its connections till here */
    gemmar_nodes_gather_close(&r->gather);
    return NULL;
}

static void run(struct rank *ranks, void *(*body)(void *))
{
    pthread_t threads[RANKS];

    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, RANKS), 0);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, body, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_msg(ranks[i].error.result == gemmarSuccess, "%s", ranks[i].error.text);
        ck_assert_int_eq(ranks[i].wrong, 0);
    }
    (void)pthread_barrier_destroy(&barrier);
}

START_TEST(all_sizes)
{
    struct rank ranks[RANKS];

    open_peers();
    for (uint32_t i = 0; i < RANKS; i++) {
        place_rank(&ranks[i], i, UINT64_C(20000000000));
    }
    run(ranks, all_sizes_of);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(ranks[i].rc, 0);
    }
    close_peers();
}
END_TEST

/* Ranks in different calls: everybody still gets the beginning of everybody's block. */
START_TEST(sizes_may_differ)
{
    struct rank ranks[RANKS];

    open_peers();
    for (uint32_t i = 0; i < RANKS; i++) {
        place_rank(&ranks[i], i, UINT64_C(20000000000));
        ranks[i].bytes = i == 4 ? 600 : i == 1 ? 17 : 300;
    }
    run(ranks, last_gather_of);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(ranks[i].rc, 0);
        ck_assert_uint_eq(ranks[i].left, UINT32_MAX);
    }
    close_peers();
}
END_TEST

/* One rank does not come, or leaves: all the others hear of it, and how long they waited. */
static double without_rank_4(size_t bytes, uint64_t timeout_ns)
{
    struct rank ranks[RANKS];
    uint64_t began = gemmar_now_ns();

    open_peers();
    for (uint32_t i = 0; i < RANKS; i++) {
        place_rank(&ranks[i], i, timeout_ns);
        ranks[i].bytes = i == 4 ? bytes : 300;
    }
    run(ranks, last_gather_of);
    for (int i = 0; i < RANKS; i++) {
        ck_assert(i == 4 && bytes == STAYS_AWAY
                      ? ranks[i].rc == 0
                      : ranks[i].rc == -ETIMEDOUT || ranks[i].rc == -ECONNRESET);
        ck_assert(bytes != LEAVES || i / NODES == 0 || ranks[i].left < RANKS); /* of its ring */
    }
    close_peers();
    return (double)(gemmar_now_ns() - began) * 1e-9;
}

START_TEST(one_does_not_come)
{
    ck_assert_double_ge(without_rank_4(STAYS_AWAY, 300000000), 0.3);
}
END_TEST

START_TEST(one_leaves)
{
    /* its neighbours in the ring hear of it, and those that wait for them in the segments */
    ck_assert_double_lt(without_rank_4(LEAVES, UINT64_C(40000000000)), 8);
}
END_TEST

/* A local peer that broke is noticed while the rank waits for another node. */
START_TEST(a_local_peer_is_broken)
{
    struct rank ranks[RANKS];

    open_peers();
    for (uint32_t i = 0; i < RANKS; i++) {
        place_rank(&ranks[i], i, UINT64_C(40000000000));
        ranks[i].bytes = i == 0 ? STAYS_AWAY : 300;
    }
    gemmar_store_release(&peers[1].controls[1]->broken, 1); /* of ranks 1 and 4 */
    run(ranks, last_gather_of);
    for (int i = 1; i < RANKS; i++) {
        ck_assert_int_eq(ranks[i].rc, -ECONNRESET);
    }
    close_peers();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nodes_gather");
    TCase *all = tcase_create("nodes_gather");
    SRunner *runner;
    int failed;

    tcase_set_timeout(all, 50);
    tcase_add_test(all, all_sizes);
    tcase_add_test(all, sizes_may_differ);
    tcase_add_test(all, one_does_not_come);
    tcase_add_test(all, one_leaves);
    tcase_add_test(all, a_local_peer_is_broken);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
