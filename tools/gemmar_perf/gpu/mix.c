// SPDX-License-Identifier: Apache-2.0
// Many calls of mixed shapes on GPUs, each with new inputs, all checked. The calls of a burst
// follow each other on the stream without a word between the ranks, eager or as one graph; between
// them come calls without output and calls that must be refused.
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/gpu/measure.h"
#include "tools/gemmar_perf/library_log.h"
#include "tools/gemmar_perf/say.h"

#define BURST       12u
#define EMPTY_EVERY 7u
#define WRONG_EVERY 11u

struct mix {
    struct gemmar_perf_session *s;
    struct gemmar_perf_inputs in[BURST];
    struct gemmar_perf_gpu_buffers buffers[BURST];
    uint32_t count; /* in the burst */
    uint64_t *sums; /* [calls] checksum of each result */
    struct gemmar_perf_verdict verdict;
    uint32_t empty, refused;
};

static uint64_t draw(const struct mix *m, uint32_t call, uint32_t what)
{
    return gemmar_perf_mix(gemmar_perf_mix(m->s->o->seed, 1000 + what), call);
}

/* Make the operands of as many calls as fit, at least one. */
static int prepare(struct mix *m, uint32_t first)
{
    const struct gemmar_perf_options *o = m->s->o;
    struct gemmar_perf_gpu *g = m->s->gpu;
    size_t operands = 0, output = 0;

    for (m->count = 0; m->count < BURST && first + m->count < o->mix; m->count++) {
        uint32_t call = first + m->count, i = m->count;
        const struct gemmar_perf_shape *shape =
            &o->shapes.shape[draw(m, call, 0) % o->shapes.count];
        enum gemmar_perf_kind kind = call % 8 == 7 ? GEMMAR_PERF_NORMAL : GEMMAR_PERF_EXACT;
        size_t more = gemmar_perf_gpu_operand_bytes(shape);
        size_t more_output = gemmar_perf_gpu_output_bytes(shape);

        if (operands + more > g->operands.bytes || output + more_output > g->output.bytes) {
            break;
        }
        m->in[i] = gemmar_perf_session_inputs(m->s, shape, kind, call);
        m->buffers[i] = gemmar_perf_gpu_buffers(g, shape, operands, output);
        operands += more;
        output += more_output;
        gemmar_perf_gpu_doing(m->s, &m->in[i], "mixed calls");
        if (gemmar_perf_gpu_operands(m->s, &m->in[i], &m->buffers[i]) != 0 ||
            gemmar_perf_gpu_poison(m->s, &m->buffers[i]) != 0) {
            return 1;
        }
    }
    return 0;
}

/* A call with no output: nothing to do, and nothing may happen. */
static int empty_call(struct mix *m, uint32_t call, uint32_t i)
{
    struct gemmar_perf_inputs in = m->in[i];

    if (draw(m, call, 1) & 1) {
        in.m = 0;
    } else {
        in.n = 0;
    }
    m->empty++;
    return gemmar_perf_gpu_call(m->s, &in, &m->buffers[i], NULL) != gemmarSuccess;
}

