// SPDX-License-Identifier: Apache-2.0
// The all-gather through segments: right for any size, and it ends when a peer does not come.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#include "kernels/local_gather.h"
#include "transport/order.h"

#define RANKS  3
#define ROUNDS 100
#define MOST   (3 * GEMMAR_GATHER_PIECE + 17)

static struct gemmar_local_peers peers;

struct rank {
    struct gemmar_local_gather gather;
    int wrong, rc;
};

static void open_peers(void)
{
    char why[256];

    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(gemmar_segment_create(GEMMAR_PAGE + sizeof(struct gemmar_gather_area),
                                               &peers.segments[r], why, sizeof(why)),
                         0);
        peers.controls[r] = (struct gemmar_control *)peers.segments[r].base;
    }
}

static struct gemmar_local_gather gather_of(uint32_t local, uint64_t timeout_ns)
{
    return (struct gemmar_local_gather){.peers = &peers,
                                        .offset = GEMMAR_PAGE,
                                        .local = local,
                                        .locals = RANKS,
                                        .timeout_ns = timeout_ns};
}

static char value(int round, int rank, size_t i)
{
    return (char)(round * 31 + rank * 7 + (int)(i % 251));
}

static void *take_part(void *argument)
{
    struct rank *r = argument;
    char *mine = malloc(MOST), *all = malloc((size_t)RANKS * MOST);

    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = (size_t)round * 977 % MOST;

        for (size_t i = 0; i < bytes; i++) {
            mine[i] = value(round, (int)r->gather.local, i);
        }
        r->rc |= gemmar_local_gather_all(&r->gather, mine, all, bytes);
        r->rc |= round % 3 == 0 ? gemmar_local_gather_barrier(&r->gather) : 0;
        for (int g = 0; g < RANKS; g++) {
            for (size_t i = 0; i < bytes; i++) {
                r->wrong += all[(size_t)g * bytes + i] != value(round, g, i);
            }
        }
    }
    free(mine);
    free(all);
    return NULL;
}

START_TEST(all_sizes)
{
    struct rank ranks[RANKS] = {0};
    pthread_t threads[RANKS];

    open_peers();
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r].gather = gather_of(r, UINT64_C(20000000000));
        ck_assert_int_eq(pthread_create(&threads[r], NULL, take_part, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
        ck_assert_int_eq(ranks[r].rc, 0);
        ck_assert_int_eq(ranks[r].wrong, 0);
    }
    gemmar_local_peers_close(&peers);
}
END_TEST

START_TEST(nobody_comes)
{
    struct gemmar_local_gather g;

    open_peers();
    g = gather_of(1, 20000000);
    ck_assert_int_eq(gemmar_local_gather_barrier(&g), -ETIMEDOUT);
    gemmar_local_peers_close(&peers);
}
END_TEST

START_TEST(a_peer_is_broken)
{
    struct gemmar_local_gather g;

    open_peers();
    g = gather_of(1, UINT64_C(20000000000));
    gemmar_store_release(&peers.controls[0]->broken, 1);
    ck_assert_int_eq(gemmar_local_gather_barrier(&g), -ECONNRESET);
    gemmar_local_peers_close(&peers);
}
END_TEST

START_TEST(a_peer_has_ended)
{
    struct gemmar_local_gather g;
    pid_t child;

    open_peers();
    child = fork();
    if (child == 0) {
        peers.controls[0]->process = gemmar_process_self();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    peers.visible[0] = true;
    g = gather_of(1, UINT64_C(20000000000));
    ck_assert_int_eq(gemmar_local_gather_barrier(&g), -EHOSTDOWN);
    gemmar_local_peers_close(&peers);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local_gather");
    TCase *all = tcase_create("local_gather");
    SRunner *runner;
    int failed;

    tcase_set_timeout(all, 30);
    tcase_add_test(all, all_sizes);
    tcase_add_test(all, nobody_comes);
    tcase_add_test(all, a_peer_is_broken);
    tcase_add_test(all, a_peer_has_ended);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
