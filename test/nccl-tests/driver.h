// SPDX-License-Identifier: Apache-2.0
// What the programs here call of the CUDA driver and of NCCL, loaded at run time. A failed call
// ends the process. One thread.
#ifndef GEMMAR_TEST_NCCL_DRIVER_H
#define GEMMAR_TEST_NCCL_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#define MAX_RANKS    8
#define NCCL_FLOAT   7
#define NCCL_SUM     0
#define NCCL_GOING   7   // ncclInProgress
#define CUDA_PENDING 600 // CUDA_ERROR_NOT_READY

struct unique_id {
    char bytes[128];
};

// ncclConfig_t as far as 2.17 had it; a later NCCL fills in the rest, by the version.
struct comm_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, min_ctas, max_ctas;
    const char *network; // the network's name, in any case
    int split_share;
};
_Static_assert(sizeof(struct comm_config) == 48, "the size that NCCL 2.17 knows");

extern struct cu_calls {
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*alloc)(uint64_t *, size_t);
    int (*release)(uint64_t), (*stream)(void **, unsigned), (*wait)(void *), (*query)(void *);
    int (*in)(uint64_t, const void *, size_t), (*out)(void *, uint64_t, size_t);
    int (*fill)(uint64_t, unsigned char, size_t), (*event)(void **, unsigned);
    int (*record)(void *, void *), (*elapsed)(float *, void *, void *);
} cu;

extern struct nccl_calls {
    int (*id)(struct unique_id *), (*init)(void **, int, struct unique_id, int), (*destroy)(void *);
    int (*init_with)(void **, int, struct unique_id, int, struct comm_config *);
    int (*reduce)(uint64_t, uint64_t, size_t, int, int, void *, void *), (*abort)(void *);
    int (*gather)(uint64_t, uint64_t, size_t, int, void *, void *);
    int (*scatter)(uint64_t, uint64_t, size_t, int, int, void *, void *);
    int (*send)(uint64_t, size_t, int, int, void *, void *);
    int (*receive)(uint64_t, size_t, int, int, void *, void *);
    int (*start)(void), (*end)(void), (*error)(void *, int *);
    const char *(*text)(int), *(*last)(void *);
} nccl;

#define MUST(call) must((call), #call)

// Ends the process with status 1 after naming it and what failed, unless error is 0.
void must(int error, const char *what);
// Acts as node `number` of a program called `name`, on GPU `device`. Status 77 where the driver or
// NCCL is not there.
void drive(const char *name, int number, int device);
// A stream that waits for no other one.
void *make_stream(void);
double now(void); // seconds

#endif
