// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that this library calls, taken at run time from the NCCL that the process
// already has: a communicator belongs to one copy of the library, and only that copy knows it.
#ifndef GEMMAR_KERNELS_NCCL_API_H
#define GEMMAR_KERNELS_NCCL_API_H

#include <stddef.h>
#include <stdint.h>

#include <nccl.h>

#include "kernels/error.h"

#define GEMMAR_NCCL_OLDEST     22800 /* windows and device communicators begin here */
#define GEMMAR_NCCL_PROPERTIES 22900 /* ncclCommQueryProperties begins here */

/* ncclTeam_t of nccl_device.h, which no C compiler reads. */
struct gemmar_nccl_team {
    int ranks, rank, stride;
};

#define GEMMAR_NCCL_FUNCTIONS(X)                                                                   \
    X(get_version, ncclGetVersion, ncclResult_t (*)(int *))                                        \
    X(error_string, ncclGetErrorString, const char *(*)(ncclResult_t))                             \
    X(last_error, ncclGetLastError, const char *(*)(ncclComm_t))                                   \
    X(async_error, ncclCommGetAsyncError, ncclResult_t (*)(ncclComm_t, ncclResult_t *))            \
    X(count, ncclCommCount, ncclResult_t (*)(const ncclComm_t, int *))                             \
    X(device, ncclCommCuDevice, ncclResult_t (*)(const ncclComm_t, int *))                         \
    X(rank, ncclCommUserRank, ncclResult_t (*)(const ncclComm_t, int *))                           \
    X(split, ncclCommSplit, ncclResult_t (*)(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *))  \
    X(destroy, ncclCommDestroy, ncclResult_t (*)(ncclComm_t))                                      \
    X(stop, ncclCommAbort, ncclResult_t (*)(ncclComm_t))                                           \
    X(all_gather, ncclAllGather,                                                                   \
      ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))    \
    X(mem_alloc, ncclMemAlloc, ncclResult_t (*)(void **, size_t))                                  \
    X(mem_free, ncclMemFree, ncclResult_t (*)(void *))                                             \
    X(window_register, ncclCommWindowRegister,                                                     \
      ncclResult_t (*)(ncclComm_t, void *, size_t, ncclWindow_t *, int))                           \
    X(window_deregister, ncclCommWindowDeregister, ncclResult_t (*)(ncclComm_t, ncclWindow_t))     \
    X(dev_comm_create, ncclDevCommCreate, ncclResult_t (*)(ncclComm_t, const void *, void *))      \
    X(dev_comm_destroy, ncclDevCommDestroy, ncclResult_t (*)(ncclComm_t, const void *))            \
    X(team_lsa, ncclTeamLsa, struct gemmar_nccl_team (*)(ncclComm_t))

struct gemmar_nccl_api {
    int version; /* of the library, as ncclGetVersion gives it */
#define GEMMAR_NCCL_MEMBER(member, name, ...) __typeof__((__VA_ARGS__)0) member;
    GEMMAR_NCCL_FUNCTIONS(GEMMAR_NCCL_MEMBER)
#undef GEMMAR_NCCL_MEMBER
    /* From GEMMAR_NCCL_PROPERTIES on; NULL before. */
    ncclResult_t (*query_properties)(ncclComm_t, void *);
};

/* The process's NCCL, looked up once; NULL with a sentence when there is none yet or it is too old.
 * Any thread. */
const struct gemmar_nccl_api *gemmar_nccl_api(struct gemmar_error *error);

/* Our result for one of NCCL's, with its own words in `error`: "WHAT: ...". `nccl` may be NULL. */
gemmarResult_t gemmar_nccl_failed(const struct gemmar_nccl_api *api, ncclComm_t nccl,
                                  ncclResult_t result, const char *what,
                                  struct gemmar_error *error);

/* Fill `out` from a library or, with NULL, from what the process has in its global scope. The first
 * name that is missing, NULL when all are there. */
const char *gemmar_nccl_api_load(void *library, struct gemmar_nccl_api *out);

#endif
