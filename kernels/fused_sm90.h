// SPDX-License-Identifier: Apache-2.0
// The tensor-core kernel: product and all-reduce in one launch. With one rank it is a plain matrix
// product.
#ifndef GEMMAR_KERNELS_FUSED_SM90_H
#define GEMMAR_KERNELS_FUSED_SM90_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/call.h"

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
     * clock, for half 0 of each tile. Device memory; read after the call. */
    uint64_t *trace;
    uint32_t trace_items; /* of a CTA that fit */
};

/* What a trace has of one tile, in the order of time. */
enum gemmar_trace_event {
    GEMMAR_TRACE_KIND = 0, /* not a time: 1 + owner */
    GEMMAR_TRACE_BEGIN,    /* consumer: the first k block is waited for */
    GEMMAR_TRACE_PRODUCT,  /* consumer: the product is done */
    GEMMAR_TRACE_SOURCE,   /* producer: the last source is on its way into the stages */
    GEMMAR_TRACE_STAGED,   /* consumer: staging is filled */
    GEMMAR_TRACE_READ,     /* courier: staging has been read */
    GEMMAR_TRACE_STORED,   /* courier: the stores are complete and stamped */
    GEMMAR_TRACE_EVENTS = 8,
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
 * device-accessible. Does not synchronise. */
cudaError_t gemmar_sm90_launch(const struct gemmar_call *call, const struct gemmar_target *targets,
                               cudaStream_t stream);

/* The same with a trace. */
cudaError_t gemmar_sm90_launch_traced(const struct gemmar_call *call,
                                      const struct gemmar_target *targets, uint64_t *trace,
                                      uint32_t trace_items, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
