// SPDX-License-Identifier: Apache-2.0
// The roles of a CTA of the tensor-core kernel (384 threads) and the hand-overs between them.
//
//   warp 0            one thread: the producer, loads operands and other ranks' parts
//   warps 1 and 2     the courier of consumer 0 or 1: tells the other ranks what this call is,
//                     sends parts and results away, stamps
//   warp 3            the lister: works out the cluster's list for everybody else, at the end waits
//                     for `published`
//   warpgroups 1, 2   consumers: 64 rows of every tile each
//   every warp        at the end copies what others published from `out` to C, where they cannot
//                     write into C
//
// push: a tile of another owner goes as a part into that owner's slot; a tile of my own is added to
// the parts of the others and published. pull: every tile goes as a part into own memory; clusters
// behind those that compute read the parts of all ranks and publish. exchange (two ranks): every
// tile goes as a part to the other rank, and a while later the same cluster adds its own to what
// has come from there. All are the same steps with other addresses: multiply or start from zero,
// add the sources, send a part or publish.
#ifndef GEMMAR_KERNELS_FUSED_SM90_CUH
#define GEMMAR_KERNELS_FUSED_SM90_CUH

#include "kernels/copy_sm90.cuh"
#include "kernels/courier_sm90.cuh"
#include "kernels/epilogue_sm90.cuh"
#include "kernels/item_sm90.cuh"
#include "kernels/producer_sm90.cuh"

#define GEMMAR_SM90_THREADS 384

/* The accumulators to the courier, box by box: as a part, or in rows. */
template <class T, bool BF16>
static __device__ __forceinline__ void
gemmar_consumer_stage(gemmar_fused_shared<T> &s, uint32_t half, uint32_t thread, bool rows,
                      gemmar_cursor *at, const float (&d)[T::BN / 2])
{
#pragma unroll
    for (int b = 0; b < T::BN / 64; b++) {
        uint32_t box = gemmar_shared_address(s.staging[half][at->at]);

        gemmar_mbarrier_wait(gemmar_shared_address(&s.freed[half][at->at]), at->phase);
        rows ? gemmar_stage_rows<BF16>(box, thread, &d[b * 32])
             : gemmar_stage_part<BF16>(box, thread, &d[b * 32]);
        gemmar_fence_async_shared();
        gemmar_warp_arrive(&s.staged[half][at->at]);
        gemmar_cursor_next(at, T::BOXES);
    }
}

template <class T, bool BF16, bool N_MAJOR>
static __device__ __forceinline__ void gemmar_consumer(const gemmar_fused_params &p,
                                                       gemmar_fused_shared<T> &s,
                                                       const gemmar_role &r, uint32_t half)
{
    const gemmar_call &call = p.call;
    gemmar_cursor stage = {0, 0}, ring = {0, 0}, box = {0, 1};
    uint32_t thread = threadIdx.x % 128;
    bool plain =
        call.operands.alpha == 1.0f && call.operands.beta == 0.0f && call.operands.bias == NULL;
    float d[T::BN / 2];
    bool ok = true;

    for (uint32_t i = 0; i < r.items; i++) {
        bool multiplies = gemmar_item_multiplies(call, r, i);
        int32_t k_blocks = multiplies ? (int32_t)gemmar_div_up(call.operands.k, GEMMAR_BK) : 0;

        if (thread == 0) {
            gemmar_trace(p, half, i, GEMMAR_TRACE_BEGIN);
        }
        gemmar_multiply<T, BF16, N_MAJOR>(s.stages, s.barriers, &stage, half, k_blocks, d);
        if (thread == 0) {
            gemmar_trace(p, half, i, GEMMAR_TRACE_PRODUCT);
        }
        if (k_blocks == 0 && (multiplies || !gemmar_exchanges(call))) {
            /* What another node has reduced is copied: x + -0 is x, also for x = -0. */
            float zero = i < r.firsts + r.reduces ? 0.0f : -0.0f;

#pragma unroll
            for (int j = 0; j < T::BN / 2; j++) {
                d[j] = zero;
            }
        }
        gemmar_item item = gemmar_item_take<T>(s, &ring);
        uint32_t sources = gemmar_item_sources(call, r, item);
        bool publishes = gemmar_item_publishes(call, item);

        if (gemmar_exchanges(call) && !multiplies) {
            ok = gemmar_exchange_add<T, BF16>(call, r, item, half, thread, d, ok);
            if (!ok) {
                s.left = 1;
            }
        }
        for (uint32_t source = 0; source < sources; source++) {
            gemmar_add_source<T, BF16>(s.stages, s.barriers, &stage, half, d);
        }
        if (gemmar_exchanges(call) && multiplies && !gemmar_adds_at_once(call, r)) {
            gemmar_exchange_keep<T, BF16>(call, r, item, half, thread, d);
        }
        if (!plain && item.kind != GEMMAR_ITEM_GATHER && publishes) {
            gemmar_scale<T::BN, BF16>(call, (int64_t)item.row + half * 64, item.col, thread, d);
        }
        for (int last = !gemmar_item_travels(call, item); last < 2; last++) {
            gemmar_consumer_stage<T, BF16>(s, half, thread, publishes && last != 0, &box, d);
        }
        if (thread == 0) {
            gemmar_trace(p, half, i, GEMMAR_TRACE_STAGED);
        }
    }
}

