// SPDX-License-Identifier: Apache-2.0
// Everything one call of the fused operator knows: the plain struct that the communicator fills and
// that the roles read, on the CPU and on the GPU. Grouped by the step that uses it.
//
// Names of buffers are those of docs/design.md. `rank` counts all ranks, `node` the nodes, `local`
// the ranks inside a node; rank r of a communicator may be any (node, local), see place.
#ifndef GEMMAR_KERNELS_CALL_H
#define GEMMAR_KERNELS_CALL_H

#include <stdint.h>

#include <gemmar/fifo.h>

#include "kernels/dtype.h"
#include "kernels/parts.h"
#include "kernels/tile_map.h"
#include "kernels/visit.h"

#define GEMMAR_MAX_LOCAL_RANKS 16
#define GEMMAR_MAX_NODES       256

enum gemmar_algo {
    GEMMAR_ALGO_LOCAL = 0, /* one node: the intra reduction is the last one */
    GEMMAR_ALGO_DIRECT = 1,
    GEMMAR_ALGO_TWO_SHOT = 2,
};

/* Kinds of routes; route index = kind * nodes + node of the peer. */
enum gemmar_route_kind {
    GEMMAR_ROUTE_DIRECT = 0,  /* node sums of my slice -> every node */
    GEMMAR_ROUTE_SCATTER = 1, /* node sums of a sub-slice -> the node that owns it */
    GEMMAR_ROUTE_GATHER = 2,  /* results of my sub-slice -> every node */
    GEMMAR_ROUTE_KINDS = 3,
};

/* Tiles of the tensor-core kernel: a cluster of two CTAs computes one chunk, half each. The pair
 * lies along M and shares B, or along N (few rows) and shares A. */
enum gemmar_tile_shape {
    GEMMAR_TILE_256X256 = 0, /* CTAs of 128 x 256, along M */
    GEMMAR_TILE_256X128 = 1, /* CTAs of 128 x 128, along M */
    GEMMAR_TILE_128X256 = 2, /* CTAs of 128 x 128, along N */
    GEMMAR_TILE_128X128 = 3, /* CTAs of 128 x 64, along N */
    GEMMAR_TILE_SHAPES = 4,
};

/* How the local ranks' products of a chunk come together. */
enum gemmar_strategy {
    GEMMAR_STRATEGY_PUSH = 0, /* into slots of the owner, whose epilogue adds them */
    GEMMAR_STRATEGY_PULL = 1, /* into own memory, from where CTAs of the owner read them */
    /* Two ranks: each sends its product of every chunk to the other, and both add the two. */
    GEMMAR_STRATEGY_EXCHANGE = 2,
    GEMMAR_STRATEGIES = 3,
};

/* What of C the tensor-core kernel copies from `out`, because the other ranks cannot write into C.
 */
enum gemmar_copies {
    GEMMAR_COPIES_NOTHING = 0,
    GEMMAR_COPIES_FOREIGN = 1, /* own chunks are stored to C at once */
    GEMMAR_COPIES_ALL = 2,     /* also mine: C is not aligned for bulk stores */
};

/* The stages that wait, for the watchdog's sentence. */
enum gemmar_stage {
    GEMMAR_STAGE_NONE = 0,
    GEMMAR_STAGE_GEMM_TILE,
    GEMMAR_STAGE_INTRA_REDUCE, /* waits for `ready` of a local rank */
    GEMMAR_STAGE_FIFO_PUSH,    /* waits for room in the ring, or for `retired` */
    GEMMAR_STAGE_ARRIVAL,      /* waits for an arrival stamp of a peer node */
    GEMMAR_STAGE_INTER_REDUCE, /* waits for `staged` of the own rank */
    GEMMAR_STAGE_PUBLISH,      /* waits for `published` of an owner */
    GEMMAR_STAGE_TOLD,         /* waits for `told` of a local rank */
    GEMMAR_STAGE_BUSY,         /* another call of the communicator runs */
};

struct gemmar_place {
    uint32_t rank;
    uint32_t ranks;
    uint32_t node;
    uint32_t nodes;
    uint32_t local;
    uint32_t locals;
};

struct gemmar_operands {
    const void *a; /* [m,k], lda */
    const void *b; /* [k,n], ldb; or [n,k] with trans_b */
    void *c;       /* [m,n], ldc */
    const void *bias;
    int64_t k;
    int64_t lda, ldb, ldc;
    float alpha, beta;
    uint32_t trans_b;
    uint32_t dtype; /* enum gemmar_dtype */
};

