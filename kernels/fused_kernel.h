// SPDX-License-Identifier: Apache-2.0
// Launch of the fused kernel.
#ifndef GEMMAR_KERNELS_FUSED_KERNEL_H
#define GEMMAR_KERNELS_FUSED_KERNEL_H

#include <cuda_runtime_api.h>

#include "kernels/call.h"

#define GEMMAR_FUSED_THREADS 256

#ifdef __cplusplus
extern "C" {
#endif

/* Load the kernel now: loading it behind a kernel that waits for a peer can block for ever. */
cudaError_t gemmar_fused_load(void);

/* Enqueue one call of this rank on `stream`: a cooperative launch of plan.ctas blocks, so that a
 * grid that cannot be resident is refused (cudaErrorCooperativeLaunchTooLarge). All pointers of the
 * call are device-accessible. Does not synchronise. */
cudaError_t gemmar_fused_launch(const struct gemmar_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
