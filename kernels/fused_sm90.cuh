// SPDX-License-Identifier: Apache-2.0
// The roles of a CTA of the tensor-core kernel (384 threads) and the hand-overs between them.
//
//   warp 0            one thread: the producer, loads operands
//   warps 1 and 2     the courier of consumer 0 or 1: brings parts of other ranks into staging,
//                     sends parts and results away, waits and stamps
//   warp 3            the lister: tells the other ranks what this call is, works out the cluster's
//                     list for everybody else, at the end waits for `published`
//   warpgroups 1, 2   consumers: 64 rows of every tile each
//   every warp        at the end copies what others published from `out` to C, where they cannot
//                     write into C
//
// push: a tile of another owner goes as a part into that owner's slot; a tile of my own is added to
// the parts of the others and published. pull: every tile goes as a part into own memory; clusters
// behind those that compute read the parts of all ranks and publish. Both are the same steps with
// other addresses: multiply or start from zero, add the sources, send a part or publish.
#ifndef GEMMAR_KERNELS_FUSED_SM90_CUH
#define GEMMAR_KERNELS_FUSED_SM90_CUH

#include "kernels/epilogue_sm90.cuh"
#include "kernels/exec.h"
#include "kernels/fused_sm90.h"
#include "kernels/mainloop_sm90.cuh"
#include "kernels/visit.h"

#define GEMMAR_SM90_THREADS 384
#define GEMMAR_TURN_NS      100 /* between two looks whether it is my turn */
#define GEMMAR_ITEMS        16  /* of the list that the lister is ahead at most */

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

/* ---- producer ------------------------------------------------------------------------------- */

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

/* All lanes of the warp come; one loads. */
template <class T, bool N_MAJOR>
static __device__ __forceinline__ void
gemmar_producer(const gemmar_fused_params &p, gemmar_fused_shared<T> &s, const gemmar_role &r)
{
    gemmar_cursor stage = {0, 1}, ring = {0, 0};
    int32_t k_blocks = (int32_t)gemmar_div_up(p.call.operands.k, GEMMAR_BK);

    for (uint32_t i = 0; i < r.items; i++) {
        gemmar_item item = gemmar_item_take<T>(s, &ring);

        if (r.computes && threadIdx.x % 32 == 0) {
            gemmar_produce<T, N_MAJOR>(&p.a, &p.b, s.stages, s.barriers, &stage, r.cta, item.row,
                                       item.col, k_blocks);
        }
        __syncwarp();
    }
}

/* ---- consumers ------------------------------------------------------------------------------ */

template <class T, bool BF16, bool N_MAJOR>
static __device__ __forceinline__ void gemmar_consumer(const gemmar_fused_params &p,
                                                       gemmar_fused_shared<T> &s,
                                                       const gemmar_role &r, uint32_t half)
{
    const gemmar_call &call = p.call;
    gemmar_cursor stage = {0, 0}, ring = {0, 0};
    uint32_t thread = threadIdx.x % 128, freed = 1, loaded = 0;
    uint32_t sources = gemmar_item_sources(call, r);
    uint4 *staging = (uint4 *)s.staging[half];
    int32_t k_blocks = r.computes ? (int32_t)gemmar_div_up(call.operands.k, GEMMAR_BK) : 0;
    bool plain =
        call.operands.alpha == 1.0f && call.operands.beta == 0.0f && call.operands.bias == NULL;
    float d[T::BN / 2];

    for (uint32_t i = 0; i < r.items; i++) {
        if (thread == 0) {
            gemmar_trace(p, half, i, GEMMAR_TRACE_BEGIN);
        }
        gemmar_multiply<T, BF16, N_MAJOR>(s.stages, s.barriers, &stage, half, k_blocks, d);
        if (thread == 0) {
            gemmar_trace(p, half, i, GEMMAR_TRACE_PRODUCT);
        }
        if (k_blocks == 0) {
#pragma unroll
            for (int j = 0; j < T::BN / 2; j++) {
                d[j] = 0.0f;
            }
        }
        gemmar_item item = gemmar_item_take<T>(s, &ring);

        gemmar_mbarrier_wait(gemmar_shared_address(&s.freed[half]), freed);
        freed ^= 1;
        if (!gemmar_item_publishes(call, r, item)) {
            gemmar_stage_part<T::BN, BF16>(staging, thread, d);
        } else {
            for (uint32_t source = 0; source < sources; source++) {
                gemmar_mbarrier_wait(gemmar_shared_address(&s.loaded[half]), loaded);
                loaded ^= 1;
                gemmar_add_part<T::BN, BF16>(staging, thread, d);
                if (source + 1 < sources) {
                    gemmar_warp_arrive(&s.added[half]);
                }
            }
            if (!plain) {
                gemmar_scale<T::BN, BF16>(call, (int64_t)item.row + half * 64, item.col, thread, d);
            }
            if (sources > 0) {
                gemmar_bar_sync(half + 1, 128); /* all have read before anybody writes */
            }
            gemmar_stage_rows<T::BN, BF16>(gemmar_shared_address(staging), thread, d);
        }
        gemmar_fence_async_shared();
        gemmar_warp_arrive(&s.staged[half]);
        if (thread == 0) {
            gemmar_trace(p, half, i, GEMMAR_TRACE_STAGED);
        }
    }
}

