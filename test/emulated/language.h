// SPDX-License-Identifier: Apache-2.0
// The language of the GPU code for a C++ compiler of the host: read before everything else
// (-include). The toolkit's headers come first, because they look at __CUDACC__ too.
#ifndef GEMMAR_TEST_EMULATED_LANGUAGE_H
#define GEMMAR_TEST_EMULATED_LANGUAGE_H

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>
#include <vector_functions.h>

#include "test/emulated/gpu.h"

#define __CUDACC__ 1

#undef __device__
#undef __global__
#undef __host__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __cluster_dims__
#undef __grid_constant__
#define __device__
#define __global__
#define __host__
#define __shared__
#define __forceinline__        inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((used))
#define __cluster_dims__(...)
#define __grid_constant__

template <uint32_t (*GET)(void)> struct emulated_index {
    struct {
        operator uint32_t() const
        {
            return GET();
        }
    } x;
};
static const emulated_index<emulated_thread> threadIdx = {};
static const emulated_index<emulated_cta> blockIdx = {};
static const emulated_index<emulated_ctas> gridDim = {};

/* Of all 32 lanes: nothing here masks. */
#define __syncwarp()               emulated_warp_sync()
#define __shfl_sync(mask, x, lane) emulated_shuffle(x, lane)
#define __any_sync(mask, x)        (emulated_ballot(x) != 0)
#define __all_sync(mask, x)        (emulated_ballot(x) == 0xffffffffu)
#define __nanosleep(ns)            ((void)(ns), emulated_pause())
#define __syncthreads_and(x)       ((void)(x), emulated_nowhere(__func__))
#define __uint_as_float(x)         emulated_bits_float(x)

#endif
