// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernel: where tiles lie while they are on their way, and the words that say that they
// are there.
#ifndef GEMMAR_KERNELS_SOURCE_SM90_CUH
#define GEMMAR_KERNELS_SOURCE_SM90_CUH

#include "kernels/item_sm90.cuh"

/* Which part of its chunk a CTA's half computes: kernels/parts.h. */
template <class T>
static __device__ __forceinline__ uint32_t gemmar_part_of(const gemmar_role &r, uint32_t half)
{
    return T::ALONG_N ? half * 2 + r.cta : r.cta * 2 + half;
}

/* Where part `part` of the tile-sized piece `tile` of a buffer begins. */
template <class T>
static __device__ __forceinline__ uint64_t gemmar_part_offset(uint64_t tile, uint32_t part)
{
    return (tile * GEMMAR_CHUNK_PARTS + part) * (GEMMAR_PART_ROWS * T::BN * 2);
}

/* The same in a window of the network. */
template <class T>
static __device__ __forceinline__ uint64_t gemmar_window_offset(const gemmar_call &call,
                                                                const gemmar_item &item,
                                                                uint32_t part)
{
    return (uint64_t)item.window * gemmar_message_stride(&call.map) +
           part * (GEMMAR_PART_ROWS * T::BN * 2);
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

/* The node sum of an own chunk, for the NIC and for its reduction here. */
template <class T>
static __device__ __forceinline__ char *gemmar_staging_at(const gemmar_call &call,
                                                          const gemmar_role &r,
                                                          const gemmar_item &item, uint32_t part)
{
    return (char *)call.net.staging[r.epoch & 1] + item.node * call.net.staging_stride +
           gemmar_window_offset<T>(call, item, part);
}

/* Two-shot: the result of an own chunk, for the NIC. */
template <class T>
static __device__ __forceinline__ char *gemmar_result_at(const gemmar_call &call,
                                                         const gemmar_role &r,
                                                         const gemmar_item &item, uint32_t part)
{
    return (char *)call.net.result[r.epoch & 1] + gemmar_window_offset<T>(call, item, part);
}

/* A part that an item adds. */
struct gemmar_source {
    const char *base;
    const uint64_t *word; /* says that it is there */
    uint32_t stage;       /* of the wait: enum gemmar_stage */
    uint32_t node, local; /* who is waited for */
    uint32_t slot;        /* of what, for the sentence: of a command, or mine */
};

/* From another node. */
template <class T>
static __device__ __forceinline__ gemmar_source gemmar_source_arrived(const gemmar_call &call,
                                                                      const gemmar_role &r,
                                                                      const gemmar_item &item,
                                                                      uint32_t part, uint32_t kind,
                                                                      uint32_t node)
{
    uint32_t route = kind * call.place.nodes + node;

    return {(const char *)call.net.recv[r.epoch & 1][route] +
                gemmar_window_offset<T>(call, item, part),
            &call.net.arrival[r.epoch & 1][route][item.message.first],
            GEMMAR_STAGE_ARRIVAL,
            node,
            UINT32_MAX,
            item.message.first};
}

/* Source `i` of an item, in the order in which all ranks add them. */
template <class T>
static __device__ __forceinline__ gemmar_source gemmar_source_of(const gemmar_call &call,
                                                                 const gemmar_role &r,
                                                                 const gemmar_item &item,
                                                                 uint32_t part, uint32_t i)
{
    uint32_t local = call.place.local, node = call.place.node;

    if (item.kind == GEMMAR_ITEM_GATHER) {
        return gemmar_source_arrived<T>(call, r, item, part, GEMMAR_ROUTE_GATHER, item.node);
    }
    if (item.kind == GEMMAR_ITEM_REDUCE && i == node) {
        return {gemmar_staging_at<T>(call, r, item, part),
                &call.words.staged[item.sent],
                GEMMAR_STAGE_INTER_REDUCE,
                node,
                local,
                item.sent};
    }
    if (item.kind == GEMMAR_ITEM_REDUCE) {
        return gemmar_source_arrived<T>(
            call, r, item, part,
            call.algo == GEMMAR_ALGO_TWO_SHOT ? GEMMAR_ROUTE_SCATTER : GEMMAR_ROUTE_DIRECT, i);
    }
    uint32_t from = !r.pull && i >= local ? i + 1 : i;
    uint64_t offset =
        r.pull ? gemmar_part_offset<T>(item.chunk, part)
               : gemmar_part_offset<T>(gemmar_push_tile(call, item.slot, local, from), part);

    return {(const char *)call.locals[r.pull ? from : local].partial + offset,
            gemmar_part_ready(call, item, from, part),
            GEMMAR_STAGE_INTRA_REDUCE,
            node,
            from,
            item.slot};
}

#endif
