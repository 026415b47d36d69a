// SPDX-License-Identifier: Apache-2.0
// Element types: sizes and conversions, round to nearest even; gcc, clang and nvcc compile it.
#ifndef GEMMAR_KERNELS_DTYPE_H
#define GEMMAR_KERNELS_DTYPE_H

#include <stdint.h>
#include <string.h>

#include <gemmar/fifo.h>

enum gemmar_dtype {
    GEMMAR_DTYPE_FP16 = 0,
    GEMMAR_DTYPE_BF16 = 1,
    GEMMAR_DTYPE_FP32 = 2,
};

GEMMAR_HD uint32_t gemmar_dtype_bytes(uint32_t dtype)
{
    return dtype == GEMMAR_DTYPE_FP32 ? 4 : 2;
}

GEMMAR_HD uint32_t gemmar_float_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

GEMMAR_HD float gemmar_bits_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

GEMMAR_HD float gemmar_from_bf16(uint16_t v)
{
    return gemmar_bits_float((uint32_t)v << 16);
}

GEMMAR_HD uint16_t gemmar_to_bf16(float x)
{
    uint32_t u = gemmar_float_bits(x);

    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(u >> 16 | 0x40); /* quiet the NaN, keep its sign */
    }
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

GEMMAR_HD float gemmar_from_fp16(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = v >> 10 & 31, mantissa = v & 1023u;

    if (exponent == 31) {
        return gemmar_bits_float(sign | 0x7f800000u | mantissa << 13);
    }
    if (exponent == 0) {
        float tiny = (float)mantissa * 5.9604644775390625e-8f; /* 2^-24, exact */

        return gemmar_bits_float(gemmar_float_bits(tiny) | sign);
    }
    return gemmar_bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

GEMMAR_HD uint16_t gemmar_to_fp16(float x)
{
    uint32_t u = gemmar_float_bits(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;

    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude >= 0x47800000u) { /* 65536 and above; 65520..65535 round up below */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal, the adder of fp32 rounds */
        float shifted = gemmar_bits_float(magnitude) + 0.5f;

        return (uint16_t)(sign | (gemmar_float_bits(shifted) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13));
}

GEMMAR_HD float gemmar_load_element(uint32_t dtype, const void *base, int64_t i)
{
    if (dtype == GEMMAR_DTYPE_FP32) {
        return ((const float *)base)[i];
    }
    return dtype == GEMMAR_DTYPE_BF16 ? gemmar_from_bf16(((const uint16_t *)base)[i])
                                      : gemmar_from_fp16(((const uint16_t *)base)[i]);
}

GEMMAR_HD void gemmar_store_element(uint32_t dtype, void *base, int64_t i, float x)
{
    if (dtype == GEMMAR_DTYPE_FP32) {
        ((float *)base)[i] = x;
    } else {
        ((uint16_t *)base)[i] = dtype == GEMMAR_DTYPE_BF16 ? gemmar_to_bf16(x) : gemmar_to_fp16(x);
    }
}

#endif
