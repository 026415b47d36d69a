// SPDX-License-Identifier: Apache-2.0
// Operands: a pure function of seed, call, rank and place in the matrix.
#include "tools/gemmar_perf/inputs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tools/gemmar_perf/draws.h"
#include "tools/gemmar_perf/npy.h"

uint64_t gemmar_perf_mix(uint64_t a, uint64_t b)
{
    return gemmar_perf_draw(a, b);
}

static uint32_t type_of(gemmarDataType_t dtype)
{
    return dtype == gemmarBfloat16  ? GEMMAR_DTYPE_BF16
           : dtype == gemmarFloat16 ? GEMMAR_DTYPE_FP16
                                    : GEMMAR_DTYPE_FP32;
}

float gemmar_perf_load(gemmarDataType_t dtype, const void *base, int64_t i)
{
    return gemmar_load_element(type_of(dtype), base, i);
}

void gemmar_perf_store(gemmarDataType_t dtype, void *base, int64_t i, float x)
{
    gemmar_store_element(type_of(dtype), base, i, x);
}

static uint64_t key_of(const struct gemmar_perf_inputs *in, uint32_t rank, enum gemmar_perf_use use)
{
    return gemmar_perf_draw_key(in->seed, in->call, rank, use);
}

uint32_t gemmar_perf_exact_limit(gemmarDataType_t dtype)
{
    return dtype == gemmarBfloat16 ? 256 : dtype == gemmarFloat16 ? 2048 : GEMMAR_PERF_EXACT_MOST;
}

float gemmar_perf_b_scale(const struct gemmar_perf_inputs *in)
{
    return in->k > 0 ? 1.0f / sqrtf((float)in->k) : 1.0f;
}

void gemmar_perf_exact_a_row(const struct gemmar_perf_inputs *in, uint32_t rank, int64_t row,
                             struct gemmar_perf_sparse_row *out_row)
{
    int64_t count =
        gemmar_perf_exact_count(gemmar_perf_exact_limit(in->dtype), in->ranks, rank, in->k);
    uint64_t columns = gemmar_perf_mix(key_of(in, rank, GEMMAR_PERF_OF_A_COLUMN), (uint64_t)row);
    uint64_t signs = gemmar_perf_mix(key_of(in, rank, GEMMAR_PERF_OF_A_SIGN), (uint64_t)row);

    out_row->count = (uint32_t)count;
    for (int64_t i = 0; i < count; i++) {
        out_row->column[i] = gemmar_perf_exact_column(columns, i, count, in->k);
        out_row->sign[i] = (int8_t)gemmar_perf_exact_sign(signs, i);
    }
}

void gemmar_perf_exact_b_row(const struct gemmar_perf_inputs *in, uint32_t rank, int64_t row,
                             int8_t *signs)
{
    uint64_t of_row = gemmar_perf_mix(key_of(in, rank, GEMMAR_PERF_OF_B), (uint64_t)row);

    for (int64_t j = 0; j < in->n; j += 64) {
        uint64_t bits = gemmar_perf_exact_signs(of_row, j);
        int64_t end = in->n - j < 64 ? in->n - j : 64;

        for (int64_t i = 0; i < end; i++) {
            signs[j + i] = (int8_t)((bits >> i & 1) * 2) - 1;
        }
    }
}

static void fill_exact(const struct gemmar_perf_inputs *in, uint32_t rank, void *a, void *b,
                       struct gemmar_perf_sparse_row *row, int8_t *signs)
{
    for (int64_t i = 0; i < in->m && in->k != 0; i++) {
        gemmar_perf_exact_a_row(in, rank, i, row);
        for (uint32_t j = 0; j < row->count; j++) {
            gemmar_perf_store(in->dtype, a, i * in->k + row->column[j], row->sign[j]);
        }
    }
    for (int64_t l = 0; l < in->k; l++) {
        gemmar_perf_exact_b_row(in, rank, l, signs);
        for (int64_t j = 0; j < in->n; j++) {
            gemmar_perf_store(in->dtype, b, in->trans_b ? j * in->k + l : l * in->n + j, signs[j]);
        }
    }
}

static void fill_normal_a(const struct gemmar_perf_inputs *in, uint32_t rank, void *a)
{
    uint64_t key = key_of(in, rank, GEMMAR_PERF_OF_A_NORMAL);

    for (int64_t i = 0; i < in->m * in->k; i++) {
        gemmar_perf_store(in->dtype, a, i, gemmar_perf_draw_normal(key, i));
    }
}

static void fill_normal_b(const struct gemmar_perf_inputs *in, uint32_t rank, void *b)
{
    uint64_t key = key_of(in, rank, GEMMAR_PERF_OF_B_NORMAL);
    float scale = gemmar_perf_b_scale(in);

    for (int64_t i = 0; i < in->k * in->n; i++) {
        gemmar_perf_store(in->dtype, b, i, scale * gemmar_perf_draw_normal(key, i));
    }
}

