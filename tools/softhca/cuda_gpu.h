// SPDX-License-Identifier: Apache-2.0
// A context of the program as the two halves of the CUDA code see it: cuda.c finds memory and
// copies at once, cuda_batch.c has copies that go on after the call.
#ifndef GEMMAR_SOFTHCA_CUDA_GPU_H
#define GEMMAR_SOFTHCA_CUDA_GPU_H

#include "tools/softhca/cuda.h"
#include "tools/softhca/cuda_driver.h"

#define SOFTHCA_CUDA_BATCH 64u          // copies that one call of the driver starts
#define SOFTHCA_CUDA_RING  (4ull << 20) // bytes of staged data under way

struct softhca_cuda_mark {
    int state;         // 0: its batch is open, 1: started, 2: ended, or a negative errno
    uint64_t ring_pos; // what of the ring is free when it has ended
};

struct softhca_gpu {
    const struct softhca_cuda_driver *cu;
    void *context;
    void *stream;   // our own, so that it waits for no work of the program
    uint8_t *stage; // SOFTHCA_CUDA_BYTES, pinned; progress thread
    struct softhca_gpu *next;
    // Of copies that go on; under hca.lock
    void *pulls;                      // another stream
    void *events[SOFTHCA_CUDA_MARKS]; // in it
    struct softhca_cuda_mark marks[SOFTHCA_CUDA_MARKS];
    uint64_t mark;  // number of the next one
    uint64_t batch; // number of the open batch, from 1
    uint64_t to[SOFTHCA_CUDA_BATCH], from[SOFTHCA_CUDA_BATCH];
    size_t len[SOFTHCA_CUDA_BATCH];
    uint32_t count, staged;       // copies in the open batch, and those from the ring
    int overlap;                  // ask for a copy engine
    int is_marked;                // the open batch has mark number mark - 1
    int busy;                     // the stream was not waited for since the last copy
    int failed;                   // a copy that no mark has told of
    uint8_t *ring;                // SOFTHCA_CUDA_RING, pinned
    uint64_t ring_pos, ring_free; // bytes ever taken, and ever given back
};

// Make the context current in this thread; 0 or -EIO, logged.
int softhca_cuda_enter(const struct softhca_gpu *gpu);
void softhca_cuda_leave(const struct softhca_gpu *gpu);
// Logs a driver's error; returns -EIO.
int softhca_cuda_fail(const struct softhca_cuda_driver *cu, const char *what, int error);
// In the context (cuda_vmm.c): a descriptor of the allocation at addr, or -1; map one, 0 when that
// is impossible; and undo it.
int softhca_cuda_describe(const struct softhca_gpu *gpu, const void *addr);
uint64_t softhca_cuda_map(const struct softhca_gpu *gpu, int fd, uint64_t bytes);
void softhca_cuda_unmap(const struct softhca_gpu *gpu, uint64_t addr, uint64_t bytes);
// The newest of the list, which only grows.
struct softhca_gpu *softhca_cuda_gpus(void);

#endif
