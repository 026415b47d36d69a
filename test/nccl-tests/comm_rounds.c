// SPDX-License-Identifier: Apache-2.0
// comm_rounds [-n RANKS] [-g GPUS] [-r ROUNDS] [-k] [-t SECONDS]: processes that act as nodes make
// an NCCL communicator, check an all-reduce on GPUS devices and destroy it, ROUNDS times. With -k
// the last rank kills itself in mid-collective, and each other one must get an error within
// SECONDS. Status 77 where the driver or NCCL is not there.
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#define COUNT (16u << 20) // floats
#define MANY  200         // collectives under way at the kill; a launch would block from 1024 on

static int rank, ranks = 2, gpus = 1, rounds = 1, seconds = 60;

static unsigned dir_count(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;
    must(!dir, path);
    while (readdir(dir)) {
        count++;
    }
    (void)closedir(dir); // it was only read
    return count - 2;    // "." and ".."
}

static void fill(float *host, uint64_t mem, int round)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        host[i] = (float)((i + (uint32_t)round) % 1000 + (uint32_t)rank);
    }
    MUST(cu.in(mem, host, COUNT * sizeof *host));
}

static unsigned wrong(float *host, uint64_t mem, int round)
{
    unsigned bad = 0;
    MUST(cu.out(host, mem, COUNT * sizeof *host));
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t sum =
            (i + (uint32_t)round) % 1000 * (uint32_t)ranks + (uint32_t)(ranks * (ranks - 1) / 2);
        bad += host[i] != (float)sum;
    }
    return bad;
}

// Rank 0's id of this round goes to the others.
static void meet(int (*pipes)[2], struct unique_id *id)
{
    if (rank == 0) {
        MUST(nccl.id(id));
        for (int r = 1; r < ranks; r++) {
            must(write(pipes[r][1], id, sizeof *id) != sizeof *id, "write");
        }
    } else {
        must(read(pipes[rank][0], id, sizeof *id) != sizeof *id, "read");
    }
}

// Until the communicator has an error. Returns 0 when it has one in time.
static int outlive(void *comm, void *stream)
{
    double start = now();
    int error = 0;
    while (now() - start < seconds) {
        MUST(nccl.error(comm, &error));
        if (error && error != NCCL_GOING) {
            break;
        }
        must(cu.query(stream) != CUDA_PENDING, "a collective without its peer");
        (void)usleep(1000);
    }
    (void)printf("rank %d: after %.2f s: %s (%d); %s\n", rank, now() - start, nccl.text(error),
                 error, nccl.last(comm));
    (void)fflush(stdout);
    int failed = !error || error == NCCL_GOING;
    double aborted = now();
    (void)nccl.abort(comm); // its status says again that the communicator failed
    (void)printf("rank %d: aborted in %.2f s\n", rank, now() - aborted);
    return failed;
}

static int cut(void *comm, void *stream, uint64_t mem)
{
    for (int i = 0; i < MANY; i++) {
        MUST(nccl.reduce(mem, mem, COUNT, NCCL_FLOAT, NCCL_SUM, comm, stream));
    }
    if (rank == ranks - 1) {
        (void)usleep(30000);
        must(cu.query(stream) != CUDA_PENDING, "a collective under way");
        (void)kill(getpid(), SIGKILL);
    }
    return outlive(comm, stream);
}

static int one_round(int round, int (*pipes)[2], void *stream, uint64_t mem, float *host)
{
    struct unique_id id;
    void *comm = NULL;
    meet(pipes, &id);
    MUST(nccl.init(&comm, ranks, id, rank));
    fill(host, mem, round);
    MUST(nccl.reduce(mem, mem, COUNT, NCCL_FLOAT, NCCL_SUM, comm, stream));
    MUST(cu.wait(stream));
    unsigned bad = wrong(host, mem, round);
    if (rounds == 0) {
        return bad || cut(comm, stream, mem);
    }
    MUST(nccl.destroy(comm));
    (void)printf("rank %d round %d: %u wrong, %u descriptors, %u threads\n", rank, round, bad,
                 dir_count("/proc/self/fd"), dir_count("/proc/self/task"));
    (void)fflush(stdout);
    return bad != 0;
}

static int child(int (*pipes)[2])
{
    uint64_t mem;
    drive("comm_rounds", rank, rank % gpus);
    MUST(cu.alloc(&mem, COUNT * sizeof(float)));
    void *stream = make_stream();
    float *host = malloc(COUNT * sizeof *host);
    must(!host, "malloc");
    int failed = 0, round = 0;
    do {
        failed |= one_round(round, pipes, stream, mem, host);
    } while (++round < rounds && !failed);
    free(host);
    (void)fflush(stdout);
    return failed;
}

static void arguments(int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "n:g:r:kt:")) != -1;) {
        switch (option) {
        case 'n': ranks = atoi(optarg); break;
        case 'g': gpus = atoi(optarg); break;
        case 'r': rounds = atoi(optarg); break;
        case 'k': rounds = 0; break;
        case 't': seconds = atoi(optarg); break;
        default: exit(2);
        }
    }
    if (ranks < 2 || ranks > MAX_RANKS || gpus < 1) {
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int pipes[MAX_RANKS][2], result = 0;
    pid_t pids[MAX_RANKS];
    arguments(argc, argv);
    for (int r = 0; r < ranks; r++) {
        must(pipe(pipes[r]), "pipe");
    }
    for (rank = 0; rank < ranks; rank++) {
        pids[rank] = fork();
        must(pids[rank] < 0, "fork");
        if (pids[rank] == 0) {
            _exit(child(pipes)); // no destructors of libraries that other threads still use
        }
    }
    for (int r = 0; r < ranks; r++) {
        int status = 0;
        must(waitpid(pids[r], &status, 0) < 0, "waitpid");
        int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        int good =
            rounds == 0 && r == ranks - 1 ? killed : WIFEXITED(status) && !WEXITSTATUS(status);
        (void)printf("rank %d ended %s (%#x)\n", r, good ? "well" : "badly", (unsigned)status);
        result = WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : good ? result : 1;
    }
    return result;
}
