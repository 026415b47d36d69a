// SPDX-License-Identifier: Apache-2.0
// The state of one simulated node, for the files that simulate it.
#ifndef GEMMAR_PERF_SIMULATE_NODE_H
#define GEMMAR_PERF_SIMULATE_NODE_H

#include <stdbool.h>

#include "tools/gemmar_perf/simulate_call.h"
#include "tools/gemmar_perf/simulate_events.h"

enum gemmar_sim_kind {
    GEMMAR_SIM_DELIVER,  /* a cluster's tile is in staging and its courier free; index: cluster */
    GEMMAR_SIM_NODE_SUM, /* the command of a node sum is posted; index: place in the own walk */
    GEMMAR_SIM_RESULT,   /* two-shot: that of a result; index: which of the rank's reductions */
};

enum gemmar_sim_work {
    GEMMAR_SIM_PART,   /* product, to its owner */
    GEMMAR_SIM_SUM,    /* product and the other ranks' parts: result, or node sum */
    GEMMAR_SIM_REDUCE, /* all nodes' sums: result */
    GEMMAR_SIM_GATHER, /* two-shot: another node's result */
};

struct gemmar_sim_item {
    enum gemmar_sim_work work;
    uint32_t owner, slot; /* of the chunk in its owner's range */
    uint32_t place;       /* in the own walk (SUM), or which of the rank's reductions (REDUCE) */
};

struct gemmar_sim_cluster {
    uint32_t next, items; /* of its list */
    struct gemmar_sim_item item;
    double consumer; /* when it can begin with the next tile */
    double freed;    /* when staging may be written again */
    double courier;  /* when its courier has seen its stores complete */
    double staged;   /* when the item at hand lies in staging */
};

/* What an item waits for: the last of so many to come. */
struct gemmar_sim_wait {
    uint32_t missing;
    uint32_t waiter; /* cluster + 1; 0: none waits */
    double last;
};

struct gemmar_sim_rank {
    uint32_t count;    /* own chunks */
    uint32_t reduces;  /* of them, or in two-shot of the node's part */
    double nvlink_out; /* until when that direction is taken */
    double nvlink_in, nic_out, nic_in;
    double nvlink_bytes;
    uint64_t wire_bytes;
    struct gemmar_sim_cluster *clusters;
    uint32_t *place;               /* [count]: of each own slot in the own walk */
    uint32_t *sums;                /* [count]: done of the message that begins at this place */
    uint32_t *reducer;             /* [count]: two-shot: the node that reduces an own chunk */
    struct gemmar_sim_wait *parts; /* [count]: parts of the local ranks */
    double *part_at;               /* [count * locals]: when each was there */
    struct gemmar_sim_wait *inter; /* [count]: what comes from other nodes */
};

struct gemmar_sim_node {
    const struct gemmar_sim_machine *machine;
    struct gemmar_plan plan;
    struct gemmar_sim_events events;
    struct gemmar_sim_rank *ranks;
    struct gemmar_sim_result *result;
    uint32_t node, clusters;
    bool two_shot;
    bool exchange;     /* of two ranks: what is of own chunks below is of all */
    double product_us; /* of a tile */
    double link_rate;  /* NVLink, bytes a microsecond, with stores of this tile */
    double tile_bytes;
    double published; /* when the last result was there */
    uint64_t open;    /* items that have not been delivered */
    int rc;           /* of the event queue */
};

/* The list of rank g's cluster, and the lists of the other nodes (simulate_order.c). */
uint32_t gemmar_sim_items(const struct gemmar_sim_node *s, uint32_t g, uint32_t cluster);
struct gemmar_sim_item gemmar_sim_item_at(const struct gemmar_sim_node *s, uint32_t g,
                                          uint32_t cluster, uint32_t i);
/* Slot of the i-th own chunk of (node, g)'s walk; of its i-th reduction. */
uint32_t gemmar_sim_own_slot(const struct gemmar_sim_node *s, uint32_t node, uint32_t g,
                             uint32_t i);
uint32_t gemmar_sim_reduce_slot(const struct gemmar_sim_node *s, uint32_t node, uint32_t g,
                                uint32_t i);
uint32_t gemmar_sim_reduces(const struct gemmar_sim_node *s, uint32_t node, uint32_t g);

/* The NIC (simulate_wire.c): a node sum, or a result, leaves at `now`. */
void gemmar_sim_send_sum(struct gemmar_sim_node *s, uint32_t g, uint32_t place, double now);
void gemmar_sim_send_result(struct gemmar_sim_node *s, uint32_t g, uint32_t which, double now);

/* What rank g's inter item of `slot` waits for is there at `at` (simulate_node.c). */
void gemmar_sim_arrive(struct gemmar_sim_node *s, uint32_t g, uint32_t slot, double at);
void gemmar_sim_put(struct gemmar_sim_node *s, double at, enum gemmar_sim_kind kind, uint32_t g,
                    uint32_t index);

#endif
