// SPDX-License-Identifier: Apache-2.0
// Lists and ranges of sizes, and the shapes that they span.
#ifndef GEMMAR_PERF_SHAPES_H
#define GEMMAR_PERF_SHAPES_H

#include <stddef.h>
#include <stdint.h>

#define GEMMAR_PERF_MAX_SIZES  256
#define GEMMAR_PERF_MAX_SHAPES 4096
#define GEMMAR_PERF_MAX_SIZE   (INT64_C(1) << 40)

struct gemmar_perf_shape {
    int64_t m, n, k;
};

struct gemmar_perf_sizes {
    size_t count;
    int64_t value[GEMMAR_PERF_MAX_SIZES];
};

struct gemmar_perf_shapes {
    size_t count;
    struct gemmar_perf_shape shape[GEMMAR_PERF_MAX_SHAPES];
};

/*
 * Parse "1,2,3", "2048:32768:x2" (first:last:factor), "1:10:+3" (first:last:step), "8:11" (step 1)
 * or a comma list of these. Values are elements, 0 .. 2^40, an optional K, M or G multiplies by
 * 2^10, 2^20, 2^30. 0, or -EINVAL with a sentence in `why`; `out_sizes` is then untouched.
 */
int gemmar_perf_sizes_parse(const char *text, struct gemmar_perf_sizes *out_sizes, char *why,
                            size_t why_bytes);

/* Parse "1x1x1,128x256x64": explicit shapes MxNxK, appended to `shapes`. Returns as above; on
 * failure `shapes` is untouched. */
int gemmar_perf_shapes_parse(const char *text, struct gemmar_perf_shapes *shapes, char *why,
                             size_t why_bytes);

/* Append every combination, m outermost. */
int gemmar_perf_shapes_span(const struct gemmar_perf_sizes *m, const struct gemmar_perf_sizes *n,
                            const struct gemmar_perf_sizes *k, struct gemmar_perf_shapes *shapes,
                            char *why, size_t why_bytes);

/* Append `count` ragged shapes with sizes from 1 to `largest`, a function of the seed: small ones,
 * any, and those next to a multiple of 64. Returns as above. */
int gemmar_perf_shapes_random(uint64_t seed, uint32_t count, uint32_t largest,
                              struct gemmar_perf_shapes *shapes, char *why, size_t why_bytes);

#endif
