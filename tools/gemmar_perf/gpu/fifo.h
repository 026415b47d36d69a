// SPDX-License-Identifier: Apache-2.0
// The kernels of --fifo --device cuda, and what they share with the host.
#ifndef GEMMAR_PERF_GPU_FIFO_H
#define GEMMAR_PERF_GPU_FIFO_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <gemmar/fifo.h>

#define GEMMAR_PERF_FIFO_TRIES 1000u

/* What one thread of GPU 0 does, over and over, from one look at its clock to the next. */
enum gemmar_perf_fifo_way {
    GEMMAR_PERF_FIFO_HOST,   /* write a word of the host and wait for its echo */
    GEMMAR_PERF_FIFO_PEER,   /* the same with a word of the other GPU */
    GEMMAR_PERF_FIFO_POSTED, /* push a command and wait until it is posted */
    GEMMAR_PERF_FIFO_STAMP,  /* push a command and wait for word of its stamp at the other GPU */
};

struct gemmar_perf_fifo_task {
    enum gemmar_perf_fifo_way way;
    uint32_t bytes;               /* of the message */
    uint64_t first;               /* position of the first command, its epoch less 1 */
    uint64_t deadline_ns;         /* for all of it */
    struct gemmar_fifo_ring ring; /* as the GPU sees it */
    uint64_t *ping;               /* host memory. Writer: GPU 0; reader: host */
    uint64_t *pong;               /* host memory. Writer: host; reader: GPU 0 */
    uint64_t *posted;             /* host memory. Writer: proxy; reader: GPU 0 */
    uint64_t *stamp;              /* of the other GPU. Writer: GPU 0 or the NIC */
    uint64_t *seen;               /* of GPU 0. Writer: the other GPU */
    uint64_t *cycles;             /* [GEMMAR_PERF_FIFO_TRIES], host memory */
    /* Host memory: tries that came to their end, and how long all took by both clocks. */
    uint64_t *done, *all_cycles, *all_ns;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Load the kernels of this GPU now: behind one that waits it can block for ever. */
cudaError_t gemmar_perf_gpu_fifo_load(void);
/* On GPU 0, one thread. */
cudaError_t gemmar_perf_gpu_fifo_push(const struct gemmar_perf_fifo_task *task,
                                      cudaStream_t stream);
/* On the other GPU, one thread: what comes into `stamp` goes to `seen`, until it is UINT64_MAX. */
cudaError_t gemmar_perf_gpu_fifo_watch(uint64_t *stamp, uint64_t *seen, uint64_t deadline_ns,
                                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
