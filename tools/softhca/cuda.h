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

// Where a region's bytes are: host memory when gpu is NULL.
struct softhca_place {
    uint8_t *at;
    struct softhca_gpu *gpu;
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

// Progress thread only. As softhca_dma_write and softhca_dma_read, wherever the region is.
int softhca_place_write(const struct softhca_place *to, const void *from, uint64_t len);
int softhca_place_read(void *to, const struct softhca_place *from, uint64_t len);

#endif
