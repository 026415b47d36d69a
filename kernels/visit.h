// SPDX-License-Identifier: Apache-2.0
// The order in which the clusters of a GPU visit the chunks of a call, and why it cannot deadlock.
//
// The chunks of every owner are walked in bands of rows, so that operands stay in the cache; the
// i-th chunk of that walk belongs to round i / block of its owner. F(r) are the chunks of round r
// of all other owners, beginning with the one behind me, O(r) are my own. A rank's list is F(0) ..
// F(lead - 1), O(0), F(lead), O(1), ..., so that an own chunk, which in the push strategy waits for
// the other ranks' F, finds their parts there. Cluster c of n takes positions c, c + n, ... of the
// list. Why push ends: give F(r) the key r and O(r) the key r + lead - 1. Every list is sorted by
// (key, F before O), keys are a function of the chunk alone, and an own chunk waits only for
// chunks that are lower in this order on the other ranks. So the lowest waiting one does not wait,
// however many clusters each rank has.
#ifndef GEMMAR_KERNELS_VISIT_H
#define GEMMAR_KERNELS_VISIT_H

#include "kernels/tile_map.h"

/* One position of a list. */
struct gemmar_visit {
    uint32_t chunk;
    uint32_t slot; /* chunk - first chunk of its owner */
    uint32_t walk; /* its place in its owner's walk, the same on all nodes */
    uint32_t owner;
};

/* gemmar_map_first() in 32 bits: a GPU computes this for every tile, and its 64-bit divisions take
 * longer than a short tile. A plan for a GPU has fewer than 2^31 / GEMMAR_MAX_LOCAL_RANKS chunks.
 */
GEMMAR_HD uint32_t gemmar_visit_first(const struct gemmar_tile_map *map, uint32_t g)
{
    uint32_t chunks = (uint32_t)map->chunks, locals = map->locals;

    return chunks / locals * g + chunks % locals * g / locals;
}

/* The i-th slot of `owner`'s range [first, end) when `band` rows of chunks are walked column by
 * column; the incomplete rows at both ends of the range are walked along the row. */
GEMMAR_HD uint32_t gemmar_visit_slot(const struct gemmar_tile_map *map, uint32_t first,
                                     uint32_t end, uint32_t band, uint32_t i)
{
    uint32_t cols = (uint32_t)map->chunks_per_row, top = (first + cols - 1) / cols;
    uint32_t rows = end / cols > top ? end / cols - top : 0;
    uint32_t head = (top * cols < end ? top * cols : end) - first, in = i - head, b, high;

    if (i < head || in >= rows * cols) {
        return i;
    }
    b = in / (band * cols);
    in -= b * band * cols;
    high = rows - b * band < band ? rows - b * band : band;
    return head + (b * band + in % high) * cols + in / high;
}

/* How the lists of a call are made; agreed by the ranks of a node. */
struct gemmar_visit_order {
    uint32_t block; /* chunks of each owner in a round */
    uint32_t lead;  /* rounds of F before O(0), or of P before S(0), at least 1 */
    uint32_t band;  /* rows of chunks walked together */
    /* Several nodes, one shot: so many neighbours of a walk leave in one message, at least 1. */
    uint32_t together;
    /* Two-shot: an owner's walk begins about where the part of this node begins, so that the nodes
     * do not all send to the same one. Else 0. */
    uint32_t first_node;
};

/* The i-th chunk of an owner's walk. */
GEMMAR_HD struct gemmar_visit gemmar_visit_of(const struct gemmar_tile_map *map, uint32_t owner,
                                              const struct gemmar_visit_order *order, uint32_t i)
{
    uint32_t first = gemmar_visit_first(map, owner), end = gemmar_visit_first(map, owner + 1);
    struct gemmar_visit v;

    if (order->first_node != 0) {
        i += (uint32_t)gemmar_part_first(end - first, map->nodes, order->first_node);
        i -= i >= end - first ? end - first : 0;
    }
    v.owner = owner;
    v.walk = i;
    v.slot = gemmar_visit_slot(map, first, end, order->band, i);
    v.chunk = first + v.slot;
    return v;
}

/* Chunk f of F(0), F(1), ... Owners differ by one chunk at most: all rounds are full but the last.
 */
