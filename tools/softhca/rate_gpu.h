// SPDX-License-Identifier: Apache-2.0
// What softhca-rate needs of a GPU: memory, and a kernel that fills it and watches a stamp.
#ifndef GEMMAR_SOFTHCA_RATE_GPU_H
#define GEMMAR_SOFTHCA_RATE_GPU_H

#include <stddef.h>
#include <stdint.h>

// In the process that uses it, after any fork. How many GPUs there are; 0 also without a driver.
int rate_gpu_count(void);
// Take GPU `index`; 0, or -1 with a line on standard error. One GPU for a process.
int rate_gpu_open(int index);
// bytes of device memory, all 0; or NULL with a line on standard error.
void *rate_gpu_alloc(size_t bytes);

// Words in pinned host memory. The kernel echoes `ping` in `pong` until ping is UINT64_MAX; from
// then on it tells in `seen` which value it finds in the stamp. Writers: we ping, the kernel the
// others.
struct rate_words {
    uint64_t ping;
    uint8_t pad0[56];
    uint64_t pong;
    uint8_t pad1[56];
    uint64_t seen;
    uint8_t pad2[56];
};
// A kernel with every thread slot of the GPU taken, so that no other can run. It ends when the
// stamp (device memory, 8 bytes) becomes UINT64_MAX, or after that many seconds. NULL as above.
struct rate_words *rate_gpu_fill(void *stamp, double seconds);
// 0 when the kernel has ended as it should.
int rate_gpu_wait(void);

#endif
