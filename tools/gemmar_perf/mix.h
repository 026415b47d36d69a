// SPDX-License-Identifier: Apache-2.0
// Many calls of mixed shapes in one communicator, each with new inputs, all checked.
#ifndef GEMMAR_PERF_MIX_H
#define GEMMAR_PERF_MIX_H

#include "tools/gemmar_perf/session.h"

#define GEMMAR_PERF_BURST 12u /* calls that follow each other without a word between the ranks */
#define GEMMAR_PERF_FULL  (-1)

/* The burst at hand and what has been found so far. A device puts its own part behind it. */
struct gemmar_perf_mixed {
    struct gemmar_perf_session *s;
    struct gemmar_perf_inputs in[GEMMAR_PERF_BURST];
    struct gemmar_perf_operands operands[GEMMAR_PERF_BURST];
    uint32_t count; /* in the burst */
    uint64_t *sums; /* [calls] checksum of each result */
    struct gemmar_perf_verdict verdict;
    uint32_t empty, refused;
};

/* What the CPU and the GPU do in their own ways. 0, or 1 after a sentence. */
struct gemmar_perf_mixed_device {
    const char *how; /* the calls are made, for the last line */
    gemmarStream_t stream;
    /* Memory and inputs of call i of the burst, m->operands[i]. GEMMAR_PERF_FULL: no room for it in
     * this burst, which is not so for call 0. */
    int (*prepare)(struct gemmar_perf_mixed *m, uint32_t i, const struct gemmar_perf_shape *shape);
    /* A call with the operands of call i, after a random delay. */
    int (*call)(struct gemmar_perf_mixed *m, const struct gemmar_perf_inputs *in, uint32_t i);
    /* All calls of the burst in another way than one after the other; may be NULL. */
    int (*replay)(struct gemmar_perf_mixed *m);
    int (*verify)(struct gemmar_perf_mixed *m, uint32_t i, uint64_t *out_sum);
    void (*release)(struct gemmar_perf_mixed *m); /* the memory of the burst; may be NULL */
};

/* All calls, what all ranks found, and a line about it. `m` begins with zeros. Collective. 0, or
 * the exit status after a sentence; wrong elements are counted in the session. */
int gemmar_perf_mixed_run(struct gemmar_perf_mixed *m, struct gemmar_perf_session *s,
                          const struct gemmar_perf_mixed_device *device);

/* --mix on the CPU. As above. */
int gemmar_perf_mixed_calls(struct gemmar_perf_session *s);

#endif
