// SPDX-License-Identifier: Apache-2.0
// Two ends of a connection in one process, each with a region in host memory and one on the device.
// Runs with the real driver and a GPU, or with fake_cuda.c, which also delays and fails copies.
#ifndef GEMMAR_TEST_SOFTHCA_DEVICE_ENDS_H
#define GEMMAR_TEST_SOFTHCA_DEVICE_ENDS_H

#include "test/softhca/harness.h"

#define BYTES (1u << 20) // of each region

struct cuda_calls {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*set)(void *);
    int (*alloc)(uint64_t *, size_t);
    int (*free)(uint64_t);
    int (*copy)(uint64_t, uint64_t, size_t);
    int (*create)(uint64_t *, size_t, const void *, unsigned long long);
    int (*release)(uint64_t);
    int (*reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
    int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
    int (*access)(uint64_t, size_t, const void *, size_t);
    int (*unmap)(uint64_t, size_t);
    void (*delay)(unsigned); // of the fake, like all below
    void (*break_copy)(unsigned);
    uint64_t (*copies)(void);
    int (*descriptor)(uint64_t);
    void (*far)(int);
};
extern struct cuda_calls cu;

// Set before the memory is made: it is said to be of other GPUs; it comes from cuMemCreate.
extern int is_far, use_vmm;

void find(void *lib, const char *name, void *out, int needed);

// In the process that uses it: CUDA does not survive a fork.
void cuda_start(void);

uint8_t *device_alloc(size_t bytes);
void device_free(void *p);

// To or from the device; either may be host memory.
void device_copy(void *to, const void *from, size_t bytes);

void fill(uint8_t *p, size_t bytes, unsigned seed);

// One end; use chooses which region the harness's posts name.
struct both {
    struct side side;
    uint8_t *host, *device;
    struct ibv_mr *host_mr, *device_mr;
};
extern struct both a, b;

void both_open(struct both *end, struct ibv_context *ctx);
void use(struct both *end, int device);
void both_close(struct both *end);
void both_set(struct both *end, int device, size_t offset, const uint8_t *data, size_t bytes);
void both_expect(struct both *end, int device, size_t offset, const uint8_t *data, size_t bytes);

// a and b, connected.
void loop_open(void);
void loop_close(void);

#endif
