// SPDX-License-Identifier: Apache-2.0
// Check and time one shape on GPUs.
#include "tools/gemmar_perf/gpu/measure.h"

#include <math.h>
#include <stdlib.h>

#include "tools/gemmar_perf/gpu/nccl.h"
#include "tools/gemmar_perf/gpu/rates.h"
#include "tools/gemmar_perf/gpu/run.h"
#include "tools/gemmar_perf/gpu/tune.h"
#include "tools/gemmar_perf/library_log.h"
#include "tools/gemmar_perf/say.h"

/* What every rank tells the others about a shape. */
struct share {
    uint64_t wrong, failed, differ, baseline_wrong;
    uint64_t wire_bytes, wire_formula; /* of one call */
    double max_abs_err, host_us;
    double us[GEMMAR_PERF_WAYS], low[GEMMAR_PERF_WAYS], high[GEMMAR_PERF_WAYS];
};

struct checking {
    struct gemmar_perf_session *s;
    struct gemmar_perf_inputs in;
    struct gemmar_perf_gpu_buffers b;
    struct gemmar_perf_verdict verdict;
    bool differ; /* from run to run, or from rank 0 */
    uint32_t runs;
};

int gemmar_perf_gpu_skew(struct gemmar_perf_session *s)
{
    uint64_t us = gemmar_perf_next_delay(s);

    return us != 0 && gemmar_perf_gpu_bad(gemmar_perf_gpu_delay(us * 1000, s->gpu->stream),
                                          "cannot enqueue a delay");
}

static int call(void *what)
{
    struct checking *c = what;

    return gemmar_perf_gpu_call(c->s, &c->in, &c->b, NULL) != gemmarSuccess;
}

/* One run into a poisoned C. `graph` NULL: eager. */
static int run_once(struct checking *c, cudaGraphExec_t graph, uint64_t *out_sum)
{
    int status = gemmar_perf_gpu_poison(c->s, &c->b) || gemmar_perf_gpu_skew(c->s);

    if (status == 0 && graph == NULL) {
        status = call(c);
    } else if (status == 0) {
        status = gemmar_perf_gpu_bad(cudaGraphLaunch(graph, c->s->gpu->stream), "cannot replay");
    }
    c->runs++;
    return status || gemmar_perf_gpu_verify(c->s, &c->in, &c->b, &c->verdict, out_sum);
}

/* The runs that follow the first must have its bits. */
static int run_again(struct checking *c, cudaGraphExec_t graph, uint64_t first)
{
    uint64_t sum;

    if (run_once(c, graph, &sum) != 0) {
        return 1;
    }
    if (sum != first && !c->differ) {
        gemmar_perf_say("%s of %lld x %lld x %lld has other bits than the first call",
                        graph != NULL ? "a replay" : "the second call", (long long)c->in.m,
                        (long long)c->in.n, (long long)c->in.k);
        c->differ = true;
    }
    return 0;
}

static int compare_ranks(struct checking *c, uint64_t mine)
{
    uint64_t all[GEMMAR_PERF_GPU_RANKS];

    if (gemmar_perf_gather(c->s, &mine, all, sizeof(mine)) != 0) {
        return 1;
    }
    for (uint32_t r = 1; r < c->s->ranks; r++) {
        if (all[r] != all[0]) {
            gemmar_perf_say("rank %u holds other bits than rank 0 for %lld x %lld x %lld", r,
                            (long long)c->in.m, (long long)c->in.n, (long long)c->in.k);
            c->differ = true;
            break;
        }
    }
    c->s->checksum = gemmar_perf_mix(c->s->checksum, mine);
    c->s->results++;
    return 0;
}

static int check_kind(struct checking *c, const struct gemmar_perf_shape *shape,
                      enum gemmar_perf_kind kind)
{
    struct gemmar_perf_session *s = c->s;
    bool replay = s->o->graph && shape->m != 0 && shape->n != 0;
    cudaGraphExec_t graph = NULL;
    uint64_t sum = 0;
    int status;

