// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: the couriers, one warp for each consumer: what comes into staging from other
// ranks, what goes from there to them, waits and stamps.
#ifndef GEMMAR_KERNELS_COURIER_SM90_CUH
#define GEMMAR_KERNELS_COURIER_SM90_CUH

#include "kernels/item_sm90.cuh"

#define GEMMAR_TURN_NS 100 /* between two looks whether it is my turn */

/* A wait for a word of another rank. False: the call is being left. */
static __device__ __forceinline__ bool gemmar_courier_wait(const gemmar_call &call,
                                                           const uint64_t *word, uint64_t target,
                                                           uint32_t stage, uint32_t local,
                                                           uint64_t slot)
{
    if (gemmar_ld_acquire_sys(word) >= target) {
        return true;
    }
    gemmar_wait_for whom = {stage, call.rank_of[call.place.node * call.place.locals + local], local,
                            slot};
    return gemmar_exec_wait(&call, word, target, &whom);
}

/* Where part `part` of a tile begins in `partial`: see struct gemmar_local_view. */
template <class T>
static __device__ __forceinline__ uint64_t gemmar_part_offset(uint64_t tile, uint32_t part)
{
    return (tile * GEMMAR_CHUNK_PARTS + part) * (64 * T::BN * 2);
}

/* Tile index in the owner's slots of the product of `from`. */
static __device__ __forceinline__ uint64_t gemmar_push_tile(const gemmar_call &call, uint32_t slot,
                                                            uint32_t owner, uint32_t from)
{
    return (uint64_t)slot * (call.place.locals - 1) + (from < owner ? from : from - 1);
}

/* The word that says that rank `from`'s part is there. */
static __device__ __forceinline__ uint64_t *
gemmar_part_ready(const gemmar_call &call, const gemmar_item &item, uint32_t from, uint32_t part)
{
    return call.locals[item.owner].ready +
           ((uint64_t)item.slot * call.place.locals + from) * GEMMAR_CHUNK_PARTS + part;
}

/* Bring one source of an own item into staging. When the call is being left the consumer goes on
 * with whatever lies there. */
template <class T>
static __device__ __forceinline__ bool
gemmar_courier_bring(const gemmar_call &call, gemmar_fused_shared<T> &s, const gemmar_role &r,
                     const gemmar_item &item, uint32_t half, uint32_t source, bool ok)
{
    uint32_t part = r.cta * 2 + half, local = call.place.local;
    uint32_t from = !r.pull && source >= local ? source + 1 : source;
    uint32_t loaded = gemmar_shared_address(&s.loaded[half]);
    const char *base;

    ok = ok && gemmar_courier_wait(call, gemmar_part_ready(call, item, from, part), r.epoch,
                                   GEMMAR_STAGE_INTRA_REDUCE, from, item.slot);
    if (!ok) {
        gemmar_mbarrier_arrive(loaded);
        return false;
    }
    base = r.pull ? (const char *)call.locals[from].partial +
                        gemmar_part_offset<T>((uint64_t)item.chunk, part)
                  : (const char *)call.locals[local].partial +
                        gemmar_part_offset<T>(gemmar_push_tile(call, item.slot, local, from), part);
    gemmar_fence_proxy_async();
    gemmar_mbarrier_expect(loaded, sizeof(s.staging[0]));
    gemmar_bulk_load(gemmar_shared_address(s.staging[half]), base, sizeof(s.staging[0]), loaded);
    return true;
}

/* Before the first result is published: have all local ranks made this same call? */
static __device__ __forceinline__ bool gemmar_courier_told(const gemmar_call &call,
                                                           const gemmar_role &r)
{
    const uint64_t *told = call.locals[call.place.local].told;
    uint64_t mine = r.epoch << 16 | (call.told & 0xffffu);

    for (uint32_t g = 0; g < call.place.locals; g++) {
        if (g == call.place.local) {
            continue;
        }
        if (!gemmar_courier_wait(call, &told[g], r.epoch << 16, GEMMAR_STAGE_TOLD, g, 0)) {
            return false;
        }
        if (gemmar_ld_acquire_sys(&told[g]) != mine) {
            gemmar_wait_for whom = {GEMMAR_STAGE_TOLD,
                                    call.rank_of[call.place.node * call.place.locals + g], g, 0};

            gemmar_exec_give_up(&call, &told[g], mine, &whom, 0);
            return false;
        }
    }
    return true;
}

