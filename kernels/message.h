// SPDX-License-Identifier: Apache-2.0
// What of the tensor-core kernel's network windows travels in one command.
//
// A window holds an owner's chunks one behind the other. In one shot they lie in the order of the
// owner's walk, so that those which are done at about the same time are neighbours, and
// `order->together` of them leave as one message: a NIC and its proxy have a cost for each message,
// however short. A chunk that reaches over the edge of C is short of its last parts and ends its
// message, so that those parts do not travel. In two-shot a chunk is a message.
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

/* Bytes from one chunk of a window to the next: no chunk has more than the first of C. */
GEMMAR_HD uint32_t gemmar_message_stride(const struct gemmar_tile_map *map)
{
    return gemmar_parts_at(map, 0, 0);
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
    if (gemmar_parts_at(map, (uint32_t)map->tile_rows - 1, cols - 1) == stride) {
        message.first = first;
        message.chunks = end - first;
        message.bytes = message.chunks * stride;
        return message;
    }
    message.first = first;
    for (uint32_t at = first;; at++) {
        uint32_t chunk = gemmar_visit_of(map, local, order, at).chunk;
        uint32_t bytes = gemmar_parts_at(map, chunk / cols, chunk % cols);

        message.chunks = at + 1 - message.first;
        message.bytes = (message.chunks - 1) * stride + bytes;
        if (at + 1 == end || (bytes != stride && at >= walk)) {
            return message;
        }
        message.first = bytes != stride ? at + 1 : message.first;
    }
}

#endif