    c->in = gemmar_perf_session_inputs(s, shape, kind, s->results);
    c->b = gemmar_perf_gpu_buffers(s->gpu, shape, 0, 0);
    c->runs = 0;
    gemmar_perf_gpu_doing(s, &c->in, "checked calls");
    status = gemmar_perf_gpu_operands(s, &c->in, &c->b) || run_once(c, NULL, &sum) ||
             run_again(c, NULL, sum);
    if (status == 0 && replay) {
        status = gemmar_perf_capture(s, call, c, &graph) || run_again(c, graph, sum) ||
                 run_again(c, graph, sum);
    }
    if (graph != NULL) {
        (void)cudaGraphExecDestroy(graph);
    }
    return status || compare_ranks(c, sum);
}

/* Bytes on the wire: the rank that sent most, and the mean. */
static void join_wire(struct gemmar_perf_session *s, const struct share *all,
                      struct gemmar_perf_gpu_result *r)
{
    for (uint32_t i = 0; i < s->ranks; i++) {
        if (i == 0 || all[i].wire_bytes > r->wire_bytes) {
            r->wire_bytes = all[i].wire_bytes;
            r->wire_formula = all[i].wire_formula;
        }
        r->wire_mean += (double)all[i].wire_bytes / s->ranks;
        if (all[i].wire_bytes != all[i].wire_formula) {
            gemmar_perf_say("rank %u put %llu bytes on the wire, the formula says %llu", i,
                            (unsigned long long)all[i].wire_bytes,
                            (unsigned long long)all[i].wire_formula);
            s->failed = true;
        }
    }
}

static int join(struct gemmar_perf_session *s, const struct share *mine,
                struct gemmar_perf_gpu_result *r)
{
    struct share *all = malloc(s->ranks * sizeof(*all));
    int status = all == NULL ? 1 : gemmar_perf_gather(s, mine, all, sizeof(*mine));

    r->identical = true;
    r->host_us = NAN;
    for (uint32_t i = 0; i < s->ranks && status == 0; i++) {
        r->wrong += all[i].wrong;
        r->baseline_wrong += all[i].baseline_wrong;
        r->identical = r->identical && all[i].differ == 0;
        s->failed = s->failed || all[i].failed || all[i].differ;
        r->host_us = fmax(r->host_us, all[i].host_us);
        if (!(all[i].max_abs_err <= r->max_abs_err)) {
            r->max_abs_err = all[i].max_abs_err;
        }
        for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
            r->us[way] = fmax(r->us[way], all[i].us[way]);
            r->low[way] = fmax(r->low[way], all[i].low[way]);
            r->high[way] = fmax(r->high[way], all[i].high[way]);
        }
    }
    if (status == 0) {
        join_wire(s, all, r);
    }
    free(all);
    s->wrong += r->wrong;
    return status;
}

static int info_of(struct gemmar_perf_session *s, gemmarCommInfo_t *out_info)
{
    gemmarResult_t result;

    *out_info = (gemmarCommInfo_t){.size = sizeof(*out_info)};
    result = gemmarCommGetInfo(s->comm, out_info);
    if (result != gemmarSuccess) {
        gemmar_perf_say_error(s, "gemmarCommGetInfo", result);
    }
    return result != gemmarSuccess;
}

/* Facts of the library about the last call. */
static int ask(struct gemmar_perf_session *s, struct gemmar_perf_gpu_result *r)
{
    gemmarCommInfo_t info;

    if (info_of(s, &info) != 0) {
        return 1;
    }
    r->algo = info.algo;
    r->chunks = info.chunks;
    r->workspace_bytes = info.workspaceBytes;
    return 0;
}

/* The bytes that this rank sends in one call, counted and by formula. The library's counters wait
 * for what is still on its way. */
static int count_wire(struct gemmar_perf_session *s, const struct gemmar_perf_shape *shape,
                      struct share *mine)
{
    struct gemmar_perf_inputs in =
        gemmar_perf_session_inputs(s, shape, GEMMAR_PERF_NORMAL, UINT64_MAX);
    struct gemmar_perf_gpu_buffers b = gemmar_perf_gpu_buffers(s->gpu, shape, 0, 0);
    gemmarCommInfo_t before, after;

    if (s->nodes == 1) {
        return 0;
    }
    gemmar_perf_gpu_doing(s, &in, "a call whose bytes are counted");
    if (info_of(s, &before) != 0 || gemmar_perf_gpu_operands(s, &in, &b) != 0 ||
        gemmar_perf_gpu_call(s, &in, &b, NULL) != gemmarSuccess || gemmar_perf_gpu_wait(s) != 0 ||
        info_of(s, &after) != 0) {
        return 1;
    }
    mine->wire_bytes = after.wireBytes - before.wireBytes;
    mine->wire_formula = after.wireBytesFormula;
    return 0;
}

