// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: what a CTA has to do, item by item, and the shared memory of its roles.
#ifndef GEMMAR_KERNELS_ITEM_SM90_CUH
#define GEMMAR_KERNELS_ITEM_SM90_CUH

#include "kernels/exec.h"
#include "kernels/fused_sm90.h"
#include "kernels/mainloop_sm90.cuh"
#include "kernels/message.h"

#define GEMMAR_ITEMS 16 /* of the list that the lister is ahead at most */

/* What is done with a tile: multiply or start from zero, add the sources, send away. */
enum gemmar_item_kind {
    /* The product, as a part to its owner (push), own memory (pull) or the other rank (exchange).
     */
    GEMMAR_ITEM_PART = 0,
    GEMMAR_ITEM_SUM,    /* sum of the local ranks: the result, or with more nodes into staging */
    GEMMAR_ITEM_REDUCE, /* sum of all nodes' staging: the result */
    GEMMAR_ITEM_GATHER, /* two-shot: the result, which another node has reduced */
};

/* One tile of this CTA. */
struct gemmar_item {
    uint32_t kind;    /* enum gemmar_item_kind */
    int32_t row, col; /* first element of C */
    uint32_t owner;
    uint32_t slot; /* of the chunk in its owner's range */
    uint32_t chunk;
    /* Own chunks, two nodes and more: place in its window of the network, and in two-shot the node
     * that reduces it (direct: 0). */
    uint32_t window, node;
    gemmar_message message; /* that it is in */
    uint32_t sent; /* of that message: index of `staged`, and in my range of `tiles_done` */
};

template <class T> struct gemmar_fused_shared {
    gemmar_stages<T> stages;
    alignas(1024) uint8_t staging[2][T::BOXES][GEMMAR_BOX]; /* a ring for each consumer */
    gemmar_stage_barriers<T> barriers;
    /* Consumer -> courier: the box is to be sent. Courier -> consumer: it may be written. */
    uint64_t staged[2][T::BOXES], freed[2][T::BOXES];
    uint64_t item_full[GEMMAR_ITEMS], item_empty[GEMMAR_ITEMS]; /* lister <-> the other warps */
    uint64_t couriers_done;
    /* Not 0: the call is being left, and sums are of anything. Writer: the producer, before `full`,
     * and consumers; reader: the couriers, after `staged`, which comes behind it. */
    uint32_t left;
    gemmar_item items[GEMMAR_ITEMS];
};

/* What the roles of a CTA know alike. */
struct gemmar_role {
    uint64_t epoch;
    uint32_t cta;      /* of the cluster */
    uint32_t cluster;  /* among those with the same first items */
    uint32_t clusters; /* of them */
    uint32_t firsts;   /* this cluster's items that multiply or sum inside the node ... */
    uint32_t reduces;  /* ... then between nodes, ... */
    uint32_t items;    /* ... and those that gather: all of them */
    bool computes;     /* else its first items only add parts (pull) */
    bool pull;
};

/* Not a member of the role: registers are few. */
static __device__ __forceinline__ bool gemmar_exchanges(const gemmar_call &call)
{
    return call.tensor.strategy == GEMMAR_STRATEGY_EXCHANGE;
}

static __device__ __forceinline__ gemmar_role gemmar_role_of(const gemmar_call &call)
{
    gemmar_role r;
    uint32_t compute = call.plan.compute.count / 2, mine = blockIdx.x / 2, all = gridDim.x / 2;
    uint32_t work = (uint32_t)call.map.chunks;
    uint32_t own = gemmar_visit_first(&call.map, call.place.local + 1) -
                   gemmar_visit_first(&call.map, call.place.local);

    r.epoch = *call.words.epoch;
    r.cta = blockIdx.x & 1;
    r.pull = call.tensor.strategy == GEMMAR_STRATEGY_PULL && call.place.locals > 1;
    r.computes = mine < compute;
    r.cluster = r.computes ? mine : mine - compute;
    r.clusters = r.computes ? compute : call.plan.intra.count / 2;
    r.firsts = gemmar_visit_share(r.computes ? work : own, r.cluster, r.clusters)
               << gemmar_exchanges(call);
    r.reduces = 0;
    r.items = r.firsts;
    if (call.algo != GEMMAR_ALGO_LOCAL) { /* all clusters, when they are done with the first ones */
        uint32_t node = call.place.node, local = call.place.local;
        int two_shot = call.algo == GEMMAR_ALGO_TWO_SHOT;

        r.reduces =
            gemmar_visit_share(gemmar_visit_reduces(&call.map, two_shot, node, local), mine, all);
        r.items +=
            r.reduces + (two_shot ? gemmar_visit_gathers(&call.map, node, local, mine, all) : 0);
    }
    return r;
}

