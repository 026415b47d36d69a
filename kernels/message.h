// SPDX-License-Identifier: Apache-2.0
// What of the tensor-core kernel's network windows travels in one command.
//
// A window holds an owner's chunks one behind the other. In one shot they lie in the order of the
// owner's walk, so that those which are done at about the same time are neighbours, and
// `order->together` of them leave as one message: a NIC and its proxy have a cost for each message,
// however short. A chunk that reaches over the edge of C is short of its last parts and ends its
// message, so that no byte travels that does not belong to C. In two-shot a chunk is a message.
#ifndef GEMMAR_KERNELS_MESSAGE_H
#define GEMMAR_KERNELS_MESSAGE_H

#include "kernels/parts.h"
#include "kernels/visit.h"

/* Chunks [first, first + chunks) of a window; `first` is also the index of its stamp. */
struct gemmar_message {
    uint32_t first;
    uint32_t chunks;
    uint32_t bytes;
};

/* gemmar_parts_bytes() of the chunk in this row and column of chunks, in 32 bits as
 * gemmar_visit_first(). */
GEMMAR_HD uint32_t gemmar_message_chunk(const struct gemmar_tile_map *map, uint32_t row,
                                        uint32_t col)
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

/* Bytes from one chunk of a window to the next: no chunk has more than the first of C. */
GEMMAR_HD uint32_t gemmar_message_stride(const struct gemmar_tile_map *map)
{
    return gemmar_message_chunk(map, 0, 0);
}

/* One shot: the message with the chunk in place `walk` of local rank `local`'s walk. */
GEMMAR_HD struct gemmar_message gemmar_message_of(const struct gemmar_tile_map *map, uint32_t local,
                                                  const struct gemmar_visit_order *order,
                                                  uint32_t walk)
{
    uint32_t own = gemmar_visit_first(map, local + 1) - gemmar_visit_first(map, local);
    uint32_t cols = (uint32_t)map->chunks_per_row, stride = gemmar_message_stride(map);
    uint32_t first = walk / order->together * order->together, end = first + order->together;
    struct gemmar_message message;

    end = end < own ? end : own;
    if (gemmar_message_chunk(map, (uint32_t)map->tile_rows - 1, cols - 1) == stride) {
        message.first = first;
        message.chunks = end - first;
        message.bytes = message.chunks * stride;
        return message;
    }
    message.first = first;
    for (uint32_t at = first;; at++) {
        uint32_t chunk = gemmar_visit_of(map, local, order, at).chunk;
        uint32_t bytes = gemmar_message_chunk(map, chunk / cols, chunk % cols);

        message.chunks = at + 1 - message.first;
        message.bytes = (message.chunks - 1) * stride + bytes;
        if (at + 1 == end || (bytes != stride && at >= walk)) {
            return message;
        }
        message.first = bytes != stride ? at + 1 : message.first;
    }
}

#endif