/* One local rank's shared memory, as mapped by this rank. */
struct gemmar_local_view {
    /* That rank's product before the reduction, chunk c at gemmar_map_chunk_offset(c), single copy.
     * Writer: that rank's compute CTAs. Reader: the chunk's owner, after `ready`.
     * Tensor-core kernel: whole tiles in the order of the accumulators. Pull: chunk c of that rank
     * at c * tile bytes. Push: slots of that rank as owner, that of rank g's product of own chunk
     * `slot` at (slot * (locals - 1) + g less one if g is behind the owner) * tile bytes; writer:
     * rank g. */
    void *partial;
    /* Results, same layout as partial, single copy. Writer: the chunk's owner, after this rank's
     * own `ready` of the chunk in the same epoch. Reader: that rank, after `published`. */
    void *out;
    /* ready[slot * locals + g]: epoch in which rank g's partial of that owner's chunk `slot` was
     * complete. Writer: rank g (release, .sys). Reader: the owner (acquire, .sys). Tensor-core
     * kernel: GEMMAR_CHUNK_PARTS words each. */
    uint64_t *ready;
    /* published[chunk]: epoch in which the chunk's result lay in that rank's out. Writer: the owner
     * (release, .sys). Reader: that rank (acquire, .sys). Tensor-core kernel: GEMMAR_CHUNK_PARTS
     * words each. */
    uint64_t *published;
    /* told[g]: epoch << 16 | what rank g's call is (gemmar_call.told). Tensor-core kernel. Writer:
     * rank g at the start of its call (release, .sys). Reader: that rank before it first publishes
     * (acquire, .sys). */
    uint64_t *told;
};

/* Where the two ranks of a node exchange their products: whole tiles in the order of the
 * accumulators, chunk c at c * tile bytes of each of three pieces of `bytes` bytes. 0 and 1: the
 * other rank's, by epoch parity, because that rank may begin its next call while this one still
 * reads. Words of 32 bits that say themselves whether they have come: GEMMAR_EXCHANGE_NONE has not.
 * Writer: the other rank (relaxed, .sys), and this one, which puts GEMMAR_EXCHANGE_NONE back when
 * it has read a word. Reader: this rank (relaxed, .sys). 2: this rank's own; every thread reads
 * what it wrote. */
struct gemmar_exchange_view {
    void *mine, *peers; /* this rank's pieces, and those of the other one */
    uint64_t bytes;
};

#define GEMMAR_EXCHANGE_NONE 0xffffffffu

/* What the network reads and writes; both halves of a pair by epoch parity. Chunks lie in staging,
 * result and recv as in partial. Tensor-core kernel: kernels/message.h. */
struct gemmar_net_view {
    void *staging[2]; /* node sums in the wire type. Writer: intra reduce. Reader: NIC, inter reduce
                       */
    void *result[2];  /* two-shot: results of my sub-slice. Writer: inter reduce. Reader: NIC */
    /* Sink window of each route, indexed by route. Writer: NIC. Reader: reduce CTAs after arrival.
     */
    const void *const *recv[2];
    /* Stamp window of each route, indexed by route, then slot. Writer: NIC or proxy, after the
     * data. Reader: reduce CTAs (acquire, .sys). */
    const uint64_t *const *arrival[2];
    uint64_t staging_stride; /* two-shot: bytes from one node's part of staging to the next's */
    struct gemmar_fifo_ring ring;
    uint64_t *ticket; /* next position of the ring. Writer, reader: producers of this rank */
    /* Ring position at the end of the last call of each parity: staging of that parity is free when
     * retired has reached it. Writer: last CTA of a call. Reader: intra reduce of call e+2. */
    uint64_t *heads; /* [2] */
    /* GPU: what one reader found in host memory, for all others: reads of host memory by many CTAs
     * hold up what else goes over the bus and the links. Own memory. room[2]: the epoch whose call
     * may write the half of its parity; writer: block 0 once `retired` has reached heads, reader:
     * couriers. tail_seen: the ring's tail when a producer last looked; writer, reader: producers.
     * All release and acquire, .sys. */
    uint64_t *room, *tail_seen;
    uint32_t stamps_on_host; /* GPU: 1: the stamp windows are host memory */
};

