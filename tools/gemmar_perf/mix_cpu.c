// SPDX-License-Identifier: Apache-2.0
// Calls of mixed shapes on the CPU.
#include <stdlib.h>

#include "tools/gemmar_perf/mix.h"

#define BURST_BYTES (UINT64_C(256) << 20)

struct mix {
    struct gemmar_perf_mixed calls; /* first: what the callbacks are given */
    struct gemmar_perf_buffers buffers[GEMMAR_PERF_BURST];
    uint32_t open; /* of buffers */
    double bytes;  /* of the burst */
};

static double bytes_of(const struct gemmar_perf_shape *shape, gemmarDataType_t dtype)
{
    return ((double)shape->m * (double)shape->k + (double)shape->k * (double)shape->n +
            (double)shape->m * (double)shape->n) *
           (double)gemmar_perf_dtype_bytes(dtype);
}

static int prepare(struct gemmar_perf_mixed *calls, uint32_t i,
                   const struct gemmar_perf_shape *shape)
{
    struct mix *m = (struct mix *)calls;
    struct gemmar_perf_buffers *b = &m->buffers[i];

    m->bytes = (i > 0 ? m->bytes : 0) + bytes_of(shape, calls->s->o->dtype);
    if (i > 0 && m->bytes > (double)BURST_BYTES) {
        return GEMMAR_PERF_FULL;
    }
    if (gemmar_perf_buffers_init(b, &calls->in[i]) != 0) {
        return 1;
    }
    m->open = i + 1;
    calls->operands[i] = (struct gemmar_perf_operands){b->a, b->b, b->c};
    if (gemmar_perf_fill(calls->s, &calls->in[i], b) != 0) {
        return 1;
    }
    gemmar_perf_buffers_poison(b);
    return 0;
}

static int call(struct gemmar_perf_mixed *calls, const struct gemmar_perf_inputs *in, uint32_t i)
{
    struct mix *m = (struct mix *)calls;
    double us;

    return gemmar_perf_call(calls->s, in, &m->buffers[i], &us) != gemmarSuccess;
}

static int verify(struct gemmar_perf_mixed *calls, uint32_t i, uint64_t *out_sum)
{
    const struct gemmar_perf_buffers *b = &((struct mix *)calls)->buffers[i];

    if (gemmar_perf_verify(calls->s, &calls->in[i], b, false, &calls->verdict) != 0) {
        return 1;
    }
    *out_sum = gemmar_perf_checksum(1, b->c, b->c_bytes);
    return 0;
}

static void release(struct gemmar_perf_mixed *calls)
{
    struct mix *m = (struct mix *)calls;

    for (uint32_t i = 0; i < m->open; i++) {
        gemmar_perf_buffers_release(&m->buffers[i]);
    }
    m->open = 0;
}

int gemmar_perf_mixed_calls(struct gemmar_perf_session *s)
{
    static const struct gemmar_perf_mixed_device cpu = {.how = "on the CPU",
                                                        .prepare = prepare,
                                                        .call = call,
                                                        .verify = verify,
                                                        .release = release};
    struct mix *m = calloc(1, sizeof(*m));
    int status = m == NULL || gemmar_perf_mixed_run(&m->calls, s, &cpu);

    free(m);
    return status;
}
