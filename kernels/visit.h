// SPDX-License-Identifier: Apache-2.0
// The order in which the clusters of a GPU visit the chunks of a call, and why it cannot deadlock.
//
// The chunks of every owner are walked in bands of rows, so that operands stay in the cache; the
// i-th chunk of that walk belongs to round i / block. A rank's list is: round by round, the chunks
// of the owner behind it, of the next one, ..., its own last. Cluster c of n takes positions c,
// c + n, ... of the list. In the push strategy an own chunk waits for the same chunk on the other
// ranks, where it stands in the same round before that rank's own chunks: the chunk that is lowest
// by (round, foreign before own) among all waiting ones waits for nobody. Rounds are a function of
// the chunk alone, so the number of clusters may differ from rank to rank.
#ifndef GEMMAR_KERNELS_VISIT_H
#define GEMMAR_KERNELS_VISIT_H

#include "kernels/tile_map.h"

/* One position of a list. */
struct gemmar_visit {
    int64_t chunk;
    int64_t slot; /* chunk - first chunk of its owner */
    uint32_t owner;
};

/* The i-th slot of `owner`'s range [first, end) when `band` rows of chunks are walked column by
 * column; the incomplete rows at both ends of the range are walked along the row. */
GEMMAR_HD int64_t gemmar_visit_slot(const struct gemmar_tile_map *map, uint32_t owner,
                                    uint32_t band, int64_t i)
{
    int64_t first = gemmar_map_first(map, owner), end = gemmar_map_first(map, owner + 1);
    int64_t cols = map->chunks_per_row;
    int64_t top = gemmar_div_up(first, cols), rows = end / cols - top;
    int64_t head = gemmar_min64(top * cols, end) - first, in = i - head, high, b;

    if (in < 0 || rows <= 0 || in >= rows * cols) {
        return i;
    }
    b = in / (band * cols);
    in -= b * band * cols;
    high = gemmar_min64(band, rows - b * band);
    return head + (b * band + in % high) * cols + in / high;
}

GEMMAR_HD struct gemmar_visit gemmar_visit_of(const struct gemmar_tile_map *map, uint32_t owner,
                                              uint32_t band, int64_t i)
{
    struct gemmar_visit v;

    v.owner = owner;
    v.slot = gemmar_visit_slot(map, owner, band, i);
    v.chunk = gemmar_map_first(map, owner) + v.slot;
    return v;
}

/* Position p, 0 <= p < map->chunks, of local rank `local`'s list with `block` chunks of each owner
 * in a round. */
GEMMAR_HD struct gemmar_visit gemmar_visit_at(const struct gemmar_tile_map *map, uint32_t local,
                                              uint32_t block, uint32_t band, int64_t p)
{
    /* Owners differ by one chunk at most: all rounds are full but the last one. */
    int64_t round = (int64_t)block * map->locals, full = map->chunks / map->locals / block;
    int64_t i = p - full * round, begin = full * block;
    uint32_t owner = (local + 1) % map->locals;

    if (p < full * round) {
        i = p % round;
        owner = (uint32_t)((local + 1 + i / block) % map->locals);
        return gemmar_visit_of(map, owner, band, p / round * block + i % block);
    }
    for (uint32_t turn = 1; turn < map->locals; turn++) {
        int64_t left = gemmar_map_first(map, owner + 1) - gemmar_map_first(map, owner) - begin;

        if (i < left) {
            break;
        }
        i -= left;
        owner = (owner + 1) % map->locals;
    }
    return gemmar_visit_of(map, owner, band, begin + i);
}

#endif
