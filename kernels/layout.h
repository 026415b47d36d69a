// SPDX-License-Identifier: Apache-2.0
// Where everything lies in a rank's workspace: offsets from the beginning of its segment, a pure
// function of the capacity, so that they are equal on all ranks.
#ifndef GEMMAR_KERNELS_LAYOUT_H
#define GEMMAR_KERNELS_LAYOUT_H

#include <stdint.h>

#include "kernels/plan.h"

struct gemmar_layout {
    uint32_t nodes, locals;
    struct gemmar_capacity capacity;

    /* Seen by this rank only: struct gemmar_words, then tiles_done[chunks] and staged[slots]. */
    uint64_t words, tiles_done, staged;

    /* Seen by the local ranks; struct gemmar_local_view. */
    uint64_t ready, published, told, partial, out;
    uint64_t exchange; /* struct gemmar_exchange_view: two pieces that others write, and one */

    /* Written by the NIC; two nodes and more. */
    uint64_t stamps, stamps_bytes; /* offsets of a route's windows are from here */
    uint64_t data, data_bytes;     /* the same: staging x2, result x2, recv x2 */
    uint64_t staging[2], result[2], recv[2];
    uint64_t staging_stride;
    uint64_t arrival[2];

    uint64_t bytes; /* of the segment */
};

/* Words of a rank that no other rank sees, each on a line of its own; struct gemmar_rank_words and
 * struct gemmar_net_view say who writes and reads them. */
struct gemmar_words {
    uint64_t epoch;
    char pad0[56];
    uint64_t busy;
    char pad1[56];
    uint64_t ctas_done;
    char pad2[56];
    uint64_t ticket;
    char pad3[56];
    uint64_t heads[2];
    char pad4[48];
    uint64_t turn_next;
    char pad5[56];
    uint64_t turn_done;
    char pad6[56];
    uint64_t copy_next[2];
    char pad7[48];
    uint64_t left;
    char pad8[56];
    uint64_t room[2];
    char pad9[48];
    uint64_t tail_seen;
    char pad10[56];
};

struct gemmar_layout gemmar_layout_make(const struct gemmar_capacity *capacity, uint32_t nodes,
                                        uint32_t locals);

/* Where the commands of node `from` arrive at node `node` on routes of a kind: offset of the data
 * from layout.data and of the stamps from layout.stamps. */
uint64_t gemmar_layout_sink(const struct gemmar_layout *layout, uint32_t parity, uint32_t kind,
                            uint32_t node, uint32_t from);
uint64_t gemmar_layout_stamps(const struct gemmar_layout *layout, uint32_t parity, uint32_t kind,
                              uint32_t node, uint32_t from);

/* Bytes and slots of a route's windows; 0 when the capacity has no such route. */
uint64_t gemmar_layout_window(const struct gemmar_layout *layout, uint32_t kind);
uint64_t gemmar_layout_slots(const struct gemmar_layout *layout, uint32_t kind);

#endif