/* Staging, in rows, to C of every local rank, mine last. */
template <class T>
static __device__ __forceinline__ void
gemmar_courier_publish(const gemmar_fused_params &p, gemmar_fused_shared<T> &s,
                       const gemmar_item &item, uint32_t half)
{
    uint32_t local = p.call.place.local, locals = p.call.place.locals;
    uint32_t staging = gemmar_shared_address(s.staging[half]);

    for (uint32_t j = 1; j <= locals; j++) {
        const CUtensorMap *map = &p.c[(local + j) % locals];

        for (int q = 0; q < T::BN / 64; q++) {
            gemmar_tma_store(map, staging + q * GEMMAR_BOX, item.col + q * 64,
                             item.row + (int32_t)half * 64);
        }
    }
}

/* Staging, as a part, to where its owner (push) or anybody (pull) reads it. */
template <class T>
static __device__ __forceinline__ void
gemmar_courier_send(const gemmar_call &call, gemmar_fused_shared<T> &s, const gemmar_role &r,
                    const gemmar_item &item, uint32_t half)
{
    uint32_t part = r.cta * 2 + half, local = call.place.local;
    char *to =
        r.pull
            ? (char *)call.locals[local].partial + gemmar_part_offset<T>(item.chunk, part)
            : (char *)call.locals[item.owner].partial +
                  gemmar_part_offset<T>(gemmar_push_tile(call, item.slot, item.owner, local), part);

    gemmar_bulk_store(to, gemmar_shared_address(s.staging[half]), sizeof(s.staging[0]));
}

/* The stamps behind what has been stored. */
static __device__ __forceinline__ void gemmar_courier_stamp(const gemmar_call &call,
                                                            const gemmar_role &r,
                                                            const gemmar_item &item, uint32_t half,
                                                            bool published)
{
    uint32_t part = r.cta * 2 + half, local = call.place.local;

    gemmar_bulk_wait();
    gemmar_fence_proxy_async();
    gemmar_fence_acq_rel_sys();
    if (!published) {
        gemmar_st_relaxed_sys(gemmar_part_ready(call, item, local, part), r.epoch);
        return;
    }
    for (uint32_t g = 0; g < call.place.locals; g++) {
        if (g != local || call.copies == GEMMAR_COPIES_ALL) {
            gemmar_st_relaxed_sys(call.locals[g].published +
                                      (uint64_t)item.chunk * GEMMAR_CHUNK_PARTS + part,
                                  r.epoch);
        }
    }
}

/* Bring every source of an own item, the first one while the consumer still multiplies. */
template <class T>
static __device__ __forceinline__ bool
gemmar_courier_sources(const gemmar_call &call, gemmar_fused_shared<T> &s, const gemmar_role &r,
                       const gemmar_item &item, uint32_t half, uint32_t *added, bool ok)
{
    uint32_t sources = gemmar_item_sources(call, r);

    for (uint32_t source = 0; source < sources; source++) {
        if (source > 0) {
            gemmar_mbarrier_wait(gemmar_shared_address(&s.added[half]), *added);
            *added ^= 1;
        }
        ok = gemmar_courier_bring<T>(call, s, r, item, half, source, ok);
    }
    return ok;
}

/* A few SMs fill the link. When all of them store at once, each is held up for as long as all need,
 * and with its stores its loads: so couriers take turns. A turn ends by itself, whatever peers do.
 */
static __device__ __forceinline__ void gemmar_turn_take(const gemmar_call &call)
{
    uint32_t senders = call.plan.senders;
    uint64_t mine;

    if (senders == 0) {
        return;
    }
    mine = gemmar_atom_add_relaxed_gpu(call.words.turn_next, 1);
    while (gemmar_ld_relaxed_gpu(call.words.turn_done) + senders <= mine) {
        __nanosleep(GEMMAR_TURN_NS);
    }
}

