// SPDX-License-Identifier: Apache-2.0
// kernels/ptx/convert.cuh on the CPU.
#ifndef GEMMAR_PTX_CONVERT_CUH
#define GEMMAR_PTX_CONVERT_CUH

#include "kernels/dtype.h"

/* What the instruction makes of every number that is none. */
static inline uint32_t emulated_canonical(float x, uint16_t converted)
{
    return x != x ? 0x7fff : converted;
}

static inline uint32_t gemmar_cvt_bf16x2(float low, float high)
{
    return emulated_canonical(low, gemmar_to_bf16(low)) |
           emulated_canonical(high, gemmar_to_bf16(high)) << 16;
}

static inline uint32_t gemmar_cvt_f16x2(float low, float high)
{
    return emulated_canonical(low, gemmar_to_fp16(low)) |
           emulated_canonical(high, gemmar_to_fp16(high)) << 16;
}

#endif
