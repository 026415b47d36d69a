// SPDX-License-Identifier: Apache-2.0
// How a chunk of the tensor-core kernel travels: in GEMMAR_CHUNK_PARTS parts of 64 rows of one CTA,
// each in the order of the accumulators and as large as a full one.
//
// A tile of 256 rows has its parts one below the other, a tile of 128 rows has two beside each
// other, row by row. So the parts that lie wholly outside of C are the last ones, and the network
// carries the chunk without them.
#ifndef GEMMAR_KERNELS_PARTS_H
#define GEMMAR_KERNELS_PARTS_H

#include <stdbool.h>

#include "kernels/tile_map.h"

#define GEMMAR_CHUNK_PARTS 4
#define GEMMAR_PART_ROWS   64

/* Parts beside each other. */
GEMMAR_HD uint32_t gemmar_parts_across(const struct gemmar_tile_map *map)
{
    return GEMMAR_CHUNK_PARTS * GEMMAR_PART_ROWS / map->tile_m;
}

/* Bytes of a chunk in `partial` and in the network's windows. */
GEMMAR_HD uint64_t gemmar_parts_tile_bytes(const struct gemmar_tile_map *map)
{
    return (uint64_t)map->tile_m * map->tile_n * map->element_bytes;
}

/* What the network carries of the chunk in this row and column of chunks: 32 bits, because a GPU
 * computes it for every tile and 64-bit divisions take longer than a short tile. */
GEMMAR_HD uint32_t gemmar_parts_at(const struct gemmar_tile_map *map, uint32_t row, uint32_t col)
{
    uint32_t across = gemmar_parts_across(map), wide = map->tile_n / across;
    int64_t below = map->m - (int64_t)row * map->tile_m,
            beside = map->n - (int64_t)col * map->tile_n;
    uint32_t rows = (uint32_t)gemmar_min64(below, map->tile_m);
    uint32_t cols = (uint32_t)gemmar_min64(beside, map->tile_n);
    uint32_t down = (rows + GEMMAR_PART_ROWS - 1) / GEMMAR_PART_ROWS;

    return ((down - 1) * across + (cols + wide - 1) / wide) * GEMMAR_PART_ROWS * wide *
           map->element_bytes;
}

/* The same of chunk `index`. */
GEMMAR_HD uint64_t gemmar_parts_bytes(const struct gemmar_tile_map *map, int64_t index)
{
    uint32_t cols = (uint32_t)map->chunks_per_row;

    return gemmar_parts_at(map, (uint32_t)index / cols, (uint32_t)index % cols);
}

/* Data bytes that rank (node, g) puts on the wire in one call: gemmar_map_wire_bytes() for the
 * tensor-core kernel. */
GEMMAR_HD uint64_t gemmar_parts_wire_bytes(const struct gemmar_tile_map *map, int two_shot,
                                           uint32_t node, uint32_t g)
{
    int64_t first = gemmar_map_first(map, g), end = gemmar_map_first(map, g + 1);
    uint64_t bytes = 0, peers = map->nodes - 1;

    for (int64_t i = first; i < end; i++) {
        bool once = two_shot && gemmar_map_node(map, i) != node;

        bytes += gemmar_parts_bytes(map, i) * (once ? 1 : peers);
    }
    return bytes;
}

#endif
