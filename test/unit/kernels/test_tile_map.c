// SPDX-License-Identifier: Apache-2.0
// Properties of the tile map over random shapes: every element owned once, offsets disjoint and
// aligned, every rank's formula equal to what it would send.
#include <check.h>
#include <stdlib.h>

#include "kernels/parts.h"
#include "kernels/tile_map.h"

static uint64_t state = 88172645463325252u;

static int64_t pick(int64_t low, int64_t high)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return low + (int64_t)(state % (uint64_t)(high - low + 1));
}

static struct gemmar_tile_map random_map(void)
{
    static const uint32_t tiles[] = {8, 16, 64, 128, 256};
    static const uint32_t bytes[] = {2, 4};

    return gemmar_map_init(pick(1, 700), pick(1, 900), bytes[pick(0, 1)], tiles[pick(0, 3)],
                           tiles[pick(0, 4)], (uint32_t)pick(1, 5), (uint32_t)pick(1, 5),
                           (uint32_t)pick(1, 8));
}

START_TEST(every_element_lies_in_one_chunk_and_chunks_do_not_overlap)
{
    for (int round = 0; round < 300; round++) {
        struct gemmar_tile_map map = random_map();
        int64_t elements = 0, end = 0;

        for (int64_t i = 0; i < map.chunks; i++) {
            struct gemmar_chunk c = gemmar_map_chunk(&map, i);
            int64_t offset = gemmar_map_chunk_offset(&map, i);

            ck_assert_int_gt(c.rows, 0);
            ck_assert_int_gt(c.cols, 0);
            ck_assert_int_le(c.row0 + c.rows, map.m);
            ck_assert_int_le(c.col0 + c.cols, map.n);
            ck_assert_int_eq(offset % GEMMAR_FIFO_OFFSET_UNIT, 0);
            ck_assert_int_ge(offset, end);
            ck_assert_int_lt(offset - end, GEMMAR_FIFO_OFFSET_UNIT);
            end = offset + gemmar_chunk_bytes(&map, &c);
            elements += gemmar_chunk_elements(&c);
        }
        ck_assert_int_eq(elements, map.m * map.n);
        ck_assert_int_ge(gemmar_map_chunk_offset(&map, map.chunks), end);
        ck_assert_int_lt(gemmar_map_chunk_offset(&map, map.chunks) - end, GEMMAR_FIFO_OFFSET_UNIT);
    }
}
END_TEST

START_TEST(tiles_fill_their_chunk)
{
    for (int round = 0; round < 300; round++) {
        struct gemmar_tile_map map = random_map();
        struct gemmar_chunk c = gemmar_map_chunk(&map, pick(0, map.chunks - 1));
        int64_t at = 0;

        for (int64_t t = 0; t < c.tiles; t++) {
            ck_assert_int_eq(gemmar_chunk_tile_offset(&map, &c, t), at);
            at += gemmar_chunk_tile_cols(&map, &c, t) * c.rows;
        }
        ck_assert_int_eq(at, gemmar_chunk_elements(&c));
    }
}
END_TEST

START_TEST(every_chunk_has_one_owner_and_one_node)
{
    for (int round = 0; round < 300; round++) {
        struct gemmar_tile_map map = random_map();

        for (int64_t i = 0; i < map.chunks; i++) {
            uint32_t g = gemmar_map_owner(&map, i), n = gemmar_map_node(&map, i);

            ck_assert_uint_lt(g, map.locals);
            ck_assert_uint_lt(n, map.nodes);
            ck_assert_int_le(gemmar_map_first(&map, g), i);
            ck_assert_int_lt(i, gemmar_map_first(&map, g + 1));
            ck_assert_int_le(gemmar_map_sub_first(&map, g, n), i);
            ck_assert_int_lt(i, gemmar_map_sub_first(&map, g, n + 1));
        }
        ck_assert_int_eq(gemmar_map_first(&map, 0), 0);
        ck_assert_int_eq(gemmar_map_first(&map, map.locals), map.chunks);
    }
}
END_TEST

/* A rank that skipped or repeated a chunk would stop the others for ever. */
/* The tensor-core kernel's tiles travel without the parts behind the last one that has an element.
 */
