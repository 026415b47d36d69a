// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: the couriers, one warp for each consumer: what goes from staging to this and
// to other ranks, its stamps and commands to the proxy.
#ifndef GEMMAR_KERNELS_COURIER_SM90_CUH
#define GEMMAR_KERNELS_COURIER_SM90_CUH

#include "kernels/exchange_sm90.cuh"
#include "kernels/fifo_push.cuh"
#include "kernels/source_sm90.cuh"
#include "kernels/told.h"

#define GEMMAR_TURN_NS 100 /* between two looks whether it is my turn */

/* A wait for a word that (node, local) or its doing changes; local UINT32_MAX: another node's.
 * False: the call is being left. */
static __device__ __forceinline__ bool gemmar_courier_wait(const gemmar_call &call,
                                                           const uint64_t *word, uint64_t target,
                                                           uint32_t stage, uint32_t node,
                                                           uint32_t local, uint64_t slot)
{
    if (gemmar_ld_acquire_sys(word) >= target) {
        return true;
    }
    uint32_t of_node = local == UINT32_MAX ? call.place.local : local;
    gemmar_wait_for whom = {stage, call.rank_of[node * call.place.locals + of_node], local, slot};

    return stage == GEMMAR_STAGE_ARRIVAL && call.net.stamps_on_host != 0
               ? gemmar_exec_wait_host(&call, word, target, &whom)
               : gemmar_exec_wait(&call, word, target, &whom);
}

/* The other local ranks learn what this call is, and that all earlier ones have ended here. */
static __device__ __forceinline__ void gemmar_tell(const gemmar_call &call, const gemmar_role &r,
                                                   uint32_t lane)
{
    if (blockIdx.x == 0 && lane < call.place.locals && lane != call.place.local) {
        gemmar_st_release_sys(&call.locals[lane].told[call.place.local],
                              r.epoch << 16 | (call.told & 0xffffu));
    }
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
        if (!gemmar_courier_wait(call, &told[g], r.epoch << 16, GEMMAR_STAGE_TOLD, call.place.node,
                                 g, 0)) {
            return false;
        }
        if (gemmar_told_differs(gemmar_ld_acquire_sys(&told[g]), mine)) {
            gemmar_wait_for whom = {GEMMAR_STAGE_TOLD,
                                    call.rank_of[call.place.node * call.place.locals + g], g, 0};

            gemmar_exec_give_up(&call, &told[g], mine, &whom, 0);
            return false;
        }
    }
    return true;
}

/* May this call write the half of staging and result that the NIC read for call epoch - 2? */
static __device__ __forceinline__ bool gemmar_courier_room(const gemmar_call &call,
                                                           const gemmar_role &r)
{
    const uint64_t *room = &call.net.room[r.epoch & 1];
    gemmar_wait_for whom = {GEMMAR_STAGE_FIFO_PUSH, call.place.rank, UINT32_MAX,
                            call.net.heads[r.epoch & 1]};

    return gemmar_exec_wait(&call, room, r.epoch, &whom);
}

/* One thread of the grid asks the proxy for all of them: kernels/exec_cuda.cuh says why. */
static __device__ __forceinline__ void gemmar_make_room(const gemmar_call &call,
                                                        const gemmar_role &r)
{
    uint32_t parity = (uint32_t)r.epoch & 1;

    if (gemmar_fifo_wait_retired(&call, parity)) {
        gemmar_exec_stamp(&call.net.room[parity], r.epoch);
    }
}

/* What a courier asks once in a call, before its first store to where others read: a set. */
enum gemmar_asked {
    GEMMAR_ASKED_TOLD = 1,
    GEMMAR_ASKED_ROOM = 2,
};

