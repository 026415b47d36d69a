// SPDX-License-Identifier: Apache-2.0
// The inner product of one tile on the CPU.
#ifndef GEMMAR_KERNELS_CPU_GEMM_TILE_CPU_H
#define GEMMAR_KERNELS_CPU_GEMM_TILE_CPU_H

#include <stdint.h>

struct gemmar_gemm_scratch;

/* Panels for tiles of up to tile_m x tile_n; -ENOMEM. */
int gemmar_gemm_scratch_open(uint32_t tile_m, uint32_t tile_n, struct gemmar_gemm_scratch **out);
void gemmar_gemm_scratch_close(struct gemmar_gemm_scratch *scratch);

#endif
