// SPDX-License-Identifier: Apache-2.0
// The row-parallel projections of known models: where tensor parallelism needs an all-reduce.
#ifndef GEMMAR_PERF_MODELS_H
#define GEMMAR_PERF_MODELS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/gemmar_perf/shapes.h"

/* Columns N (the hidden size) and rows K of the whole weight, before it is split over the ranks. */
struct gemmar_perf_layer {
    const char *model;
    const char *layer; /* "attn-out", "mlp-down" or "expert-down" */
    int64_t n, k;
};

/* Append the shapes of `name` ("Llama-3-70B", or "Llama-3-70B:mlp-down"; case does not matter) for
 * every m, with K split over `tp` ranks. 0, or -EINVAL with a sentence; `shapes` then untouched. */
int gemmar_perf_models_span(const char *name, const struct gemmar_perf_sizes *m, int64_t tp,
                            struct gemmar_perf_shapes *shapes, char *why, size_t why_bytes);

/* Print the table. */
void gemmar_perf_models_list(FILE *out);

#endif