/* `pattern` with every %r replaced by the rank. */
static int file_name(const char *pattern, uint32_t rank, char *name, size_t bytes)
{
    size_t n = 0;

    for (const char *p = pattern; *p != '\0'; p++) {
        if (p[0] == '%' && p[1] == 'r') {
            n += (size_t)snprintf(name + n, bytes - n, "%u", rank);
            p++;
        } else if (n + 1 < bytes) {
            name[n++] = *p;
        } else {
            n = bytes;
        }
        if (n + 1 >= bytes) {
            return -ENAMETOOLONG;
        }
    }
    name[n] = '\0';
    return 0;
}

/* Are the elements of the file usable as this type? fp32 files are rounded to the type. */
static bool type_fits(enum gemmar_npy_type type, gemmarDataType_t dtype)
{
    return type == GEMMAR_NPY_F4 || (type == GEMMAR_NPY_F2 && dtype == gemmarFloat16) ||
           (type == GEMMAR_NPY_U2 && dtype == gemmarBfloat16);
}

static int fill_file(const struct gemmar_perf_inputs *in, const char *pattern, uint32_t rank,
                     int64_t rows, int64_t columns, void *out, char *why, size_t why_bytes)
{
    static const char *const type_names[] = {"<f4", "<f2", "<u2"};
    struct gemmar_npy npy;
    char path[4096];
    void *data;
    int rc;

    if (file_name(pattern, rank, path, sizeof(path)) != 0) {
        (void)snprintf(why, why_bytes, "the name of the file %.40s... is too long", pattern);
        return -ENAMETOOLONG;
    }
    rc = gemmar_npy_open(path, &npy, why, why_bytes);
    if (rc != 0) {
        return rc;
    }
    if (npy.rows != rows || npy.columns != columns) {
        (void)snprintf(why, why_bytes, "%s has the shape (%lld, %lld), want (%lld, %lld)", path,
                       (long long)npy.rows, (long long)npy.columns, (long long)rows,
                       (long long)columns);
        return -EINVAL;
    }
    if (!type_fits(npy.type, in->dtype)) {
        (void)snprintf(why, why_bytes,
                       "%s has elements of type '%s', --dtype %s wants '<f4' (rounded)%s", path,
                       type_names[npy.type],
                       in->dtype == gemmarBfloat16  ? "bf16"
                       : in->dtype == gemmarFloat16 ? "fp16"
                                                    : "fp32",
                       in->dtype == gemmarBfloat16  ? " or '<u2'"
                       : in->dtype == gemmarFloat16 ? " or '<f2'"
                                                    : "");
        return -EINVAL;
    }
    if (npy.type != GEMMAR_NPY_F4 || in->dtype == gemmarFloat32) {
        return gemmar_npy_read(path, &npy, out, why, why_bytes);
    }
    data = malloc(npy.data_bytes + 1);
    if (data == NULL) {
        (void)snprintf(why, why_bytes, "no memory for %s", path);
        return -ENOMEM;
    }
    rc = gemmar_npy_read(path, &npy, data, why, why_bytes);
    for (int64_t i = 0; rc == 0 && i < rows * columns; i++) {
        gemmar_perf_store(in->dtype, out, i, ((const float *)data)[i]);
    }
    free(data);
    return rc;
}

int gemmar_perf_inputs_fill(const struct gemmar_perf_inputs *in, uint32_t rank, void *a, void *b,
                            char *why, size_t why_bytes)
{
    size_t element = gemmar_dtype_bytes(type_of(in->dtype));
    int rc = 0;

    if (in->kind == GEMMAR_PERF_EXACT) {
        struct gemmar_perf_sparse_row *row = malloc(sizeof(*row));
        int8_t *signs = malloc((size_t)in->n + 1);

        memset(a, 0, (size_t)(in->m * in->k) * element);
        if (row == NULL || signs == NULL) {
            (void)snprintf(why, why_bytes, "no memory for the inputs");
            rc = -ENOMEM;
        } else {
            fill_exact(in, rank, a, b, row, signs);
        }
        free(row);
        free(signs);
        return rc;
    }
    if (in->kind == GEMMAR_PERF_FILES && in->file_a != NULL) {
        rc = fill_file(in, in->file_a, rank, in->m, in->k, a, why, why_bytes);
    } else {
        fill_normal_a(in, rank, a);
    }
    if (rc != 0) {
        return rc;
    }
    if (in->kind == GEMMAR_PERF_FILES && in->file_b != NULL) {
        return fill_file(in, in->file_b, rank, in->trans_b ? in->n : in->k,
                         in->trans_b ? in->k : in->n, b, why, why_bytes);
    }
    fill_normal_b(in, rank, b);
    return 0;
}