/* Exchange: is a chunk added right behind its product? */
static __device__ __forceinline__ bool gemmar_adds_at_once(const gemmar_call &call,
                                                           const gemmar_role &r)
{
    return call.tensor.order.lead == 1 || r.firsts == 2;
}

/* Does item i begin with a product? */
static __device__ __forceinline__ bool gemmar_item_multiplies(const gemmar_call &call,
                                                              const gemmar_role &r, uint32_t i)
{
    return r.computes && i < r.firsts &&
           !(gemmar_exchanges(call) &&
             gemmar_visit_step_at(r.firsts / 2, call.tensor.order.lead, i).adds);
}

/* Is this item's outcome the result, for all local ranks? */
static __device__ __forceinline__ bool gemmar_item_publishes(const gemmar_call &call,
                                                             const gemmar_item &item)
{
    return item.kind == GEMMAR_ITEM_SUM ? call.algo == GEMMAR_ALGO_LOCAL
                                        : item.kind != GEMMAR_ITEM_PART;
}

/* Is its outcome also for the other nodes, as parts? It leaves before the result does. */
static __device__ __forceinline__ bool gemmar_item_travels(const gemmar_call &call,
                                                           const gemmar_item &item)
{
    return item.kind == GEMMAR_ITEM_REDUCE && call.algo == GEMMAR_ALGO_TWO_SHOT;
}

/* Does a CTA's half of it lie in C, at least in part? What does not is neither sent nor brought. */
static __device__ __forceinline__ bool gemmar_item_inside(const gemmar_call &call,
                                                          const gemmar_item &item, uint32_t half)
{
    return item.row + (int64_t)half * GEMMAR_PART_ROWS < call.map.m && item.col < call.map.n;
}

/* Tiles that it adds through the stages. */
static __device__ __forceinline__ uint32_t gemmar_item_sources(const gemmar_call &call,
                                                               const gemmar_role &r,
                                                               const gemmar_item &item)
{
    switch (item.kind) {
    case GEMMAR_ITEM_SUM:
        return gemmar_exchanges(call) ? 0 : r.pull ? call.place.locals : call.place.locals - 1;
    case GEMMAR_ITEM_REDUCE: return call.place.nodes;
    case GEMMAR_ITEM_GATHER: return 1;
    default: return 0;
    }
}

/* One thread of each half; half 0 writes. */
static __device__ __forceinline__ void gemmar_trace(const gemmar_fused_params &p, uint32_t half,
                                                    uint32_t i, uint32_t event)
{
    if (p.trace != NULL && half == 0 && i < p.trace_items) {
        p.trace[((uint64_t)blockIdx.x * p.trace_items + i) * GEMMAR_TRACE_EVENTS + event] =
            gemmar_globaltimer();
    }
}

/* Every lane has finished with what it read or wrote in shared memory; one arrival for the warp. */
static __device__ __forceinline__ void gemmar_warp_arrive(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        gemmar_mbarrier_arrive(gemmar_shared_address(barrier));
    }
}

/* The next item, for all lanes of a warp, where it lies: registers are few. */
template <class T>
static __device__ __forceinline__ const gemmar_item &gemmar_item_look(gemmar_fused_shared<T> &s,
                                                                      const gemmar_cursor &ring)
{
    gemmar_mbarrier_wait(gemmar_shared_address(&s.item_full[ring.at]), ring.phase);
    return s.items[ring.at];
}

/* They do not look at it any more. */
template <class T>
static __device__ __forceinline__ void gemmar_item_leave(gemmar_fused_shared<T> &s,
                                                         gemmar_cursor *ring)
{
    gemmar_warp_arrive(&s.item_empty[ring->at]);
    gemmar_cursor_next(ring, GEMMAR_ITEMS);
}

