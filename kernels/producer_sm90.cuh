// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: the producer, which fills the ring of stages: the operands of an item, behind
// them the parts that it adds.
#ifndef GEMMAR_KERNELS_PRODUCER_SM90_CUH
#define GEMMAR_KERNELS_PRODUCER_SM90_CUH

#include "kernels/courier_sm90.cuh"
#include "kernels/source_sm90.cuh"

/* Source i of an item for both consumers. When the call is being left, or where a half lies outside
 * of C, they go on with whatever lies in the stages. */
template <class T>
static __device__ __forceinline__ bool
gemmar_producer_bring(const gemmar_call &call, gemmar_fused_shared<T> &s, const gemmar_role &r,
                      const gemmar_item &item, uint32_t i, gemmar_cursor *at, bool ok)
{
    using blocks = gemmar_part_blocks<T>;
    const char *base[2];
    uint32_t bytes = 0;

#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        bool inside = gemmar_item_inside(call, item, half);
        gemmar_source source = gemmar_source_of<T>(call, r, item, gemmar_part_of<T>(r, half), i);

        ok = ok && gemmar_courier_wait(call, source.word, r.epoch, source.stage, source.node,
                                       source.local, source.slot);
        base[half] = inside ? source.base : NULL;
        bytes += inside ? blocks::BYTES : 0;
    }
    if (!ok) {
        s.left = 1;
    }
    gemmar_fence_proxy_async();
#pragma unroll
    for (int block = 0; block < blocks::BLOCKS; block++) {
        uint32_t full = gemmar_shared_address(&s.barriers.full[at->at]);

        gemmar_mbarrier_wait(gemmar_shared_address(&s.barriers.empty[at->at]), at->phase);
        if (ok && bytes != 0) {
            gemmar_mbarrier_expect(full, bytes);
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                if (base[half] != NULL) {
                    gemmar_bulk_load(
                        gemmar_shared_address(half == 0 ? s.stages.a[at->at] : s.stages.b[at->at]),
                        base[half] + block * blocks::BYTES, blocks::BYTES, full);
                }
            }
        } else {
            gemmar_mbarrier_arrive(full);
        }
        gemmar_cursor_next(at, T::STAGES);
    }
    return ok;
}

/* All lanes of the warp come; one loads. */
template <class T, bool N_MAJOR>
static __device__ __forceinline__ void
gemmar_producer(const gemmar_fused_params &p, gemmar_fused_shared<T> &s, const gemmar_role &r)
{
    gemmar_cursor stage = {0, 1}, ring = {0, 0};
    int32_t k_blocks = (int32_t)gemmar_div_up(p.call.operands.k, GEMMAR_BK);
    bool ok = true;

    for (uint32_t i = 0; i < r.items; i++) {
        gemmar_item item = gemmar_item_take<T>(s, &ring);

        if (threadIdx.x % 32 == 0) {
            uint32_t sources = gemmar_item_sources(p.call, r, item);

            if (gemmar_item_multiplies(p.call, r, i)) {
                gemmar_produce<T, N_MAJOR>(&p.a, &p.b, s.stages, s.barriers, &stage, r.cta,
                                           item.row, item.col, (int32_t)p.call.map.m, k_blocks);
            }
            for (uint32_t j = 0; j < sources; j++) {
                ok = gemmar_producer_bring<T>(p.call, s, r, item, j, &stage, ok);
            }
            if (sources > 0) {
                gemmar_trace(p, 0, i, GEMMAR_TRACE_SOURCE);
            }
        }
        __syncwarp();
    }
}

#endif
