// SPDX-License-Identifier: Apache-2.0
// The ways to the same result that are timed against each other.
//
// Each timed call begins behind a gate that all ranks' streams pass together once every rank's CPU
// has enqueued the call: no way pays for launches, all ways are timed alike. Ways alternate in
// rounds, so that clocks and temperature are alike too. The L2 cache is not flushed; operands that
// it could hold from call to call are taken in turn.
#include "tools/gemmar_perf/gpu/ways.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/gpu/result.h"
#include "tools/gemmar_perf/say.h"

#define ROUNDS      5u
#define ROUNDS_FROM 10u /* calls; fewer are one round */
#define ROUND_WARM  2u  /* untimed calls before a later round */
#define HOST_CALLS  17u

struct timing {
    struct gemmar_perf_session *s;
    struct gemmar_perf_product *product;
    struct gemmar_perf_inputs in[GEMMAR_PERF_GPU_SETS];
    struct gemmar_perf_gpu_buffers set[GEMMAR_PERF_GPU_SETS];
    uint32_t sets;
    bool on[GEMMAR_PERF_WAYS];
    cudaGraphExec_t graph[GEMMAR_PERF_WAYS][GEMMAR_PERF_GPU_SETS];
    double *us[GEMMAR_PERF_WAYS];
    cudaEvent_t *event; /* [2 * per_round] */
    uint32_t rounds, per_round;
};

/* One call of a way on one set of operands. */
struct one {
    struct timing *t;
    enum gemmar_perf_way way;
    uint32_t set;
};

int gemmar_perf_capture(struct gemmar_perf_session *s, int (*enqueue)(void *what), void *what,
                        cudaGraphExec_t *out_graph)
{
    cudaStream_t stream = s->gpu->stream;
    cudaGraph_t graph = NULL;
    int status;

    if (gemmar_perf_gpu_bad(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                            "cannot capture")) {
        return 1;
    }
    status = enqueue(what);
    if (gemmar_perf_gpu_bad(cudaStreamEndCapture(stream, &graph), "cannot capture") ||
        status != 0) {
        return 1;
    }
    status = gemmar_perf_gpu_bad(cudaGraphInstantiate(out_graph, graph, 0), "cannot make a graph");
    (void)cudaGraphDestroy(graph);
    return status ||
           gemmar_perf_gpu_bad(cudaGraphUpload(*out_graph, stream), "cannot load a graph");
}

static bool over_plugin(enum gemmar_perf_way way)
{
    return way == GEMMAR_PERF_PLUGIN || way == GEMMAR_PERF_PLUGIN_GRAPH ||
           way == GEMMAR_PERF_PLUGIN_REDUCE;
}

static int reduce(struct timing *t, enum gemmar_perf_way way)
{
    struct gemmar_perf_gpu *g = t->s->gpu;
    ncclComm_t comm = g->builtin != NULL && !over_plugin(way) ? g->builtin : g->nccl;
    const struct gemmar_perf_inputs *in = &t->in[0];
    ncclDataType_t type = in->dtype == gemmarBfloat16 ? ncclBfloat16 : ncclFloat16;

    return gemmar_perf_gpu_bad_nccl(g,
                                    ncclAllReduce(g->baseline.base, g->baseline.base,
                                                  (size_t)(in->m * in->n), type, ncclSum, comm,
                                                  g->stream),
                                    "ncclAllReduce");
}

static int multiply(struct timing *t, uint32_t set)
{
    struct gemmar_perf_gpu *g = t->s->gpu;

    return gemmar_perf_product_enqueue(t->product, t->set[set].a, t->set[set].b, g->baseline.base,
                                       g->stream);
}

/* Without a graph, or to be captured. */
static int enqueue_plain(void *what)
{
    struct one *one = what;
    struct timing *t = one->t;

    switch (one->way) {
    case GEMMAR_PERF_FUSED:
    case GEMMAR_PERF_FUSED_GRAPH:
        return gemmar_perf_gpu_call(t->s, &t->in[one->set], &t->set[one->set], NULL) !=
               gemmarSuccess;
    case GEMMAR_PERF_BASE:
    case GEMMAR_PERF_BASE_GRAPH:
    case GEMMAR_PERF_PLUGIN:
    case GEMMAR_PERF_PLUGIN_GRAPH: return multiply(t, one->set) || reduce(t, one->way);
    case GEMMAR_PERF_GEMM: return multiply(t, one->set);
    default: return reduce(t, one->way);
    }
}

static int enqueue(struct one *one)
{
    cudaGraphExec_t graph = one->t->graph[one->way][one->set];

    return graph != NULL ? gemmar_perf_gpu_bad(cudaGraphLaunch(graph, one->t->s->gpu->stream),
                                               "cannot launch a graph")
                         : enqueue_plain(one);
}

