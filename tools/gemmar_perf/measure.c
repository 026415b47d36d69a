// SPDX-License-Identifier: Apache-2.0
// Check and time one shape.
#include "tools/gemmar_perf/measure.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/library_log.h"
#include "tools/gemmar_perf/say.h"

#define SETTLE_S 10.0 /* sends of finished calls may still be on their way */
#define EIGHT_MB (UINT64_C(8) << 20)

/* What every rank tells the others about a shape. */
struct share {
    uint64_t wrong;
    uint64_t wire_bytes, wire_formula; /* of all calls */
    uint64_t failed;
    double max_abs_err;
    double median_us;
};

struct measure {
    struct gemmar_perf_session *s;
    struct gemmar_perf_result *result;
    struct gemmar_perf_buffers buffers;
    struct gemmar_perf_verdict verdict;
    uint64_t calls;
    uint64_t formula; /* sum over the calls */
    gemmarAlgo_t algo;
};

static int info_of(struct gemmar_perf_session *s, gemmarCommInfo_t *out_info)
{
    gemmarResult_t result;

    memset(out_info, 0, sizeof(*out_info));
    out_info->size = sizeof(*out_info);
    result = gemmarCommGetInfo(s->comm, out_info);
    if (result != gemmarSuccess) {
        gemmar_perf_say("gemmarCommGetInfo: %s: %s", gemmarGetErrorString(result),
                        gemmarGetLastError(s->comm));
        return 1;
    }
    return 0;
}

/* The wire bytes by formula of `calls` calls that were just made. Not after every timed call: the
 * query waits for sends that a next call would overlap. */
static int count_calls(struct measure *m, uint32_t calls)
{
    gemmarCommInfo_t info;

    if (calls == 0) {
        return 0;
    }
    if (info_of(m->s, &info) != 0) {
        return 1;
    }
    m->calls += calls;
    m->formula += calls * info.wireBytesFormula;
    m->algo = info.algo;
    return 0;
}

/* Do all ranks hold the same bits? When not, every rank looks at every row. */
static int compare_bits(struct measure *m, const struct gemmar_perf_inputs *in,
                        const struct gemmar_perf_verdict *before)
{
    struct gemmar_perf_session *s = m->s;
    uint64_t mine = gemmar_perf_checksum(1, m->buffers.c, m->buffers.c_bytes);
    uint64_t *all = malloc(s->ranks * sizeof(*all));
    int status = all == NULL ? 1 : gemmar_perf_gather(s, &mine, all, sizeof(mine));
    bool same = true;

    for (uint32_t r = 1; r < s->ranks && status == 0; r++) {
        if (all[r] != all[0] && same) {
            gemmar_perf_say("rank %u holds other bits than rank 0 for %lld x %lld x %lld", r,
                            (long long)in->m, (long long)in->n, (long long)in->k);
            same = false;
        }
    }
    free(all);
    if (status == 0 && !same) {
        s->failed = true;
        m->verdict = *before;
        status = gemmar_perf_verify(s, in, &m->buffers, true, &m->verdict);
    }
    s->checksum = gemmar_perf_mix(s->checksum, mine);
    s->results++;
    return status;
}

