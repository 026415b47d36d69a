// SPDX-License-Identifier: Apache-2.0
// Step 2, intra reduce: the owner of a chunk sums the partials of all local ranks, in rank order,
// in fp32, with one rounding.
//
// Input: `partial` of every local rank. Output: `staging` and a command per peer node (or only the
// `staged` stamp for a chunk that this node reduces itself); on one node the result itself,
// published. Waits for `ready` of every local rank, and once for `retired` before the first store
// to staging.
#ifndef GEMMAR_KERNELS_INTRA_REDUCE_CUH
#define GEMMAR_KERNELS_INTRA_REDUCE_CUH

#include "kernels/exec.h"
#include "kernels/fifo_push.cuh"
#include "kernels/publish.cuh"

GEMMAR_EXEC void gemmar_intra_sum(const struct gemmar_call *call, int64_t offset, int64_t i,
                                  float *acc, int n)
{
    for (int j = 0; j < n; j++) {
        acc[j] = 0.0f;
    }
    for (uint32_t g = 0; g < call->place.locals; g++) {
        gemmar_block_add(acc, call->operands.dtype, (const char *)call->locals[g].partial + offset,
                         i, n);
    }
}

/* Node sum into staging: the chunk is contiguous there as in partial. */
GEMMAR_EXEC void gemmar_intra_to_staging(const struct gemmar_call *call,
                                         const struct gemmar_cta *cta,
                                         const struct gemmar_chunk *chunk, void *staging)
{
    int64_t offset = gemmar_map_chunk_offset(&call->map, chunk->index);
    int64_t elements = gemmar_chunk_elements(chunk);

    for (int64_t i = (int64_t)cta->lane * GEMMAR_BLOCK; i < elements;
         i += (int64_t)cta->lanes * GEMMAR_BLOCK) {
        float acc[GEMMAR_BLOCK];
        int n = gemmar_block_length(elements - i);

        gemmar_intra_sum(call, offset, i, acc, n);
        gemmar_block_store(call->operands.dtype, staging, i, acc, n);
    }
}

/* One node: the sum is the result. Blocks run along rows because the epilogue needs the column. */
GEMMAR_EXEC void gemmar_intra_to_out(const struct gemmar_call *call, const struct gemmar_cta *cta,
                                     const struct gemmar_chunk *chunk)
{
    int64_t offset = gemmar_map_chunk_offset(&call->map, chunk->index);

    for (int64_t t = 0; t < chunk->tiles; t++) {
        int64_t cols = gemmar_chunk_tile_cols(&call->map, chunk, t);
        int64_t blocks = gemmar_div_up(cols, GEMMAR_BLOCK);
        int64_t tile = gemmar_chunk_tile_offset(&call->map, chunk, t);

        for (int64_t u = cta->lane; u < chunk->rows * blocks; u += cta->lanes) {
            int64_t r = u / blocks, c = (u - r * blocks) * GEMMAR_BLOCK;
            float acc[GEMMAR_BLOCK];
            int n = gemmar_block_length(cols - c);

            gemmar_intra_sum(call, offset, tile + r * cols + c, acc, n);
            gemmar_publish_epilogue(&call->operands, chunk->row0 + r,
                                    chunk->col0 + t * call->map.tile_n + c, acc, n);
            gemmar_publish_block(call, offset, tile + r * cols + c, acc, n);
        }
    }
}

GEMMAR_EXEC bool gemmar_intra_wait_ready(const struct gemmar_call *call,
                                         const struct gemmar_cta *cta, int64_t slot)
{
    const uint64_t *ready = call->locals[call->place.local].ready + slot * call->place.locals;

    for (uint32_t g = 0; g < call->place.locals; g++) {
        struct gemmar_wait_for whom = {GEMMAR_STAGE_INTRA_REDUCE,
                                       call->rank_of[call->place.node * call->place.locals + g], g,
                                       (uint64_t)slot};

        if (!gemmar_exec_wait(call, &ready[g], cta->epoch, &whom)) {
            return false;
        }
    }
    return true;
}

