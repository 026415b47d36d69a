// SPDX-License-Identifier: Apache-2.0
// Checks of a call's arguments.
#include "kernels/arguments.h"

#include <stdint.h>

#include "kernels/dtype.h"
#include "kernels/settings.h"

#define MAX_SIZE     (INT64_C(1) << 46) /* of one side, in elements */
#define MAX_ELEMENTS (INT64_C(1) << 60) /* of an operand with its strides */

/* A matrix in memory: rows of `cols` elements, `ld` from row to row. */
struct matrix {
    const char *name;
    const void *base;
    int64_t rows, cols, ld;
};

gemmarResult_t gemmar_arguments_shape(int64_t m, int64_t n, int64_t k, gemmarDataType_t datatype,
                                      uint32_t *out_dtype, struct gemmar_error *error)
{
    if (m < 0 || n < 0 || k < 0) {
        return gemmar_error_set(error, gemmarInvalidArgument, "negative size: M %lld N %lld K %lld",
                                (long long)m, (long long)n, (long long)k);
    }
    if (m > MAX_SIZE || n > MAX_SIZE || k > MAX_SIZE) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "M %lld N %lld K %lld: at most %lld each", (long long)m,
                                (long long)n, (long long)k, (long long)MAX_SIZE);
    }
    if (gemmar_settings_dtype(datatype, out_dtype) != 0) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "datatype %d: fp16 (6), fp32 (7) and bf16 (9) can be used",
                                (int)datatype);
    }
    return gemmarSuccess;
}

static bool is_empty(const struct matrix *x)
{
    return x->rows == 0 || x->cols == 0;
}

static gemmarResult_t check_matrix(struct matrix *x, uint32_t bytes, struct gemmar_error *error)
{
    if (x->ld == 0) {
        x->ld = x->cols;
    }
    if (x->ld < x->cols) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "ld%s %lld is less than the %lld elements of a row", x->name,
                                (long long)x->ld, (long long)x->cols);
    }
    if (is_empty(x)) {
        return gemmarSuccess;
    }
    if (x->base == NULL) {
        return gemmar_error_set(error, gemmarInvalidArgument, "%s is NULL", x->name);
    }
    if ((uintptr_t)x->base % bytes != 0) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "%s is not aligned to its elements of %u bytes", x->name, bytes);
    }
    if (x->ld > MAX_ELEMENTS / x->rows) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "%s: %lld rows of ld %lld are too large", x->name,
                                (long long)x->rows, (long long)x->ld);
    }
    return gemmarSuccess;
}

/* Do the memory ranges from first to last element meet? */
static bool overlap(const struct matrix *x, const struct matrix *y, uint32_t bytes)
{
    uintptr_t x0 = (uintptr_t)x->base, y0 = (uintptr_t)y->base;

    if (is_empty(x) || is_empty(y) || x->base == NULL || y->base == NULL) {
        return false;
    }
    return x0 < y0 + (uintptr_t)((y->rows - 1) * y->ld + y->cols) * bytes &&
           y0 < x0 + (uintptr_t)((x->rows - 1) * x->ld + x->cols) * bytes;
}

static gemmarResult_t check_all(const gemmarFusedArgs_t *args, struct gemmar_operands *out,
                                struct gemmar_error *error)
{
    uint32_t bytes = gemmar_dtype_bytes(out->dtype);
    struct matrix c = {"C", args->C, args->M, args->N, args->ldc};
    struct matrix in[3] = {
        {"A", args->A, args->M, args->K, args->lda},
        {"B", args->B, args->transB ? args->N : args->K, args->transB ? args->K : args->N,
         args->ldb},
        {"bias", args->bias, args->bias != NULL, args->N, 0},
    };
    gemmarResult_t result = check_matrix(&c, bytes, error);

    for (int i = 0; result == gemmarSuccess && i < 3; i++) {
        result = check_matrix(&in[i], bytes, error);
    }
    for (int i = 0; result == gemmarSuccess && i < 3; i++) {
        if (overlap(&c, &in[i], bytes)) {
            result = gemmar_error_set(error, gemmarInvalidArgument, "C overlaps %s", in[i].name);
        }
    }
    out->lda = in[0].ld;
    out->ldb = in[1].ld;
    out->ldc = c.ld;
    return result;
}

gemmarResult_t gemmar_arguments_check(const gemmarFusedArgs_t *args, struct gemmar_operands *out,
                                      struct gemmar_error *error)
{
    struct gemmar_operands o = {0};
    gemmarResult_t result;

    if (args == NULL || args->size < sizeof(*args)) {
        return gemmar_error_set(error, gemmarInvalidArgument, "args is NULL or has size %zu",
                                args != NULL ? args->size : 0);
    }
    result = gemmar_arguments_shape(args->M, args->N, args->K, args->datatype, &o.dtype, error);
    if (result != gemmarSuccess) {
        return result;
    }
    if (args->lda < 0 || args->ldb < 0 || args->ldc < 0) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "negative stride: lda %lld ldb %lld ldc %lld", (long long)args->lda,
                                (long long)args->ldb, (long long)args->ldc);
    }
    result = check_all(args, &o, error);
    if (result != gemmarSuccess) {
        return result;
    }
    o.a = args->A;
    o.b = args->B;
    o.c = args->C;
    o.bias = args->bias;
    o.k = args->K;
    o.alpha = args->alpha;
    o.beta = args->beta;
    o.trans_b = args->transB != 0;
    *out = o;
    return gemmarSuccess;
}