static int checked_call(struct measure *m, enum gemmar_perf_kind kind)
{
    struct gemmar_perf_inputs in =
        gemmar_perf_session_inputs(m->s, &m->result->shape, kind, m->s->results);
    struct gemmar_perf_verdict before = m->verdict;
    double us;
    int status;

    if (gemmar_perf_fill(m->s, &in, &m->buffers) != 0) {
        return 1;
    }
    gemmar_perf_buffers_poison(&m->buffers);
    status = gemmar_perf_call(m->s, &in, &m->buffers, &us) != gemmarSuccess || count_calls(m, 1);
    if (status == 0) {
        status = gemmar_perf_verify(m->s, &in, &m->buffers, false, &m->verdict);
    }
    return status == 0 ? compare_bits(m, &in, &before) : status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int timed_calls(struct measure *m, const struct gemmar_perf_inputs *in, double *out_median)
{
    uint32_t warmup = m->s->o->warmup, iters = m->s->o->iters;
    double *us = malloc((iters + 1) * sizeof(*us));
    uint8_t mark = 0, *marks = malloc(m->s->ranks);
    int status = us == NULL || marks == NULL;

    /* begin together: the first calls are not to measure the others' checks */
    status = status == 0 ? gemmar_perf_gather(m->s, &mark, marks, 1) : status;
    for (uint32_t i = 0; i < warmup + iters && status == 0; i++) {
        status = gemmar_perf_call(m->s, in, &m->buffers, &us[i < warmup ? 0 : i - warmup]) !=
                 gemmarSuccess;
        gemmar_perf_progress("%lld x %lld x %lld: call %u of %u", (long long)in->m,
                             (long long)in->n, (long long)in->k, i + 1, warmup + iters);
    }
    status = status == 0 ? count_calls(m, warmup + iters) : status;
    if (status == 0 && iters > 0) {
        qsort(us, iters, sizeof(*us), by_value);
        *out_median = iters % 2 != 0 ? us[iters / 2] : (us[iters / 2 - 1] + us[iters / 2]) / 2;
    }
    free(marks);
    free(us);
    return status;
}

/* A finished call does not mean finished sends: wait for the counter. */
static int settle(struct measure *m, uint64_t before, uint64_t *out_bytes)
{
    double deadline = gemmar_perf_seconds() + SETTLE_S;
    gemmarCommInfo_t info = {.size = sizeof(info)};
    bool late = false;
    int status;

    gemmar_perf_meet_busy(m->s->meet, true);
    while ((status = info_of(m->s, &info)) == 0 && info.wireBytes - before < m->formula && !late) {
        (void)poll(NULL, 0, 1);
        late = gemmar_perf_seconds() > deadline;
    }
    gemmar_perf_meet_busy(m->s->meet, false);
    *out_bytes = info.wireBytes - before;
    return status;
}

/* The workspace that the library states for this shape, against the promise and the truth. */
static int check_workspace(struct measure *m)
{
    struct gemmar_perf_session *s = m->s;
    const struct gemmar_perf_shape *shape = &m->result->shape;
    uint64_t output =
        (uint64_t)shape->m * (uint64_t)shape->n * gemmar_perf_dtype_bytes(s->o->dtype);
    uint64_t most = 2 * (output + 3 * (output / s->ranks_per_node)) + EIGHT_MB;
    bool promised = s->nodes == 2 && s->o->algo != gemmarAlgoTwoShot && s->o->tile_m == 0 &&
                    s->o->tile_n == 0 && s->o->chunk == 0;
    gemmarCommInfo_t info;
    size_t bytes;
    gemmarResult_t result =
        gemmarWorkspaceBytes(shape->m, shape->n, shape->k, s->o->dtype, (int)s->nodes,
                             (int)s->ranks_per_node, &s->config, &bytes);

    if (result != gemmarSuccess) {
        gemmar_perf_say("gemmarWorkspaceBytes: %s: %s", gemmarGetErrorString(result),
                        gemmarGetLastError(NULL));
        return 1;
    }
    m->result->workspace_bytes = bytes;
    if (promised && bytes > most) {
        gemmar_perf_say("the workspace for %lld x %lld x %lld takes %zu bytes, more than the "
                        "promised %llu",
                        (long long)shape->m, (long long)shape->n, (long long)shape->k, bytes,
                        (unsigned long long)most);
        s->failed = true;
    }
    if (s->workspace == 0) { /* later workspaces hold the largest parts of several shapes */
        if (info_of(s, &info) != 0) {
            return 1;
        }
        if (info.workspaceBytes > bytes) {
            gemmar_perf_say("the workspace is %llu bytes, gemmarWorkspaceBytes said %zu",
                            (unsigned long long)info.workspaceBytes, bytes);
            s->failed = true;
        }
    }
    s->workspace = bytes > s->workspace ? bytes : s->workspace;
    return 0;
}

static int join(struct measure *m, const struct share *mine)
{
    struct gemmar_perf_session *s = m->s;
    struct gemmar_perf_result *r = m->result;
    struct share *all = malloc(s->ranks * sizeof(*all));
    int status = all == NULL ? 1 : gemmar_perf_gather(s, mine, all, sizeof(*mine));
    double sum = 0, calls = m->calls > 0 ? (double)m->calls : 1;

    for (uint32_t i = 0; i < s->ranks && status == 0; i++) {
        uint64_t bytes = (uint64_t)((double)all[i].wire_bytes / calls + 0.5);

        r->wrong += all[i].wrong;
        r->time_us = fmax(r->time_us, all[i].median_us);
        if (!(all[i].max_abs_err <= r->max_abs_err)) {
            r->max_abs_err = all[i].max_abs_err;
        }
        if (i == 0 || bytes > r->wire_bytes) {
            r->wire_bytes = bytes;
            r->wire_bytes_formula = (uint64_t)((double)all[i].wire_formula / calls + 0.5);
        }
        sum += (double)all[i].wire_bytes / calls;
        s->failed = s->failed || all[i].failed;
        if (all[i].wire_bytes != all[i].wire_formula) {
            gemmar_perf_say("rank %u put %llu bytes on the wire, the formula says %llu", i,
                            (unsigned long long)all[i].wire_bytes,
                            (unsigned long long)all[i].wire_formula);
            s->failed = true;
        }
    }
    free(all);
    r->wire_mean = sum / s->ranks;
    s->wrong += r->wrong;
    return status;
}

static int measure(struct measure *m)
{
    struct gemmar_perf_session *s = m->s;
    const struct gemmar_perf_options *o = s->o;
    bool files = o->input_a != NULL || o->input_b != NULL;
    struct gemmar_perf_inputs in = gemmar_perf_session_inputs(
        s, &m->result->shape, files ? GEMMAR_PERF_FILES : GEMMAR_PERF_NORMAL, UINT64_MAX);
    struct share mine = {.wrong = 0};
    gemmarCommInfo_t before;

    if (info_of(s, &before) != 0) {
        return 1;
    }
    if (o->check && (checked_call(m, GEMMAR_PERF_EXACT) != 0 || checked_call(m, in.kind) != 0)) {
        return 1;
    }
    if (gemmar_perf_fill(s, &in, &m->buffers) != 0) {
        return 1;
    }
    if (timed_calls(m, &in, &mine.median_us) != 0 ||
        settle(m, before.wireBytes, &mine.wire_bytes) != 0 || check_workspace(m) != 0) {
        return 1;
    }
    mine.wire_formula = m->formula;
    mine.wrong = m->verdict.wrong;
    mine.max_abs_err = m->verdict.max_abs_err;
    mine.failed = s->failed;
    return join(m, &mine);
}

int gemmar_perf_measure(struct gemmar_perf_session *s, const struct gemmar_perf_shape *shape,
                        struct gemmar_perf_result *out_result)
{
    struct gemmar_perf_inputs in = gemmar_perf_session_inputs(s, shape, GEMMAR_PERF_EXACT, 0);
    struct measure m = {.s = s, .result = out_result, .algo = gemmarAlgoNone};
    int status;

    *out_result = (struct gemmar_perf_result){
        .shape = *shape,
        .dtype = s->o->dtype,
        .trans_b = s->o->trans_b,
        .nodes = s->nodes,
        .ranks_per_node = s->ranks_per_node,
        .iters = s->o->iters,
        .checked = s->o->check,
        .timed = s->o->iters != 0,
    };
    if (gemmar_perf_buffers_init(&m.buffers, &in) != 0) {
        return 1;
    }
    gemmar_perf_buffers_poison(&m.buffers);
    status = measure(&m);
    out_result->algo = m.algo;
    if (status == 0) {
        gemmar_perf_library_log_flush();
    }
    gemmar_perf_buffers_release(&m.buffers);
    return status;
}
