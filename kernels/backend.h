// SPDX-License-Identifier: Apache-2.0
// What a communicator does in another way on the CPU than on a GPU.
//
// CPU: kernels/backend_cpu.c. GPU: kernels/comm_gpu.c. The rest of a communicator (agreement, plan,
// growth, errors) is the same code for both. Functions return with the sentence in `error`.
#ifndef GEMMAR_KERNELS_BACKEND_H
#define GEMMAR_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/communicator.h"
#include "kernels/told.h"
#include "kernels/workspace.h"

struct gemmar_backend {
    const char *local_path; /* how local ranks reach each other, for messages */
    /* Calls return before they end: their errors are found later, and a workspace that was replaced
     * lives as long as the communicator. */
    bool asynchronous;

    /* Creation. `begin` is local; `attach` is collective, after place and rank_of are known. */
    void (*begin)(struct gemmarComm *comm, struct gemmar_error *error);
    gemmarResult_t (*attach)(struct gemmarComm *comm, struct gemmar_error *error);
    /* After the workspaces were closed; never waits for a peer. */
    void (*release)(struct gemmarComm *comm);

    /* Collective: w->bases of a generation with zeroed words and stamps, and w->words, whose epoch
     * is `epoch`. Closing never waits for a peer; a half-opened generation is legal. */
    gemmarResult_t (*open_memory)(struct gemmarComm *comm, struct gemmar_workspace *w,
                                  uint64_t epoch, struct gemmar_error *error);
    void (*close_memory)(struct gemmarComm *comm, struct gemmar_workspace *w);
    /* Before anything of a generation is closed: false when a call may run for ever and use it,
     * which then stays. */
    bool (*quiet)(struct gemmarComm *comm);

    /* Two nodes and more: where an executor has memory of its own. All of them NULL: the
     * executor's memory is the host's. Those that return an int log what a negative errno means. */
    /* The generation's memory as the NIC reaches it; its dma-buf is the caller's to close. */
    int (*net_memory)(struct gemmarComm *comm, struct gemmar_workspace *w,
                      struct gemmar_memory *out);
    /* Whole pages of the host's memory, as the executor sees them until they are unmapped. */
    int (*map)(struct gemmarComm *comm, void *host, uint64_t bytes, void **out_seen);
    void (*unmap)(struct gemmarComm *comm, void *host);
    /* A copy of a table of the host's in the executor's memory. */
    int (*upload)(struct gemmarComm *comm, const void *table, uint64_t bytes, void **out_seen);
    void (*discard)(struct gemmarComm *comm, void *seen);
    /* A rank of another node that broke or ended, UINT32_MAX: none is known; and this one broke:
     * let them know. Any thread. */
    uint32_t (*left)(struct gemmarComm *comm);
    void (*leave)(struct gemmarComm *comm);
    /* Commands pushed into the ring of a generation so far, after `settle`. */
    int (*pushed)(struct gemmarComm *comm, const struct gemmar_workspace *w, uint64_t *out);

    /* A call's arguments, beyond gemmar_arguments_check. Local. */
    gemmarResult_t (*check)(struct gemmarComm *comm, const gemmarFusedArgs_t *args,
                            gemmarStream_t stream, struct gemmar_error *error);
    /* Is `stream`, which `check` found good, in stream capture? Then a call may not wait. */
    bool (*capturing)(struct gemmarComm *comm, gemmarStream_t stream);
    gemmarResult_t (*run)(struct gemmarComm *comm, const struct gemmar_plan *plan,
                          const struct gemmar_operands *operands, gemmarStream_t stream);

    /* Wait, at most the timeout, until the calls made so far have ended. */
    gemmarResult_t (*settle)(struct gemmarComm *comm, struct gemmar_error *error);
    /* A number that is equal on ranks that made the same calls outside capture. */
    uint64_t (*history)(struct gemmarComm *comm);
    /* Epoch of the next call, after `settle`. */
    uint64_t (*epoch)(struct gemmarComm *comm);
};

extern const struct gemmar_backend gemmar_backend_cpu;

/* Collective creation for any backend. `gpu` (may be NULL) is taken over, and set to NULL, as soon
 * as there is a communicator to release it with. */
gemmarResult_t gemmar_comm_create(const struct gemmar_backend *backend, struct gemmar_gpu **gpu,
                                  const gemmarHostBootstrap_t *bootstrap,
                                  const gemmarConfig_t *config, struct gemmarComm **out,
                                  struct gemmar_error *error);

/* The members of a call that do not depend on the backend: all but the local plan. */
void gemmar_launch_fill(struct gemmarComm *comm, const struct gemmar_plan *plan,
                        const struct gemmar_operands *operands, struct gemmar_call *call);

/* The same for the tensor-core kernel, of which `most_ctas` CTAs fit: all but the targets, `copies`
 * and where the GPU sees what it shares with the host. `c`: where C lies for the peers. */
void gemmar_launch_fill_tensor(struct gemmarComm *comm, const struct gemmar_plan *plan,
                               const struct gemmar_operands *operands, uint32_t most_ctas,
                               const struct gemmar_told_c *c, struct gemmar_call *call);

#endif