/* Both at once, with a copy of it. */
template <class T>
static __device__ __forceinline__ gemmar_item gemmar_item_take(gemmar_fused_shared<T> &s,
                                                               gemmar_cursor *ring)
{
    gemmar_item item = gemmar_item_look<T>(s, *ring);

    gemmar_item_leave<T>(s, ring);
    return item;
}

/* Item i of this cluster, but for what a CTA has of its own. */
static __device__ __forceinline__ gemmar_item gemmar_item_at(const gemmar_call &call,
                                                             const gemmar_role &r, uint32_t i)
{
    const gemmar_visit_order *order = &call.tensor.order;
    int two_shot = call.algo == GEMMAR_ALGO_TWO_SHOT;
    uint32_t local = call.place.local, node = call.place.node;
    uint32_t mine = blockIdx.x / 2, all = gridDim.x / 2, at = r.cluster + i * r.clusters;
    gemmar_visit v;
    gemmar_item item;

    if (i >= r.firsts + r.reduces) {
        v = gemmar_visit_gather(&call.map, node, local, mine, all, i - r.firsts - r.reduces);
        item.kind = GEMMAR_ITEM_GATHER;
    } else if (i >= r.firsts) {
        at = mine + (i - r.firsts) * all;
        v = gemmar_visit_reduce(&call.map, two_shot, node, local, order, at);
        item.kind = GEMMAR_ITEM_REDUCE;
    } else if (gemmar_exchanges(call)) {
        gemmar_visit_step step = gemmar_visit_step_at(r.firsts / 2, order->lead, i);

        v = gemmar_visit_exchange(&call.map, local, order, r.cluster + step.index * r.clusters);
        item.kind = step.adds ? GEMMAR_ITEM_SUM : GEMMAR_ITEM_PART;
    } else if (r.computes) {
        v = gemmar_visit_at(&call.map, local, order, at);
        item.kind = r.pull || v.owner != local ? GEMMAR_ITEM_PART : GEMMAR_ITEM_SUM;
    } else {
        v = gemmar_visit_of(&call.map, local, order, at);
        item.kind = GEMMAR_ITEM_SUM;
    }
    item.owner = v.owner;
    item.slot = v.slot;
    item.chunk = v.chunk;
    item.window = v.walk;
    item.node = 0;
    if (v.owner != local || call.place.nodes == 1) {
        return item;
    }
    if (two_shot) {
        item.node = gemmar_map_node(&call.map, v.chunk);
        item.window = v.chunk - (uint32_t)gemmar_map_sub_first(&call.map, local, item.node);
        item.message = {item.window, 1, (uint32_t)gemmar_parts_bytes(&call.map, v.chunk)};
        item.sent = v.slot;
    } else {
        item.message = gemmar_message_of(&call.map, local, order, v.walk);
        item.sent = item.message.first;
    }
    return item;
}

/* The lister, one lane. */
template <class T>
static __device__ __forceinline__ void gemmar_list(const gemmar_fused_params &p,
                                                   gemmar_fused_shared<T> &s, const gemmar_role &r)
{
    const gemmar_call &call = p.call;
    gemmar_cursor ring = {0, 1};

    for (uint32_t i = 0; i < r.items; i++) {
        gemmar_item item = gemmar_item_at(call, r, i);
        uint32_t row = item.chunk / (uint32_t)call.map.chunks_per_row;
        uint32_t col = item.chunk - row * (uint32_t)call.map.chunks_per_row;

        item.row = (int32_t)(row * call.map.tile_m + (T::ALONG_N ? 0 : r.cta * GEMMAR_BM));
        item.col = (int32_t)(col * call.map.tile_n + (T::ALONG_N ? r.cta * T::BN : 0));
        gemmar_mbarrier_wait(gemmar_shared_address(&s.item_empty[ring.at]), ring.phase);
        s.items[ring.at] = item;
        gemmar_mbarrier_arrive(gemmar_shared_address(&s.item_full[ring.at]));
        gemmar_cursor_next(&ring, GEMMAR_ITEMS);
        if (p.trace != NULL && i < p.trace_items) {
            p.trace[((uint64_t)blockIdx.x * p.trace_items + i) * GEMMAR_TRACE_EVENTS +
                    GEMMAR_TRACE_KIND] =
                1 + item.owner + ((uint64_t)item.kind << GEMMAR_TRACE_KIND_SHIFT);
        }
    }
}

#endif
