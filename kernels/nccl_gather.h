// SPDX-License-Identifier: Apache-2.0
// The all-gather of gemmarHostBootstrap_t over an NCCL communicator: bytes of the host go through
// pinned and device memory in pieces.
#ifndef GEMMAR_KERNELS_NCCL_GATHER_H
#define GEMMAR_KERNELS_NCCL_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/nccl_api.h"
#include "transport/log.h"

struct gemmar_gather {
    const struct gemmar_nccl_api *api;
    const struct gemmar_logger *log;
    ncclComm_t nccl; /* may be replaced between two steps by one of the same ranks */
    int ranks;
    int device;
    uint64_t timeout_ns; /* of one step */
    size_t piece;        /* bytes of a rank that travel at a time */
    cudaStream_t stream;
    char *host;          /* pinned: mine [piece], all [ranks][piece] */
    char *device_memory; /* the same */
    bool stuck; /* a step did not end: NCCL's kernel may run for ever, nothing can be freed */
};

/* `out` has api, log, nccl, ranks, device and timeout_ns set; the rest is zeroed. */
gemmarResult_t gemmar_gather_open(struct gemmar_gather *out, struct gemmar_error *error);
void gemmar_gather_close(struct gemmar_gather *gather);

/* gemmarHostBootstrap_t.allGather; context: struct gemmar_gather. 0 or a negative errno, logged. */
int gemmar_gather_all(void *context, const void *mine, void *all, size_t bytes);

/* Wait until `stream` is empty, at most timeout_ns (0: for ever), without keeping a CPU busy.
 * cudaErrorNotReady: it is not. */
cudaError_t gemmar_gpu_wait_stream(cudaStream_t stream, uint64_t timeout_ns);

/* Make `device` current; what was, for the way back. Both are cheap when nothing changes. */
int gemmar_gpu_enter(int device);
void gemmar_gpu_leave(int device, int before);

#endif
