// SPDX-License-Identifier: Apache-2.0
// A call's matrices on a GPU: where results go, and copies where the kernel cannot read or write
// them as they lie. TMA takes strides and bases that are multiples of 16 bytes, and stores
// multiples of 16 bytes.
#include "kernels/gpu.h"

#include "kernels/strides.h"

/* Registered and aligned, or my own C when there is nobody else. */
static bool in_place(const struct gemmarComm *comm, const struct gemmar_tile_map *map,
                     const struct gemmar_operands *o, struct gemmar_target *targets,
                     struct gemmar_told_c *out_told)
{
    uint64_t bytes = (uint64_t)((map->m - 1) * o->ldc + map->n) * map->element_bytes, offset;
    const struct gemmar_registration *r;

    if (!gemmar_strides_storable(o->c, map->n, o->ldc, map->element_bytes)) {
        return false;
    }
    if (comm->place.locals == 1) {
        targets[0] = (struct gemmar_target){o->c, o->ldc};
        return true;
    }
    r = gemmar_gpu_registration(comm->gpu, o->c, bytes);
    if (r == NULL) {
        return false;
    }
    offset = (uint64_t)((const char *)o->c - r->buff);
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        targets[g] = (struct gemmar_target){r->peers[g] + offset, o->ldc};
    }
    *out_told = (struct gemmar_told_c){r->number, offset, o->ldc};
    return true;
}

enum gemmar_copies gemmar_gpu_targets(const struct gemmarComm *comm,
                                      const struct gemmar_tile_map *map,
                                      const struct gemmar_operands *operands,
                                      struct gemmar_target *out_targets,
                                      struct gemmar_told_c *out_told)
{
    const struct gemmar_workspace *w = comm->workspace;

    *out_told = (struct gemmar_told_c){0};
    if (in_place(comm, map, operands, out_targets, out_told)) {
        return GEMMAR_COPIES_NOTHING;
    }
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        out_targets[g] =
            (struct gemmar_target){w->bases[g] + w->layout.out, gemmar_plan_out_ld(map->n)};
    }
    if (!gemmar_strides_storable(operands->c, map->n, operands->ldc, map->element_bytes)) {
        return GEMMAR_COPIES_ALL;
    }
    out_targets[comm->place.local] = (struct gemmar_target){operands->c, operands->ldc};
    return GEMMAR_COPIES_FOREIGN;
}

static cudaError_t pack(const struct gemmar_gpu *gpu, uint32_t element_bytes, int64_t rows,
                        int64_t cols, const void **base, int64_t *ld, void **out,
                        cudaStream_t stream)
{
    int64_t packed_ld = gemmar_align_up(cols, GEMMAR_STRIDES_UNIT / element_bytes);
    size_t pitch = (size_t)packed_ld * element_bytes;
    cudaError_t rc;

    if (rows == 0 || cols == 0 || gemmar_strides_aligned(*base, *ld, element_bytes)) {
        return cudaSuccess;
    }
    rc = cudaMallocFromPoolAsync(out, pitch * (size_t)rows, gpu->pool, stream);
    if (rc != cudaSuccess) {
        *out = NULL;
        return rc;
    }
    if (rows == 1) { /* of any length: a pitch has a limit */
        rc = cudaMemcpyAsync(*out, *base, (size_t)cols * element_bytes, cudaMemcpyDeviceToDevice,
                             stream);
    } else {
        rc = cudaMemcpy2DAsync(*out, pitch, *base, (size_t)*ld * element_bytes,
                               (size_t)cols * element_bytes, (size_t)rows, cudaMemcpyDeviceToDevice,
                               stream);
    }
    *base = *out;
    *ld = packed_ld;
    return rc;
}

cudaError_t gemmar_gpu_pack(const struct gemmar_gpu *gpu, const struct gemmar_tile_map *map,
                            struct gemmar_operands *o, struct gemmar_gpu_packed *out,
                            cudaStream_t stream)
{
    int64_t rows = o->trans_b ? map->n : o->k, cols = o->trans_b ? o->k : map->n;
    cudaError_t rc = pack(gpu, map->element_bytes, map->m, o->k, &o->a, &o->lda, &out->a, stream);

    return rc == cudaSuccess
               ? pack(gpu, map->element_bytes, rows, cols, &o->b, &o->ldb, &out->b, stream)
               : rc;
}

cudaError_t gemmar_gpu_free_packed(const struct gemmar_gpu_packed *packed, cudaStream_t stream)
{
    cudaError_t a = packed->a != NULL ? cudaFreeAsync(packed->a, stream) : cudaSuccess;
    cudaError_t b = packed->b != NULL ? cudaFreeAsync(packed->b, stream) : cudaSuccess;

    return a != cudaSuccess ? a : b;
}