static __device__ __forceinline__ bool
gemmar_courier_ask(const gemmar_call &call, const gemmar_role &r, uint32_t what, uint32_t *asked)
{
    bool ok;

    if ((*asked & what) != 0) {
        return true;
    }
    *asked |= what;
    ok = what == GEMMAR_ASKED_TOLD ? gemmar_courier_told(call, r) : gemmar_courier_room(call, r);
    gemmar_fence_proxy_async();
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

/* Box b of a result to C of every local rank, mine last; in an exchange only mine. */
static __device__ __forceinline__ void gemmar_courier_publish(const gemmar_fused_params &p,
                                                              const gemmar_item &item,
                                                              uint32_t half, uint32_t box,
                                                              int32_t b)
{
    uint32_t local = p.call.place.local, locals = p.call.place.locals;

    for (uint32_t j = gemmar_exchanges(p.call) ? locals : 1; j <= locals; j++) {
        gemmar_tma_store(&p.c[(local + j) % locals], box, item.col + b * 64,
                         item.row + (int32_t)half * 64);
    }
}

/* Where a part in staging goes: to its owner's slot (push), where anybody reads it (pull), or where
 * the NIC does. */
template <class T>
static __device__ __forceinline__ char *
gemmar_courier_target(const gemmar_call &call, const gemmar_role &r, const gemmar_item &item,
                      uint32_t part)
{
    uint32_t local = call.place.local;

    if (item.kind == GEMMAR_ITEM_SUM) {
        return gemmar_staging_at<T>(call, r, item, part);
    }
    if (item.kind == GEMMAR_ITEM_REDUCE) {
        return gemmar_result_at<T>(call, r, item, part);
    }
    if (r.pull) {
        return (char *)call.locals[local].partial + gemmar_part_offset<T>(item.chunk, part);
    }
    return (char *)call.locals[item.owner].partial +
           gemmar_part_offset<T>(gemmar_push_tile(call, item.slot, item.owner, local), part);
}

/* The boxes of a tile to where they belong, as the consumer fills them, but for a half that lies
 * outside of C; each may be written again when it has been read. One lane. False: the call is being
 * left. */
template <class T>
static __device__ __forceinline__ bool
gemmar_courier_deliver(const gemmar_fused_params &p, gemmar_fused_shared<T> &s,
                       const gemmar_role &r, const gemmar_item &item, uint32_t half, bool publishes,
                       gemmar_cursor *at, bool ok)
{
    bool far = p.call.place.locals > 1 && !gemmar_exchanges(p.call) &&
               (publishes || (item.kind == GEMMAR_ITEM_PART && !r.pull));
    char *to =
        publishes ? NULL : gemmar_courier_target<T>(p.call, r, item, gemmar_part_of<T>(r, half));
    bool inside = gemmar_item_inside(p.call, item, half);
    uint32_t before = 0;

    for (int32_t b = 0; b < T::BN / 64; b++) {
        uint32_t box = gemmar_shared_address(s.staging[half][at->at]);

        gemmar_mbarrier_wait(gemmar_shared_address(&s.staged[half][at->at]), at->phase);
        if (b == 0) {
            ok = ok && s.left == 0;
            far = far && ok && inside;
            if (far) {
                gemmar_turn_take(p.call);
            }
        }
        if (ok && inside) {
            if (publishes) {
                gemmar_courier_publish(p, item, half, box, b);
            } else {
                gemmar_bulk_store(to + b * GEMMAR_BOX, box, GEMMAR_BOX);
            }
            gemmar_bulk_commit();
            gemmar_bulk_wait_read<1>();
        }
        if (b > 0) {
            gemmar_mbarrier_arrive(before);
        }
        before = gemmar_shared_address(&s.freed[half][at->at]);
        gemmar_cursor_next(at, T::BOXES);
    }
    gemmar_bulk_wait_read<0>();
    gemmar_mbarrier_arrive(before);
    if (far) {
        gemmar_turn_leave(p.call);
    }
    return ok;
}

/* A part to the other rank of an exchange, box by box as the consumer fills them. All lanes; lane 0
 * knows where in the ring and whether the call goes on. */
template <class T>
static __device__ __forceinline__ void
gemmar_courier_exchange(const gemmar_call &call, gemmar_fused_shared<T> &s, const gemmar_role &r,
                        const gemmar_item &item, uint32_t half, uint32_t lane, gemmar_cursor *at,
                        bool ok)
{
    uint4 *to = gemmar_exchange_at<T>(call, call.exchange.peers, (uint32_t)r.epoch & 1, item,
                                      gemmar_part_of<T>(r, half));

    at->at = __shfl_sync(0xffffffffu, at->at, 0);
    at->phase = __shfl_sync(0xffffffffu, at->phase, 0);
    ok = __shfl_sync(0xffffffffu, ok, 0);
#pragma unroll 1 /* registers are few */
    for (int32_t b = 0; b < T::BN / 64; b++) {
        gemmar_mbarrier_wait(gemmar_shared_address(&s.staged[half][at->at]), at->phase);
        if (b == 0 && lane == 0) {
            gemmar_turn_take(call);
        }
        __syncwarp();
        if (ok) {
            gemmar_exchange_box(to + b * (GEMMAR_BOX / 16),
                                gemmar_shared_address(s.staging[half][at->at]), lane);
        }
        gemmar_warp_arrive(&s.freed[half][at->at]);
        gemmar_cursor_next(at, T::BOXES);
    }
    if (lane == 0) {
        gemmar_turn_leave(call);
    }
}

/* A part of an own chunk lies where the NIC reads it. The courier of a message's last part sends it
 * on its way. */
static __device__ __forceinline__ bool
gemmar_courier_hand_on(const gemmar_call &call, const gemmar_role &r, const gemmar_item &item)
{
    uint64_t stride = gemmar_message_stride(&call.map);
    uint32_t first = gemmar_visit_first(&call.map, call.place.local);
    gemmar_fifo_request request = {item.message.first * stride, item.message.bytes,
                                   item.message.first, 0, (uint32_t)r.epoch};

    if (!gemmar_exec_last(&call.words.tiles_done[first + item.sent],
                          item.message.chunks * GEMMAR_CHUNK_PARTS)) {
        return true;
    }
    if (item.kind == GEMMAR_ITEM_REDUCE) {
        return gemmar_fifo_push_all(&call, GEMMAR_ROUTE_GATHER, &request);
    }
    if (call.algo == GEMMAR_ALGO_DIRECT) {
        gemmar_exec_stamp(&call.words.staged[item.sent], r.epoch);
        return gemmar_fifo_push_all(&call, GEMMAR_ROUTE_DIRECT, &request);
    }
    if (item.node == call.place.node) {
        gemmar_exec_stamp(&call.words.staged[item.sent], r.epoch);
        return true;
    }
    request.route = GEMMAR_ROUTE_SCATTER * call.place.nodes + item.node;
    return gemmar_fifo_push(&call, &request);
}

/* The stamps behind what has been stored, or the command. False: the call is being left. */
template <class T>
static __device__ __forceinline__ bool
gemmar_courier_stamp(const gemmar_call &call, const gemmar_role &r, const gemmar_item &item,
                     uint32_t half, bool publishes)
{
    uint32_t part = gemmar_part_of<T>(r, half), local = call.place.local;

    gemmar_bulk_wait();
    gemmar_fence_proxy_async();
    gemmar_fence_acq_rel_sys();
    if (!publishes && item.kind != GEMMAR_ITEM_PART) {
        return gemmar_courier_hand_on(call, r, item);
    }
    if (!publishes) {
        gemmar_st_relaxed_sys(gemmar_part_ready(call, item, local, part), r.epoch);
        return true;
    }
    for (uint32_t g = 0; g < call.place.locals; g++) {
        if (g != local ? !gemmar_exchanges(call) : call.copies == GEMMAR_COPIES_ALL) {
            gemmar_st_relaxed_sys(call.locals[g].published +
                                      (uint64_t)item.chunk * GEMMAR_CHUNK_PARTS + part,
                                  r.epoch);
        }
    }
    return true;
}

/* A tile goes away, as a part or published. One lane. */
template <class T>
static __device__ __forceinline__ bool
gemmar_courier_send(const gemmar_fused_params &p, gemmar_fused_shared<T> &s, const gemmar_role &r,
                    const gemmar_item &item, uint32_t i, uint32_t half, bool publishes,
                    gemmar_cursor *at, bool ok)
{
    const gemmar_call &call = p.call;
    bool stamps = (call.place.locals > 1 && !gemmar_exchanges(call)) ||
                  call.copies == GEMMAR_COPIES_ALL || !publishes;

    ok = gemmar_courier_deliver<T>(p, s, r, item, half, publishes, at, ok);
    gemmar_trace(p, half, i, GEMMAR_TRACE_READ);
    if (ok && stamps) {
        ok = gemmar_courier_stamp<T>(call, r, item, half, publishes);
        gemmar_trace(p, half, i, GEMMAR_TRACE_STORED);
    }
    return ok;
}

/* A call may not begin while another one of the communicator runs: the library orders those that it
 * sees, but not graphs that are launched side by side. One thread of the grid. */
static __device__ __forceinline__ void gemmar_courier_enter(const gemmar_call &call)
{
    if (gemmar_atom_exchange_sys(call.words.busy, 1) != 0) {
        gemmar_wait_for whom = {GEMMAR_STAGE_BUSY, call.place.rank, call.place.local, 0};

        gemmar_exec_give_up(&call, call.words.busy, 0, &whom, 0);
    }
}

/* All lanes come; one acts. */
template <class T>
static __device__ __forceinline__ void
gemmar_courier(const gemmar_fused_params &p, gemmar_fused_shared<T> &s, const gemmar_role &r,
               uint32_t half, uint32_t lane)
{
    const gemmar_call &call = p.call;
    gemmar_cursor ring = {0, 0}, box = {0, 0};
    uint32_t asked = call.place.locals == 1 ? GEMMAR_ASKED_TOLD : 0;
    /* A call that was already waiting when one before it was left tells and sends nothing: others
     * may still read what that one sent, and see what it told. */
    bool ok = !gemmar_exec_left_seen(&call);

    if (half == 0 && ok) {
        gemmar_tell(call, r, lane);
    }
    if (blockIdx.x == 0 && half == 0 && lane == 0 && call.algo != GEMMAR_ALGO_LOCAL) {
        gemmar_make_room(call, r);
    }
    if (blockIdx.x == 0 && half == 1 && lane == 0) {
        gemmar_courier_enter(call);
    }
    __syncwarp();
    for (uint32_t i = 0; i < r.items; i++) {
        const gemmar_item &item = gemmar_item_look<T>(s, ring);
        bool publishes = gemmar_item_publishes(call, item);
        bool travels = gemmar_item_travels(call, item);

        if (gemmar_exchanges(call) && !publishes) {
            gemmar_courier_exchange<T>(call, s, r, item, half, lane, &box, ok);
            gemmar_trace(p, lane == 0 ? half : 1, i, GEMMAR_TRACE_READ);
        } else if (lane == 0) {
            if (item.kind != GEMMAR_ITEM_PART) {
                ok = ok && (!publishes || gemmar_courier_ask(call, r, GEMMAR_ASKED_TOLD, &asked));
                ok = ok && ((publishes && !travels) ||
                            gemmar_courier_ask(call, r, GEMMAR_ASKED_ROOM, &asked));
            }
            for (int last = !travels; last < 2; last++) { /* what travels is staged twice */
                ok = gemmar_courier_send<T>(p, s, r, item, i, half, publishes && last != 0, &box,
                                            ok);
            }
        }
        gemmar_item_leave<T>(s, &ring);
    }
    if (lane == 0 && !gemmar_exchanges(call)) {
        gemmar_bulk_wait();
    }
    gemmar_warp_arrive(&s.couriers_done);
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
                                 call.place.node, gemmar_map_owner(&call.map, chunk),
                                 (uint64_t)chunk)) {
            return;
        }
    }
}

#endif