static int refused_call(struct mix *m, uint32_t call, uint32_t i)
{
    const struct gemmar_perf_inputs *in = &m->in[i];
    const struct gemmar_perf_gpu_buffers *b = &m->buffers[i];
    gemmarStream_t stream = m->s->gpu->stream;
    unsigned mark = gemmar_perf_library_log_mark();
    gemmarResult_t result;

    switch (draw(m, call, 2) % 3) {
    case 0:
        result = gemmar_fused(b->a, b->b, b->c, -1, in->n, in->k, in->dtype, m->s->comm, stream);
        break;
    case 1:
        result = gemmar_fused(b->a, b->b, b->c, in->m, in->n, in->k, (gemmarDataType_t)99,
                              m->s->comm, stream);
        break;
    default:
        result = gemmar_fused(NULL, NULL, NULL, 16, 16, 16, in->dtype, m->s->comm, stream);
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

/* The calls of a burst, nothing else: what a graph holds. */
static int enqueue_burst(void *what)
{
    struct mix *m = what;

    for (uint32_t i = 0; i < m->count; i++) {
        if (gemmar_perf_gpu_skew(m->s) != 0 ||
            gemmar_perf_gpu_call(m->s, &m->in[i], &m->buffers[i], NULL) != gemmarSuccess) {
            return 1;
        }
    }
    return 0;
}

static int run_eager(struct mix *m, uint32_t first)
{
    for (uint32_t i = 0; i < m->count; i++) {
        uint32_t call = first + i;

        if (call % EMPTY_EVERY == EMPTY_EVERY - 1 && empty_call(m, call, i) != 0) {
            return 1;
        }
        /* odd ranks only, every other time: a refusal is nobody else's business */
        if (call % WRONG_EVERY == WRONG_EVERY - 1 && (call & 1 || m->s->rank & 1) &&
            refused_call(m, call, i) != 0) {
            return 1;
        }
        if (gemmar_perf_gpu_skew(m->s) != 0 ||
            gemmar_perf_gpu_call(m->s, &m->in[i], &m->buffers[i], NULL) != gemmarSuccess) {
            return 1;
        }
    }
    return 0;
}

static int run_burst(struct mix *m, uint32_t first)
{
    cudaGraphExec_t graph = NULL;
    int status;

    if (!m->s->o->graph) {
        return run_eager(m, first);
    }
    status = gemmar_perf_capture(m->s, enqueue_burst, m, &graph) ||
             gemmar_perf_gpu_bad(cudaGraphLaunch(graph, m->s->gpu->stream), "cannot replay") ||
             gemmar_perf_gpu_wait(m->s);
    if (graph != NULL) {
        (void)cudaGraphExecDestroy(graph);
    }
    return status;
}

static int look_at_burst(struct mix *m, uint32_t first)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (gemmar_perf_gpu_verify(m->s, &m->in[i], &m->buffers[i], &m->verdict,
                                   &m->sums[first + i]) != 0) {
            return 1;
        }
        m->s->checksum = gemmar_perf_mix(m->s->checksum, m->sums[first + i]);
        m->s->results++;
    }
    return 0;
}

/* A captured call may not grow the workspace: the largest of every shape first. */
static int reserve(struct gemmar_perf_session *s)
{
    for (size_t i = 0; i < s->o->shapes.count && s->o->graph; i++) {
        const struct gemmar_perf_shape *shape = &s->o->shapes.shape[i];
        gemmarResult_t result =
            gemmarCommReserve(s->comm, shape->m, shape->n, shape->k, s->o->dtype);

        if (result != gemmarSuccess) {
            gemmar_perf_say_error(s, "gemmarCommReserve", result);
            return 1;
        }
    }
    return 0;
}

/* All ranks' checksums of all calls, and their wrong elements. */
static int join(struct mix *m)
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

/* A line of JSON beside the shapes'. */
static int report(const struct mix *m)
{
    const struct gemmar_perf_session *s = m->s;
    const struct gemmar_perf_options *o = s->o;

    gemmar_perf_library_log_flush();
    if (s->rank != 0) {
        return 0;
    }
    (void)printf("# %u calls of %zu shapes, %s, %u empty and %u refused calls between them: %llu "
                 "wrong elements\n",
                 o->mix, o->shapes.count, o->graph ? "replayed" : "eager", m->empty, m->refused,
                 (unsigned long long)s->wrong);
    if (s->json == NULL) {
        return 0;
    }
    (void)fprintf(s->json,
                  "{\"mix\": %u, \"shapes\": %zu, \"dtype\": \"%s\", \"layout\": \"%s\", "
                  "\"device\": \"cuda\", \"graph\": %s, \"output\": \"%s\", \"seed\": %llu, "
                  "\"skew_us\": %u, \"empty\": %u, \"refused\": %u, \"wrong\": %llu, "
                  "\"bit_identical\": %s",
                  o->mix, o->shapes.count, gemmar_perf_dtype_name(o->dtype),
                  o->trans_b ? "nt" : "nn", o->graph ? "true" : "false",
                  o->plain ? "plain" : "registered", (unsigned long long)o->seed, o->skew_us,
                  m->empty, m->refused, (unsigned long long)s->wrong, s->failed ? "false" : "true");
    return gemmar_perf_gpu_report_json_end(s, s->json) != 0;
}

int gemmar_perf_gpu_mixed_calls(struct gemmar_perf_session *s)
{
    struct mix *m = calloc(1, sizeof(*m));
    int status = m == NULL;

    if (status == 0) {
        m->s = s;
        m->sums = calloc(s->o->mix, sizeof(*m->sums));
        status = m->sums == NULL || reserve(s);
    }
    for (uint32_t first = 0; status == 0 && first < s->o->mix; first += m->count) {
        status = prepare(m, first) || run_burst(m, first) || look_at_burst(m, first);
        gemmar_perf_progress("call %u of %u", first + m->count, s->o->mix);
    }
    status = status || join(m) || report(m);
    if (m != NULL) {
        free(m->sums);
    }
    free(m);
    return status;
}
