// SPDX-License-Identifier: Apache-2.0
// The tensor-core kernel for fp16.
#include "kernels/fused_sm90.cuh"
#include "kernels/variants_sm90.h"

const gemmar_variant gemmar_variants_fp16[GEMMAR_TILE_SHAPES] = {
    GEMMAR_VARIANT(GEMMAR_TILE_256X256, false),
    GEMMAR_VARIANT(GEMMAR_TILE_256X128, false),
    GEMMAR_VARIANT(GEMMAR_TILE_128X256, false),
    GEMMAR_VARIANT(GEMMAR_TILE_128X128, false),
};
