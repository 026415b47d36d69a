// SPDX-License-Identifier: Apache-2.0
// Lists and ranges of sizes, and the shapes that they span.
#include "tools/gemmar_perf/shapes.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/gemmar_perf/draws.h"

/* One unsigned number with its suffix at *at, which moves behind it. */
static bool take_number(const char **at, int64_t *out_value)
{
    const char *p = *at;
    int64_t value = 0;
    int shift = 0;

    if (!isdigit((unsigned char)*p)) {
        return false;
    }
    for (; isdigit((unsigned char)*p); p++) {
        value = value * 10 + (*p - '0');
        if (value > GEMMAR_PERF_MAX_SIZE) {
            return false;
        }
    }
    switch (*p) {
    case 'K':
    case 'k': shift = 10; break;
    case 'M':
    case 'm': shift = 20; break;
    case 'G':
    case 'g': shift = 30; break;
    default: break;
    }
    if (shift != 0) {
        p++;
        if (value > GEMMAR_PERF_MAX_SIZE >> shift) {
            return false;
        }
    }
    *out_value = value << shift;
    *at = p;
    return true;
}

static int add_size(struct gemmar_perf_sizes *sizes, int64_t value)
{
    if (sizes->count == GEMMAR_PERF_MAX_SIZES) {
        return -E2BIG;
    }
    sizes->value[sizes->count++] = value;
    return 0;
}

/* ":last[:xF|:+S]" behind `first`. */
static int take_range(const char **at, int64_t first, struct gemmar_perf_sizes *sizes)
{
    int64_t last, by = 1;
    bool factor = false;

    (*at)++;
    if (!take_number(at, &last) || last < first) {
        return -EINVAL;
    }
    if (**at == ':') {
        (*at)++;
        factor = **at == 'x' || **at == '*';
        if (!factor && **at != '+') {
            return -EINVAL;
        }
        (*at)++;
        if (!take_number(at, &by) || by < (factor ? 2 : 1) || (factor && first == 0)) {
            return -EINVAL;
        }
    }
    for (int64_t value = first; value <= last; value = factor ? value * by : value + by) {
        if (add_size(sizes, value) != 0) {
            return -E2BIG;
        }
        if (factor && value > last / by) {
            break;
        }
    }
    return 0;
}

int gemmar_perf_sizes_parse(const char *text, struct gemmar_perf_sizes *out_sizes, char *why,
                            size_t why_bytes)
{
    struct gemmar_perf_sizes sizes = {0};
    const char *at = text;

    for (;;) {
        int64_t value;
        int rc = 0;

        if (!take_number(&at, &value)) {
            rc = -EINVAL;
        } else if (*at == ':') {
            rc = take_range(&at, value, &sizes);
        } else {
            rc = add_size(&sizes, value);
        }
        if (rc == -E2BIG) {
            (void)snprintf(why, why_bytes, "'%s' names more than %d sizes", text,
                           GEMMAR_PERF_MAX_SIZES);
            return -EINVAL;
        }
        if (rc == 0 && *at == '\0') {
            break;
        }
        if (rc != 0 || *at != ',') {
            (void)snprintf(why, why_bytes,
                           "'%s' is not a list of sizes from 0 to 2^40: want 1,2,3 or "
                           "FIRST:LAST:xFACTOR or FIRST:LAST:+STEP",
                           text);
            return -EINVAL;
        }
        at++;
    }
    *out_sizes = sizes;
    return 0;
}

static int add_shape(struct gemmar_perf_shapes *shapes, int64_t m, int64_t n, int64_t k)
{
    if (shapes->count == GEMMAR_PERF_MAX_SHAPES) {
        return -E2BIG;
    }
    shapes->shape[shapes->count++] = (struct gemmar_perf_shape){m, n, k};
    return 0;
}

static int too_many(char *why, size_t why_bytes)
{
    (void)snprintf(why, why_bytes, "more than %d shapes", GEMMAR_PERF_MAX_SHAPES);
    return -EINVAL;
}

int gemmar_perf_shapes_parse(const char *text, struct gemmar_perf_shapes *shapes, char *why,
                             size_t why_bytes)
{
    const char *at = text;
    size_t before = shapes->count;

    for (;;) {
        int64_t size[3];
        int i;

        for (i = 0; i < 3 && take_number(&at, &size[i]); i++) {
            if (i < 2 && *at++ != 'x') {
                break;
            }
        }
        if (i < 3 || (*at != ',' && *at != '\0')) {
            shapes->count = before;
            (void)snprintf(why, why_bytes, "'%s' is not a list of shapes such as 1x1x1,128x256x64",
                           text);
            return -EINVAL;
        }
        if (add_shape(shapes, size[0], size[1], size[2]) != 0) {
            shapes->count = before;
            return too_many(why, why_bytes);
        }
        if (*at++ == '\0') {
            return 0;
        }
    }
}

int gemmar_perf_shapes_span(const struct gemmar_perf_sizes *m, const struct gemmar_perf_sizes *n,
                            const struct gemmar_perf_sizes *k, struct gemmar_perf_shapes *shapes,
                            char *why, size_t why_bytes)
{
    if (m->count * n->count * k->count > GEMMAR_PERF_MAX_SHAPES - shapes->count) {
        return too_many(why, why_bytes);
    }
    for (size_t i = 0; i < m->count; i++) {
        for (size_t j = 0; j < n->count; j++) {
            for (size_t l = 0; l < k->count; l++) {
                (void)add_shape(shapes, m->value[i], n->value[j],
                                k->value[l]); /* fits, see above */
            }
        }
    }
    return 0;
}

/* One size: small, next to a multiple of 64, or any. */
static int64_t ragged(uint64_t draw, uint32_t largest)
{
    uint64_t value = draw >> 8;

    switch (draw & 3) {
    case 0: value = 1 + value % 130; break;
    case 1: value = (1 + value % (largest / 64 + 1)) * 64 + value / 65537 % 3 - 1; break;
    default: value = 1 + value % largest; break;
    }
    return (int64_t)(value < largest ? value : largest);
}

int gemmar_perf_shapes_random(uint64_t seed, uint32_t count, uint32_t largest,
                              struct gemmar_perf_shapes *shapes, char *why, size_t why_bytes)
{
    if (count > GEMMAR_PERF_MAX_SHAPES - shapes->count) {
        return too_many(why, why_bytes);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t of_shape = gemmar_perf_draw(seed, i);

        (void)add_shape(shapes, ragged(gemmar_perf_draw(of_shape, 0), largest),
                        ragged(gemmar_perf_draw(of_shape, 1), largest),
                        ragged(gemmar_perf_draw(of_shape, 2), largest)); /* fits, see above */
    }
    return 0;
}
