// SPDX-License-Identifier: Apache-2.0
// Calls of mixed shapes on GPUs: those of a burst follow each other on the stream, eager or as one
// graph.
#include <stdlib.h>

#include "tools/gemmar_perf/gpu/measure.h"
#include "tools/gemmar_perf/mix.h"
#include "tools/gemmar_perf/say.h"

struct mix {
    struct gemmar_perf_mixed calls; /* first: what the callbacks are given */
    struct gemmar_perf_gpu_buffers buffers[GEMMAR_PERF_BURST];
    size_t operands, output; /* bytes that the burst has of each */
};

static int prepare(struct gemmar_perf_mixed *calls, uint32_t i,
                   const struct gemmar_perf_shape *shape)
{
    struct mix *m = (struct mix *)calls;
    struct gemmar_perf_gpu *g = calls->s->gpu;
    struct gemmar_perf_gpu_buffers *b = &m->buffers[i];
    size_t operands = gemmar_perf_gpu_operand_bytes(shape);
    size_t output = gemmar_perf_gpu_output_bytes(shape);

    if (i == 0) {
        m->operands = m->output = 0;
    }
    if (m->operands + operands > g->operands.bytes || m->output + output > g->output.bytes) {
        return GEMMAR_PERF_FULL;
    }
    *b = gemmar_perf_gpu_buffers(g, shape, m->operands, m->output);
    m->operands += operands;
    m->output += output;
    calls->operands[i] = (struct gemmar_perf_operands){b->a, b->b, b->c};
    gemmar_perf_gpu_doing(calls->s, &calls->in[i], "mixed calls");
    return gemmar_perf_gpu_operands(calls->s, &calls->in[i], b) != 0 ||
           gemmar_perf_gpu_poison(calls->s, b) != 0;
}

static int call(struct gemmar_perf_mixed *calls, const struct gemmar_perf_inputs *in, uint32_t i)
{
    struct mix *m = (struct mix *)calls;

    return gemmar_perf_gpu_skew(calls->s) != 0 ||
           gemmar_perf_gpu_call(calls->s, in, &m->buffers[i], NULL) != gemmarSuccess;
}

/* The calls of a burst, nothing else: what a graph holds. */
static int enqueue_burst(void *what)
{
    struct gemmar_perf_mixed *calls = what;

    for (uint32_t i = 0; i < calls->count; i++) {
        if (call(calls, &calls->in[i], i) != 0) {
            return 1;
        }
    }
    return 0;
}

static int replay(struct gemmar_perf_mixed *calls)
{
    struct gemmar_perf_session *s = calls->s;
    cudaGraphExec_t graph = NULL;
    int status = gemmar_perf_capture(s, enqueue_burst, calls, &graph) ||
                 gemmar_perf_gpu_bad(cudaGraphLaunch(graph, s->gpu->stream), "cannot replay") ||
                 gemmar_perf_gpu_wait(s);

    if (graph != NULL) {
        (void)cudaGraphExecDestroy(graph);
    }
    return status;
}

static int verify(struct gemmar_perf_mixed *calls, uint32_t i, uint64_t *out_sum)
{
    struct mix *m = (struct mix *)calls;

    return gemmar_perf_gpu_verify(calls->s, &calls->in[i], &m->buffers[i], &calls->verdict,
                                  out_sum);
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

/* A line of JSON beside the shapes'. */
static int report(const struct gemmar_perf_mixed *m)
{
    const struct gemmar_perf_session *s = m->s;
    const struct gemmar_perf_options *o = s->o;

    if (s->rank != 0 || s->json == NULL) {
        return 0;
    }
    (void)fprintf(s->json,
                  "{\"mix\": %u, \"shapes\": %zu, \"dtype\": \"%s\", \"layout\": \"%s\", "
                  "\"nodes\": %u, \"ranks_per_node\": %u, \"algo\": \"%s\", "
                  "\"device\": \"cuda\", \"graph\": %s, \"output\": \"%s\", \"seed\": %llu, "
                  "\"skew_us\": %u, \"empty\": %u, \"refused\": %u, \"wrong\": %llu, "
                  "\"bit_identical\": %s",
                  o->mix, o->shapes.count, gemmar_perf_dtype_name(o->dtype),
                  o->trans_b ? "nt" : "nn", s->nodes, s->ranks_per_node,
                  gemmar_perf_algo_name(o->algo), o->graph ? "true" : "false",
                  o->plain ? "plain" : "registered", (unsigned long long)o->seed, o->skew_us,
                  m->empty, m->refused, (unsigned long long)s->wrong, s->failed ? "false" : "true");
    return gemmar_perf_gpu_report_json_end(s, s->json) != 0;
}

int gemmar_perf_gpu_mixed_calls(struct gemmar_perf_session *s)
{
    const struct gemmar_perf_mixed_device gpu = {.how = s->o->graph ? "replayed" : "eager",
                                                 .stream = s->gpu->stream,
                                                 .prepare = prepare,
                                                 .call = call,
                                                 .replay = s->o->graph ? replay : NULL,
                                                 .verify = verify};
    struct mix *m = calloc(1, sizeof(*m));
    int status =
        m == NULL || reserve(s) || gemmar_perf_mixed_run(&m->calls, s, &gpu) || report(&m->calls);

    free(m);
    return status;
}
