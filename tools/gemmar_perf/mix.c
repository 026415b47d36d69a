// SPDX-License-Identifier: Apache-2.0
// Many calls of mixed shapes in one communicator, each with new inputs, all checked. The calls of
// a burst follow each other without a word between the ranks, their results are looked at after
// it; in between come calls without work and calls that must be refused, which may not advance
// the protocol on any rank.
#include "tools/gemmar_perf/mix.h"

#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/library_log.h"
#include "tools/gemmar_perf/say.h"

#define EMPTY_EVERY 7u
#define WRONG_EVERY 11u

static uint64_t draw(const struct gemmar_perf_mixed *m, uint32_t call, uint32_t what)
{
    return gemmar_perf_mix(gemmar_perf_mix(m->s->o->seed, 1000 + what), call);
}

/* Make the operands of as many calls as fit, at least one. */
static int prepare(struct gemmar_perf_mixed *m, const struct gemmar_perf_mixed_device *device,
                   uint32_t first)
{
    const struct gemmar_perf_options *o = m->s->o;

    for (m->count = 0; m->count < GEMMAR_PERF_BURST && first + m->count < o->mix; m->count++) {
        uint32_t call = first + m->count, i = m->count;
        const struct gemmar_perf_shape *shape =
            &o->shapes.shape[draw(m, call, 0) % o->shapes.count];
        enum gemmar_perf_kind kind = call % 8 == 7 ? GEMMAR_PERF_NORMAL : GEMMAR_PERF_EXACT;
        int status;

        m->in[i] = gemmar_perf_session_inputs(m->s, shape, kind, call);
        status = device->prepare(m, i, shape);
        if (status != 0) {
            return status == GEMMAR_PERF_FULL ? 0 : status;
        }
    }
    return 0;
}

/* A call with no output: nothing to do, and nothing may happen. */
static int empty_call(struct gemmar_perf_mixed *m, const struct gemmar_perf_mixed_device *device,
                      uint32_t call, uint32_t i)
{
    struct gemmar_perf_inputs in = m->in[i];

    if (draw(m, call, 1) & 1) {
        in.m = 0;
    } else {
        in.n = 0;
    }
    m->empty++;
    return device->call(m, &in, i);
}

/* A call whose arguments are wrong on this rank only, or on all. */
static int refused_call(struct gemmar_perf_mixed *m, const struct gemmar_perf_mixed_device *device,
                        uint32_t call, uint32_t i)
{
    const struct gemmar_perf_inputs *in = &m->in[i];
    const struct gemmar_perf_operands *b = &m->operands[i];
    unsigned mark = gemmar_perf_library_log_mark();
    gemmarResult_t result;

    switch (draw(m, call, 2) % 3) {
    case 0:
        result =
            gemmar_fused(b->a, b->b, b->c, -1, in->n, in->k, in->dtype, m->s->comm, device->stream);
        break;
    case 1:
        result = gemmar_fused(b->a, b->b, b->c, in->m, in->n, in->k, (gemmarDataType_t)99,
                              m->s->comm, device->stream);
        break;
    default:
        result = gemmar_fused(NULL, NULL, NULL, 16, 16, 16, in->dtype, m->s->comm, device->stream);
        break;
    }
    m->refused++;
    gemmar_perf_library_log_forget(mark);
    if (result != gemmarInvalidArgument) {
        gemmar_perf_say("a call with wrong arguments returned '%s', want '%s'",
                        gemmarGetErrorString(result), gemmarGetErrorString(gemmarInvalidArgument));
        return 1;
    }
    return 0;
}

static int run_burst(struct gemmar_perf_mixed *m, const struct gemmar_perf_mixed_device *device,
                     uint32_t first)
{
    if (device->replay != NULL) {
        return device->replay(m);
    }
    for (uint32_t i = 0; i < m->count; i++) {
        uint32_t call = first + i;

        if (call % EMPTY_EVERY == EMPTY_EVERY - 1 && empty_call(m, device, call, i) != 0) {
            return 1;
        }
        /* odd ranks only, every other time: a refusal is nobody else's business */
        if (call % WRONG_EVERY == WRONG_EVERY - 1 && (call & 1 || m->s->rank & 1) &&
            refused_call(m, device, call, i) != 0) {
            return 1;
        }
        if (device->call(m, &m->in[i], i) != 0) {
            return 1;
        }
    }
    return 0;
}

static int look_at_burst(struct gemmar_perf_mixed *m, const struct gemmar_perf_mixed_device *device,
                         uint32_t first)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (device->verify(m, i, &m->sums[first + i]) != 0) {
            return 1;
        }
        m->s->checksum = gemmar_perf_mix(m->s->checksum, m->sums[first + i]);
        m->s->results++;
    }
    return 0;
}

/* All ranks' checksums of all calls, and their wrong elements. */
static int join(struct gemmar_perf_mixed *m)
{
    struct gemmar_perf_session *s = m->s;
    uint32_t calls = s->o->mix, words = calls + 2;
    uint64_t *mine = malloc(words * sizeof(*mine));
    uint64_t *all = malloc((size_t)words * s->ranks * sizeof(*all));
    int status = mine == NULL || all == NULL;

    if (status == 0) {
        memcpy(mine, m->sums, calls * sizeof(*mine));
        mine[calls] = m->verdict.wrong;
        mine[calls + 1] = s->failed;
        status = gemmar_perf_gather(s, mine, all, words * sizeof(*mine));
    }
    for (uint32_t r = 0; r < s->ranks && status == 0; r++) {
        s->wrong += all[r * words + calls];
        s->failed = s->failed || all[r * words + calls + 1];
        for (uint32_t c = 0; c < calls; c++) {
            if (all[r * words + c] != all[c]) {
                gemmar_perf_say("rank %u holds other bits than rank 0 after call %u", r, c);
                s->failed = true;
                break;
            }
        }
    }
    free(all);
    free(mine);
    return status;
}

static void tell(const struct gemmar_perf_mixed *m, const struct gemmar_perf_mixed_device *device)
{
    const struct gemmar_perf_session *s = m->s;

    gemmar_perf_library_log_flush();
    if (s->rank == 0) {
        (void)printf("# %u calls of %zu shapes, %s, %u empty and %u refused calls between them: "
                     "%llu wrong elements\n",
                     s->o->mix, s->o->shapes.count, device->how, m->empty, m->refused,
                     (unsigned long long)s->wrong);
    }
}

int gemmar_perf_mixed_run(struct gemmar_perf_mixed *m, struct gemmar_perf_session *s,
                          const struct gemmar_perf_mixed_device *device)
{
    int status;

    m->s = s;
    m->sums = calloc(s->o->mix, sizeof(*m->sums));
    status = m->sums == NULL;
    for (uint32_t first = 0; status == 0 && first < s->o->mix; first += m->count) {
        status = prepare(m, device, first) || run_burst(m, device, first) ||
                 look_at_burst(m, device, first);
        if (device->release != NULL) {
            device->release(m);
        }
        gemmar_perf_progress("call %u of %u", first + m->count, s->o->mix);
    }
    status = status || join(m);
    if (status == 0) {
        tell(m, device);
    }
    free(m->sums);
    m->sums = NULL;
    return status;
}
