// SPDX-License-Identifier: Apache-2.0
// The GPU's part of the public functions in a library built without CUDA: a sentence.
#include <gemmar/gemmar.h>

#include "kernels/communicator.h"
#include "kernels/error.h"

static gemmarResult_t without_cuda(const char *function)
{
    struct gemmar_error *error = gemmar_error_thread();

    gemmar_error_clear(error);
    return gemmar_error_set(error, gemmarInvalidUsage, "%s: this libgemmar was built without CUDA",
                            function);
}

gemmarResult_t gemmarCommCreate(gemmarComm_t *comm, ncclComm_t nccl, const gemmarConfig_t *config)
{
    (void)nccl;
    (void)config;
    if (comm != NULL) {
        *comm = NULL;
    }
    return without_cuda("gemmarCommCreate");
}

gemmarResult_t gemmarMemAlloc(void **ptr, size_t bytes)
{
    (void)ptr;
    (void)bytes;
    return without_cuda("gemmarMemAlloc");
}

gemmarResult_t gemmarMemFree(void *ptr)
{
    (void)ptr;
    return without_cuda("gemmarMemFree");
}

gemmarResult_t gemmarCommRegister(gemmarComm_t comm, void *buff, size_t bytes, void **handle)
{
    gemmarResult_t result = gemmar_comm_enter(comm);

    (void)buff;
    (void)bytes;
    (void)handle;
    if (result == gemmarSuccess) {
        result =
            gemmar_comm_refuse(comm, gemmarInvalidUsage, "a CPU communicator registers no buffers");
        return gemmar_comm_leave(comm, result);
    }
    return result;
}

gemmarResult_t gemmarCommDeregister(gemmarComm_t comm, void *handle)
{
    return gemmarCommRegister(comm, handle, 0, NULL);
}