GEMMAR_HD struct gemmar_visit gemmar_visit_foreign(const struct gemmar_tile_map *map,
                                                   uint32_t local,
                                                   const struct gemmar_visit_order *order,
                                                   uint32_t f)
{
    uint32_t locals = map->locals, block = order->block, round = block * (locals - 1);
    uint32_t full = (uint32_t)map->chunks / locals / block, r = f / round, i = f - r * round;
    uint32_t owner = (local + 1) % locals;

    if (r < full) {
        owner = (local + 1 + i / block) % locals;
        return gemmar_visit_of(map, owner, order, r * block + i % block);
    }
    i = f - full * round;
    for (uint32_t turn = 2; turn < locals; turn++) {
        uint32_t left =
            gemmar_visit_first(map, owner + 1) - gemmar_visit_first(map, owner) - full * block;

        if (i < left) {
            break;
        }
        i -= left;
        owner = (owner + 1) % locals;
    }
    return gemmar_visit_of(map, owner, order, full * block + i);
}

/* Position p, 0 <= p < map->chunks, of local rank `local`'s list. */
GEMMAR_HD struct gemmar_visit gemmar_visit_at(const struct gemmar_tile_map *map, uint32_t local,
                                              const struct gemmar_visit_order *order, uint32_t p)
{
    uint32_t own = gemmar_visit_first(map, local + 1) - gemmar_visit_first(map, local);
    uint32_t foreign = (uint32_t)map->chunks - own, round = order->block * (map->locals - 1);
    uint32_t ahead = (order->lead - 1) * round, pairs, q, t;

    if (foreign == 0) {
        return gemmar_visit_of(map, local, order, p);
    }
    ahead = ahead < foreign ? ahead : foreign;
    if (p < ahead) {
        return gemmar_visit_foreign(map, local, order, p);
    }
    /* Whole F(lead + t), O(t), then what is left of F, then what is left of O. */
    q = p - ahead;
    pairs = (foreign - ahead) / round;
    t = q / (round + order->block);
    t = t < pairs ? t : pairs;
    q -= t * (round + order->block);
    if (q < (t < pairs ? round : foreign - ahead - pairs * round)) {
        return gemmar_visit_foreign(map, local, order, ahead + t * round + q);
    }
    q -= t < pairs ? round : foreign - ahead - pairs * round;
    return gemmar_visit_of(map, local, order, t * order->block + q);
}

/*
 * Exchange: all ranks walk all chunks in one order. A cluster's list is P(0) .. P(lead - 1), S(0),
 * P(lead), S(1), ...: P(j) computes its j-th chunk and sends it, S(j) adds the other rank's. Why it
 * ends: in every list, S of a chunk stands behind P of that chunk, and before a P stand only S of
 * chunks that are earlier in the walk. So the earliest chunk that an S waits for is computed
 * and sent on the other rank without a wait that does not end, however many clusters each has.
 */
struct gemmar_visit_step {
    uint32_t adds;  /* 1: S, 0: P */
    uint32_t index; /* j */
};

/* Step i, 0 <= i < 2 * work, of a cluster that has `work` chunks. */
GEMMAR_HD struct gemmar_visit_step gemmar_visit_step_at(uint32_t work, uint32_t lead, uint32_t i)
{
    struct gemmar_visit_step step;
    uint32_t ahead = lead < work ? lead : work, q;

    if (i < ahead) {
        step.adds = 0;
        step.index = i;
        return step;
    }
    q = i - ahead;
    step.adds = q >= 2 * (work - ahead) || q % 2 == 0;
    step.index = !step.adds ? ahead + q / 2 : q < 2 * (work - ahead) ? q / 2 : i - work;
    return step;
}

/* The p-th chunk of the walk. */
GEMMAR_HD struct gemmar_visit gemmar_visit_exchange(const struct gemmar_tile_map *map,
                                                    uint32_t local,
                                                    const struct gemmar_visit_order *order,
                                                    uint32_t p)
{
    struct gemmar_visit v;

    v.owner = local;
    v.chunk = gemmar_visit_slot(map, 0, (uint32_t)map->chunks, order->band, p);
    v.slot = v.chunk;
    v.walk = p;
    return v;
}

/* Behind its list, with more than one node, a rank reduces: direct, all own chunks in the order of
 * their walk, which is about that in which the node sums come; two-shot, those of its node's part.
 */
GEMMAR_HD uint32_t gemmar_visit_reduces(const struct gemmar_tile_map *map, int two_shot,
                                        uint32_t node, uint32_t local)
{
    if (two_shot) {
        return (uint32_t)(gemmar_map_sub_first(map, local, node + 1) -
                          gemmar_map_sub_first(map, local, node));
    }
    return gemmar_visit_first(map, local + 1) - gemmar_visit_first(map, local);
}

