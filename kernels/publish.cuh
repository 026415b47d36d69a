// SPDX-License-Identifier: Apache-2.0
// Step 8, publish: a chunk's result to `out` of all local ranks, then their `published` stamps; and
// the copy from `out` to the rank's own C.
//
// Waits: the copy waits for `published` of every chunk; nothing else waits here. May write a rank's
// `out` because its `ready` stamp for the chunk was seen in this epoch.
#ifndef GEMMAR_KERNELS_PUBLISH_CUH
#define GEMMAR_KERNELS_PUBLISH_CUH

#include "kernels/exec.h"

GEMMAR_EXEC void gemmar_publish_block(const struct gemmar_call *call, int64_t offset, int64_t i,
                                      const float *x, int n)
{
    for (uint32_t g = 0; g < call->place.locals; g++) {
        gemmar_block_store(call->operands.dtype, (char *)call->locals[g].out + offset, i, x, n);
    }
}

/* All lanes, after their last store of the chunk. */
GEMMAR_EXEC void gemmar_publish_stamp(const struct gemmar_call *call, const struct gemmar_cta *cta,
                                      int64_t chunk)
{
    (void)gemmar_exec_all(cta, true);
    if (cta->lane == 0) {
        for (uint32_t g = 0; g < call->place.locals; g++) {
            gemmar_exec_stamp(&call->locals[g].published[chunk], cta->epoch);
        }
    }
}

/* C's old values and the bias come in after the sum: x = alpha * x + beta * C + bias. */
GEMMAR_EXEC void gemmar_publish_epilogue(const struct gemmar_operands *o, int64_t row, int64_t col,
                                         float *x, int n)
{
    if (o->alpha != 1.0f) {
        for (int j = 0; j < n; j++) {
            x[j] *= o->alpha;
        }
    }
    if (o->beta != 0.0f) {
        for (int j = 0; j < n; j++) {
            x[j] += o->beta * gemmar_load_element(o->dtype, o->c, row * o->ldc + col + j);
        }
    }
    if (o->bias != NULL) {
        for (int j = 0; j < n; j++) {
            x[j] += gemmar_load_element(o->dtype, o->bias, col + j);
        }
    }
}

GEMMAR_EXEC void gemmar_publish_copy_chunk(const struct gemmar_call *call,
                                           const struct gemmar_cta *cta,
                                           const struct gemmar_chunk *chunk)
{
    const struct gemmar_operands *o = &call->operands;
    const char *from = (const char *)call->locals[call->place.local].out +
                       gemmar_map_chunk_offset(&call->map, chunk->index);
    uint32_t bytes = call->map.element_bytes;

    for (int64_t t = 0; t < chunk->tiles; t++) {
        int64_t cols = gemmar_chunk_tile_cols(&call->map, chunk, t);
        const char *tile = from + gemmar_chunk_tile_offset(&call->map, chunk, t) * bytes;
        int64_t col = chunk->col0 + t * call->map.tile_n;

        for (int64_t r = 0; r < chunk->rows; r++) {
            gemmar_exec_copy(cta, (char *)o->c + ((chunk->row0 + r) * o->ldc + col) * bytes,
                             tile + r * cols * bytes, cols * bytes);
        }
    }
}

/* My C, chunk by chunk as they are published. */
GEMMAR_EXEC bool gemmar_publish_copy(const struct gemmar_call *call, const struct gemmar_cta *cta)
{
    const struct gemmar_range *range = &call->plan.copy;

    for (int64_t p = cta->index - range->first; p < call->map.chunks; p += range->count) {
        int64_t i = gemmar_map_visit(&call->map, call->algo == GEMMAR_ALGO_TWO_SHOT,
                                     call->place.node, call->place.local, p);
        struct gemmar_chunk chunk = gemmar_map_chunk(&call->map, i);
        uint32_t owner = gemmar_map_owner(&call->map, i);
        struct gemmar_wait_for whom = {GEMMAR_STAGE_PUBLISH,
                                       call->rank_of[call->place.node * call->place.locals + owner],
                                       owner, (uint64_t)i};

        if (!gemmar_exec_all(
                cta, cta->lane != 0 ||
                         gemmar_exec_wait(call, &call->locals[call->place.local].published[i],
                                          cta->epoch, &whom))) {
            return false;
        }
        gemmar_publish_copy_chunk(call, cta, &chunk);
    }
    return true;
}

#endif
