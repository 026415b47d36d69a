// SPDX-License-Identifier: Apache-2.0
// One call of the operator on a GPU, and the check of its result.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kernels/dtype.h"
#include "tools/gemmar_perf/gpu/gpu.h"
#include "tools/gemmar_perf/say.h"

/* Work of a check that takes a GPU some hundredths of a second, as the product of rows, columns and
 * terms of a sum. */
#define EXACT_BUDGET  0x1p36
#define NORMAL_BUDGET 0x1p37

#define STANDARD_WAIT 60.0 /* seconds, without --timeout */
#define GRACE_S       5.0  /* the library's own timeout comes first, and its sentence */
#define NAP_NS        50000

struct gemmar_perf_gpu_recipe gemmar_perf_gpu_recipe(const struct gemmar_perf_inputs *in)
{
    return (struct gemmar_perf_gpu_recipe){
        .seed = in->seed,
        .call = in->call,
        .m = in->m,
        .n = in->n,
        .k = in->k,
        .exact = in->kind == GEMMAR_PERF_EXACT,
        .ranks = in->ranks,
        .dtype = in->dtype == gemmarBfloat16 ? GEMMAR_DTYPE_BF16 : GEMMAR_DTYPE_FP16,
        .trans_b = in->trans_b,
        .limit = gemmar_perf_exact_limit(in->dtype),
        .b_scale = gemmar_perf_b_scale(in),
    };
}

int gemmar_perf_gpu_operands(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                             const struct gemmar_perf_gpu_buffers *b)
{
    struct gemmar_perf_gpu_recipe recipe = gemmar_perf_gpu_recipe(in);

    return gemmar_perf_gpu_bad(gemmar_perf_gpu_fill(&recipe, s->rank, b->a, b->b, s->gpu->stream),
                               "cannot make the operands");
}

int gemmar_perf_gpu_poison(struct gemmar_perf_session *s, const struct gemmar_perf_gpu_buffers *b)
{
    cudaStream_t stream = s->gpu->stream;

    return gemmar_perf_gpu_bad(cudaMemsetAsync(b->c, 0xff, b->c_bytes, stream),
                               "cannot poison the result") ||
           gemmar_perf_gpu_bad(cudaMemsetAsync((char *)b->c + b->c_bytes, GEMMAR_PERF_GPU_GUARD,
                                               b->guard_bytes, stream),
                               "cannot write the guard");
}

gemmarResult_t gemmar_perf_gpu_call(struct gemmar_perf_session *s,
                                    const struct gemmar_perf_inputs *in,
                                    const struct gemmar_perf_gpu_buffers *b, double *out_us)
{
    struct gemmar_perf_operands operands = {b->a, b->b, b->c};
    double us;

    return gemmar_perf_fused(s, in, &operands, s->gpu->stream, out_us != NULL ? out_us : &us);
}

void gemmar_perf_gpu_doing(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                           const char *what)
{
    (void)snprintf(s->gpu->doing, sizeof(s->gpu->doing), "%lld x %lld x %lld, %s", (long long)in->m,
                   (long long)in->n, (long long)in->k, what);
}

/* cudaErrorNotReady after the deadline: a peer may be gone, for which NCCL waits for ever. */
static cudaError_t wait_until(cudaStream_t stream, double deadline)
{
    const struct timespec nap = {0, NAP_NS};
    cudaError_t error;

    while ((error = cudaStreamQuery(stream)) == cudaErrorNotReady &&
           gemmar_perf_seconds() < deadline) {
        (void)nanosleep(&nap, NULL); /* cut short by a signal: a shorter nap */
    }
    return error;
}

int gemmar_perf_gpu_wait(struct gemmar_perf_session *s)
{
    double patience = s->o->timeout_ms != 0 ? s->o->timeout_ms * 1e-3 : STANDARD_WAIT;
    gemmarResult_t first = gemmarSuccess;
    cudaError_t error;

    gemmar_perf_meet_busy(s->meet, true);
    error = wait_until(s->gpu->stream, gemmar_perf_seconds() + patience + GRACE_S);
    gemmar_perf_meet_busy(s->meet, false);
    if (error == cudaErrorNotReady) {
        gemmar_perf_say("%s: the GPU's stream is not at its end after %.0f s", s->gpu->doing,
                        patience + GRACE_S);
        return 1;
    }
    if (gemmar_perf_gpu_bad(error, "the GPU's stream failed")) {
        return 1;
    }
    (void)gemmarCommGetAsyncError(s->comm, &first); /* its only error is a NULL argument */
    if (first != gemmarSuccess) {
        gemmar_perf_say_error(s, "gemmar_fused", first);
    }
    return first != gemmarSuccess;
}