/* Words of one rank that no other rank sees. */
struct gemmar_rank_words {
    uint64_t *epoch; /* of the running or next call. Writer: last CTA of a call */
    /* GPU: 1 while a call runs; a second entry, of a graph beside a call, breaks the communicator.
     * Calls of the host never meet: gemmar_comm_enter lets in one at a time. */
    uint64_t *busy;
    /* tiles_done[chunk]: tiles of the chunk stored in this call, wraps to 0 at the last one.
     * Writer, reader: compute CTAs (acq_rel, .gpu). Tensor-core kernel: parts of a message
     * (kernels/message.h) that lie in staging, or in result, at my first chunk + the message's
     * first; couriers. */
    uint64_t *tiles_done;
    /* staged[slot]: epoch in which my staging of own chunk `slot` was complete. Writer: intra
     * reduce (release, .gpu). Reader: inter reduce (acquire, .gpu). Tensor-core kernel: of the
     * message whose first chunk it is, writer couriers, reader producers. */
    uint64_t *staged;
    uint64_t *ctas_done; /* CTAs that left the call, wraps to 0 at the last one */
    /* Tensor-core kernel: couriers that asked for the link to the other GPUs, and that have left it
     * again, of all calls. Writer, reader: couriers (relaxed, .gpu: no data is handed over). */
    uint64_t *turn_next, *turn_done;
    /* copy_next[2]: parts of C that warps have claimed to copy, by epoch parity. Writer, reader:
     * the warps of this rank (relaxed, .gpu); the last CTA of a call clears the next call's. */
    uint64_t *copy_next;
    /* GPU: not 0 once the abort word was. Writer: block 0's waits, which look at the abort word for
     * all. Reader: every wait (relaxed, .gpu: no data is handed over). */
    uint64_t *left;
};

/* The first wait that did not end, or the reason the call was left. Host memory; writer: the first
 * CTA that claims `claimed`; reader: the host after the call. */
struct gemmar_trouble {
    uint64_t claimed;  /* 0, then 1 by compare and exchange */
    uint64_t complete; /* 1 (release) once the rest is written */
    uint32_t stage;    /* enum gemmar_stage */
    uint32_t rank;     /* that was waited for */
    uint64_t slot;     /* chunk, slot or ring position */
    uint64_t expected;
    uint64_t seen;
    uint64_t waited_ns;
};

struct gemmar_watch {
    /* Not 0: leave at once. Writer: proxy, host, other waiters (release). Reader: every wait,
     * now and then: each 20 us or so on a CPU, 200 us on a GPU (acquire, .sys). Host memory. */
    uint64_t *abort_word;
    struct gemmar_trouble *trouble;
    uint64_t timeout_ns;
    /* CPU only: called now and then by a waiting thread; not 0 means that a local peer is gone and
     * the wait must end. `waited_for` is a local rank, or UINT32_MAX. */
    int (*look)(void *context, uint32_t waited_for);
    void *look_context;
};

/* CTAs [first, first + count) of a call share the work of one stage, every count-th item each. */
struct gemmar_range {
    uint32_t first;
    uint32_t count;
};

/*
 * How this rank spreads the stages over its CTAs; no peer can observe it. Ranges may overlap: a CTA
 * runs the stages it belongs to in the order of the members, and a stage waits only for earlier
 * stages of other ranks or CTAs, so any choice with ctas >= 1 ends.
 */
struct gemmar_local_plan {
    uint32_t ctas;
    uint32_t senders;            /* GPU: couriers that may store to other GPUs at once; 0: all */
    struct gemmar_range compute; /* gemm tile */
    struct gemmar_range intra;   /* intra reduce, fifo push */
    struct gemmar_range inter;   /* arrival, inter reduce, publish */
    struct gemmar_range copy;    /* out -> C */
};

/* Tensor-core kernel, agreed by all ranks. */
struct gemmar_tensor_plan {
    uint32_t shape;    /* enum gemmar_tile_shape */
    uint32_t strategy; /* enum gemmar_strategy */
    struct gemmar_visit_order order;
};

struct gemmar_call {
    struct gemmar_tile_map map;
    struct gemmar_place place;
    struct gemmar_operands operands;
    uint32_t algo; /* enum gemmar_algo */
    /* Low 16 bits: a hash of everything that the local ranks must pass alike. Not the same on two
     * ranks: neither writes into the other's C, and the call fails. */
    uint32_t told;
    struct gemmar_tensor_plan tensor;
    uint32_t copies; /* GPU: enum gemmar_copies */
    uint32_t reserved;
    int64_t out_ld; /* GPU: elements from row to row of `out`, a multiple of 8 */
    struct gemmar_local_plan plan;
    struct gemmar_local_view locals[GEMMAR_MAX_LOCAL_RANKS]; /* [place.locals] */
    struct gemmar_exchange_view exchange;                    /* GPU, one node of two ranks */
    const uint32_t *rank_of; /* [nodes * locals] rank of (node, local), for messages */
    struct gemmar_net_view net;
    struct gemmar_rank_words words;
    struct gemmar_watch watch;
};

#endif
