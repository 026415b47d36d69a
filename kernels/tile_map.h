// SPDX-License-Identifier: Apache-2.0
// The only tile <-> chunk <-> owner <-> slot <-> offset arithmetic; gcc, clang and nvcc compile it,
// so that producer and consumer cannot disagree.
//
// The output is cut into tiles, a run of `chunk_tiles` tiles in one row of tiles is a chunk, chunks
// are numbered row by row. Local rank g of every node owns the contiguous chunks [g*T/G,
// (g+1)*T/G); in two-shot, node n of them the n-th of N contiguous parts. A chunk's place in its
// owner's range is its slot. In memory a chunk begins on a 128-byte boundary and holds its tiles
// one after the other, each row-major over its valid columns: nothing is padded to a tile.
#ifndef GEMMAR_KERNELS_TILE_MAP_H
#define GEMMAR_KERNELS_TILE_MAP_H

#include <stdint.h>

#include <gemmar/fifo.h>

/* What all ranks agree on about one shape. Filled by gemmar_map_init. */
struct gemmar_tile_map {
    int64_t m, n; /* output, elements */
    uint32_t tile_m, tile_n;
    uint32_t chunk_tiles;   /* tiles of a chunk, in one row of tiles */
    uint32_t element_bytes; /* of the wire type */
    uint32_t locals;        /* ranks of a node */
    uint32_t nodes;
    int64_t tile_rows, tile_cols;
    int64_t chunks_per_row;
    int64_t chunks; /* T: chunks are numbered row by row */
};

/* One chunk of a map. */
struct gemmar_chunk {
    int64_t index;
    int64_t row0, col0; /* first element of C */
    int64_t rows, cols; /* valid elements */
    int64_t first_tile; /* column index of its first tile */
    int64_t tiles;
};

GEMMAR_HD int64_t gemmar_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

GEMMAR_HD int64_t gemmar_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

GEMMAR_HD int64_t gemmar_align_up(int64_t bytes, int64_t to)
{
    return gemmar_div_up(bytes, to) * to;
}

/* m, n >= 0; the rest > 0. */
GEMMAR_HD struct gemmar_tile_map gemmar_map_init(int64_t m, int64_t n, uint32_t element_bytes,
                                                 uint32_t tile_m, uint32_t tile_n,
                                                 uint32_t chunk_tiles, uint32_t nodes,
                                                 uint32_t locals)
{
    struct gemmar_tile_map map;

    map.m = m;
    map.n = n;
    map.tile_m = tile_m;
    map.tile_n = tile_n;
    map.chunk_tiles = chunk_tiles;
    map.element_bytes = element_bytes;
    map.locals = locals;
    map.nodes = nodes;
    map.tile_rows = gemmar_div_up(m, tile_m);
    map.tile_cols = gemmar_div_up(n, tile_n);
    map.chunks_per_row = gemmar_div_up(map.tile_cols, chunk_tiles);
    map.chunks = map.tile_rows * map.chunks_per_row;
    return map;
}

GEMMAR_HD struct gemmar_chunk gemmar_map_chunk(const struct gemmar_tile_map *map, int64_t index)
{
    struct gemmar_chunk c;
    int64_t row = index / map->chunks_per_row;

    c.index = index;
    c.first_tile = (index - row * map->chunks_per_row) * map->chunk_tiles;
    c.tiles = gemmar_min64(map->chunk_tiles, map->tile_cols - c.first_tile);
    c.row0 = row * map->tile_m;
    c.col0 = c.first_tile * map->tile_n;
    c.rows = gemmar_min64(map->tile_m, map->m - c.row0);
    c.cols = gemmar_min64(c.tiles * map->tile_n, map->n - c.col0);
    return c;
}

/* Valid elements and bytes of a chunk: what travels for it. */
GEMMAR_HD int64_t gemmar_chunk_elements(const struct gemmar_chunk *c)
{
    return c->rows * c->cols;
}

