// SPDX-License-Identifier: Apache-2.0
// The tensor-core kernel for bf16.
#include "kernels/fused_sm90.cuh"
#include "kernels/variants_sm90.h"

const gemmar_variant gemmar_variants_bf16[GEMMAR_TILE_SHAPES] = {
    GEMMAR_VARIANT(GEMMAR_TILE_256X256, true),
    GEMMAR_VARIANT(GEMMAR_TILE_256X128, true),
    GEMMAR_VARIANT(GEMMAR_TILE_128X256, true),
    GEMMAR_VARIANT(GEMMAR_TILE_128X128, true),
};
