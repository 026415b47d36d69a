// SPDX-License-Identifier: Apache-2.0
// One rank's run: its communicator, and how it calls the operator.
#ifndef GEMMAR_PERF_SESSION_H
#define GEMMAR_PERF_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <gemmar/gemmar.h>

#include "tools/gemmar_perf/check.h"
#include "tools/gemmar_perf/inputs.h"
#include "tools/gemmar_perf/meet.h"
#include "tools/gemmar_perf/options.h"
#include "tools/gemmar_perf/place.h"

#define GEMMAR_PERF_WHY_BYTES 1024

struct gemmar_perf_gpu;

struct gemmar_perf_session {
    const struct gemmar_perf_options *o;
    uint32_t rank, ranks;
    struct gemmar_perf_meet *meet;
    gemmarComm_t comm;
    gemmarConfig_t config;
    uint32_t nodes, ranks_per_node;
    uint32_t *node_of_rank;      /* [ranks] */
    uint64_t calls;              /* made, for the random delays */
    uint64_t results;            /* checked */
    uint64_t checksum;           /* of all checked results, in order */
    uint64_t wrong;              /* all shapes, all ranks */
    uint64_t workspace;          /* the largest that a shape so far asked for */
    bool failed;                 /* something else than a wrong element was found, and said */
    struct gemmar_perf_gpu *gpu; /* --device cuda, else NULL */
    FILE *json;                  /* rank 0 */
    char machine[256];
    char command[4096];
};

/* Operands and result of one call. */
struct gemmar_perf_buffers {
    void *a, *b, *c;
    size_t c_bytes; /* guard bytes follow */
};

/* Makes s->comm of s->config. 0, or the exit status after a sentence. */
typedef int (*gemmar_perf_make)(struct gemmar_perf_session *s);
/* On the CPU: its ranks find each other through the session. */
int gemmar_perf_make_host(struct gemmar_perf_session *s);

/* Meet the others, compare the options, make the communicator. 0, or the exit status of the
 * process, after a sentence. */
int gemmar_perf_session_open(struct gemmar_perf_session *s, const struct gemmar_perf_options *o,
                             const struct gemmar_perf_place *place, char **argv,
                             gemmar_perf_make make);
/* Destroy the communicator and leave the others; accepts a half-open session. 0 or the status. */
int gemmar_perf_session_close(struct gemmar_perf_session *s);

/* Allocate for a shape. 0, or -ENOMEM after a sentence. */
int gemmar_perf_buffers_init(struct gemmar_perf_buffers *b, const struct gemmar_perf_inputs *in);
void gemmar_perf_buffers_release(struct gemmar_perf_buffers *b);
/* This rank's operands of one call. 0, or an errno after a sentence; meanwhile the others wait. */
int gemmar_perf_fill(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                     const struct gemmar_perf_buffers *b);
/* Fill the result with NaNs and the guard with a pattern. */
void gemmar_perf_buffers_poison(struct gemmar_perf_buffers *b);
/* Has a byte behind the result changed? */
bool gemmar_perf_buffers_overrun(const struct gemmar_perf_buffers *b);

/* Operands and result of one call, wherever they lie. */
struct gemmar_perf_operands {
    void *a, *b, *c;
};

/* One call of the operator. Returns the library's code, after a sentence; *out_us: time that the
 * caller's CPU spent in it. */
gemmarResult_t gemmar_perf_fused(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                                 const struct gemmar_perf_operands *operands, gemmarStream_t stream,
                                 double *out_us);

/* One call, after its random delay. Returns the library's code, after a sentence; *out_us is the
 * time of the call without the delay. */
gemmarResult_t gemmar_perf_call(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                                const struct gemmar_perf_buffers *b, double *out_us);

/* Check this rank's share (with `all`: every row) and the guard; adds to the verdict. 0, or the
 * exit status after a sentence. A wrong element is described once. */
int gemmar_perf_verify(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                       const struct gemmar_perf_buffers *b, bool all,
                       struct gemmar_perf_verdict *verdict);

/* Say what failed, with the library's sentence. */
void gemmar_perf_say_error(struct gemmar_perf_session *s, const char *doing, gemmarResult_t result);

/* The random delay before the next call of this rank, in microseconds. */
uint64_t gemmar_perf_next_delay(struct gemmar_perf_session *s);

/* gemmar_perf_meet_gather(), with a sentence on failure. 0 or the exit status. */
int gemmar_perf_gather(struct gemmar_perf_session *s, const void *mine, void *all, size_t bytes);

/* What a shape's inputs are in this session. */
struct gemmar_perf_inputs gemmar_perf_session_inputs(const struct gemmar_perf_session *s,
                                                     const struct gemmar_perf_shape *shape,
                                                     enum gemmar_perf_kind kind, uint64_t call);

#endif
