// SPDX-License-Identifier: Apache-2.0
// Where the local ranks' memory of an NCCL window lies.
#include "kernels/peer_pointers.h"

#include <nccl_device.h>

static __global__ void peer_pointers(ncclWindow_t window, uint32_t locals, uint64_t *out)
{
    if (threadIdx.x < locals) {
        out[threadIdx.x] = (uint64_t)ncclGetLsaPointer(window, 0, (int)threadIdx.x);
    }
}

extern "C" cudaError_t gemmar_peer_pointers_load(void)
{
    struct cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, peer_pointers);
}

extern "C" cudaError_t gemmar_peer_pointers(void *window, uint32_t locals, uint64_t *out,
                                            cudaStream_t stream)
{
    void *arguments[] = {&window, &locals, &out};

    return cudaLaunchKernel(peer_pointers, dim3(1), dim3(32), arguments, 0, stream);
}
