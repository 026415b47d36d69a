// SPDX-License-Identifier: Apache-2.0
// Row strides that a GPU's copy engines take. Only arithmetic: no GPU, no peer.
#ifndef GEMMAR_KERNELS_STRIDES_H
#define GEMMAR_KERNELS_STRIDES_H

#include <stdbool.h>
#include <stdint.h>

#include <gemmar/gemmar.h>

#include "kernels/call.h"
#include "kernels/error.h"

#define GEMMAR_STRIDES_UNIT 16 /* bytes: TMA takes bases and rows that are multiples of it */

/* Can TMA read the matrix as it lies? */
bool gemmar_strides_aligned(const void *base, int64_t ld, uint32_t element_bytes);

/* Can TMA write it? It stores whole units, so rows that end inside one would have what lies behind
 * them overwritten. */
bool gemmar_strides_storable(const void *base, int64_t columns, int64_t ld, uint32_t element_bytes);

/* Refuses strides that are too large for TMA, or for the copy of a matrix that TMA cannot read.
 * `args` has passed gemmar_arguments_check and has elements of 2 bytes. */
gemmarResult_t gemmar_strides_check(const gemmarFusedArgs_t *args, struct gemmar_error *error);

/* The stride of a single row leads nowhere: make it one that TMA takes. */
void gemmar_strides_of_one_row(struct gemmar_operands *operands, int64_t m, int64_t n,
                               uint32_t element_bytes);

#endif
