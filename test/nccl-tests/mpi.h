// SPDX-License-Identifier: Apache-2.0
// The part of MPI that NVIDIA's nccl-tests call, between processes of one host over TCP.
//
// Units: counts are elements. Errors: every call returns MPI_SUCCESS, or ends the process with
// status 1 after a sentence on stderr, which is MPI's default error handler. Threads: calls may
// come from any thread, one after the other; two threads may not be in collectives at the same
// time.
#ifndef GEMMAR_TEST_NCCL_TESTS_MPI_H
#define GEMMAR_TEST_NCCL_TESTS_MPI_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Op;
typedef int MPI_Info;

#define MPI_SUCCESS    0
#define MPI_ERR_OTHER  1
#define MPI_UNDEFINED  (-1)
#define MPI_IN_PLACE   ((void *)-1)
#define MPI_INFO_NULL  0
#define MPI_COMM_NULL  0
#define MPI_COMM_WORLD 1
#define MPI_COMM_SELF  2

#define MPI_COMM_TYPE_SHARED 1

#define MPI_THREAD_SINGLE     0
#define MPI_THREAD_FUNNELED   1
#define MPI_THREAD_SERIALIZED 2
#define MPI_THREAD_MULTIPLE   3

// The low byte is the size of an element, the next one tells kinds of one size apart.
#define MPI_DATATYPE_NULL      0x000
#define MPI_BYTE               0x101
#define MPI_CHAR               0x201
#define MPI_INT                0x204
#define MPI_INT64_T            0x208
#define MPI_LONG               0x208
#define MPI_LONG_LONG          0x208
#define MPI_UINT64_T           0x308
#define MPI_UNSIGNED_LONG      0x308
#define MPI_UNSIGNED_LONG_LONG 0x308
#define MPI_FLOAT              0x404
#define MPI_DOUBLE             0x408

#define MPI_OP_NULL 0
#define MPI_SUM     1
#define MPI_MIN     2
#define MPI_MAX     3

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Initialized(int *flag);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm comm, int code);

int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out_comm);
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out_comm);
int MPI_Comm_free(MPI_Comm *comm);

int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Gather(const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count,
               MPI_Datatype to_type, int root, MPI_Comm comm);
int MPI_Allgather(const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count,
                  MPI_Datatype to_type, MPI_Comm comm);
int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm);

#ifdef __cplusplus
}
#endif

#endif
