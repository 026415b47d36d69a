// SPDX-License-Identifier: Apache-2.0
// Is a call's argument list one that can be run? No communicator, no peer.
#ifndef GEMMAR_KERNELS_ARGUMENTS_H
#define GEMMAR_KERNELS_ARGUMENTS_H

#include <gemmar/gemmar.h>

#include "kernels/call.h"
#include "kernels/error.h"

/* Checks `args` and fills `out` with row strides made explicit; the sentence is in `error`. */
gemmarResult_t gemmar_arguments_check(const gemmarFusedArgs_t *args, struct gemmar_operands *out,
                                      struct gemmar_error *error);

/* M, N, K and the type alone; also for reservations. */
gemmarResult_t gemmar_arguments_shape(int64_t m, int64_t n, int64_t k, gemmarDataType_t datatype,
                                      uint32_t *out_dtype, struct gemmar_error *error);

#endif
