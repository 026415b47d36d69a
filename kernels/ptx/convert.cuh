// SPDX-License-Identifier: Apache-2.0
// Two numbers to one word of 16-bit elements, rounded to nearest even (PTX ISA, "cvt"). A number
// that is none becomes 0x7fff, whatever its sign.
#ifndef GEMMAR_PTX_CONVERT_CUH
#define GEMMAR_PTX_CONVERT_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t gemmar_cvt_bf16x2(float low, float high)
{
    uint32_t packed;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

static __device__ __forceinline__ uint32_t gemmar_cvt_f16x2(float low, float high)
{
    uint32_t packed;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

#endif
