// SPDX-License-Identifier: Apache-2.0
// A context of the program as the two halves of the CUDA code see it: cuda.c finds memory and
// copies at once, cuda_batch.c has copies that go on after the call.
#ifndef GEMMAR_SOFTHCA_CUDA_GPU_H
#define GEMMAR_SOFTHCA_CUDA_GPU_H

#include "tools/softhca/cuda.h"
#include "tools/softhca/cuda_driver.h"

#define SOFTHCA_CUDA_BATCH  32u // copies that one call of the driver starts, 1.5 us for each
#define SOFTHCA_CUDA_WORDS  64u // words that one call writes
#define SOFTHCA_CUDA_RING   (4ull << 20) // bytes of staged data under way
#define SOFTHCA_CUDA_BOUNCE (1ull << 20) // bytes of a copy within the GPU that lie in host memory

struct softhca_gpu {
    const struct softhca_cuda_driver *cu;
    void *context;
    uint64_t device; // as in softhca_export
    void *stream;    // our own, so that it waits for no work of the program
    uint8_t *stage;  // SOFTHCA_CUDA_BYTES, pinned; progress thread
    struct softhca_gpu *next;
    // Copies that go on (cuda_batch.c); under hca.lock, as all below
    void *pulls;                      // another stream
    void *events[SOFTHCA_CUDA_MARKS]; // behind batch n at n % SOFTHCA_CUDA_MARKS, and so on
    uint64_t ring_at[SOFTHCA_CUDA_MARKS];
    uint8_t failed[SOFTHCA_CUDA_MARKS]; // it could not be started
    uint64_t batch;                     // number of the open batch, from 1
    uint64_t to[SOFTHCA_CUDA_BATCH], from[SOFTHCA_CUDA_BATCH];
    size_t len[SOFTHCA_CUDA_BATCH];
    struct softhca_cuda_kin kin[SOFTHCA_CUDA_BATCH];
    uint32_t count, staged;       // copies in the open batch, and those from the ring
    uint64_t bytes;               // of all copies in the open batch
    uint64_t due_ns;              // the earliest time at which one of them must have ended
    int overlap;                  // ask for a copy engine
    int busy;                     // the streams were not waited for since the last work
    uint8_t *ring;                // SOFTHCA_CUDA_RING, pinned
    uint8_t *bounce;              // SOFTHCA_CUDA_BOUNCE, pinned; used in the order of the stream
    uint64_t ring_pos, ring_free; // bytes ever taken, and ever given back
    // Words, and what has ended (cuda_words.c)
    void *words; // a stream
    struct softhca_cuda_word word[SOFTHCA_CUDA_WORDS + 1];
    uint64_t after[SOFTHCA_CUDA_WORDS + 1]; // the batch that a word waits for
    uint32_t word_count;
    uint64_t flush;              // number of the open group of words, from 1
    uint64_t need;               // newest batch that a followed message has copies in
    uint64_t wanted;             // newest flush that a followed message is in
    uint64_t waited;             // newest batch that the stream of words waits for
    uint64_t asked, asked_batch; // what the newest word to `done` tells about
    uint64_t asked_ns;
    uint64_t *done;       // pinned. Writer: GPU; reader: us, acquire
    uint64_t told, ended; // newest flush and newest batch that are known to have ended
    int lost;             // the device reports an error
    // Where words lie that wait to be written or are under way: bulk copies stay away
    uint64_t first_word, end_word;
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
// Wait for a stream; 0 or -EIO, logged. In the context.
int softhca_cuda_wait(struct softhca_gpu *gpu, void *stream);
// The newest of the list, which only grows.
struct softhca_gpu *softhca_cuda_gpus(void);

#endif