template <class T>
static __device__ __forceinline__ void gemmar_fused_init(gemmar_fused_shared<T> &s)
{
    gemmar_stages_init<T>(s.barriers);
    for (int half = 0; half < 2; half++) {
        for (int box = 0; box < T::BOXES; box++) {
            gemmar_mbarrier_init(gemmar_shared_address(&s.staged[half][box]), 4);
            gemmar_mbarrier_init(gemmar_shared_address(&s.freed[half][box]), 1);
        }
    }
    for (int i = 0; i < GEMMAR_ITEMS; i++) {
        gemmar_mbarrier_init(gemmar_shared_address(&s.item_full[i]), 1);
        gemmar_mbarrier_init(gemmar_shared_address(&s.item_empty[i]), 11); /* warps */
    }
    gemmar_mbarrier_init(gemmar_shared_address(&s.couriers_done), 2);
    s.left = 0;
    gemmar_mbarrier_init_fence();
}

/* The last CTA of the grid saves where the ring stands and moves the epoch on; the next launch sees
 * it. */
static __device__ __forceinline__ void gemmar_fused_end(const gemmar_call &call,
                                                        const gemmar_role &r)
{
    bool last;

    if (call.algo != GEMMAR_ALGO_LOCAL) {
        last = gemmar_exec_last(call.words.ctas_done, gridDim.x);
    } else { /* nothing is read that another CTA wrote */
        last = gemmar_atom_add_relaxed_gpu(call.words.ctas_done, 1) + 1 == gridDim.x;
    }
    if (last) {
        *call.words.ctas_done = 0;
        if (call.algo != GEMMAR_ALGO_LOCAL) {
            call.net.heads[r.epoch & 1] = *call.net.ticket;
        }
        call.words.copy_next[(r.epoch + 1) & 1] = 0;
        *call.words.epoch = r.epoch + 1;
        *call.words.busy = 0;
    }
}

template <int SHAPE, bool BF16, bool N_MAJOR>
static __global__ void __launch_bounds__(GEMMAR_SM90_THREADS, 1) __cluster_dims__(2, 1, 1)
    gemmar_fused_sm90(const __grid_constant__ gemmar_fused_params p)
{
    using T = gemmar_tile<SHAPE>;
    using shared_t = gemmar_fused_shared<T>;
    shared_t &s = *(shared_t *)(((uintptr_t)gemmar_shared_memory() + 1023) & ~(uintptr_t)1023);
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
        gemmar_registers_up<216>();
        gemmar_consumer<T, BF16, N_MAJOR>(p, s, r, warp / 4 - 1);
        gemmar_copy<T, 4>(p.call, r, lane);
    } else {
        gemmar_registers_down<72>();
        if (warp == 0) {
            gemmar_producer<T, N_MAJOR>(p, s, r);
        } else if (warp < 3) {
            gemmar_courier<T>(p, s, r, warp - 1, lane);
        } else {
            if (lane == 0) {
                gemmar_list<T>(p, s, r);
            }
            __syncwarp();
            if (p.call.place.locals > 1 && !gemmar_exchanges(p.call) &&
                p.call.copies == GEMMAR_COPIES_NOTHING) {
                gemmar_mbarrier_wait(gemmar_shared_address(&s.couriers_done), 0);
                gemmar_wait_published(p.call, r, lane);
            }
        }
        __syncwarp();
        gemmar_copy<T, 1>(p.call, r, lane); /* these warps have few registers */
    }
    /* A CTA may not leave while the other one can still write to its shared memory. */
    gemmar_cluster_sync();
    if (threadIdx.x == 0) {
        gemmar_fused_end(p.call, r);
    }
}

#endif
