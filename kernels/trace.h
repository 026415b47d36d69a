// SPDX-License-Identifier: Apache-2.0
// Stage trace of the tensor-core kernel: what it has of an item, and the file that tools/plot-trace
// reads.
#ifndef GEMMAR_KERNELS_TRACE_H
#define GEMMAR_KERNELS_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a trace has of half 0 of one item, in the order of time: nanoseconds of the GPU's clock, 0
 * for what did not happen. */
enum gemmar_trace_event {
    GEMMAR_TRACE_KIND = 0, /* not a time: 1 + owner, with enum gemmar_item_kind in the upper half */
    GEMMAR_TRACE_BEGIN,    /* consumer: the first k block is waited for */
    GEMMAR_TRACE_PRODUCT,  /* consumer: the product is done */
    GEMMAR_TRACE_SOURCE,   /* producer: the last source is on its way into the stages */
    GEMMAR_TRACE_STAGED,   /* consumer: staging is filled */
    GEMMAR_TRACE_READ,     /* courier: staging has been read */
    GEMMAR_TRACE_STORED,   /* courier: the stores are complete and stamped */
    GEMMAR_TRACE_EVENTS = 8,
};

#define GEMMAR_TRACE_KIND_SHIFT 32
#define GEMMAR_TRACE_WAY_BYTES  32

/* What a trace is of. */
struct gemmar_traced {
    int64_t m, n, k;
    uint32_t rank;
    char way[GEMMAR_TRACE_WAY_BYTES];
};

#ifdef __cplusplus
extern "C" {
#endif

/* "push", "direct pull", ...: the name of a call's way. enum gemmar_algo, enum gemmar_strategy. */
void gemmar_trace_name(uint32_t algo, uint32_t strategy, uint32_t locals,
                       char out_way[GEMMAR_TRACE_WAY_BYTES]);

/* `pattern` with every %r replaced by the rank. 0 or -ENAMETOOLONG. */
int gemmar_trace_path(const char *pattern, uint32_t rank, char *out_path, size_t bytes);

/* A line for each item that ran: MxNxK, rank, way, CTA, item, then its events, [ctas][items]
 * [GEMMAR_TRACE_EVENTS]. CTAs and items ascend. */
void gemmar_trace_print(FILE *file, const struct gemmar_traced *of, const uint64_t *events,
                        uint32_t ctas, uint32_t items);

/* The same at the end of a file, in one write: traces of ranks that share a file on one machine do
 * not mix. 0 or a negative errno. */
int gemmar_trace_append(int fd, const struct gemmar_traced *of, const uint64_t *events,
                        uint32_t ctas, uint32_t items);

#ifdef __cplusplus
}
#endif

#endif
