// SPDX-License-Identifier: Apache-2.0
// What the ranks of a node tell each other beside the protocol: one shared-memory segment per rank,
// whose first page is its struct gemmar_control.
#ifndef GEMMAR_KERNELS_LOCAL_PEERS_H
#define GEMMAR_KERNELS_LOCAL_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include <gemmar/gemmar.h>

#include "kernels/call.h"
#include "kernels/error.h"
#include "kernels/fabric_shm.h"

struct gemmar_local_peers {
    struct gemmar_segment segments[GEMMAR_MAX_LOCAL_RANKS]; /* [locals]; mine is [local] */
    struct gemmar_control *controls[GEMMAR_MAX_LOCAL_RANKS];
    bool visible[GEMMAR_MAX_LOCAL_RANKS]; /* the peer's process can be looked at */
    /* Abort words of the local ranks, mine too: set for peers that cannot look at `controls` while
     * they wait. NULL: they look. */
    uint64_t *abort[GEMMAR_MAX_LOCAL_RANKS];
};

/* Collective: a zeroed segment of `bytes` bytes for every local rank, mapped by all of them. What
 * was opened before a failure is closed by gemmar_local_peers_close. */
gemmarResult_t gemmar_local_peers_open(struct gemmarComm *comm, uint64_t bytes,
                                       struct gemmar_local_peers *out, struct gemmar_error *error);

/* Never waits for a peer. Zeroed storage is legal. */
void gemmar_local_peers_close(struct gemmar_local_peers *peers);

#endif