static bool is_graph(enum gemmar_perf_way way)
{
    return way == GEMMAR_PERF_FUSED_GRAPH || way == GEMMAR_PERF_BASE_GRAPH ||
           way == GEMMAR_PERF_PLUGIN_GRAPH;
}

/* A baseline's first result, when it is two ranks' sum: NCCL rounds more often for more. */
static int check_baseline(struct timing *t, struct gemmar_perf_times *out)
{
    struct gemmar_perf_gpu_buffers b = t->set[0];
    struct gemmar_perf_verdict v = {.wrong = 0};
    uint64_t sum;
    int status;

    if (t->s->ranks != 2 || !t->s->o->check) {
        return 0;
    }
    b.c = t->s->gpu->baseline.base;
    b.guard_bytes = 0;
    status = gemmar_perf_gpu_verify(t->s, &t->in[0], &b, &v, &sum);
    out->baseline_wrong += v.wrong;
    out->checked_baseline = true;
    return status;
}

/* First calls, one after the other: workspaces grow, connections are made, modules are loaded. Then
 * the graphs. */
static int prepare_way(struct timing *t, enum gemmar_perf_way way, struct gemmar_perf_times *out)
{
    struct one one = {t, way, 0};
    int status = 0;

    gemmar_perf_gpu_doing(t->s, &t->in[0], gemmar_perf_way_name(way));
    if (!is_graph(way)) {
        status = enqueue(&one) || gemmar_perf_gpu_wait(t->s);
        return status == 0 && (way == GEMMAR_PERF_BASE || way == GEMMAR_PERF_PLUGIN)
                   ? check_baseline(t, out)
                   : status;
    }
    for (; one.set < t->sets && status == 0; one.set++) {
        status = gemmar_perf_capture(t->s, enqueue_plain, &one, &t->graph[way][one.set]) ||
                 enqueue(&one) || gemmar_perf_gpu_wait(t->s);
    }
    return status;
}

/* One round of one way: `warm` untimed calls, then timed ones into `us`. */
static int run_round(struct timing *t, enum gemmar_perf_way way, uint32_t warm, double *us)
{
    struct gemmar_perf_gpu *g = t->s->gpu;
    int status = 0;

    gemmar_perf_gpu_doing(t->s, &t->in[0], gemmar_perf_way_name(way));
    if (way == GEMMAR_PERF_REDUCE ||
        way == GEMMAR_PERF_PLUGIN_REDUCE) { /* sums of sums would grow from round to round */
        status = multiply(t, 0);
    }
    for (uint32_t i = 0; i < warm + t->per_round && status == 0; i++) {
        struct one one = {t, way, i % t->sets};
        cudaEvent_t *event = i < warm ? NULL : &t->event[2 * (i - warm)];

        status =
            gemmar_perf_gate_shut(&g->gate, g->stream) ||
            (event != NULL && gemmar_perf_gpu_bad(cudaEventRecord(event[0], g->stream), "event")) ||
            enqueue(&one) ||
            (event != NULL && gemmar_perf_gpu_bad(cudaEventRecord(event[1], g->stream), "event"));
        gemmar_perf_gate_lift(&g->gate);
    }
    status = status || gemmar_perf_gpu_wait(t->s);
    for (uint32_t i = 0; i < t->per_round && status == 0; i++) {
        float ms = 0;

        status = gemmar_perf_gpu_bad(
            cudaEventElapsedTime(&ms, t->event[2 * i], t->event[2 * i + 1]), "event");
        us[i] = ms * 1e3;
    }
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* What a call costs the CPU: calls that follow each other without a word between the ranks. */
static int time_host(struct timing *t, double *out_us)
{
    double us[HOST_CALLS];
    int status = 0;

    gemmar_perf_gpu_doing(t->s, &t->in[0], "calls without a common start");
    for (uint32_t i = 0; i < HOST_CALLS && status == 0; i++) {
        uint32_t set = i % t->sets;

        status = gemmar_perf_gpu_call(t->s, &t->in[set], &t->set[set], &us[i]) != gemmarSuccess;
    }
    status = status || gemmar_perf_gpu_wait(t->s);
    if (status == 0) {
        *out_us = median(us, HOST_CALLS);
    }
    return status;
}

static int run_rounds(struct timing *t)
{
    uint32_t warm = t->s->o->warmup;

    for (uint32_t round = 0; round < t->rounds; round++) {
        for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
            if (t->on[way] && run_round(t, (enum gemmar_perf_way)way, warm,
                                        t->us[way] + round * t->per_round) != 0) {
                return 1;
            }
        }
        warm = warm < ROUND_WARM ? warm : ROUND_WARM;
    }
    return 0;
}