/* After the stores of all lanes: tell my own inter reduce, and the proxy. Lane 0. */
GEMMAR_EXEC bool gemmar_intra_hand_on(const struct gemmar_call *call, const struct gemmar_cta *cta,
                                      const struct gemmar_chunk *chunk, int64_t slot)
{
    const struct gemmar_tile_map *map = &call->map;
    struct gemmar_fifo_request request = {0, (uint32_t)gemmar_chunk_bytes(map, chunk), 0, 0,
                                          (uint32_t)cta->epoch};
    uint32_t local = call->place.local, node;
    int64_t first = gemmar_map_first(map, local);

    if (call->algo == GEMMAR_ALGO_DIRECT) {
        gemmar_exec_stamp(&call->words.staged[slot], cta->epoch);
        request.offset = (uint64_t)gemmar_map_distance(map, first, chunk->index);
        request.slot = (uint32_t)slot;
        return gemmar_fifo_push_all(call, GEMMAR_ROUTE_DIRECT, &request);
    }
    node = gemmar_map_node(map, chunk->index);
    if (node == call->place.node) {
        gemmar_exec_stamp(&call->words.staged[slot], cta->epoch);
        return true;
    }
    first = gemmar_map_sub_first(map, local, node);
    request.offset = (uint64_t)gemmar_map_distance(map, first, chunk->index);
    request.slot = (uint32_t)(chunk->index - first);
    request.route = GEMMAR_ROUTE_SCATTER * call->place.nodes + node;
    return gemmar_fifo_push(call, &request);
}

/* Where a chunk of mine lies in staging. */
GEMMAR_EXEC char *gemmar_intra_staging(const struct gemmar_call *call, uint32_t parity,
                                       int64_t chunk)
{
    const struct gemmar_tile_map *map = &call->map;
    char *base = (char *)call->net.staging[parity];
    uint32_t local = call->place.local, node;

    if (call->algo == GEMMAR_ALGO_DIRECT) {
        return base + gemmar_map_distance(map, gemmar_map_first(map, local), chunk);
    }
    node = gemmar_map_node(map, chunk);
    return base + (int64_t)node * (int64_t)call->net.staging_stride +
           gemmar_map_distance(map, gemmar_map_sub_first(map, local, node), chunk);
}

GEMMAR_EXEC bool gemmar_intra_reduce(const struct gemmar_call *call, const struct gemmar_cta *cta)
{
    const struct gemmar_range *range = &call->plan.intra;
    const struct gemmar_tile_map *map = &call->map;
    int64_t first = gemmar_map_first(map, call->place.local);
    int64_t count = gemmar_map_first(map, call->place.local + 1) - first;

    if (call->algo != GEMMAR_ALGO_LOCAL &&
        !gemmar_exec_all(cta, cta->lane != 0 || gemmar_fifo_wait_retired(call, cta->parity))) {
        return false;
    }
    for (int64_t s = cta->index - range->first; s < count; s += range->count) {
        int64_t slot = gemmar_map_slot_at(map, call->algo == GEMMAR_ALGO_TWO_SHOT, call->place.node,
                                          call->place.local, s);
        struct gemmar_chunk chunk = gemmar_map_chunk(map, first + slot);

        if (!gemmar_exec_all(cta, cta->lane != 0 || gemmar_intra_wait_ready(call, cta, slot))) {
            return false;
        }
        if (call->algo == GEMMAR_ALGO_LOCAL) {
            gemmar_intra_to_out(call, cta, &chunk);
            gemmar_publish_stamp(call, cta, chunk.index);
            continue;
        }
        gemmar_intra_to_staging(call, cta, &chunk,
                                gemmar_intra_staging(call, cta->parity, chunk.index));
        (void)gemmar_exec_all(cta, true);
        if (!gemmar_exec_all(cta,
                             cta->lane != 0 || gemmar_intra_hand_on(call, cta, &chunk, slot))) {
            return false;
        }
    }
    return true;
}

#endif
