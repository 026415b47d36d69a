// SPDX-License-Identifier: Apache-2.0
// Step 7, inter reduce: the node sums of all nodes, in node order, in fp32; alpha, beta, bias; one
// rounding. Then publish, and in two-shot the result's way to the other nodes.
//
// Input: my `staging`, and `recv` of every other node. Output: `out` of all local ranks; two-shot
// also `result` and a command per peer node. Waits for `staged` of my own intra reduce and for
// arrivals.
#ifndef GEMMAR_KERNELS_INTER_REDUCE_CUH
#define GEMMAR_KERNELS_INTER_REDUCE_CUH

#include "kernels/arrival_wait.cuh"
#include "kernels/exec.h"
#include "kernels/fifo_push.cuh"
#include "kernels/intra_reduce.cuh"
#include "kernels/publish.cuh"

/* One chunk that this rank reduces: where its node sums lie. */
struct gemmar_inter_chunk {
    struct gemmar_chunk chunk;
    const char *staging;
    char *result; /* two-shot; else NULL */
    int64_t recv; /* offset in the sink window of each route */
    uint32_t kind;
};

GEMMAR_EXEC void gemmar_inter_sum(const struct gemmar_call *call, const struct gemmar_cta *cta,
                                  const struct gemmar_inter_chunk *c, int64_t i, float *acc, int n)
{
    for (int j = 0; j < n; j++) {
        acc[j] = 0.0f;
    }
    for (uint32_t node = 0; node < call->place.nodes; node++) {
        const char *from =
            node == call->place.node
                ? c->staging
                : (const char *)call->net.recv[cta->parity][c->kind * call->place.nodes + node] +
                      c->recv;

        gemmar_block_add(acc, call->operands.dtype, from, i, n);
    }
}

GEMMAR_EXEC void gemmar_inter_chunk_reduce(const struct gemmar_call *call,
                                           const struct gemmar_cta *cta,
                                           const struct gemmar_inter_chunk *c)
{
    const struct gemmar_chunk *chunk = &c->chunk;
    int64_t offset = gemmar_map_chunk_offset(&call->map, chunk->index);

    for (int64_t t = 0; t < chunk->tiles; t++) {
        int64_t cols = gemmar_chunk_tile_cols(&call->map, chunk, t);
        int64_t blocks = gemmar_div_up(cols, GEMMAR_BLOCK);
        int64_t tile = gemmar_chunk_tile_offset(&call->map, chunk, t);

        for (int64_t u = cta->lane; u < chunk->rows * blocks; u += cta->lanes) {
            int64_t r = u / blocks, col = (u - r * blocks) * GEMMAR_BLOCK;
            int64_t i = tile + r * cols + col;
            float acc[GEMMAR_BLOCK];
            int n = gemmar_block_length(cols - col);

            gemmar_inter_sum(call, cta, c, i, acc, n);
            gemmar_publish_epilogue(&call->operands, chunk->row0 + r,
                                    chunk->col0 + t * call->map.tile_n + col, acc, n);
            gemmar_publish_block(call, offset, i, acc, n);
            if (c->result != NULL) {
                gemmar_block_store(call->operands.dtype, c->result, i, acc, n);
            }
        }
    }
}

/* Reduce chunk `first + slot`, one of mine; `base` is the first chunk of the window it travels in.
 */
