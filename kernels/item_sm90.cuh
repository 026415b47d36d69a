// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: what a CTA has to do, item by item, and the shared memory of its roles.
#ifndef GEMMAR_KERNELS_ITEM_SM90_CUH
#define GEMMAR_KERNELS_ITEM_SM90_CUH

#include "kernels/exec.h"
#include "kernels/fused_sm90.h"
#include "kernels/mainloop_sm90.cuh"
#include "kernels/visit.h"

#define GEMMAR_ITEMS 16 /* of the list that the lister is ahead at most */

/* One tile of this CTA. */
struct gemmar_item {
    int32_t row, col; /* first element of C */
    uint32_t owner;
    uint32_t slot; /* of the chunk in its owner's range */
    uint32_t chunk;
};

template <class T> struct gemmar_fused_shared {
    gemmar_stages<T> stages;
    alignas(1024) uint8_t staging[2][64 * T::BN * 2];
    gemmar_stage_barriers<T> barriers;
    /* Courier -> consumer: a source is in staging. Consumer -> courier: it has been added. */
    uint64_t loaded[2], added[2];
    /* Consumer -> courier: staging is to be sent. Courier -> consumer: staging may be written. */
    uint64_t staged[2], freed[2];
    uint64_t item_full[GEMMAR_ITEMS], item_empty[GEMMAR_ITEMS]; /* lister <-> the other warps */
    uint64_t couriers_done;
    gemmar_item items[GEMMAR_ITEMS];
};

/* What the roles of a CTA know alike. */
struct gemmar_role {
    uint64_t epoch;
    uint32_t cta;     /* of the cluster */
    uint32_t cluster; /* among those with the same work */
    uint32_t clusters;
    uint32_t items; /* of this cluster's list */
    bool computes;  /* else it only adds parts (pull) */
    bool pull;
};

static __device__ __forceinline__ gemmar_role gemmar_role_of(const gemmar_call &call)
{
    gemmar_role r;
    uint32_t compute = call.plan.compute.count / 2, mine = blockIdx.x / 2;
    int64_t work = call.map.chunks;

    r.epoch = *call.words.epoch;
    r.cta = blockIdx.x & 1;
    r.pull = call.tensor.strategy == GEMMAR_STRATEGY_PULL && call.place.locals > 1;
    r.computes = mine < compute;
    r.cluster = r.computes ? mine : mine - compute;
    r.clusters = r.computes ? compute : call.plan.intra.count / 2;
    if (!r.computes) {
        work = gemmar_map_first(&call.map, call.place.local + 1) -
               gemmar_map_first(&call.map, call.place.local);
    }
    r.items = work > r.cluster ? (uint32_t)((work - r.cluster - 1) / r.clusters + 1) : 0;
    return r;
}

/* Does the owner's epilogue end this item here? */
static __device__ __forceinline__ bool
gemmar_item_publishes(const gemmar_call &call, const gemmar_role &r, const gemmar_item &item)
{
    return r.pull ? !r.computes : item.owner == call.place.local;
}

/* Ranks whose parts an own item adds. */
static __device__ __forceinline__ uint32_t gemmar_item_sources(const gemmar_call &call,
                                                               const gemmar_role &r)
{
    return r.pull ? call.place.locals : call.place.locals - 1;
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

/* The next item, for all lanes of a warp. */
template <class T>
static __device__ __forceinline__ gemmar_item gemmar_item_take(gemmar_fused_shared<T> &s,
                                                               gemmar_cursor *ring)
{
    gemmar_item item;

    gemmar_mbarrier_wait(gemmar_shared_address(&s.item_full[ring->at]), ring->phase);
    item = s.items[ring->at];
    gemmar_warp_arrive(&s.item_empty[ring->at]);
    gemmar_cursor_next(ring, GEMMAR_ITEMS);
    return item;
}

/* The lister, one lane. */
template <class T>
static __device__ __forceinline__ void gemmar_list(const gemmar_fused_params &p,
                                                   gemmar_fused_shared<T> &s, const gemmar_role &r)
{
    const gemmar_call &call = p.call;
    uint32_t local = call.place.local;
    gemmar_cursor ring = {0, 1};

    for (uint32_t i = 0; i < r.items; i++) {
        uint32_t at = r.cluster + i * r.clusters;
        gemmar_visit v = r.computes ? gemmar_visit_at(&call.map, local, &call.tensor.order, at)
                                    : gemmar_visit_of(&call.map, local, call.tensor.order.band, at);
        uint32_t row = v.chunk / (uint32_t)call.map.chunks_per_row;
        uint32_t col = v.chunk - row * (uint32_t)call.map.chunks_per_row;
        gemmar_item item;

        item.row = (int32_t)(row * call.map.tile_m + (T::ALONG_N ? 0 : r.cta * GEMMAR_BM));
        item.col = (int32_t)(col * call.map.tile_n + (T::ALONG_N ? r.cta * T::BN : 0));
        item.owner = v.owner;
        item.slot = v.slot;
        item.chunk = v.chunk;
        gemmar_mbarrier_wait(gemmar_shared_address(&s.item_empty[ring.at]), ring.phase);
        s.items[ring.at] = item;
        gemmar_mbarrier_arrive(gemmar_shared_address(&s.item_full[ring.at]));
        gemmar_cursor_next(&ring, GEMMAR_ITEMS);
        if (p.trace != NULL && i < p.trace_items) {
            p.trace[((uint64_t)blockIdx.x * p.trace_items + i) * GEMMAR_TRACE_EVENTS +
                    GEMMAR_TRACE_KIND] = 1 + v.owner;
        }
    }
}

#endif
