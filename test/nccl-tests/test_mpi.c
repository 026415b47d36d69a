// SPDX-License-Identifier: Apache-2.0
// The MPI shim by itself, as TAP of rank 0: every call that nccl-tests make, checked on all ranks.
// `fail RANK`: that rank ends early, and the launcher must end the others.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi.h"

static int rank, size, number;

static void report(const char *name, int ok)
{
    (void)MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0) {
        (void)printf("%sok %d - %s\n", ok ? "" : "not ", ++number, name);
    }
}

static void reductions(void)
{
    int i = rank + 1;
    double d[3] = {rank, -rank, 0.5};
    long long l[2] = {1ll << (40 + rank), rank};
    int64_t low = rank - 2;
    double sum[3];
    (void)MPI_Allreduce(MPI_IN_PLACE, &i, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    report("sum of ints in place", i == size * (size + 1) / 2);
    (void)MPI_Allreduce(d, sum, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    report("sum of doubles", sum[0] == size * (size - 1) / 2 && sum[1] == -sum[0] &&
                                 sum[2] == size * 0.5 && d[0] == rank);
    (void)MPI_Allreduce(MPI_IN_PLACE, d, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    report("largest double", d[0] == size - 1 && d[1] == 0);
    (void)MPI_Allreduce(MPI_IN_PLACE, l, 2, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
    report("largest long long", l[0] == 1ll << (40 + size - 1) && l[1] == size - 1);
    (void)MPI_Allreduce(MPI_IN_PLACE, &low, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    report("smallest int64_t", low == -2);
}

static void moves(void)
{
    char id[128];
    memset(id, rank == 2 ? 7 : 0, sizeof id);
    (void)MPI_Bcast(id, sizeof id, MPI_BYTE, 2, MPI_COMM_WORLD);
    report("broadcast from rank 2", id[0] == 7 && id[127] == 7);

    uint64_t hash[64] = {0};
    int ok = 1;
    hash[rank] = 100u + (unsigned)rank;
    (void)MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, hash, sizeof *hash, MPI_BYTE,
                        MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) {
        ok &= hash[r] == 100u + (unsigned)r;
    }
    report("all-gather in place", ok && hash[size] == 0);

    double mine[2] = {rank, rank * 10}, all[128] = {0};
    (void)MPI_Gather(mine, 2, MPI_DOUBLE, rank == 0 ? all : NULL, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) {
        ok &= rank != 0 || (all[2 * r] == r && all[2 * r + 1] == r * 10);
    }
    report("gather at rank 0", ok);

    size_t big = 3u << 20; // more than a socket holds
    uint8_t *buf = malloc(big * (size_t)size);
    ok = buf != NULL;
    if (ok) {
        memset(buf + big * (size_t)rank, rank + 1, big);
        (void)MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buf, (int)big, MPI_BYTE,
                            MPI_COMM_WORLD);
        for (int r = 0; r < size; r++) {
            ok &= buf[big * (size_t)r] == r + 1 && buf[big * (size_t)(r + 1) - 1] == r + 1;
        }
    }
    free(buf);
    report("all-gather of 3 MiB", ok);
}

static void parts(void)
{
    MPI_Comm part, none;
    int r, n;
    (void)MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part); // highest rank first
    (void)MPI_Comm_rank(part, &r);
    (void)MPI_Comm_size(part, &n);
    int first = rank;
    (void)MPI_Bcast(&first, 1, MPI_INT, 0, part);
    int highest = (size - 1) % 2 == rank % 2 ? size - 1 : size - 2;
    report("split by colour and key",
           n == (size + (rank % 2 == 0)) / 2 && first == highest && r == (highest - rank) / 2);
    int sum = 1;
    (void)MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, part);
    report("reduction within a part", sum == n);
    (void)MPI_Comm_free(&part);
    (void)MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 5, 0, &none);
    report("undefined colour", (none == MPI_COMM_NULL) == (rank == 0) && part == MPI_COMM_NULL);
    (void)MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &part);
    (void)MPI_Comm_size(part, &n);
    report("split by host", n == size);
}

int main(int argc, char **argv)
{
    int provided = -1, flag = -1;
    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    (void)MPI_Initialized(&flag);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc == 3 && rank == atoi(argv[2])) {
        return 3;
    }
    report("started", size >= 3 && flag == 1 && provided == MPI_THREAD_SERIALIZED);
    reductions();
    moves();
    parts();
    for (int i = 0; i < 100; i++) {
        (void)MPI_Barrier(MPI_COMM_WORLD);
    }
    report("barriers", 1);
    if (rank == 0) {
        (void)printf("1..%d\n", number);
    }
    return MPI_Finalize();
}
