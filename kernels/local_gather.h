// SPDX-License-Identifier: Apache-2.0
// The all-gather of gemmarHostBootstrap_t between the ranks of one node, through their segments.
//
// A rank of a GPU communicator that waits in it keeps no GPU busy, so that another thread of the
// process may meanwhile allocate and free, which can wait for all GPUs; and it notices a peer that
// broke or ended.
#ifndef GEMMAR_KERNELS_LOCAL_GATHER_H
#define GEMMAR_KERNELS_LOCAL_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/local_peers.h"

#define GEMMAR_GATHER_PIECE 8192u

/* A rank's part of it, zeroed, at the same offset of every segment. */
struct gemmar_gather_area {
    /* Pieces written so far. Writer: the rank (release), after the piece. Reader: the others
     * (acquire). Shared memory. */
    uint64_t written;
    char pad[56];
    /* Piece i in [i & 1]: overwritten by piece i + 2, which its rank writes once all others have
     * written i + 1, and so have read i. */
    char piece[2][GEMMAR_GATHER_PIECE];
};

struct gemmar_local_gather {
    const struct gemmar_local_peers *peers;
    uint64_t offset; /* of the area in a segment */
    uint32_t local, locals;
    uint64_t timeout_ns; /* of one piece */
    uint64_t pieces;     /* so far */
};

/* gemmarHostBootstrap_t.allGather of ranks whose number is their local rank; context: struct
 * gemmar_local_gather. -ETIMEDOUT, -ECONNRESET (a peer broke), -EHOSTDOWN (its process ended). */
int gemmar_local_gather_all(void *context, const void *mine, void *all, size_t bytes);

/* Wait until all ranks are here. */
int gemmar_local_gather_barrier(struct gemmar_local_gather *gather);

#endif
