// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: the exchange of two ranks. Each sends its product of every tile into memory
// of the other one, and both add the two.
//
// Nothing is stamped: what is sent says itself that it is there. Memory in which the other rank's
// parts arrive holds GEMMAR_EXCHANGE_NONE in every word of 32 bits until they do. No part has such
// a word: it would be two numbers that the conversion to 16 bits makes of nothing. The consumer
// reads until all words have come and puts GEMMAR_EXCHANGE_NONE back; the other rank writes there
// again two calls later, which it begins only behind my next call's words, `told` among them.
#ifndef GEMMAR_KERNELS_EXCHANGE_SM90_CUH
#define GEMMAR_KERNELS_EXCHANGE_SM90_CUH

#include "kernels/epilogue_sm90.cuh"
#include "kernels/source_sm90.cuh"

/* A part of `item` in a piece of an end of the exchange. */
template <class T>
static __device__ __forceinline__ uint4 *gemmar_exchange_at(const gemmar_call &call, void *end,
                                                            uint32_t piece, const gemmar_item &item,
                                                            uint32_t part)
{
    return (uint4 *)((char *)end + piece * call.exchange.bytes +
                     gemmar_part_offset<T>(item.chunk, part));
}

/* A box of staging to the other rank, 8 KB from `to` on. All lanes of a warp. */
static __device__ __forceinline__ void gemmar_exchange_box(uint4 *to, uint32_t box, uint32_t lane)
{
    constexpr int WORDS = GEMMAR_BOX / 16 / 32, TOGETHER = 4;

    to += lane;
    box += lane * 16;
#pragma unroll
    for (int i = 0; i < WORDS; i += TOGETHER) {
        uint4 x[TOGETHER];

#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            x[j] = gemmar_ld_shared_v4(box + (uint32_t)(i + j) * 512);
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            gemmar_st_relaxed_sys_v4(&to[(i + j) * 32], x[j]);
        }
    }
}

/* Eight accumulators, rounded as what is sent. */
template <bool BF16> static __device__ __forceinline__ uint4 gemmar_exchange_round(const float *e)
{
    return make_uint4(gemmar_pack16<BF16>(e[0], e[1]), gemmar_pack16<BF16>(e[2], e[3]),
                      gemmar_pack16<BF16>(e[4], e[5]), gemmar_pack16<BF16>(e[6], e[7]));
}

/* They are not in the registers any more when their sum is made: to own memory, of which each
 * thread reads again what it wrote. */
template <class T, bool BF16>
static __device__ __forceinline__ void
gemmar_exchange_keep(const gemmar_call &call, const gemmar_role &r, const gemmar_item &item,
                     uint32_t half, uint32_t thread, const float (&d)[T::BN / 2])
{
    uint4 *own =
        gemmar_exchange_at<T>(call, call.exchange.mine, 2, item, gemmar_part_of<T>(r, half));

#pragma unroll
    for (int q = 0; q < T::BN / 16; q++) {
        own[q * 128 + thread] = gemmar_exchange_round<BF16>(&d[q * 8]);
    }
}

static __device__ __forceinline__ bool gemmar_exchange_lacks(const uint4 &x)
{
    return x.x == GEMMAR_EXCHANGE_NONE || x.y == GEMMAR_EXCHANGE_NONE ||
           x.z == GEMMAR_EXCHANGE_NONE || x.w == GEMMAR_EXCHANGE_NONE;
}

/* N words of every thread, from[0], from[128], ... False: the call is being left. */
template <int N>
static __device__ __forceinline__ bool
gemmar_exchange_take(const gemmar_call &call, const gemmar_role &r, const gemmar_item &item,
                     uint4 *from, uint4 (&x)[N], bool ok)
{
    uint32_t peer = 1 - call.place.local;
    gemmar_wait_for whom = {GEMMAR_STAGE_INTRA_REDUCE, call.rank_of[peer], peer, item.slot};
    gemmar_exec_patience patience = {};

    for (uint32_t turn = 1;; turn++) {
        bool lacks = false;

#pragma unroll
        for (int j = 0; j < N; j++) {
            x[j] = gemmar_ld_relaxed_sys_v4(&from[j * 128]);
            lacks |= gemmar_exchange_lacks(x[j]);
        }
        if (!__any_sync(0xffffffffu, lacks && ok)) {
            break;
        }
        if (turn % GEMMAR_WAIT_TURNS == 0) { /* the record says how far the other one is */
            ok = __all_sync(0xffffffffu,
                            gemmar_exec_goes_on(&call, &call.locals[call.place.local].told[peer],
                                                r.epoch << 16, &whom, &patience));
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        from[j * 128] = make_uint4(GEMMAR_EXCHANGE_NONE, GEMMAR_EXCHANGE_NONE, GEMMAR_EXCHANGE_NONE,
                                   GEMMAR_EXCHANGE_NONE);
    }
    return ok;
}

/* d = my product, rounded, and that of the other rank: the same sum on both, as a + b is b + a. */
template <class T, bool BF16>
static __device__ __forceinline__ bool
gemmar_exchange_add(const gemmar_call &call, const gemmar_role &r, const gemmar_item &item,
                    uint32_t half, uint32_t thread, float (&d)[T::BN / 2], bool ok)
{
    constexpr int TOGETHER = T::BN > 128 ? 2 : 4; /* the registers that are left */
    uint32_t part = gemmar_part_of<T>(r, half);
    uint4 *own = gemmar_exchange_at<T>(call, call.exchange.mine, 2, item, part) + thread;
    uint4 *from =
        gemmar_exchange_at<T>(call, call.exchange.mine, (uint32_t)r.epoch & 1, item, part) + thread;

#pragma unroll
    for (int q = 0; q < T::BN / 16; q += TOGETHER) {
        uint4 x[TOGETHER];

        ok = gemmar_exchange_take<TOGETHER>(call, r, item, &from[q * 128], x, ok);
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            uint4 y = gemmar_adds_at_once(call, r) ? gemmar_exchange_round<BF16>(&d[(q + j) * 8])
                                                   : own[(q + j) * 128];
            const uint32_t theirs[4] = {x[j].x, x[j].y, x[j].z, x[j].w};
            const uint32_t mine[4] = {y.x, y.y, y.z, y.w};

#pragma unroll
            for (int w = 0; w < 4; w++) {
                float2 a = gemmar_unpack16<BF16>(theirs[w]), b = gemmar_unpack16<BF16>(mine[w]);

                d[(q + j) * 8 + w * 2] = a.x + b.x;
                d[(q + j) * 8 + w * 2 + 1] = a.y + b.y;
            }
        }
    }
    return ok;
}

#endif