/* ---- couriers ------------------------------------------------------------------------------- */

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

/* ---- lister --------------------------------------------------------------------------------- */

static __device__ __forceinline__ void gemmar_tell(const gemmar_call &call, const gemmar_role &r,
                                                   uint32_t lane)
{
    if (blockIdx.x == 0 && lane < call.place.locals && lane != call.place.local) {
        gemmar_st_relaxed_sys(&call.locals[lane].told[call.place.local],
                              r.epoch << 16 | (call.told & 0xffffu));
    }
}

/* One lane. */
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

/* ---- all warps, when their role has ended --------------------------------------------------- */

/* Elements [row, row + 64) x [col, col + BN) of C from `out`, by one warp. */
template <int BN>
static __device__ __forceinline__ void gemmar_copy_part(const gemmar_call &call, int64_t row,
                                                        int64_t col, uint32_t lane)
{
    const gemmar_operands &o = call.operands;
    const uint16_t *from = (const uint16_t *)call.locals[call.place.local].out;
    uint16_t *to = (uint16_t *)o.c;
    int64_t rows = gemmar_min64(64, call.map.m - row), cols = gemmar_min64(BN, call.map.n - col);

    if (call.copies == GEMMAR_COPIES_FOREIGN && cols == BN) { /* 16 bytes a lane */
#pragma unroll 4
        for (int32_t i = (int32_t)lane; i < (int32_t)rows * (BN / 8); i += 32) {
            int64_t r = row + i / (BN / 8), c = col + i % (BN / 8) * 8;

            *(uint4 *)(to + r * o.ldc + c) = *(const uint4 *)(from + r * call.out_ld + c);
        }
        return;
    }
    for (int64_t r = row; r < row + rows; r++) {
        for (int64_t c = col + lane; c < col + cols; c += 32) {
            to[r * o.ldc + c] = from[r * call.out_ld + c];
        }
    }
}

/* Parts of C that others publish into `out`, in the order of my own list, which is about that in
 * which they come. Ends early when the call is being left. */
template <class T>
static __device__ __forceinline__ void gemmar_copy(const gemmar_call &call, const gemmar_role &r,
                                                   uint32_t lane)
{
    const uint64_t *published = call.locals[call.place.local].published;
    uint64_t words = (uint64_t)call.map.chunks * GEMMAR_CHUNK_PARTS, at = 0;
    bool ok = call.copies != GEMMAR_COPIES_NOTHING;

    while (ok) {
        if (lane == 0) {
            at = gemmar_atom_add_relaxed_gpu(&call.words.copy_next[r.epoch & 1], 1);
        }
        at = __shfl_sync(0xffffffffu, at, 0);
        if (at >= words) {
            return;
        }
        uint32_t part = (uint32_t)at % GEMMAR_CHUNK_PARTS;
        gemmar_visit v = gemmar_visit_at(&call.map, call.place.local, &call.tensor.order,
                                         (uint32_t)(at / GEMMAR_CHUNK_PARTS));
        gemmar_chunk chunk = gemmar_map_chunk(&call.map, v.chunk);

        if (v.owner == call.place.local && call.copies != GEMMAR_COPIES_ALL) {
            continue;
        }
        if (lane == 0) {
            ok =
                gemmar_courier_wait(call, &published[(uint64_t)v.chunk * GEMMAR_CHUNK_PARTS + part],
                                    r.epoch, GEMMAR_STAGE_PUBLISH, v.owner, v.chunk);
        }
        __syncwarp(); /* what lane 0 acquired is there for all lanes; a shuffle orders no memory */
        ok = __shfl_sync(0xffffffffu, ok, 0);
        if (ok) {
            gemmar_copy_part<T::BN>(
                call, chunk.row0 + part % 2 * 64 + (T::ALONG_N ? 0 : part / 2 * GEMMAR_BM),
                chunk.col0 + (T::ALONG_N ? part / 2 * T::BN : 0), lane);
        }
    }
}

