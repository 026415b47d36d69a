// SPDX-License-Identifier: Apache-2.0
// A stand-in for libgemmar in the unit tests of gemmar_perf: the same arithmetic through the
// caller's all-gather, no network. FAKE_GEMMAR makes it misbehave: "bits" changes one element on
// rank 1, "fail" refuses a call on rank 1, "die" kills rank 1, "wire" counts a byte too many.
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gemmar/gemmar.h>

#include "tools/gemmar_perf/inputs.h"

struct gemmarComm {
    gemmarHostBootstrap_t bootstrap;
    int calls;
    uint64_t wire;
};

static char last_error[128];

static bool asked(const char *what)
{
    const char *text = getenv("FAKE_GEMMAR");

    return text != NULL && strcmp(text, what) == 0;
}

gemmarResult_t gemmarGetVersion(int *version)
{
    *version = GEMMAR_VERSION;
    return gemmarSuccess;
}

const char *gemmarGetBuildId(void)
{
    return "fake";
}

const char *gemmarGetErrorString(gemmarResult_t result)
{
    return result == gemmarSuccess           ? "success"
           : result == gemmarInvalidArgument ? "invalid argument"
                                             : "system error";
}

const char *gemmarGetLastError(gemmarComm_t comm)
{
    (void)comm;
    return last_error;
}

gemmarResult_t gemmarCommCreateHost(gemmarComm_t *comm, const gemmarHostBootstrap_t *bootstrap,
                                    const gemmarConfig_t *config)
{
    (void)config;
    if (asked("device")) {
        (void)snprintf(last_error, sizeof(last_error), "no verbs device");
        return gemmarSystemError;
    }
    *comm = calloc(1, sizeof(**comm));
    if (*comm == NULL) {
        return gemmarSystemError;
    }
    (*comm)->bootstrap = *bootstrap;
    return gemmarSuccess;
}

gemmarResult_t gemmarCommDestroy(gemmarComm_t comm)
{
    free(comm);
    return gemmarSuccess;
}

gemmarResult_t gemmarWorkspaceBytes(int64_t M, int64_t N, int64_t K, gemmarDataType_t datatype,
                                    int nodes, int ranksPerNode, const gemmarConfig_t *config,
                                    size_t *bytes)
{
    (void)M, (void)N, (void)K, (void)datatype, (void)nodes, (void)ranksPerNode, (void)config;
    *bytes = 4096;
    return gemmarSuccess;
}

gemmarResult_t gemmarCommGetInfo(gemmarComm_t comm, gemmarCommInfo_t *info)
{
    info->rank = comm->bootstrap.rank;
    info->nranks = comm->bootstrap.nranks;
    info->nodes = 1;
    info->localRank = info->rank;
    info->localRanks = info->nranks;
    info->algo = gemmarAlgoNone;
    info->wireBytes = comm->wire;
    return gemmarSuccess;
}

static gemmarResult_t multiply(const gemmarFusedArgs_t *x, gemmarComm_t comm)
{
    size_t elements = (size_t)(x->M * x->N);
    float *mine = calloc(elements + 1, sizeof(*mine));
    float *all = calloc((size_t)comm->bootstrap.nranks * elements + 1, sizeof(*all));
    gemmarResult_t result = mine == NULL || all == NULL ? gemmarSystemError : gemmarSuccess;

    for (int64_t i = 0; i < x->M && mine != NULL; i++) {
        for (int64_t l = 0; l < x->K; l++) {
            float a = gemmar_perf_load(x->datatype, x->A, i * x->K + l);

            for (int64_t j = 0; j < x->N; j++) {
                mine[i * x->N + j] += a * gemmar_perf_load(x->datatype, x->B,
                                                           x->transB ? j * x->K + l : l * x->N + j);
            }
        }
    }
    if (result == gemmarSuccess &&
        comm->bootstrap.allGather(comm->bootstrap.context, mine, all, elements * sizeof(*all))) {
        result = gemmarSystemError;
    }
    for (size_t i = 0; i < elements && result == gemmarSuccess; i++) {
        float sum = 0;

        for (size_t r = 0; r < (size_t)comm->bootstrap.nranks; r++) {
            sum += all[r * elements + i];
        }
        gemmar_perf_store(x->datatype, x->C, (int64_t)i, sum);
    }
    if (asked("bits") && comm->bootstrap.rank == 1 && elements > 0) {
        gemmar_perf_store(x->datatype, x->C, (int64_t)elements - 1, 1e6f);
    }
    free(all);
    free(mine);
    return result;
}

gemmarResult_t gemmar_fused_ex(const gemmarFusedArgs_t *args, gemmarComm_t comm,
                               gemmarStream_t stream)
{
    (void)stream;
    if (args->M < 0 || args->N < 0 || args->A == NULL || (int)args->datatype > 9) {
        return gemmarInvalidArgument;
    }
    comm->calls++;
    comm->wire += asked("wire");
    if (comm->bootstrap.rank == 1 && comm->calls == 2) {
        if (asked("die")) {
            (void)raise(SIGKILL);
        }
        if (asked("fail")) {
            (void)snprintf(last_error, sizeof(last_error), "call 2 was asked to fail");
            return gemmarSystemError;
        }
    }
    return multiply(args, comm);
}

gemmarResult_t gemmar_fused(const void *A, const void *B, void *C, int64_t M, int64_t N, int64_t K,
                            gemmarDataType_t datatype, gemmarComm_t comm, gemmarStream_t stream)
{
    gemmarFusedArgs_t args = {
        .A = A, .B = B, .C = C, .M = M, .N = N, .K = K, .datatype = datatype, .alpha = 1};

    return gemmar_fused_ex(&args, comm, stream);
}
