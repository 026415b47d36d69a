// SPDX-License-Identifier: Apache-2.0
// The visit order of the tensor-core kernel: complete, sorted so that push ends for any number of
// clusters on every rank, and the same rounds on all ranks.
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/message.h"

#define MAX_NODES    5
#define MAX_LOCALS   8
#define MAX_CLUSTERS 80
#ifdef SANITIZED
#define ROUNDS(n) ((n) / 3)
#else
#define ROUNDS(n) (n)
#endif

static uint64_t state = 88172645463325252u;

static uint32_t pick(uint32_t low, uint32_t high)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return low + (uint32_t)(state % (high - low + 1));
}

static struct gemmar_tile_map random_map(void)
{
    return gemmar_map_init(pick(1, 9000), pick(1, 9000), 2, pick(0, 1) ? 256 : 128,
                           pick(0, 1) ? 256 : 128, 1, pick(1, MAX_NODES), pick(1, MAX_LOCALS));
}

static struct gemmar_visit_order random_order(const struct gemmar_tile_map *map)
{
    return (struct gemmar_visit_order){.block = pick(1, MAX_CLUSTERS),
                                       .lead = pick(1, 4),
                                       .band = pick(1, 9),
                                       .together = pick(1, 8),
                                       .first_node = pick(0, map->nodes - 1)};
}

START_TEST(firsts_in_32_bits_are_those_of_the_map)
{
    for (int round = 0; round < ROUNDS(1000); round++) {
        struct gemmar_tile_map map = random_map();

        for (uint32_t g = 0; g <= map.locals; g++) {
            ck_assert_int_eq(gemmar_visit_first(&map, g), gemmar_map_first(&map, g));
        }
    }
}
END_TEST

START_TEST(a_list_has_every_chunk_once)
{
    for (int round = 0; round < ROUNDS(100); round++) {
        struct gemmar_tile_map map = random_map();
        struct gemmar_visit_order order = random_order(&map);
        uint32_t local = pick(0, map.locals - 1);
        char *seen = calloc((size_t)map.chunks, 1);

        for (uint32_t p = 0; p < map.chunks; p++) {
            struct gemmar_visit v = gemmar_visit_at(&map, local, &order, p);

            ck_assert_int_lt(v.chunk, map.chunks);
            ck_assert_int_eq(seen[v.chunk]++, 0);
            ck_assert_uint_eq(v.owner, gemmar_map_owner(&map, v.chunk));
            ck_assert_int_eq(v.slot, v.chunk - gemmar_map_first(&map, v.owner));
        }
        free(seen);
    }
}
END_TEST

/* Every own chunk stands behind the foreign chunks of its round, on every rank in the same round.
 */
START_TEST(lists_are_sorted_by_round_and_foreign_before_own)
{
    for (int round = 0; round < ROUNDS(100); round++) {
        struct gemmar_tile_map map = random_map();
        struct gemmar_visit_order order = random_order(&map);
        uint32_t *round_of = calloc((size_t)map.chunks, sizeof(*round_of));

        for (uint32_t g = 0; g < map.locals; g++) {
            uint32_t count = gemmar_visit_first(&map, g + 1) - gemmar_visit_first(&map, g);

            for (uint32_t i = 0; i < count; i++) {
                round_of[gemmar_visit_of(&map, g, &order, i).chunk] = i / order.block;
            }
        }
        for (uint32_t local = 0; local < map.locals; local++) {
            uint32_t last = 0;

            for (uint32_t p = 0; p < map.chunks; p++) {
                struct gemmar_visit v = gemmar_visit_at(&map, local, &order, p);
                uint32_t own = v.owner == local;
                uint32_t key = (round_of[v.chunk] + own * (order.lead - 1)) * 2 + own;

                ck_assert_uint_ge(key, last);
                last = key;
            }
        }
        free(round_of);
    }
}
END_TEST

struct cluster {
    uint32_t rank, at; /* next position */
};

