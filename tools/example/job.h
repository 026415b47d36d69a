// SPDX-License-Identifier: Apache-2.0
// The processes of this job: which one this is, how they start, how they get NCCL's identifier.
#ifndef EXAMPLE_JOB_H
#define EXAMPLE_JOB_H

#include <stddef.h>

struct job {
    int rank, ranks;
    int local;        /* among the processes of this host: chooses the GPU */
    int listener;     /* of rank 0, or -1: made when it is needed */
    char meet[300];   /* host:port where rank 0 listens */
    int wait_seconds; /* for the other ranks to turn up */
};

/* Fill *job from the variables of torchrun, Open MPI, Hydra (MPICH) or Slurm. `meet` ("host:port",
 * or NULL) goes before MASTER_ADDR and MASTER_PORT. Returns 1 if a launcher started this process, 0
 * if none did, -1 after a message if the variables do not make sense. */
int job_from_environment(struct job *job, const char *meet);

/* Start `ranks` processes on this host, the first ranks/nodes of them as node 0 and so on. Returns
 * -1 in each of them with *job filled; in the parent when all have ended, with the exit status.
 * Call it before anything of CUDA: a forked process cannot use the CUDA of its parent. */
int job_fork(struct job *job, int ranks, int nodes);

/* Copy rank 0's `bytes` bytes at `data` to all ranks, over TCP. Returns 0, or 1 after a message. */
int job_share(struct job *job, void *data, size_t bytes);

/* One line to standard error, with the rank in front. */
void job_name_rank(int rank);
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

#endif