/* This rank's rows: the ranks share them, as their bits are compared. A step that is odd meets
 * every row of a tile in turn. */
static struct gemmar_perf_rows rows_of(const struct gemmar_perf_session *s,
                                       const struct gemmar_perf_inputs *in)
{
    int64_t first = in->m * s->rank / in->ranks, last = in->m * (s->rank + 1) / in->ranks;
    struct gemmar_perf_rows rows = {first, 1, last - first};
    double terms = in->kind == GEMMAR_PERF_EXACT ? gemmar_perf_exact_limit(in->dtype)
                                                 : (double)in->k * in->ranks;
    double most = (in->kind == GEMMAR_PERF_EXACT ? EXACT_BUDGET : NORMAL_BUDGET) /
                  fmax(1, (double)in->n * terms);

    if (s->o->check_rows != 0) {
        most = s->o->check_rows;
    }
    if ((double)rows.count > fmax(1, most)) {
        rows.step = ((int64_t)((double)rows.count / fmax(1, most)) + 1) | 1;
        rows.count = (rows.count + rows.step - 1) / rows.step;
    }
    return rows;
}

static double error_of(const struct gemmar_perf_gpu_found *f)
{
    double error;

    memcpy(&error, &f->error_bits, sizeof(error));
    return error;
}

static void judge(const struct gemmar_perf_inputs *in, const struct gemmar_perf_gpu_found *f,
                  struct gemmar_perf_verdict *v)
{
    double error = error_of(f);

    if (f->wrong != 0 && v->wrong == 0) {
        gemmar_perf_say("C[%lld,%lld] of %lld x %lld x %lld is %.9g, want %.9g (%s inputs)", f->row,
                        f->column, (long long)in->m, (long long)in->n, (long long)in->k, f->got,
                        f->want, in->kind == GEMMAR_PERF_EXACT ? "exact" : "real-valued");
        v->row = f->row;
        v->column = f->column;
        v->got = f->got;
        v->want = f->want;
    }
    v->wrong += f->wrong;
    if (!(error <= v->max_abs_err)) {
        v->max_abs_err = error;
    }
}

int gemmar_perf_gpu_verify(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                           const struct gemmar_perf_gpu_buffers *b,
                           struct gemmar_perf_verdict *verdict, uint64_t *out_sum)
{
    struct gemmar_perf_gpu *g = s->gpu;
    struct gemmar_perf_gpu_recipe recipe = gemmar_perf_gpu_recipe(in);
    struct gemmar_perf_rows rows = rows_of(s, in);
    struct gemmar_perf_gpu_found found;
    unsigned long long counters[2];

    if (gemmar_perf_gpu_bad(cudaMemsetAsync(g->found, 0, sizeof(found), g->stream), "check") ||
        gemmar_perf_gpu_bad(cudaMemsetAsync(g->counters, 0, sizeof(counters), g->stream),
                            "check") ||
        gemmar_perf_gpu_bad(gemmar_perf_gpu_check(&recipe, &g->order, rows.first, rows.step,
                                                  rows.count, b->c, g->found, g->stream),
                            "cannot check the result") ||
        gemmar_perf_gpu_bad(
            gemmar_perf_gpu_sum(b->c, (int64_t)(b->c_bytes / 2), &g->counters[0], g->stream),
            "cannot sum the result") ||
        gemmar_perf_gpu_bad(gemmar_perf_gpu_guard((char *)b->c + b->c_bytes,
                                                  (int64_t)b->guard_bytes, GEMMAR_PERF_GPU_GUARD,
                                                  &g->counters[1], g->stream),
                            "cannot look at the guard") ||
        gemmar_perf_gpu_bad(
            cudaMemcpyAsync(&found, g->found, sizeof(found), cudaMemcpyDeviceToHost, g->stream),
            "cannot read the verdict") ||
        gemmar_perf_gpu_bad(cudaMemcpyAsync(counters, g->counters, sizeof(counters),
                                            cudaMemcpyDeviceToHost, g->stream),
                            "cannot read the verdict") ||
        gemmar_perf_gpu_wait(s) != 0) {
        return 1;
    }
    judge(in, &found, verdict);
    if (counters[1] != 0) {
        gemmar_perf_say("%llu bytes behind the result of %lld x %lld x %lld were written",
                        counters[1], (long long)in->m, (long long)in->n, (long long)in->k);
        s->failed = true;
    }
    *out_sum = counters[0];
    return 0;
}
