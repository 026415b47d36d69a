// SPDX-License-Identifier: Apache-2.0
// Step 1, gemm tile: which tiles a compute CTA multiplies, and the `ready` stamp of a finished
// chunk.
//
// Input: A and B. Output: `partial` of this rank, rounded to the wire type; the CTA that stores the
// last tile of a chunk stamps `ready` at the chunk's owner. Waits for nobody. The product of one
// tile is gemmar_exec_gemm_tile of the machine.
#ifndef GEMMAR_KERNELS_GEMM_TILE_CUH
#define GEMMAR_KERNELS_GEMM_TILE_CUH

#include "kernels/exec.h"

GEMMAR_EXEC void gemmar_gemm_tile_done(const struct gemmar_call *call, const struct gemmar_cta *cta,
                                       const struct gemmar_chunk *chunk)
{
    uint32_t owner = gemmar_map_owner(&call->map, chunk->index);
    int64_t slot = chunk->index - gemmar_map_first(&call->map, owner);

    if (gemmar_exec_last(&call->words.tiles_done[chunk->index], (uint64_t)chunk->tiles)) {
        gemmar_exec_stamp(&call->locals[owner].ready[slot * call->place.locals + call->place.local],
                          cta->epoch);
    }
}

/* False only when the call is being left. */
GEMMAR_EXEC bool gemmar_gemm_tiles(const struct gemmar_call *call, const struct gemmar_cta *cta,
                                   struct gemmar_gemm_scratch *scratch)
{
    const struct gemmar_range *range = &call->plan.compute;
    const struct gemmar_tile_map *map = &call->map;
    int64_t items = map->chunks * map->chunk_tiles;

    for (int64_t w = cta->index - range->first; w < items; w += range->count) {
        int64_t p = w / map->chunk_tiles, t = w - p * map->chunk_tiles;
        struct gemmar_chunk chunk =
            gemmar_map_chunk(map, gemmar_map_visit(map, call->algo == GEMMAR_ALGO_TWO_SHOT,
                                                   call->place.node, call->place.local, p));

        if (t >= chunk.tiles) {
            continue;
        }
        if (gemmar_exec_left(call)) {
            return false;
        }
        gemmar_exec_gemm_tile(call, cta, &chunk, t, scratch);
        (void)gemmar_exec_all(cta, true);
        if (cta->lane == 0) {
            gemmar_gemm_tile_done(call, cta, &chunk);
        }
    }
    return true;
}

#endif