GEMMAR_HD int64_t gemmar_chunk_bytes(const struct gemmar_tile_map *map,
                                     const struct gemmar_chunk *c)
{
    return gemmar_chunk_elements(c) * map->element_bytes;
}

/* Columns of the t-th tile of a chunk, and where the tile begins inside the chunk, in elements. */
GEMMAR_HD int64_t gemmar_chunk_tile_cols(const struct gemmar_tile_map *map,
                                         const struct gemmar_chunk *c, int64_t t)
{
    return gemmar_min64(map->tile_n, c->cols - t * map->tile_n);
}

GEMMAR_HD int64_t gemmar_chunk_tile_offset(const struct gemmar_tile_map *map,
                                           const struct gemmar_chunk *c, int64_t t)
{
    return t * map->tile_n * c->rows;
}

/* Bytes from the start of an output-wide buffer (`partial`, `out`) to chunk `index`;
 * index == chunks gives the size of the buffer. */
GEMMAR_HD int64_t gemmar_map_chunk_offset(const struct gemmar_tile_map *map, int64_t index)
{
    int64_t unit = GEMMAR_FIFO_OFFSET_UNIT;
    int64_t row, in_row, rows, whole, last_cols, row_bytes;

    if (map->chunks == 0) {
        return 0;
    }
    row = index / map->chunks_per_row;
    in_row = index - row * map->chunks_per_row;
    whole = (int64_t)map->chunk_tiles * map->tile_n * map->element_bytes;
    last_cols = map->n - (map->chunks_per_row - 1) * map->chunk_tiles * map->tile_n;
    row_bytes = (map->chunks_per_row - 1) * gemmar_align_up(map->tile_m * whole, unit) +
                gemmar_align_up(map->tile_m * last_cols * map->element_bytes, unit);
    if (index == map->chunks) {
        rows = map->m - (map->tile_rows - 1) * map->tile_m;
        return (map->tile_rows - 1) * row_bytes +
               (map->chunks_per_row - 1) * gemmar_align_up(rows * whole, unit) +
               gemmar_align_up(rows * last_cols * map->element_bytes, unit);
    }
    rows = gemmar_min64(map->tile_m, map->m - row * map->tile_m);
    return row * row_bytes + in_row * gemmar_align_up(rows * whole, unit);
}

/* First chunk of local rank g; g == locals gives the number of chunks. */
GEMMAR_HD int64_t gemmar_map_first(const struct gemmar_tile_map *map, uint32_t g)
{
    return map->chunks / map->locals * g + map->chunks % map->locals * g / map->locals;
}

/* Part n of `parts` contiguous, nearly equal parts of [0, count). */
GEMMAR_HD int64_t gemmar_part_first(int64_t count, uint32_t parts, uint32_t n)
{
    return count / parts * n + count % parts * n / parts;
}

/* First chunk of node n's part of local rank g's range; n == nodes gives the range's end. */
GEMMAR_HD int64_t gemmar_map_sub_first(const struct gemmar_tile_map *map, uint32_t g, uint32_t n)
{
    int64_t first = gemmar_map_first(map, g);

    return first + gemmar_part_first(gemmar_map_first(map, g + 1) - first, map->nodes, n);
}

/* Which of `parts` contiguous parts of [0, count) holds index i. */
GEMMAR_HD uint32_t gemmar_part_of(int64_t count, uint32_t parts, int64_t i)
{
    uint32_t n = (uint32_t)(i * (int64_t)parts / count);

    while (n + 1 < parts && gemmar_part_first(count, parts, n + 1) <= i) {
        n++;
    }
    while (n > 0 && gemmar_part_first(count, parts, n) > i) {
        n--;
    }
    return n;
}

/* Local rank that owns a chunk. */
GEMMAR_HD uint32_t gemmar_map_owner(const struct gemmar_tile_map *map, int64_t chunk)
{
    return gemmar_part_of(map->chunks, map->locals, chunk);
}

