// SPDX-License-Identifier: Apache-2.0
// CUDA memory behind registrations: found by the driver, copied by its copy engines. Uses the
// driver that the program has loaded itself; without one every address is host memory.
#ifndef GEMMAR_SOFTHCA_CUDA_H
#define GEMMAR_SOFTHCA_CUDA_H

#include <stddef.h>
#include <stdint.h>

// One context of the program: stream and staging memory are made when its first region is
// registered, because making them behind a kernel that waits for data can block for ever.
struct softhca_gpu;
struct softhca_mr;
struct softhca_export;

// Where a region's bytes are: host memory when gpu is NULL.
struct softhca_place {
    uint8_t *at;
    struct softhca_gpu *gpu;
    const struct softhca_mr *mr;
};

// Any thread. 1 and *out_gpu when all of [addr, addr + len) is CUDA device memory, 0 when it starts
// in host memory, or a negative errno, logged.
int softhca_cuda_find(const void *addr, size_t len, struct softhca_gpu **out_gpu);

// Progress thread only. len is at most SOFTHCA_CUDA_BYTES. They return when the bytes are there;
// what was written before is then visible to kernels before what is written later. 0 or -EIO,
// logged.
#define SOFTHCA_CUDA_BYTES 65536u
int softhca_cuda_write(struct softhca_gpu *gpu, void *to, const void *from, uint64_t len);
int softhca_cuda_read(struct softhca_gpu *gpu, void *to, const void *from, uint64_t len);

// Any thread. The allocation that holds addr: kind, base and bytes, and a number that no other
// allocation of this process has at the time; the handle, or *out_fd for one that is shown by a
// descriptor (else -1). -EIO when its kind of memory cannot be exported.
int softhca_cuda_export(struct softhca_gpu *gpu, const void *addr, struct softhca_export *out,
                        uint64_t *out_id, int *out_fd);
// Any thread, but not the progress thread: both may wait for kernels. Map another process's
// allocation (by fd when it is shown so) into the context of this process's first region; 0 when
// that is impossible.
uint64_t softhca_cuda_import(const struct softhca_export *x, int fd);
void softhca_cuda_drop(uint64_t addr, uint64_t bytes, uint32_t kind);

// Any thread: has device memory been registered?
int softhca_cuda_any(void);

// Progress thread, once: contexts may stay current in it.
void softhca_cuda_stay(void);

// Under hca.lock. Copies to device memory that go on after the call. They are collected in a batch,
// in no order among themselves; batches of a GPU end in order. Nothing happens before start, which
// begins the next batch and its number. stage takes host bytes, at most SOFTHCA_CUDA_BYTES, to be
// pulled from *out_at in the open batch. pull merges what lies side by side in memory of one kin,
// and keeps copies to the same bytes in order; the copy must have ended at due_ns (0: as soon as it
// can); *out_batch is where it is. 0 or -EIO, logged.
#define SOFTHCA_CUDA_MARKS                                                                         \
    512u                  // no more messages may be followed, or batches asked about, at a time
struct softhca_cuda_kin { // copies of one kin lie in the same two allocations
    const void *to;
    uint64_t from;   // UINT64_MAX: never the same
    uint64_t device; // that `from` is on, as in softhca_export; or SOFTHCA_CUDA_HOST
};
#define SOFTHCA_CUDA_HOST 0u
int softhca_cuda_stage(struct softhca_gpu *gpu, const void *from, uint64_t len, uint64_t *out_at);
int softhca_cuda_pull(struct softhca_gpu *gpu, void *to, uint64_t from, uint64_t len,
                      struct softhca_cuda_kin kin, int overlap, uint64_t due_ns,
                      uint64_t *out_batch);
void softhca_cuda_start(struct softhca_gpu *gpu);
// Start batches that are full or hold a copy that must have ended within copy_ns, which is what
// starting and doing a batch takes. Returns when the next one must start, UINT64_MAX: there is
// none.
uint64_t softhca_cuda_start_due(uint64_t now_ns, uint64_t copy_ns);
uint64_t softhca_cuda_batch(const struct softhca_gpu *gpu); // the open one
int softhca_cuda_is_full(const struct softhca_gpu *gpu);    // one more copy would start the batch

// Under hca.lock. Words of 4 or 8 bytes to aligned device memory, in order among themselves, each
// after the batches up to `after`: they need neither a copy engine nor a kernel. Nothing happens
// before flush: 0 for those that wait for no batch that is still open, 1 for all.
void softhca_cuda_word(struct softhca_gpu *gpu, void *to, uint64_t value, uint32_t len,
                       uint64_t after);
void softhca_cuda_flush_all(int all);
// Words that are yet to be written or may not have been: note that one comes, ask whether one is
// near these bytes, and forget them when all have been written.
void softhca_cuda_word_comes(struct softhca_gpu *gpu, const void *at, uint32_t len);
int softhca_cuda_word_near(const struct softhca_gpu *gpu, const void *at, uint64_t len);
void softhca_cuda_no_words(void);
// The number to ask `passed` with about a message that has copies in batches up to last (0: none),
// or a word.
uint64_t softhca_cuda_follow(struct softhca_gpu *gpu, uint64_t last, int has_word);
// Have that message's copies, in batches first to last, and words ended? 1, 0 not yet, or -EIO.
int softhca_cuda_passed(struct softhca_gpu *gpu, uint64_t number, uint64_t first, uint64_t last);
int softhca_cuda_drain(struct softhca_gpu *gpu); // starts and waits for all of them
void softhca_cuda_drain_all(void);
// Progress thread only. From another process's device memory to host memory of any length.
int softhca_cuda_fetch(void *to, uint64_t from, uint64_t len);

// Progress thread only. As softhca_dma_write and softhca_dma_read, wherever the region is.
int softhca_place_write(const struct softhca_place *to, const void *from, uint64_t len);
int softhca_place_read(void *to, const struct softhca_place *from, uint64_t len);

#endif