GEMMAR_HD struct gemmar_visit gemmar_visit_reduce(const struct gemmar_tile_map *map, int two_shot,
                                                  uint32_t node, uint32_t local,
                                                  const struct gemmar_visit_order *order,
                                                  uint32_t i)
{
    struct gemmar_visit v;

    if (!two_shot) {
        return gemmar_visit_of(map, local, order, i);
    }
    v.owner = local;
    v.chunk = (uint32_t)gemmar_map_sub_first(map, local, node) + i;
    v.slot = v.chunk - gemmar_visit_first(map, local);
    v.walk = 0; /* for one shot */
    return v;
}

/* How many of `work` items cluster `cluster` of `clusters` has: cluster, cluster + clusters, ... */
GEMMAR_HD uint32_t gemmar_visit_share(uint32_t work, uint32_t cluster, uint32_t clusters)
{
    return work > cluster ? (work - cluster - 1) / clusters + 1 : 0;
}

/* Chunks of an owner that node `node` reduces beyond the least that any node does: 0 or 1. */
GEMMAR_HD uint32_t gemmar_visit_extra(uint32_t own, uint32_t nodes, uint32_t node)
{
    uint32_t rest = own % nodes;

    return rest * (node + 1) / nodes - rest * node / nodes;
}

/*
 * At last, in two-shot, it takes what the other nodes reduced, the nodes before its own first.
 * Cluster c takes what cluster c of the other nodes reduced, and where they reduce fewer chunks
 * than there are clusters, several share one: results leave a node in the order in which its
 * clusters come to an end, and nobody waits for a slow one while others' have come. At the end come
 * the last chunks of the nodes that have one more than the others.
 */
struct gemmar_visit_turns {
    uint32_t least;        /* chunks that every node reduces */
    uint32_t slot, chunks; /* of them this cluster takes slot, slot + clusters, ... */
    uint32_t first, step;  /* of the nodes before mine it takes first, first + step, ... */
    uint32_t peers;        /* so many */
    uint32_t rest;         /* nodes but mine with one chunk more */
};

GEMMAR_HD struct gemmar_visit_turns gemmar_visit_turns_of(const struct gemmar_tile_map *map,
                                                          uint32_t node, uint32_t local,
                                                          uint32_t cluster, uint32_t clusters)
{
    uint32_t own = gemmar_visit_first(map, local + 1) - gemmar_visit_first(map, local);
    struct gemmar_visit_turns t;

    t.least = own / map->nodes;
    t.first = 0;
    t.step = 1;
    t.rest = own % map->nodes - gemmar_visit_extra(own, map->nodes, node);
    t.chunks = gemmar_visit_share(t.least, cluster, clusters);
    t.slot = cluster;
    if (t.least > 0 && t.least < clusters) {
        t.slot = cluster % t.least;
        t.first = cluster / t.least;
        t.step = gemmar_visit_share(clusters, t.slot, t.least);
        t.chunks = 1;
    }
    t.peers = gemmar_visit_share(map->nodes - 1, t.first, t.step);
    return t;
}

GEMMAR_HD uint32_t gemmar_visit_gathers(const struct gemmar_tile_map *map, uint32_t node,
                                        uint32_t local, uint32_t cluster, uint32_t clusters)
{
    struct gemmar_visit_turns t = gemmar_visit_turns_of(map, node, local, cluster, clusters);

    return t.chunks * t.peers + gemmar_visit_share(t.rest, cluster, clusters);
}

/* The i-th of them. */
GEMMAR_HD struct gemmar_visit gemmar_visit_gather(const struct gemmar_tile_map *map, uint32_t node,
                                                  uint32_t local, uint32_t cluster,
                                                  uint32_t clusters, uint32_t i)
{
    struct gemmar_visit_turns t = gemmar_visit_turns_of(map, node, local, cluster, clusters);
    uint32_t nodes = map->nodes, first = gemmar_visit_first(map, local), from = node, slot;
    uint32_t own = gemmar_visit_first(map, local + 1) - first;
    struct gemmar_visit v;

    if (i < t.chunks * t.peers) {
        from = (node + nodes - 1 - (t.first + i % t.peers * t.step)) % nodes;
        slot = t.slot + i / t.peers * clusters;
    } else {
        i = cluster + (i - t.chunks * t.peers) * clusters + 1; /* th node with one more */
        while (i > 0) {
            from = (from + nodes - 1) % nodes;
            i -= gemmar_visit_extra(own, nodes, from);
        }
        slot = t.least;
    }
    v.owner = local;
    v.slot = (uint32_t)gemmar_map_sub_first(map, local, from) - first + slot;
    v.chunk = first + v.slot;
    v.walk = 0;
    return v;
}

#endif
