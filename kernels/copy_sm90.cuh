// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: the copy from `out`, which other ranks write, to a C that they cannot write.
#ifndef GEMMAR_KERNELS_COPY_SM90_CUH
#define GEMMAR_KERNELS_COPY_SM90_CUH

#include "kernels/courier_sm90.cuh"

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
            ok = gemmar_courier_wait(
                call, &published[(uint64_t)v.chunk * GEMMAR_CHUNK_PARTS + part], r.epoch,
                GEMMAR_STAGE_PUBLISH, call.place.node, v.owner, v.chunk);
        }
        __syncwarp(); /* what lane 0 acquired is there for all lanes; a shuffle orders no memory */
        ok = __shfl_sync(0xffffffffu, ok, 0);
        if (ok) {
            gemmar_copy_part<T::BN>(call,
                                    chunk.row0 + (T::ALONG_N ? part / 2 : part) * GEMMAR_PART_ROWS,
                                    chunk.col0 + (T::ALONG_N ? part % 2 * T::BN : 0), lane);
        }
    }
}

#endif