/* Run the lists of all clusters: an own chunk needs that every other rank has passed it. */
static bool push_ends(const struct gemmar_tile_map *map, const struct gemmar_visit_order *order,
                      const uint32_t *clusters)
{
    static struct cluster all[MAX_LOCALS * MAX_CLUSTERS];
    uint8_t *sent = calloc((size_t)map->chunks, 1); /* by how many other ranks */
    uint32_t n = 0;
    int64_t left = map->chunks * map->locals;
    bool moved = true;

    for (uint32_t g = 0; g < map->locals; g++) {
        for (uint32_t c = 0; c < clusters[g]; c++) {
            all[n++] = (struct cluster){g, c};
        }
    }
    while (moved) {
        moved = false;
        for (uint32_t i = pick(0, n - 1), k = 0; k < n; k++, i = (i + 1) % n) {
            while (all[i].at < map->chunks) {
                struct gemmar_visit v = gemmar_visit_at(map, all[i].rank, order, all[i].at);

                if (v.owner == all[i].rank && sent[v.chunk] + 1u < map->locals) {
                    break;
                }
                sent[v.chunk] += v.owner != all[i].rank;
                all[i].at += clusters[all[i].rank];
                left--;
                moved = true;
            }
        }
    }
    free(sent);
    return left == 0;
}

START_TEST(push_ends_whatever_the_number_of_clusters)
{
    for (int round = 0; round < ROUNDS(100); round++) {
        struct gemmar_tile_map map = random_map();
        uint32_t clusters[MAX_LOCALS];

        for (uint32_t g = 0; g < map.locals; g++) {
            clusters[g] = pick(1, MAX_CLUSTERS);
        }
        struct gemmar_visit_order order = random_order(&map);
        ck_assert(push_ends(&map, &order, clusters));
    }
}
END_TEST

START_TEST(an_exchange_computes_and_adds_every_chunk_once)
{
    for (int round = 0; round < ROUNDS(300); round++) {
        struct gemmar_tile_map map = random_map();
        struct gemmar_visit_order order = random_order(&map);
        uint32_t clusters = pick(1, MAX_CLUSTERS);
        uint8_t *seen = calloc((size_t)map.chunks, 1);

        for (uint32_t c = 0; c < clusters; c++) {
            uint32_t work = gemmar_visit_share((uint32_t)map.chunks, c, clusters);

            for (uint32_t i = 0; i < 2 * work; i++) {
                struct gemmar_visit_step step = gemmar_visit_step_at(work, order.lead, i);
                struct gemmar_visit v = gemmar_visit_exchange(&map, round % map.locals, &order,
                                                              c + step.index * clusters);

                ck_assert_uint_lt(step.index, work);
                ck_assert_int_lt(v.chunk, map.chunks);
                ck_assert_uint_eq(v.slot, v.chunk);
                ck_assert_uint_eq(v.owner, round % map.locals);
                ck_assert_uint_eq(seen[v.chunk]++, step.adds); /* computed, then added */
            }
        }
        for (int64_t i = 0; i < map.chunks; i++) {
            ck_assert_uint_eq(seen[i], 2);
        }
        free(seen);
    }
}
END_TEST

/* Run the lists of all clusters of two ranks: what is added must have been sent by the other one.
 */
static bool exchange_ends(const struct gemmar_tile_map *map, const struct gemmar_visit_order *order,
                          const uint32_t *clusters)
{
    static struct cluster all[2 * MAX_CLUSTERS];
    uint8_t *sent = calloc((size_t)map->chunks * 2, 1);
    uint32_t n = 0;
    int64_t left = 4 * map->chunks;
    bool moved = true;

    for (uint32_t g = 0; g < 2; g++) {
        for (uint32_t c = 0; c < clusters[g]; c++) {
            all[n++] = (struct cluster){g, 0};
        }
    }
    while (moved) {
        moved = false;
        for (uint32_t i = pick(0, n - 1), k = 0; k < n; k++, i = (i + 1) % n) {
            uint32_t g = all[i].rank, c = g == 0 ? i : i - clusters[0];
            uint32_t work = gemmar_visit_share((uint32_t)map->chunks, c, clusters[g]);

            for (; all[i].at < 2 * work; all[i].at++, left--, moved = true) {
                struct gemmar_visit_step step = gemmar_visit_step_at(work, order->lead, all[i].at);
                struct gemmar_visit v =
                    gemmar_visit_exchange(map, g, order, c + step.index * clusters[g]);

                if (step.adds && !sent[v.chunk * 2 + 1 - g]) {
                    break;
                }
                sent[v.chunk * 2 + g] = 1;
            }
        }
    }
    free(sent);
    return left == 0;
}