START_TEST(parts_on_the_wire_end_with_the_last_valid_one)
{
    static const uint32_t shapes[][2] = {{256, 256}, {256, 128}, {128, 256}, {128, 128}};

    for (uint32_t m = 1; m <= 300; m += 7) {
        for (uint32_t i = 0; i < 4; i++) {
            for (uint32_t n = 1; n <= 300; n += 13) {
                struct gemmar_tile_map map =
                    gemmar_map_init(m, n, 2, shapes[i][0], shapes[i][1], 1, 2, 1);
                uint32_t across = gemmar_parts_across(&map);
                uint64_t part = gemmar_parts_tile_bytes(&map) / GEMMAR_CHUNK_PARTS, all = 0;

                for (int64_t c = 0; c < map.chunks; c++) {
                    struct gemmar_chunk chunk = gemmar_map_chunk(&map, c);
                    uint32_t last = 0;

                    for (uint32_t p = 0; p < GEMMAR_CHUNK_PARTS; p++) {
                        if (p / across * GEMMAR_PART_ROWS < chunk.rows &&
                            p % across * (map.tile_n / across) < chunk.cols) {
                            last = p;
                        }
                    }
                    ck_assert_uint_eq(gemmar_parts_bytes(&map, c), (last + 1) * part);
                    all += (last + 1) * part;
                }
                ck_assert_uint_eq(gemmar_parts_wire_bytes(&map, 0, 0, 0), all);
            }
        }
    }
}
END_TEST

START_TEST(a_visit_order_is_a_permutation)
{
    for (int round = 0; round < 200; round++) {
        struct gemmar_tile_map map = random_map();
        uint32_t node = (uint32_t)pick(0, map.nodes - 1), local = (uint32_t)pick(0, map.locals - 1);
        int two_shot = (int)pick(0, 1);
        char *seen = calloc((size_t)map.chunks, 1);

        for (int64_t p = 0; p < map.chunks; p++) {
            int64_t i = gemmar_map_visit(&map, two_shot, node, local, p);

            ck_assert_int_ge(i, 0);
            ck_assert_int_lt(i, map.chunks);
            ck_assert_int_eq(seen[i], 0);
            seen[i] = 1;
        }
        free(seen);
    }
}
END_TEST

START_TEST(wire_bytes_are_those_of_the_chunks_that_travel)
{
    for (int round = 0; round < 100; round++) {
        struct gemmar_tile_map map = random_map();
        uint32_t node = (uint32_t)pick(0, map.nodes - 1), g = (uint32_t)pick(0, map.locals - 1);
        int64_t direct = 0, two_shot = 0;

        for (int64_t i = gemmar_map_first(&map, g); i < gemmar_map_first(&map, g + 1); i++) {
            struct gemmar_chunk c = gemmar_map_chunk(&map, i);
            int64_t bytes = gemmar_chunk_bytes(&map, &c);

            direct += bytes * (map.nodes - 1);
            two_shot += gemmar_map_node(&map, i) == node ? bytes * (map.nodes - 1) : bytes;
        }
        ck_assert_int_eq(gemmar_map_wire_bytes(&map, 0, node, g), map.nodes > 1 ? direct : 0);
        ck_assert_int_eq(gemmar_map_wire_bytes(&map, 1, node, g), map.nodes > 1 ? two_shot : 0);
    }
}
END_TEST

/* S-01: offsets beyond 2^31 elements and 2^32 bytes. */
START_TEST(large_outputs_keep_64_bit_offsets)
{
    struct gemmar_tile_map map = gemmar_map_init(262145, 16384, 2, 128, 256, 4, 2, 8);
    struct gemmar_chunk last = gemmar_map_chunk(&map, map.chunks - 1);

    ck_assert_int_eq(last.row0, 262144);
    ck_assert_int_eq(last.rows, 1);
    ck_assert_int_eq(gemmar_map_chunk_offset(&map, map.chunks), INT64_C(262145) * 16384 * 2);
    ck_assert_int_eq(gemmar_map_chunk_offset(&map, map.chunks - 1),
                     INT64_C(262144) * 16384 * 2 + (map.chunks_per_row - 1) * 1024 * 2);
}
END_TEST

START_TEST(an_empty_output_has_no_chunks)
{
    struct gemmar_tile_map map = gemmar_map_init(0, 100, 2, 128, 256, 4, 2, 2);

    ck_assert_int_eq(map.chunks, 0);
    ck_assert_int_eq(gemmar_map_chunk_offset(&map, 0), 0);
    ck_assert_int_eq(gemmar_map_wire_bytes(&map, 0, 0, 0), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tile_map");
    TCase *tests = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_element_lies_in_one_chunk_and_chunks_do_not_overlap);
    tcase_add_test(tests, tiles_fill_their_chunk);
    tcase_add_test(tests, every_chunk_has_one_owner_and_one_node);
    tcase_add_test(tests, a_visit_order_is_a_permutation);
    tcase_add_test(tests, parts_on_the_wire_end_with_the_last_valid_one);
    tcase_add_test(tests, wire_bytes_are_those_of_the_chunks_that_travel);
    tcase_add_test(tests, large_outputs_keep_64_bit_offsets);
    tcase_add_test(tests, an_empty_output_has_no_chunks);
    suite_add_tcase(suite, tests);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
