// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: the copy from `out`, which other ranks write, to a C that they cannot write.
#ifndef GEMMAR_KERNELS_COPY_SM90_CUH
#define GEMMAR_KERNELS_COPY_SM90_CUH

#include "kernels/courier_sm90.cuh"

/* `rows` rows of `cols` elements, by one warp: whole words of 16 bytes, L lanes for a row. Both
 * ends have bases and strides (in words) of 16 bytes. Then what is left of each row.
 * AHEAD: loads of a lane that are on their way together. */
template <int L, int AHEAD>
static __device__ __forceinline__ void gemmar_copy_words(uint4 *to, int64_t to_ld,
                                                         const uint4 *from, int64_t from_ld,
                                                         int32_t rows, int32_t cols, uint32_t lane)
{
    constexpr int32_t STEP = 32 / L;
    int32_t word = (int32_t)lane % L, left = cols - word * 8;

    to += (int32_t)lane / L * to_ld + word;
    from += (int32_t)lane / L * from_ld + word;
    for (int32_t r = (int32_t)lane / L; r < rows && left > 0; r += AHEAD * STEP) {
        uint4 x[AHEAD];

#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (r + j * STEP < rows) {
                x[j] = from[j * STEP * from_ld];
            }
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (r + j * STEP < rows && left >= 8) {
                to[j * STEP * to_ld] = x[j];
            } else if (r + j * STEP < rows) {
                const uint32_t words[4] = {x[j].x, x[j].y, x[j].z, x[j].w};
                uint16_t *end = (uint16_t *)&to[j * STEP * to_ld];

#pragma unroll
                for (int e = 0; e < 7; e++) {
                    if (e < left) {
                        end[e] = (uint16_t)(words[e / 2] >> e % 2 * 16);
                    }
                }
            }
        }
        to += AHEAD * STEP * to_ld;
        from += AHEAD * STEP * from_ld;
    }
}

/* The same with C as it may lie. */
template <int AHEAD>
static __device__ __forceinline__ void
gemmar_copy_elements(uint16_t *to, int64_t to_ld, const uint16_t *from, int64_t from_ld,
                     int32_t rows, int32_t cols, uint32_t lane)
{
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t i = (int32_t)lane; i < cols; i += AHEAD * 32) {
            uint16_t x[AHEAD];

#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                if (i + j * 32 < cols) {
                    x[j] = from[i + j * 32];
                }
            }
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                if (i + j * 32 < cols) {
                    to[i + j * 32] = x[j];
                }
            }
        }
        to += to_ld;
        from += from_ld;
    }
}

/* Elements [row, row + 64) x [col, col + BN) of C from `out`, by one warp. */
template <int BN, int AHEAD>
static __device__ __forceinline__ void gemmar_copy_part(const gemmar_call &call, int64_t row,
                                                        int64_t col, uint32_t lane)
{
    const gemmar_operands &o = call.operands;
    const uint16_t *from =
        (const uint16_t *)call.locals[call.place.local].out + row * call.out_ld + col;
    uint16_t *to = (uint16_t *)o.c + row * o.ldc + col;
    int32_t rows = (int32_t)gemmar_min64(GEMMAR_PART_ROWS, call.map.m - row);
    int32_t cols = (int32_t)gemmar_min64(BN, call.map.n - col);

    if (((uintptr_t)o.c | (uint64_t)o.ldc * 2) % 16 == 0) {
        gemmar_copy_words<BN / 8, AHEAD>((uint4 *)to, o.ldc / 8, (const uint4 *)from,
                                         call.out_ld / 8, rows, cols, lane);
    } else {
        gemmar_copy_elements<AHEAD>(to, o.ldc, from, call.out_ld, rows, cols, lane);
    }
}

/* Parts of C that others publish into `out`, in the order of my own list, which is about that in
 * which they come. Ends early when the call is being left. */
template <class T, int AHEAD>
static __device__ __forceinline__ void gemmar_copy(const gemmar_call &call, const gemmar_role &r,
                                                   uint32_t lane)
{
    const uint64_t *published = call.locals[call.place.local].published;
    uint64_t words = (uint64_t)call.map.chunks * GEMMAR_CHUNK_PARTS, at = 0;
    bool ok =
        call.copies != GEMMAR_COPIES_NOTHING &&
        (call.copies == GEMMAR_COPIES_ALL || !gemmar_exchanges(call)); /* there all of C is mine */

    while (ok) {
        if (lane == 0) {
            at = gemmar_atom_add_relaxed_gpu(&call.words.copy_next[r.epoch & 1], 1);
        }
        at = __shfl_sync(0xffffffffu, at, 0);
        if (at >= words) {
            return;
        }
        uint32_t part = (uint32_t)at % GEMMAR_CHUNK_PARTS;
        uint32_t chunk_at = (uint32_t)(at / GEMMAR_CHUNK_PARTS), local = call.place.local;
        gemmar_visit v = gemmar_exchanges(call)
                             ? gemmar_visit_exchange(&call.map, local, &call.tensor.order, chunk_at)
                             : gemmar_visit_at(&call.map, local, &call.tensor.order, chunk_at);
        gemmar_chunk chunk = gemmar_map_chunk(&call.map, v.chunk);

        if (v.owner == local && call.copies != GEMMAR_COPIES_ALL) {
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
            gemmar_copy_part<T::BN, AHEAD>(
                call, chunk.row0 + (T::ALONG_N ? part / 2 : part) * GEMMAR_PART_ROWS,
                chunk.col0 + (T::ALONG_N ? part % 2 * T::BN : 0), lane);
        }
    }
}

#endif