int gemmar_perf_gpu_measure(struct gemmar_perf_session *s, const struct gemmar_perf_shape *shape,
                            struct gemmar_perf_product *product, struct gemmar_perf_gpu_result *r)
{
    struct checking c = {.s = s};
    struct gemmar_perf_times times = {.sets = 0};
    struct share mine = {.host_us = NAN};

    *r = (struct gemmar_perf_gpu_result){.shape = *shape, .checked = s->o->check};
    for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
        r->us[way] = r->low[way] = r->high[way] = NAN;
        mine.us[way] = mine.low[way] = mine.high[way] = NAN;
    }
    if (s->o->check && (check_kind(&c, shape, GEMMAR_PERF_EXACT) != 0 ||
                        check_kind(&c, shape, GEMMAR_PERF_NORMAL) != 0)) {
        return 1;
    }
    if (s->o->iters != 0) {
        if (gemmar_perf_time_ways(s, shape, product, &times) != 0) {
            return 1;
        }
        for (int way = 0; way < GEMMAR_PERF_WAYS; way++) {
            mine.us[way] = times.us[way];
            mine.low[way] = times.low[way];
            mine.high[way] = times.high[way];
        }
        mine.host_us = times.host_us;
    }
    r->sets = times.sets;
    r->runs = c.runs;
    r->checked_baseline = times.checked_baseline;
    mine.wrong = c.verdict.wrong;
    mine.max_abs_err = c.verdict.max_abs_err;
    mine.baseline_wrong = times.baseline_wrong;
    mine.differ = c.differ;
    if (count_wire(s, shape, &mine) != 0 || gemmar_perf_nccl_look(s) != 0) {
        return 1;
    }
    mine.failed = s->failed;
    return ask(s, r) || join(s, &mine, r);
}

static int run_shapes(struct gemmar_perf_session *s, struct gemmar_perf_product *product)
{
    if (s->rank == 0) {
        gemmar_perf_gpu_report_head(s, stdout);
        (void)fflush(stdout);
    }
    for (size_t i = 0; i < s->o->shapes.count; i++) {
        struct gemmar_perf_gpu_result r;

        if (gemmar_perf_gpu_measure(s, &s->o->shapes.shape[i], product, &r) != 0) {
            return 1;
        }
        gemmar_perf_library_log_flush();
        if (s->rank != 0) {
            continue;
        }
        gemmar_perf_gpu_report_line(s, stdout, &r);
        if (s->json != NULL && gemmar_perf_gpu_report_json(s, s->json, &r) != 0) {
            gemmar_perf_say("cannot write %s", s->o->json);
            return 1;
        }
    }
    return 0;
}

/* Ranks in the order of their nodes, for the error bound. */
static void order_ranks(const struct gemmar_perf_session *s, struct gemmar_perf_gpu_order *order)
{
    uint32_t at = 0;

    for (uint32_t node = 0; node < s->nodes; node++) {
        for (uint32_t r = 0; r < s->ranks; r++) {
            if (s->node_of_rank[r] == node) {
                order->last[at] = 0;
                order->rank[at++] = r;
            }
        }
        if (at > 0) {
            order->last[at - 1] = 1;
        }
    }
}

int gemmar_perf_gpu_run(struct gemmar_perf_session *s)
{
    struct gemmar_perf_product product = {.handle = NULL};
    int status;

    order_ranks(s, &s->gpu->order);
    status = gemmar_perf_gpu_memory_open(s);
    if (status == 0 && s->o->mix != 0) {
        return gemmar_perf_gpu_mixed_calls(s);
    }
    if (status == 0 && s->o->tune != NULL) {
        return gemmar_perf_tune(s);
    }
    if (status == 0 && s->o->baseline) {
        status = gemmar_perf_gpu_agree(s, gemmar_perf_product_open(&product) != 0) ||
                 gemmar_perf_gpu_rates(s) || gemmar_perf_nccl_connect(s);
    }
    status = status || run_shapes(s, &product);
    gemmar_perf_product_close(&product);
    return status;
}