static int time_all(struct timing *t, struct gemmar_perf_times *out)
{
    int status = 0;

    for (int way = 0; way < GEMMAR_PERF_WAYS && status == 0; way++) {
        status = t->on[way] ? prepare_way(t, (enum gemmar_perf_way)way, out) : 0;
    }
    if (gemmar_perf_gpu_agree(t->s, status != 0) != 0 || run_rounds(t) != 0 ||
        time_host(t, &out->host_us) != 0) {
        return 1;
    }
    for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
        uint32_t count = t->rounds * t->per_round;

        if (t->on[way]) {
            out->us[way] = median(t->us[way], count); /* sorts */
            out->low[way] = t->us[way][(count - 1) / 10];
            out->high[way] = t->us[way][count - 1 - (count - 1) / 10];
        }
    }
    if (gemmar_perf_gate_late(&t->s->gpu->gate)) {
        gemmar_perf_say("a rank came more than 5 seconds late to a common start");
        t->s->failed = true;
    }
    return 0;
}

/* Operands of every set, real-valued; the choice of cuBLASLt's way. */
static int begin(struct timing *t, const struct gemmar_perf_shape *shape)
{
    struct gemmar_perf_session *s = t->s;
    size_t bytes = gemmar_perf_gpu_operand_bytes(shape);
    int status = 0;

    for (uint32_t i = 0; i < t->sets && status == 0; i++) {
        t->in[i] = gemmar_perf_session_inputs(s, shape, GEMMAR_PERF_NORMAL, UINT64_MAX - i);
        t->set[i] = gemmar_perf_gpu_buffers(s->gpu, shape, i * bytes, 0);
        status = gemmar_perf_gpu_operands(s, &t->in[i], &t->set[i]);
    }
    status = status || gemmar_perf_gpu_wait(s);
    if (status == 0 && t->on[GEMMAR_PERF_GEMM]) {
        status =
            gemmar_perf_product_choose(s, t->product, &t->in[0], &t->set[0], s->gpu->baseline.base);
    }
    return gemmar_perf_gpu_agree(s, status != 0);
}

static int reserve(struct timing *t, const struct gemmar_perf_shape *shape)
{
    const struct gemmar_perf_options *o = t->s->o;
    bool work = shape->m != 0 && shape->n != 0, base = o->baseline && work && shape->k != 0;
    int status = 0;

    t->sets = gemmar_perf_gpu_sets(t->s->gpu, shape);
    t->rounds = o->iters >= ROUNDS_FROM ? ROUNDS : 1;
    t->per_round = (o->iters + t->rounds - 1) / t->rounds;
    t->on[GEMMAR_PERF_FUSED] = true;
    t->on[GEMMAR_PERF_FUSED_GRAPH] = o->graph && work;
    t->on[GEMMAR_PERF_BASE] = t->on[GEMMAR_PERF_BASE_GRAPH] = base;
    t->on[GEMMAR_PERF_GEMM] = t->on[GEMMAR_PERF_REDUCE] = base;
    for (int way = GEMMAR_PERF_PLUGIN; way <= GEMMAR_PERF_PLUGIN_REDUCE; way++) {
        t->on[way] = base && t->s->gpu->builtin != NULL;
    }
    t->event = calloc(2 * (size_t)t->per_round + 1, sizeof(cudaEvent_t));
    status = t->event == NULL;
    for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
        t->us[way] = calloc((size_t)t->rounds * t->per_round + 1, sizeof(double));
        status = status || t->us[way] == NULL;
    }
    if (status != 0) {
        gemmar_perf_say("no memory");
    }
    for (uint32_t i = 0; i < 2 * t->per_round && status == 0; i++) {
        status = gemmar_perf_gpu_bad(cudaEventCreate(&t->event[i]), "cannot make an event");
    }
    return status;
}

static void release(struct timing *t)
{
    for (uint32_t i = 0; t->event != NULL && i < 2 * t->per_round; i++) {
        if (t->event[i] != NULL) {
            (void)cudaEventDestroy(t->event[i]);
        }
    }
    free(t->event);
    for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
        free(t->us[way]);
        for (uint32_t set = 0; set < t->sets; set++) {
            if (t->graph[way][set] != NULL) {
                (void)cudaGraphExecDestroy(t->graph[way][set]);
            }
        }
    }
}

int gemmar_perf_time_ways(struct gemmar_perf_session *s, const struct gemmar_perf_shape *shape,
                          struct gemmar_perf_product *product, struct gemmar_perf_times *out_times)
{
    struct timing *t = calloc(1, sizeof(*t));
    int status = t == NULL;

    for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
        out_times->us[way] = out_times->low[way] = out_times->high[way] = NAN;
    }
    out_times->host_us = NAN;
    if (t == NULL) {
        gemmar_perf_say("no memory");
        return 1;
    }
    t->s = s;
    t->product = product;
    status = reserve(t, shape);
    out_times->sets = t->sets;
    status = status || begin(t, shape) || time_all(t, out_times);
    release(t);
    free(t);
    return status;
}
