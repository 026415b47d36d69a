// SPDX-License-Identifier: Apache-2.0
// Which rank is this process, and where is rank 0? From gemmar_perf's own launcher, mpirun, srun or
// torchrun.
#ifndef GEMMAR_PERF_PLACE_H
#define GEMMAR_PERF_PLACE_H

#include <stddef.h>
#include <stdint.h>

/* Set by the launcher for its children. */
#define GEMMAR_PERF_ENV_RANK     "GEMMAR_PERF_RANK"
#define GEMMAR_PERF_ENV_RANKS    "GEMMAR_PERF_RANKS"
#define GEMMAR_PERF_ENV_ADDRESS  "GEMMAR_PERF_RENDEZVOUS"
#define GEMMAR_PERF_ENV_CHECKSUM "GEMMAR_PERF_CHECKSUM_FD"

struct gemmar_perf_place {
    const char *launcher; /* "gemmar_perf", "mpirun", "srun", "torchrun"; NULL: none, be one */
    uint32_t rank, ranks;
    char address[280]; /* host:port of rank 0; "" when nothing tells */
};

/* `rendezvous` is the option of that name or NULL. 0, or -EINVAL with a sentence. */
int gemmar_perf_place_find(const char *rendezvous, struct gemmar_perf_place *out_place, char *why,
                           size_t why_bytes);

/* The first host of a Slurm list such as "node[03-05,9],other"; exported for its test. */
int gemmar_perf_place_first_host(const char *list, char *host, size_t bytes);

#endif