START_TEST(an_exchange_ends_whatever_the_number_of_clusters)
{
    for (int round = 0; round < ROUNDS(300); round++) {
        struct gemmar_tile_map map = random_map();
        struct gemmar_visit_order order = random_order(&map);
        uint32_t clusters[2] = {pick(1, MAX_CLUSTERS), pick(1, MAX_CLUSTERS)};

        ck_assert(exchange_ends(&map, &order, clusters));
    }
}
END_TEST

/* What a rank reduces and what it takes from other nodes are together its own chunks. */
START_TEST(own_chunks_are_reduced_or_gathered_once)
{
    for (int round = 0; round < ROUNDS(400); round++) {
        struct gemmar_tile_map map = random_map();
        struct gemmar_visit_order order = random_order(&map);
        uint32_t local = pick(0, map.locals - 1), node = pick(0, map.nodes - 1);
        uint32_t first = gemmar_visit_first(&map, local), clusters = pick(1, MAX_CLUSTERS);
        uint32_t own = gemmar_visit_first(&map, local + 1) - first;
        int two_shot = (int)pick(0, 1);
        uint32_t reduces = gemmar_visit_reduces(&map, two_shot, node, local), all = 0;
        char *seen = calloc((size_t)map.chunks, 1);

        for (uint32_t i = 0; i < reduces; i++, all++) {
            struct gemmar_visit v = gemmar_visit_reduce(&map, two_shot, node, local, &order, i);

            ck_assert_uint_eq(v.chunk, first + v.slot);
            ck_assert_int_eq(seen[v.chunk]++, 0);
        }
        for (uint32_t c = 0; two_shot && c < clusters; c++) {
            uint32_t gathers = gemmar_visit_gathers(&map, node, local, c, clusters);

            for (uint32_t i = 0; i < gathers; i++, all++) {
                struct gemmar_visit v = gemmar_visit_gather(&map, node, local, c, clusters, i);

                ck_assert_uint_lt(v.slot, own);
                ck_assert_uint_eq(v.chunk, first + v.slot);
                ck_assert_uint_ne(gemmar_map_node(&map, v.chunk), node);
                ck_assert_int_eq(seen[v.chunk]++, 0);
            }
        }
        ck_assert_uint_eq(all, own);
        free(seen);
    }
}
END_TEST
/* Neighbours of a walk, never more than `together`, and no byte that does not belong to C. */
START_TEST(messages_have_every_chunk_once)
{
    for (int round = 0; round < ROUNDS(300); round++) {
        struct gemmar_tile_map map = random_map();
        struct gemmar_visit_order order = random_order(&map);
        uint32_t local = pick(0, map.locals - 1), next = 0;
        uint32_t own = gemmar_visit_first(&map, local + 1) - gemmar_visit_first(&map, local);
        uint64_t stride = gemmar_message_stride(&map), bytes = 0, chunks = 0;

        order.first_node = 0;
        ck_assert_uint_eq(stride, gemmar_parts_bytes(&map, 0));
        for (uint32_t walk = 0; walk < own; walk++) {
            struct gemmar_message m = gemmar_message_of(&map, local, &order, walk);
            struct gemmar_visit v = gemmar_visit_of(&map, local, &order, walk);

            ck_assert_uint_eq(v.walk, walk);
            ck_assert_uint_ge(walk, m.first);
            ck_assert_uint_lt(walk, m.first + m.chunks);
            ck_assert_uint_le(m.chunks, order.together);
            ck_assert_uint_le(m.bytes, m.chunks * stride);
            chunks += gemmar_parts_bytes(&map, v.chunk);
            if (walk == next) {
                ck_assert_uint_eq(m.first, walk);
                bytes += m.bytes;
                next = m.first + m.chunks;
            }
        }
        ck_assert_uint_eq(next, own);
        ck_assert_uint_eq(bytes, chunks);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("visit");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, firsts_in_32_bits_are_those_of_the_map);
    tcase_add_test(tests, a_list_has_every_chunk_once);
    tcase_add_test(tests, lists_are_sorted_by_round_and_foreign_before_own);
    tcase_add_test(tests, push_ends_whatever_the_number_of_clusters);
    tcase_add_test(tests, an_exchange_computes_and_adds_every_chunk_once);
    tcase_add_test(tests, an_exchange_ends_whatever_the_number_of_clusters);
    tcase_add_test(tests, own_chunks_are_reduced_or_gathered_once);
    tcase_add_test(tests, messages_have_every_chunk_once);
    suite_add_tcase(suite, tests);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
