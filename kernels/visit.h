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
    uint32_t chunk;
    uint32_t slot; /* chunk - first chunk of its owner */
    uint32_t owner;
};

/* gemmar_map_first() in 32 bits: a GPU computes this for every tile, and its 64-bit divisions take
 * longer than a short tile. A plan for a GPU has fewer than 2^31 / GEMMAR_MAX_LOCAL_RANKS chunks.
 */
GEMMAR_HD uint32_t gemmar_visit_first(const struct gemmar_tile_map *map, uint32_t g)
{
    uint32_t chunks = (uint32_t)map->chunks, locals = map->locals;

    return chunks / locals * g + chunks % locals * g / locals;
}

/* The i-th slot of `owner`'s range [first, end) when `band` rows of chunks are walked column by
 * column; the incomplete rows at both ends of the range are walked along the row. */
GEMMAR_HD uint32_t gemmar_visit_slot(const struct gemmar_tile_map *map, uint32_t first,
                                     uint32_t end, uint32_t band, uint32_t i)
{
    uint32_t cols = (uint32_t)map->chunks_per_row, top = (first + cols - 1) / cols;
    uint32_t rows = end / cols > top ? end / cols - top : 0;
    uint32_t head = (top * cols < end ? top * cols : end) - first, in = i - head, b, high;

    if (i < head || in >= rows * cols) {
        return i;
    }
    b = in / (band * cols);
    in -= b * band * cols;
    high = rows - b * band < band ? rows - b * band : band;
    return head + (b * band + in % high) * cols + in / high;
}

GEMMAR_HD struct gemmar_visit gemmar_visit_of(const struct gemmar_tile_map *map, uint32_t owner,
                                              uint32_t band, uint32_t i)
{
    uint32_t first = gemmar_visit_first(map, owner), end = gemmar_visit_first(map, owner + 1);
    struct gemmar_visit v;

    v.owner = owner;
    v.slot = gemmar_visit_slot(map, first, end, band, i);
    v.chunk = first + v.slot;
    return v;
}

/* Position p, 0 <= p < map->chunks, of local rank `local`'s list with `block` chunks of each owner
 * in a round. */
GEMMAR_HD struct gemmar_visit gemmar_visit_at(const struct gemmar_tile_map *map, uint32_t local,
                                              uint32_t block, uint32_t band, uint32_t p)
{
    /* Owners differ by one chunk at most: all rounds are full but the last one. */
    uint32_t locals = map->locals, round = block * locals;
    uint32_t full = (uint32_t)map->chunks / locals / block, begin = full * block, i;
    uint32_t owner = (local + 1) % locals;

    if (p < full * round) {
        uint32_t r = p / round;

        i = p - r * round;
        owner = (local + 1 + i / block) % locals;
        return gemmar_visit_of(map, owner, band, r * block + i % block);
    }
    i = p - full * round;
    for (uint32_t turn = 1; turn < locals; turn++) {
        uint32_t left = gemmar_visit_first(map, owner + 1) - gemmar_visit_first(map, owner) - begin;

        if (i < left) {
            break;
        }
        i -= left;
        owner = (owner + 1) % locals;
    }
    return gemmar_visit_of(map, owner, band, begin + i);
}

#endif
