// SPDX-License-Identifier: Apache-2.0
// The tensor-core kernel: product and all-reduce in one launch. With one rank it is a plain matrix
// product.
#ifndef GEMMAR_KERNELS_FUSED_SM90_H
#define GEMMAR_KERNELS_FUSED_SM90_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/call.h"
#include "kernels/trace.h"

/* Where the result for one local rank goes, as mapped by this rank: rows of `ld` 16-bit elements,
 * base and ld * 2 multiples of 16 bytes. */
struct gemmar_target {
    void *base;
    int64_t ld;
};

/* The kernel's parameter, passed by value. Maps first: they are 64-byte aligned. */
struct gemmar_fused_params {
    CUtensorMap a, b;
    CUtensorMap c[GEMMAR_MAX_LOCAL_RANKS]; /* [locals] */
    struct gemmar_call call;
    /* Not NULL: when a CTA did what, [ctas][items][GEMMAR_TRACE_EVENTS] nanoseconds of the device's
     * clock (kernels/trace.h). Device memory, zeroed before the call; read after it. */
    uint64_t *trace;
    uint32_t trace_items; /* of a CTA that fit */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Load every variant now: loading one behind a kernel that waits for a peer can block for ever.
 * Gives the number of CTAs that the current device can hold at once. */
cudaError_t gemmar_sm90_load(uint32_t *most_ctas);

/* Enqueue one call of this rank on `stream`: a cooperative launch, so that a grid that cannot be
 * resident is refused (cudaErrorCooperativeLaunchTooLarge). `targets` is [locals]. A and B begin on
 * 16 bytes and have rows of a multiple of 16 bytes. All pointers of the call are
 * device-accessible. `trace`: struct gemmar_fused_params. Does not synchronise. */
cudaError_t gemmar_sm90_launch(const struct gemmar_call *call, const struct gemmar_target *targets,
                               uint64_t *trace, uint32_t trace_items, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
