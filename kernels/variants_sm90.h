// SPDX-License-Identifier: Apache-2.0
// The compiled variants of the tensor-core kernel. A file for each type of element, because they
// take long to compile and so do it side by side.
#ifndef GEMMAR_KERNELS_VARIANTS_SM90_H
#define GEMMAR_KERNELS_VARIANTS_SM90_H

#include <stdint.h>

#include "kernels/call.h"

/* What a launch needs to know of a tile shape. */
struct gemmar_variant {
    const void *kernel[2];   /* [B is N-major] */
    int bytes;               /* of shared memory */
    uint32_t a_rows, b_rows; /* of a box of A, and of B when it is not N-major */
};

extern const struct gemmar_variant gemmar_variants_bf16[GEMMAR_TILE_SHAPES];
extern const struct gemmar_variant gemmar_variants_fp16[GEMMAR_TILE_SHAPES];

/* Includers of kernels/fused_sm90.cuh: the initialiser of one entry. */
#define GEMMAR_VARIANT(shape, bf16)                                                                \
    {                                                                                              \
        {(const void *)gemmar_fused_sm90<shape, bf16, false>,                                      \
         (const void *)gemmar_fused_sm90<shape, bf16, true>},                                      \
            (int)sizeof(gemmar_fused_shared<gemmar_tile<shape>>) + 1024,                           \
            gemmar_tile<shape>::ALONG_N ? 64 : GEMMAR_BM,                                          \
            gemmar_tile<shape>::ALONG_N ? gemmar_tile<shape>::BN : gemmar_tile<shape>::BN / 2      \
    }

#endif
