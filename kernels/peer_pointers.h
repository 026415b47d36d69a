// SPDX-License-Identifier: Apache-2.0
// Where the local ranks' memory of an NCCL window lies in this GPU's address space. Only device
// code may ask NCCL 2.28 for it.
#ifndef GEMMAR_KERNELS_PEER_POINTERS_H
#define GEMMAR_KERNELS_PEER_POINTERS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Load the kernel now. */
cudaError_t gemmar_peer_pointers_load(void);

/* Enqueue on `stream`: out[g] = address of the window's first byte at local rank g, g < locals.
 * `window` is an ncclWindow_t; `out` is device-accessible host memory. */
cudaError_t gemmar_peer_pointers(void *window, uint32_t locals, uint64_t *out, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