GEMMAR_EXEC bool gemmar_inter_one(const struct gemmar_call *call, const struct gemmar_cta *cta,
                                  int64_t slot, int64_t base, uint32_t kind)
{
    const struct gemmar_tile_map *map = &call->map;
    int64_t index = gemmar_map_first(map, call->place.local) + slot;
    struct gemmar_wait_for self = {GEMMAR_STAGE_INTER_REDUCE, call->place.rank, call->place.local,
                                   (uint64_t)slot};
    struct gemmar_inter_chunk c;
    bool ok = true;

    c.chunk = gemmar_map_chunk(map, index);
    c.staging = gemmar_intra_staging(call, cta->parity, index);
    c.recv = gemmar_map_distance(map, base, index);
    c.result = kind == GEMMAR_ROUTE_SCATTER ? (char *)call->net.result[cta->parity] + c.recv : NULL;
    c.kind = kind;
    if (cta->lane == 0) {
        ok = gemmar_exec_wait(call, &call->words.staged[slot], cta->epoch, &self) &&
             gemmar_arrival_wait_all(call, cta, kind, index - base);
    }
    if (!gemmar_exec_all(cta, ok)) {
        return false;
    }
    gemmar_inter_chunk_reduce(call, cta, &c);
    gemmar_publish_stamp(call, cta, index);
    if (kind == GEMMAR_ROUTE_SCATTER && cta->lane == 0) {
        struct gemmar_fifo_request request = {(uint64_t)c.recv,
                                              (uint32_t)gemmar_chunk_bytes(map, &c.chunk),
                                              (uint32_t)(index - base), 0, (uint32_t)cta->epoch};

        ok = gemmar_fifo_push_all(call, GEMMAR_ROUTE_GATHER, &request);
    }
    return gemmar_exec_all(cta, ok);
}

/* Two-shot: a chunk that node `node` reduced, from its sink window to all local ranks. */
GEMMAR_EXEC bool gemmar_inter_gather_one(const struct gemmar_call *call,
                                         const struct gemmar_cta *cta, uint32_t node, int64_t index)
{
    const struct gemmar_tile_map *map = &call->map;
    int64_t base = gemmar_map_sub_first(map, call->place.local, node);
    struct gemmar_chunk chunk = gemmar_map_chunk(map, index);
    int64_t offset = gemmar_map_chunk_offset(map, index);
    const char *from =
        (const char *)call->net.recv[cta->parity][GEMMAR_ROUTE_GATHER * call->place.nodes + node] +
        gemmar_map_distance(map, base, index);

    if (!gemmar_exec_all(cta, cta->lane != 0 || gemmar_arrival_wait(call, cta, GEMMAR_ROUTE_GATHER,
                                                                    node, index - base))) {
        return false;
    }
    for (uint32_t g = 0; g < call->place.locals; g++) {
        gemmar_exec_copy(cta, (char *)call->locals[g].out + offset, from,
                         gemmar_chunk_bytes(map, &chunk));
    }
    gemmar_publish_stamp(call, cta, index);
    return true;
}

GEMMAR_EXEC bool gemmar_inter_two_shot(const struct gemmar_call *call, const struct gemmar_cta *cta)
{
    const struct gemmar_range *range = &call->plan.inter;
    const struct gemmar_tile_map *map = &call->map;
    uint32_t local = call->place.local, node = call->place.node;
    int64_t first = gemmar_map_first(map, local), step = range->count;
    int64_t mine = gemmar_map_sub_first(map, local, node);

    for (int64_t i = mine + cta->index - range->first;
         i < gemmar_map_sub_first(map, local, node + 1); i += step) {
        if (!gemmar_inter_one(call, cta, i - first, mine, GEMMAR_ROUTE_SCATTER)) {
            return false;
        }
    }
    for (uint32_t j = 1; j < call->place.nodes; j++) {
        uint32_t from = (node + j) % call->place.nodes;

        for (int64_t i = gemmar_map_sub_first(map, local, from) + cta->index - range->first;
             i < gemmar_map_sub_first(map, local, from + 1); i += step) {
            if (!gemmar_inter_gather_one(call, cta, from, i)) {
                return false;
            }
        }
    }
    return true;
}

GEMMAR_EXEC bool gemmar_inter_reduce(const struct gemmar_call *call, const struct gemmar_cta *cta)
{
    const struct gemmar_range *range = &call->plan.inter;
    int64_t first = gemmar_map_first(&call->map, call->place.local);
    int64_t count = gemmar_map_first(&call->map, call->place.local + 1) - first;

    if (call->algo == GEMMAR_ALGO_LOCAL) {
        return true;
    }
    if (call->algo == GEMMAR_ALGO_TWO_SHOT) {
        return gemmar_inter_two_shot(call, cta);
    }
    for (int64_t s = cta->index - range->first; s < count; s += range->count) {
        if (!gemmar_inter_one(call, cta, s, first, GEMMAR_ROUTE_DIRECT)) {
            return false;
        }
    }
    return true;
}

#endif
