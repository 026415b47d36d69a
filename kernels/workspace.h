// SPDX-License-Identifier: Apache-2.0
// A workspace generation: the memory of a node's ranks, this rank's channel, words and stamps.
//
// Growth opens a new generation, collectively and host-synchronously, by the code path that opens
// the first one. A generation that cannot be opened on one rank is closed again on all of them.
#ifndef GEMMAR_KERNELS_WORKSPACE_H
#define GEMMAR_KERNELS_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/communicator.h"
#include "kernels/layout.h"

struct gemmar_workspace {
    struct gemmar_layout layout;
    /* [locals] every local rank's memory of this generation, as this rank's executor maps it */
    char *bases[GEMMAR_MAX_LOCAL_RANKS];
    struct gemmar_words *words;      /* in mine; on a GPU the host may not look */
    struct gemmar_local_peers peers; /* CPU: whose segments the memory is */
    void *memory;                    /* GPU: mine, as it was allocated */
    void *window;                    /* GPU: NCCL's window over it */
    struct gemmar_workspace *older;  /* that was replaced by this one and may be in use */

    /* Two nodes and more. Where the executor's memory is not the host's, `ring` and `views` are as
     * the executor sees them. */
    struct gemmar_channel *channel;
    struct gemmar_fifo_ring ring;
    void *ring_memory; /* the ring's as the host has it, while it is mapped for the executor */
    void *stamps;      /* imm mode of a GPU: stamps in memory of the host's */
    bool stamps_mapped;
    void **views; /* [4][routes]: recv and arrival of parity 0, then of parity 1 */
};

/* The capacity of the first generation: small shapes run without growth. */
gemmarResult_t gemmar_workspace_first(const struct gemmar_settings *settings, uint32_t nodes,
                                      uint32_t locals, struct gemmar_capacity *out,
                                      struct gemmar_error *error);

/* Collective. Opens a generation of this capacity, whose first epoch is `epoch`; `old` (may be
 * NULL) has been drained on all ranks when this succeeds, and is the caller's to close. */
gemmarResult_t gemmar_workspace_open(struct gemmarComm *comm,
                                     const struct gemmar_capacity *capacity, uint64_t epoch,
                                     struct gemmar_workspace *old, struct gemmar_workspace **out,
                                     struct gemmar_error *error);

/* With all older ones. Never waits for a peer. NULL is legal. False: a call may still use them, and
 * they stay, the transport and the communicator that they belong to, too. */
bool gemmar_workspace_close(struct gemmarComm *comm, struct gemmar_workspace *workspace);

/* Collective. Make the communicator's workspace hold `need`. */
gemmarResult_t gemmar_workspace_grow(struct gemmarComm *comm, const struct gemmar_capacity *need,
                                     struct gemmar_error *error);

/* Wait until every command is retired, also of older generations; what the transport said if it
 * fails. */
gemmarResult_t gemmar_workspace_drain(struct gemmarComm *comm, struct gemmar_workspace *workspace,
                                      struct gemmar_error *error);

/* The first error of the transport in this generation or an older one; code 0: none. */
void gemmar_workspace_error(const struct gemmarComm *comm, const struct gemmar_workspace *workspace,
                            struct gemmar_transport_error *out);

/* The workspace's part of a call: local views, network view, words. */
void gemmar_workspace_fill(const struct gemmarComm *comm, const struct gemmar_workspace *workspace,
                           struct gemmar_call *call);

/* The channel's side of opening, in kernels/network.c: none of them waits for a peer. `blobs` is
 * [nodes - 1] for the peers, and for connecting [ranks][nodes - 1]. */
int gemmar_network_open(struct gemmarComm *comm, struct gemmar_workspace *workspace,
                        uint64_t epoch);
int gemmar_network_blobs(struct gemmarComm *comm, struct gemmar_workspace *workspace, char *blobs);
int gemmar_network_connect(struct gemmarComm *comm, struct gemmar_workspace *workspace,
                           const char *blobs);
void gemmar_network_close(struct gemmarComm *comm, struct gemmar_workspace *workspace);

/* Index of peer node `node` among the channel's peers, and back. */
uint32_t gemmar_network_peer(const struct gemmarComm *comm, uint32_t node);

#endif
