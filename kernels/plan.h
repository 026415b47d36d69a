// SPDX-License-Identifier: Apache-2.0
// The plan of a call: tile, chunk and algorithm (agreed by all ranks), and how this rank spreads
// the stages over its CTAs (local).
#ifndef GEMMAR_KERNELS_PLAN_H
#define GEMMAR_KERNELS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/call.h"
#include "kernels/tuning.h"

/* What all ranks know alike since the communicator was made. Zero members leave the choice open. */
struct gemmar_plan_facts {
    uint32_t nodes;
    uint32_t locals;
    uint32_t algo; /* GEMMAR_ALGO_DIRECT or _TWO_SHOT forces it */
    uint32_t tile_m, tile_n, chunk_tiles;
    uint32_t sms;        /* GPU: the fewest multiprocessors of any rank; 0: CPU executor */
    uint32_t strategy;   /* GPU: enum gemmar_strategy + 1 forces it */
    uint32_t band, lead; /* GPU: force them */
    uint32_t resident;   /* GPU: the fewest CTAs that any rank can hold at once; 0: sms */
    uint32_t net_mbps; /* GPU: what the slowest rank can send to other nodes, Mbit/s; 0: unknown */
    const struct gemmar_tuning *tuning; /* GPU: rank 0's table; NULL: none */
};

/* The agreed part: a pure function of the shape and the facts. */
struct gemmar_plan {
    struct gemmar_tile_map map;
    uint32_t algo;                    /* enum gemmar_algo */
    struct gemmar_tensor_plan tensor; /* GPU */
    uint32_t gpu;                     /* 1: for the tensor-core kernel */
    uint32_t link_bytes;              /* GPU: struct gemmar_tuned */
    int64_t
        direct_most; /* bytes of a slice that would go direct, of any shape; 0: algo is forced */
};

/*
 * What a shape needs of a workspace: the maximum over all ranks, so that all ranks compute the
 * same. Component-wise maxima of several shapes are a capacity again.
 */
struct gemmar_capacity {
    uint64_t partial_bytes;  /* of partial */
    uint64_t out_bytes;      /* of out: in chunks, or on a GPU the rows of C */
    uint64_t exchange_bytes; /* GPU, one node of two ranks: of a piece of the exchange */
    uint64_t slice_bytes;    /* chunks of one owner; on a GPU those that may go direct */
    uint64_t sub_bytes;      /* two-shot: one node's part of them; 0 otherwise */
    uint64_t chunks;
    uint64_t slots;     /* chunks of one owner */
    uint64_t sub_slots; /* two-shot: chunks of one node's part; 0 otherwise */
    uint64_t direct;    /* 1 when the direct algorithm is to be possible */
    uint64_t parts;     /* words of a chunk in `ready` and `published` */
};

/* Output m x n of `dtype`, sums of k terms. 0, or -EINVAL / -EOVERFLOW with a sentence in `why`. */
int gemmar_plan_make(int64_t m, int64_t n, int64_t k, uint32_t dtype,
                     const struct gemmar_plan_facts *facts, struct gemmar_plan *out, char *why,
                     size_t why_bytes);

/* Can a call of this shape exchange its products? On GPUs: one node of two ranks, and a C that is
 * not so large that the memory for it would be wasted on what push does as well. */
bool gemmar_plan_can_exchange(int64_t m, int64_t n, uint32_t nodes, uint32_t locals);

/* Rows and columns of a tile of the tensor-core kernel; `shape` < GEMMAR_TILE_SHAPES. */
void gemmar_plan_tile(uint32_t shape, uint32_t *out_m, uint32_t *out_n);

/* Of such a tile: what a cluster computes in a microsecond, and the part of the NVLink rate of copy
 * engines that its stores reach. Measured. */
void gemmar_plan_tile_rates(uint32_t shape, double *out_flop_per_us, double *out_link_share);

struct gemmar_capacity gemmar_plan_capacity(const struct gemmar_plan *plan);

/* Component-wise maximum. */
struct gemmar_capacity gemmar_capacity_max(const struct gemmar_capacity *a,
                                           const struct gemmar_capacity *b);

/* What a workspace of `have` becomes when it must hold `need` and the old one's memory stays: a
 * component that grows doubles at least, or shapes that creep up would leave an old
 * workspace behind at every call. */
struct gemmar_capacity gemmar_capacity_grown(const struct gemmar_capacity *have,
                                             const struct gemmar_capacity *need);

/* Is every component of `need` within `have`? */
int gemmar_capacity_holds(const struct gemmar_capacity *have, const struct gemmar_capacity *need);

/* The local part for the CPU executor; ctas 0: the default. */
struct gemmar_local_plan gemmar_plan_local(const struct gemmar_plan *plan, uint32_t ctas);

/* The local part for the tensor-core kernel: `most` CTAs can be resident, at least four (pull) or
 * two. ctas 0: as many as there is work for. */
struct gemmar_local_plan gemmar_plan_local_gpu(const struct gemmar_plan *plan, uint32_t most,
                                               uint32_t ctas);

/* Elements from row to row of `out` on a GPU. */
int64_t gemmar_plan_out_ld(int64_t n);

#endif
