// SPDX-License-Identifier: Apache-2.0
// Strides of a call's matrices: which the copy engines of a GPU take, and that of a matrix of one
// row.
#include "kernels/strides.h"

#include "kernels/tile_map.h"

#define ELEMENT_BYTES 2
#define UNIT_ELEMENTS (GEMMAR_STRIDES_UNIT / ELEMENT_BYTES)
#define TMA_BYTES     (INT64_C(1) << 40) /* a tensor map's stride is less */
#define PITCH_BYTES   (INT64_C(1) << 31) /* and the pitch of a copy */

bool gemmar_strides_aligned(const void *base, int64_t ld, uint32_t element_bytes)
{
    return (uintptr_t)base % GEMMAR_STRIDES_UNIT == 0 &&
           (uint64_t)ld * element_bytes % GEMMAR_STRIDES_UNIT == 0;
}

bool gemmar_strides_storable(const void *base, int64_t columns, int64_t ld, uint32_t element_bytes)
{
    return gemmar_strides_aligned(base, ld, element_bytes) &&
           (uint64_t)columns * element_bytes % GEMMAR_STRIDES_UNIT == 0;
}

struct matrix {
    const char *name;
    const void *base;
    int64_t rows, cols, ld;
    bool packed; /* it is copied where TMA cannot read it */
};

static gemmarResult_t check_matrix(const struct matrix *x, struct gemmar_error *error)
{
    int64_t ld = x->ld != 0 ? x->ld : x->cols;
    bool copy = x->packed && !gemmar_strides_aligned(x->base, ld, ELEMENT_BYTES);
    int64_t most = (copy ? PITCH_BYTES : TMA_BYTES) / ELEMENT_BYTES - UNIT_ELEMENTS;

    if (x->rows < 2 || x->cols == 0 || ld <= most) {
        return gemmarSuccess;
    }
    return gemmar_error_set(error, gemmarInvalidArgument, "ld%s %lld: a GPU takes at most %lld%s",
                            x->name, (long long)ld, (long long)most,
                            copy ? " where base or rows are no multiples of 16 bytes" : "");
}

gemmarResult_t gemmar_strides_check(const gemmarFusedArgs_t *args, struct gemmar_error *error)
{
    bool t = args->transB != 0;
    const struct matrix all[] = {
        {"A", args->A, args->M, args->K, args->lda, true},
        {"B", args->B, t ? args->N : args->K, t ? args->K : args->N, args->ldb, true},
        {"C", args->C, args->M, args->N, args->ldc, false},
    };
    gemmarResult_t result = gemmarSuccess;

    if (args->M == 0 || args->N == 0) { /* nothing is read or written */
        return gemmarSuccess;
    }
    for (size_t i = 0; result == gemmarSuccess && i < sizeof(all) / sizeof(all[0]); i++) {
        result = check_matrix(&all[i], error);
    }
    return result;
}

static void one_row(int64_t rows, int64_t cols, uint32_t element_bytes, int64_t *ld)
{
    if (rows == 1) {
        *ld = gemmar_align_up(cols, GEMMAR_STRIDES_UNIT / element_bytes);
    }
}

void gemmar_strides_of_one_row(struct gemmar_operands *o, int64_t m, int64_t n,
                               uint32_t element_bytes)
{
    one_row(m, o->k, element_bytes, &o->lda);
    one_row(o->trans_b != 0 ? n : o->k, o->trans_b != 0 ? o->k : n, element_bytes, &o->ldb);
    one_row(m, n, element_bytes, &o->ldc);
}