/* Node whose part of its owner's range holds a chunk (two-shot). */
GEMMAR_HD uint32_t gemmar_map_node(const struct gemmar_tile_map *map, int64_t chunk)
{
    uint32_t g = gemmar_map_owner(map, chunk);
    int64_t first = gemmar_map_first(map, g);

    return gemmar_part_of(gemmar_map_first(map, g + 1) - first, map->nodes, chunk - first);
}

/*
 * The s-th slot that rank g of `node` fills. Direct: in order. Two-shot: the parts of the nodes
 * behind mine first and my own part last, because foreign parts still have two hops before them.
 */
GEMMAR_HD int64_t gemmar_map_slot_at(const struct gemmar_tile_map *map, int two_shot, uint32_t node,
                                     uint32_t g, int64_t s)
{
    int64_t first = gemmar_map_first(map, g), count = gemmar_map_first(map, g + 1) - first;
    int64_t slot = s;

    if (two_shot) {
        slot += gemmar_map_sub_first(map, g, node + 1) - first;
        slot -= slot >= count ? count : 0;
    }
    return slot;
}

/*
 * The p-th chunk that local rank `local` computes: round by round one chunk of every owner,
 * beginning with the owner after itself and ending with its own, so that no two ranks feed one
 * owner at once and what others wait for comes first. Owners with one chunk more than the others
 * come at the end.
 */
GEMMAR_HD int64_t gemmar_map_visit(const struct gemmar_tile_map *map, int two_shot, uint32_t node,
                                   uint32_t local, int64_t p)
{
    int64_t rounds = map->chunks / map->locals, round = p / map->locals;
    int64_t turn = p - round * map->locals;
    uint32_t owner = 0;

    if (round < rounds) {
        owner = (uint32_t)((local + 1 + turn) % map->locals);
    } else {
        for (uint32_t j = 0; j < map->locals; j++) {
            owner = (local + 1 + j) % map->locals;
            if (gemmar_map_first(map, owner + 1) - gemmar_map_first(map, owner) > rounds &&
                turn-- == 0) {
                break;
            }
        }
    }
    return gemmar_map_first(map, owner) + gemmar_map_slot_at(map, two_shot, node, owner, round);
}

/* Bytes from the first chunk of a range to `chunk`, both in an output-wide layout. */
GEMMAR_HD int64_t gemmar_map_distance(const struct gemmar_tile_map *map, int64_t first,
                                      int64_t chunk)
{
    return gemmar_map_chunk_offset(map, chunk) - gemmar_map_chunk_offset(map, first);
}

/* Valid bytes of chunks [first, end): what the network is asked to carry for them. */
GEMMAR_HD int64_t gemmar_map_valid_bytes(const struct gemmar_tile_map *map, int64_t first,
                                         int64_t end)
{
    int64_t bytes = 0;

    for (int64_t i = first; i < end; i++) {
        struct gemmar_chunk c = gemmar_map_chunk(map, i);

        bytes += gemmar_chunk_bytes(map, &c);
    }
    return bytes;
}

/* Data bytes that a rank (node, g) puts on the wire: the exact sum over the chunks it sends. */
GEMMAR_HD int64_t gemmar_map_wire_bytes(const struct gemmar_tile_map *map, int two_shot,
                                        uint32_t node, uint32_t g)
{
    int64_t first = gemmar_map_first(map, g), end = gemmar_map_first(map, g + 1);
    int64_t slice, mine;

    if (map->nodes <= 1) {
        return 0;
    }
    slice = gemmar_map_valid_bytes(map, first, end);
    if (!two_shot) {
        return slice * (map->nodes - 1);
    }
    mine = gemmar_map_valid_bytes(map, gemmar_map_sub_first(map, g, node),
                                  gemmar_map_sub_first(map, g, node + 1));
    return slice - mine + mine * (map->nodes - 1);
}

#endif
