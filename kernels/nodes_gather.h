// SPDX-License-Identifier: Apache-2.0
// The all-gather of gemmarHostBootstrap_t between the ranks of several nodes, for communicators of
// GPUs: a ring of TCP connections through the nodes, one for each local rank, then the segments of
// the node.
//
// Like the one of a node (kernels/local_gather.h) it keeps no GPU busy while a rank waits, and it
// ends when a peer does: a rank that leaves closes its connections, and so do its neighbours.
#ifndef GEMMAR_KERNELS_NODES_GATHER_H
#define GEMMAR_KERNELS_NODES_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include <gemmar/gemmar.h>

#include "kernels/call.h"
#include "kernels/error.h"
#include "kernels/local_gather.h"
#include "transport/log.h"

struct gemmar_nodes_gather {
    /* Set by the user; the pointers outlive the gather. */
    struct gemmar_local_gather *local; /* of this node, and the time-out of a step */
    const struct gemmar_place *place;
    const uint32_t *rank_of; /* [nodes * locals] */
    const struct gemmar_logger *log;

    int next, previous; /* to my local rank of the nodes behind and before mine; -1: none */
};

/* Collective over `bootstrap`, an all-gather of all ranks that is not used afterwards: tell each
 * other the addresses, connect. Two nodes and more. To be closed whatever comes of it. */
gemmarResult_t gemmar_nodes_gather_open(struct gemmar_nodes_gather *gather,
                                        const gemmarHostBootstrap_t *bootstrap,
                                        struct gemmar_error *error);

/* End the connections, so that the other ranks hear of it: this rank broke, or a gather failed. For
 * good. Any thread. */
void gemmar_nodes_gather_leave(struct gemmar_nodes_gather *gather);

/* A neighbour in the ring that has left, or whose process ended; UINT32_MAX: none. Any thread. */
uint32_t gemmar_nodes_gather_left(const struct gemmar_nodes_gather *gather);

/* Never waits for a peer. A gather that was not opened, with -1 for its connections, is legal. */
void gemmar_nodes_gather_close(struct gemmar_nodes_gather *gather);

/* gemmarHostBootstrap_t.allGather; context: struct gemmar_nodes_gather. -ETIMEDOUT, -ECONNRESET (a
 * peer left or broke), -EHOSTDOWN (the process of a local peer ended); for good: neighbours and
 * local peers hear of it. Logged. */
int gemmar_nodes_gather_all(void *context, const void *mine, void *all, size_t bytes);

#endif