static __device__ __forceinline__ void gemmar_turn_leave(const gemmar_call &call)
{
    if (call.plan.senders != 0) {
        (void)gemmar_atom_add_relaxed_gpu(call.words.turn_done, 1);
    }
}

/* Staging to where it belongs; it may be written again afterwards. */
template <class T>
static __device__ __forceinline__ void
gemmar_courier_deliver(const gemmar_fused_params &p, gemmar_fused_shared<T> &s,
                       const gemmar_role &r, const gemmar_item &item, uint32_t half, bool publishes)
{
    bool far = p.call.place.locals > 1 && (publishes || !r.pull);

    if (far) {
        gemmar_turn_take(p.call);
    }
    publishes ? gemmar_courier_publish<T>(p, s, item, half)
              : gemmar_courier_send<T>(p.call, s, r, item, half);
    gemmar_bulk_commit();
    gemmar_bulk_wait_read();
    if (far) {
        gemmar_turn_leave(p.call);
    }
}

/* One lane acts; the warp waits with it. */
template <class T>
static __device__ __forceinline__ void
gemmar_courier(const gemmar_fused_params &p, gemmar_fused_shared<T> &s, const gemmar_role &r,
               uint32_t half, uint32_t lane)
{
    const gemmar_call &call = p.call;
    gemmar_cursor ring = {0, 0};
    uint32_t staged = 0, added = 0;
    bool ok = true, asked = call.place.locals == 1;

    for (uint32_t i = 0; i < r.items; i++) {
        gemmar_item item = gemmar_item_take<T>(s, &ring);
        bool publishes = gemmar_item_publishes(call, r, item), acts = lane == 0;

        if (publishes && acts) {
            ok = gemmar_courier_sources<T>(call, s, r, item, half, &added, ok);
            ok = ok && (asked || gemmar_courier_told(call, r));
            asked = true;
            gemmar_trace(p, half, i, GEMMAR_TRACE_SOURCE);
        }
        __syncwarp();
        gemmar_mbarrier_wait(gemmar_shared_address(&s.staged[half]), staged);
        staged ^= 1;
        if (ok && acts) {
            gemmar_courier_deliver<T>(p, s, r, item, half, publishes);
        }
        gemmar_warp_arrive(&s.freed[half]);
        if (acts) {
            gemmar_trace(p, half, i, GEMMAR_TRACE_READ);
        }
        if (ok && acts && (call.place.locals > 1 || call.copies == GEMMAR_COPIES_ALL)) {
            gemmar_courier_stamp(call, r, item, half, publishes);
            gemmar_trace(p, half, i, GEMMAR_TRACE_STORED);
        }
    }
    if (lane == 0) {
        gemmar_bulk_wait();
    }
    gemmar_warp_arrive(&s.couriers_done);
}

/* The lister: the other local ranks learn what this call is. */
static __device__ __forceinline__ void gemmar_tell(const gemmar_call &call, const gemmar_role &r,
                                                   uint32_t lane)
{
    if (blockIdx.x == 0 && lane < call.place.locals && lane != call.place.local) {
        gemmar_st_relaxed_sys(&call.locals[lane].told[call.place.local],
                              r.epoch << 16 | (call.told & 0xffffu));
    }
}

/* Everything that other ranks write into my C is there. */
static __device__ __forceinline__ void gemmar_wait_published(const gemmar_call &call,
                                                             const gemmar_role &r, uint32_t lane)
{
    const uint64_t *published = call.locals[call.place.local].published;
    int64_t words = call.map.chunks * GEMMAR_CHUNK_PARTS;
    int64_t first = gemmar_map_first(&call.map, call.place.local) * GEMMAR_CHUNK_PARTS;
    int64_t end = gemmar_map_first(&call.map, call.place.local + 1) * GEMMAR_CHUNK_PARTS;

    for (int64_t i = blockIdx.x * 32 + lane; i < words; i += gridDim.x * 32) {
        if (i >= first && i < end) {
            continue;
        }
        int64_t chunk = i / GEMMAR_CHUNK_PARTS;

        if (!gemmar_courier_wait(call, &published[i], r.epoch, GEMMAR_STAGE_PUBLISH,
                                 gemmar_map_owner(&call.map, chunk), (uint64_t)chunk)) {
            return;
        }
    }
}

#endif