/* ---- the kernel ----------------------------------------------------------------------------- */

template <class T>
static __device__ __forceinline__ void gemmar_fused_init(gemmar_fused_shared<T> &s)
{
    gemmar_stages_init<T>(s.barriers);
    for (int half = 0; half < 2; half++) {
        gemmar_mbarrier_init(gemmar_shared_address(&s.loaded[half]), 1);
        gemmar_mbarrier_init(gemmar_shared_address(&s.added[half]), 4);
        gemmar_mbarrier_init(gemmar_shared_address(&s.staged[half]), 4);
        gemmar_mbarrier_init(gemmar_shared_address(&s.freed[half]), 1);
    }
    for (int i = 0; i < GEMMAR_ITEMS; i++) {
        gemmar_mbarrier_init(gemmar_shared_address(&s.item_full[i]), 1);
        gemmar_mbarrier_init(gemmar_shared_address(&s.item_empty[i]), 11); /* warps */
    }
    gemmar_mbarrier_init(gemmar_shared_address(&s.couriers_done), 2);
    gemmar_mbarrier_init_fence();
}

/* The last CTA of the grid moves the epoch on; the next launch sees it. */
static __device__ __forceinline__ void gemmar_fused_end(const gemmar_call &call,
                                                        const gemmar_role &r)
{
    if (gemmar_exec_last(call.words.ctas_done, gridDim.x)) {
        call.words.copy_next[(r.epoch + 1) & 1] = 0;
        *call.words.epoch = r.epoch + 1;
    }
}

template <int SHAPE, bool BF16, bool N_MAJOR>
static __global__ void __launch_bounds__(GEMMAR_SM90_THREADS, 1) __cluster_dims__(2, 1, 1)
    gemmar_fused_sm90(const __grid_constant__ gemmar_fused_params p)
{
    using T = gemmar_tile<SHAPE>;
    using shared_t = gemmar_fused_shared<T>;
    extern __shared__ uint8_t raw[];
    shared_t &s = *(shared_t *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    gemmar_role r = gemmar_role_of(p.call);

    static_assert(sizeof(shared_t) + 1024 <= 227 * 1024, "shared memory of an SM");
    if (threadIdx.x == 0) {
        gemmar_tma_prefetch(&p.a);
        gemmar_tma_prefetch(&p.b);
        gemmar_fused_init<T>(s);
    }
    gemmar_cluster_sync();
    if (warp >= 4) {
        gemmar_registers_up<224>();
        gemmar_consumer<T, BF16, N_MAJOR>(p, s, r, warp / 4 - 1);
        gemmar_copy<T>(p.call, r, lane);
    } else {
        gemmar_registers_down<56>();
        if (warp == 0) {
            gemmar_producer<T, N_MAJOR>(p, s, r);
        } else if (warp < 3) {
            gemmar_courier<T>(p, s, r, warp - 1, lane);
        } else {
            gemmar_tell(p.call, r, lane);
            if (lane == 0) {
                gemmar_list<T>(p, s, r);
            }
            __syncwarp();
            if (p.call.place.locals > 1 && p.call.copies == GEMMAR_COPIES_NOTHING) {
                gemmar_mbarrier_wait(gemmar_shared_address(&s.couriers_done), 0);
                gemmar_wait_published(p.call, r, lane);
            }
        }
        __syncwarp();
        gemmar_copy<T>(p.call, r, lane);
    }
    /* A CTA may not leave while the other one can still write to its shared memory. */
    gemmar_cluster_sync();
    if (threadIdx.x == 0) {
        gemmar_fused_end(p.call, r);
    }
}

#endif
