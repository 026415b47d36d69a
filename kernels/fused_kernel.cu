// SPDX-License-Identifier: Apache-2.0
// The persistent kernel: every thread block runs the roles of kernels/roles.cuh.
//
// It multiplies without tensor cores (gemm_simt.cuh). The role code is the one that the CPU
// executor runs; the block ranges of the stages come from the plan.
#include "kernels/fused_kernel.h"

#include "kernels/gemm_simt.cuh"
#include "kernels/roles.cuh"

static __global__ void __launch_bounds__(GEMMAR_FUSED_THREADS, 1)
    fused(const __grid_constant__ struct gemmar_call call)
{
    __shared__ struct gemmar_gemm_scratch scratch;

    (void)gemmar_roles_run(&call, blockIdx.x, threadIdx.x, blockDim.x, &scratch);
}

extern "C" cudaError_t gemmar_fused_load(void)
{
    struct cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, fused);
}

extern "C" cudaError_t gemmar_fused_launch(const struct gemmar_call *call, cudaStream_t stream)
{
    struct gemmar_call copy = *call;
    void *arguments[] = {&copy};

    return cudaLaunchCooperativeKernel(fused, dim3(call->plan.ctas), dim3(GEMMAR_FUSED_THREADS),
                                       arguments, 0, stream);
}
