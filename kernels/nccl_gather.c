// SPDX-License-Identifier: Apache-2.0
// The bootstrap's all-gather over NCCL.
#include "kernels/nccl_gather.h"

#include <errno.h>
#include <string.h>

#include "transport/wait.h"

#define PIECE_BYTES 65536u
#define ALL_BYTES   (UINT64_C(4) << 20) /* with many ranks the pieces are smaller */
#define LEAST_BYTES 1024u
#define LOOK_TURNS  256 /* turns of a wait between two looks at NCCL's own errors */

int gemmar_gpu_enter(int device)
{
    int before = device;

    if (cudaGetDevice(&before) == cudaSuccess && before != device) {
        (void)cudaSetDevice(device); /* what follows fails, if this does */
    }
    return before;
}

void gemmar_gpu_leave(int device, int before)
{
    if (before != device) {
        (void)cudaSetDevice(before); /* it was current: cannot fail */
    }
}

cudaError_t gemmar_gpu_wait_stream(cudaStream_t stream, uint64_t timeout_ns)
{
    struct gemmar_wait wait;
    cudaError_t rc;

    gemmar_wait_init(&wait, timeout_ns);
    do {
        rc = cudaStreamQuery(stream);
    } while (rc == cudaErrorNotReady && gemmar_wait_step(&wait));
    return rc;
}

gemmarResult_t gemmar_gather_open(struct gemmar_gather *g, struct gemmar_error *error)
{
    size_t share = (size_t)(ALL_BYTES / (uint64_t)g->ranks) / LEAST_BYTES * LEAST_BYTES, bytes;
    int before = gemmar_gpu_enter(g->device);
    cudaError_t rc;

    g->piece = share > PIECE_BYTES ? PIECE_BYTES : share < LEAST_BYTES ? LEAST_BYTES : share;
    bytes = ((size_t)g->ranks + 1) * g->piece;
    rc = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess) {
        rc = cudaHostAlloc((void **)&g->host, bytes, cudaHostAllocDefault);
    }
    if (rc == cudaSuccess) {
        rc = cudaMalloc((void **)&g->device_memory, bytes);
    }
    gemmar_gpu_leave(g->device, before);
    return rc == cudaSuccess ? gemmarSuccess
                             : gemmar_error_set(error, gemmarUnhandledCudaError,
                                                "staging of %zu bytes for the bootstrap: %s", bytes,
                                                cudaGetErrorString(rc));
}

void gemmar_gather_close(struct gemmar_gather *g)
{
    int before;

    /* Freeing would wait for NCCL's kernel; and what was never opened touches no GPU. */
    if (g->stuck || g->stream == NULL) {
        return;
    }
    before = gemmar_gpu_enter(g->device);
    (void)cudaFree(g->device_memory); /* NULL is legal, and nothing uses them any more */
    (void)cudaFreeHost(g->host);
    (void)cudaStreamDestroy(g->stream);
    gemmar_gpu_leave(g->device, before);
    g->device_memory = NULL;
    g->host = NULL;
    g->stream = NULL;
}

/* Until the piece has come, NCCL has an error, or the time is over. */
static int wait_for_piece(struct gemmar_gather *g)
{
    struct gemmar_wait wait;
    cudaError_t rc = cudaStreamQuery(g->stream);

    gemmar_wait_init(&wait, g->timeout_ns);
    for (int turn = 1; rc == cudaErrorNotReady; turn++) {
        ncclResult_t state = ncclSuccess;

        if (!gemmar_wait_step(&wait)) {
            gemmar_warn(g->log, "nccl_gather: no answer of the other ranks in %.3f s",
                        (double)g->timeout_ns * 1e-9);
            g->stuck = true;
            return -ETIMEDOUT;
        }
        if (turn % LOOK_TURNS == 0 && (g->api->async_error(g->nccl, &state) != ncclSuccess ||
                                       (state != ncclSuccess && state != ncclInProgress))) {
            gemmar_warn(g->log, "nccl_gather: NCCL says %s", g->api->error_string(state));
            g->stuck = true;
            return -EIO;
        }
        rc = cudaStreamQuery(g->stream);
    }
    if (rc != cudaSuccess) {
        gemmar_warn(g->log, "nccl_gather: %s", cudaGetErrorString(rc));
        return -EIO;
    }
    return 0;
}

static int gather_piece(struct gemmar_gather *g, size_t bytes)
{
    cudaError_t rc =
        cudaMemcpyAsync(g->device_memory, g->host, bytes, cudaMemcpyHostToDevice, g->stream);
    ncclResult_t nccl = ncclSuccess;

    if (rc == cudaSuccess) {
        nccl = g->api->all_gather(g->device_memory, g->device_memory + g->piece, bytes, ncclUint8,
                                  g->nccl, g->stream);
    }
    if (rc == cudaSuccess && nccl == ncclSuccess) {
        rc = cudaMemcpyAsync(g->host + g->piece, g->device_memory + g->piece,
                             (size_t)g->ranks * bytes, cudaMemcpyDeviceToHost, g->stream);
    }
    if (nccl != ncclSuccess) {
        gemmar_warn(g->log, "nccl_gather: NCCL says %s: %s", g->api->error_string(nccl),
                    nccl == ncclInProgress ? "the communicator must be a blocking one"
                                           : g->api->last_error(g->nccl));
        g->stuck = nccl == ncclInProgress;
        return -EIO;
    }
    if (rc != cudaSuccess) {
        gemmar_warn(g->log, "nccl_gather: %s", cudaGetErrorString(rc));
        return -EIO;
    }
    return wait_for_piece(g);
}

int gemmar_gather_all(void *context, const void *mine, void *all, size_t bytes)
{
    struct gemmar_gather *g = context;
    int rc = g->stuck ? -EIO : 0, before = gemmar_gpu_enter(g->device);

    for (size_t at = 0; rc == 0 && at < bytes; at += g->piece) {
        size_t n = bytes - at < g->piece ? bytes - at : g->piece;

        memcpy(g->host, (const char *)mine + at, n);
        rc = gather_piece(g, n);
        for (int r = 0; rc == 0 && r < g->ranks; r++) {
            memcpy((char *)all + (size_t)r * bytes + at, g->host + g->piece + (size_t)r * n, n);
        }
    }
    gemmar_gpu_leave(g->device, before);
    return rc;
}
