// SPDX-License-Identifier: Apache-2.0
// Where everything lies in a rank's workspace.
//
// Direct and two-shot share staging and recv: calls of one parity never overlap in time, whatever
// their algorithms. Their stamps have words of their own.
#include "kernels/layout.h"

#include <string.h>

#include "kernels/fabric_shm.h"

#define UNIT GEMMAR_FIFO_OFFSET_UNIT

static uint64_t up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Give `bytes` bytes to the next section, which begins at a multiple of `align`. */
static uint64_t take(uint64_t *at, uint64_t bytes, uint64_t align)
{
    uint64_t offset = up(*at, align);

    *at = offset + bytes;
    return offset;
}

uint64_t gemmar_layout_window(const struct gemmar_layout *layout, uint32_t kind)
{
    const struct gemmar_capacity *c = &layout->capacity;

    return kind != GEMMAR_ROUTE_DIRECT ? c->sub_bytes : c->direct ? c->slice_bytes : 0;
}

uint64_t gemmar_layout_slots(const struct gemmar_layout *layout, uint32_t kind)
{
    const struct gemmar_capacity *c = &layout->capacity;

    return kind != GEMMAR_ROUTE_DIRECT ? c->sub_slots : c->direct ? c->slots : 0;
}

/* Place of a peer node among the others. */
static uint64_t peer_index(uint32_t node, uint32_t from)
{
    return from < node ? from : from - 1;
}

uint64_t gemmar_layout_sink(const struct gemmar_layout *layout, uint32_t parity, uint32_t kind,
                            uint32_t node, uint32_t from)
{
    uint64_t peers = layout->nodes - 1, peer = peer_index(node, from);

    return layout->recv[parity] +
           (kind == GEMMAR_ROUTE_GATHER ? peers + peer : peer) * gemmar_layout_window(layout, kind);
}

uint64_t gemmar_layout_stamps(const struct gemmar_layout *layout, uint32_t parity, uint32_t kind,
                              uint32_t node, uint32_t from)
{
    uint64_t peers = layout->nodes - 1, at = layout->arrival[parity];

    for (uint32_t k = 0; k < kind; k++) {
        at += peers * up(8 * gemmar_layout_slots(layout, k), UNIT);
    }
    return at + peer_index(node, from) * up(8 * gemmar_layout_slots(layout, kind), UNIT);
}

static void network(struct gemmar_layout *l, uint64_t *at)
{
    const struct gemmar_capacity *c = &l->capacity;
    uint64_t peers = l->nodes - 1, direct = c->direct ? c->slice_bytes : 0, stamps = 0, data = 0;
    uint64_t staging = max64(direct, l->nodes * c->sub_bytes);
    uint64_t recv = peers * max64(direct, 2 * c->sub_bytes);

    l->staging_stride = c->sub_bytes;
    for (uint32_t parity = 0; parity < 2; parity++) {
        l->arrival[parity] = stamps;
        for (uint32_t k = 0; k < GEMMAR_ROUTE_KINDS; k++) {
            stamps += peers * up(8 * gemmar_layout_slots(l, k), UNIT);
        }
        l->staging[parity] = take(&data, staging, UNIT);
        l->result[parity] = take(&data, c->sub_bytes, UNIT);
        l->recv[parity] = take(&data, recv, UNIT);
    }
    l->stamps_bytes = up(stamps, GEMMAR_PAGE);
    l->stamps = take(at, l->stamps_bytes, GEMMAR_PAGE);
    l->data_bytes = up(data, GEMMAR_PAGE);
    l->data = take(at, l->data_bytes, GEMMAR_PAGE);
}

struct gemmar_layout gemmar_layout_make(const struct gemmar_capacity *capacity, uint32_t nodes,
                                        uint32_t locals)
{
    struct gemmar_layout l;
    uint64_t at = 0;

    memset(&l, 0, sizeof(l));
    l.nodes = nodes;
    l.locals = locals;
    l.capacity = *capacity;
    (void)take(&at, sizeof(struct gemmar_control), GEMMAR_PAGE);
    l.words = take(&at, sizeof(struct gemmar_words), GEMMAR_PAGE);
    l.tiles_done = take(&at, 8 * capacity->chunks, GEMMAR_LINE);
    l.staged = take(&at, 8 * capacity->slots, GEMMAR_LINE);
    l.ready = take(&at, 8 * capacity->slots * locals * capacity->parts, GEMMAR_LINE);
    l.published = take(&at, 8 * capacity->chunks * capacity->parts, GEMMAR_LINE);
    l.told = take(&at, 8 * locals, GEMMAR_LINE);
    l.partial = take(&at, capacity->partial_bytes, GEMMAR_PAGE);
    l.out = take(&at, capacity->out_bytes, GEMMAR_PAGE);
    l.exchange = take(&at, 3 * capacity->exchange_bytes, GEMMAR_PAGE);
    if (nodes > 1) {
        network(&l, &at);
    }
    l.bytes = up(at, GEMMAR_PAGE);
    return l;
}
