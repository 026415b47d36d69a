// SPDX-License-Identifier: Apache-2.0
// The only tile <-> chunk <-> owner <-> slot <-> offset arithmetic; gcc, clang and nvcc compile it.
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

#endif
