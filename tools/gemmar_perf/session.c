// SPDX-License-Identifier: Apache-2.0
// One rank's run: its communicator, and how it calls the operator.
#include "tools/gemmar_perf/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/gemmar_perf/device.h"
#include "tools/gemmar_perf/report.h"
#include "tools/gemmar_perf/say.h"
#include "tools/gemmar_perf/library_log.h"

#define GUARD_BYTES   64u
#define GUARD         0xa5
#define CHECK_BUDGET  (UINT64_C(1) << 28) /* products per rank and check of real-valued inputs */
#define STANDARD_WAIT 60.0                /* seconds, without --timeout */

enum { DIFFERENT_SHAPES, DIFFERENT_TYPE, DIFFERENT_ALGO, DIFFERENT_CALLS, DIFFERENT_TILES, FACTS };

/* What must be equal on all ranks, one hash for each part that a sentence can name. */
static void hash_options(const struct gemmar_perf_options *o, uint64_t *out)
{
    static const char zero[1];

    out[DIFFERENT_SHAPES] = gemmar_perf_checksum(o->shapes.count, o->shapes.shape,
                                                 o->shapes.count * sizeof(o->shapes.shape[0]));
    out[DIFFERENT_TYPE] = gemmar_perf_checksum((uint64_t)o->dtype << 1 | o->trans_b, zero, 0);
    out[DIFFERENT_ALGO] = gemmar_perf_checksum((uint64_t)o->algo << 1 | o->imm, zero, 0);
    out[DIFFERENT_CALLS] = gemmar_perf_mix(
        gemmar_perf_mix(gemmar_perf_mix(o->iters, o->warmup),
                        gemmar_perf_mix(o->check_rows, (uint64_t)(o->tune != NULL) << 4 |
                                                           (uint64_t)o->cuda << 3 |
                                                           (uint64_t)o->graph << 2 |
                                                           (uint64_t)o->baseline << 1 | o->plain)),
        gemmar_perf_mix(o->mix, gemmar_perf_mix(o->seed, (uint64_t)o->check << 1 |
                                                             (o->input_a || o->input_b))));
    out[DIFFERENT_TILES] = gemmar_perf_mix(gemmar_perf_mix(o->tile_m, o->tile_n), o->chunk);
}

static int compare_options(struct gemmar_perf_session *s)
{
    static const char *const what[FACTS] = {"shapes", "a --dtype or --layout",
                                            "an --algo or --signal", "a number of calls or a seed",
                                            "tiles or a chunk"};
    uint64_t mine[FACTS], *all = calloc(s->ranks, sizeof(mine));
    int status = 0;

    hash_options(s->o, mine);
    if (all == NULL) {
        gemmar_perf_say("no memory");
        return 1;
    }
    status = gemmar_perf_gather(s, mine, all, sizeof(mine));
    for (uint32_t r = 1; r < s->ranks && status == 0; r++) {
        for (int i = 0; i < FACTS && status == 0; i++) {
            if (all[r * FACTS + (uint32_t)i] != all[i]) {
                gemmar_perf_say("rank %u was started with %s that differ%s from rank 0's", r,
                                what[i], i == DIFFERENT_SHAPES || i == DIFFERENT_TILES ? "" : "s");
                status = 2;
            }
        }
    }
    free(all);
    return status;
}

static double standard_wait(const struct gemmar_perf_session *s)
{
    return s->o->timeout_ms != 0 ? s->o->timeout_ms * 1e-3 : STANDARD_WAIT;
}

static int gather_for_library(void *context, const void *mine, void *all, size_t bytes)
{
    struct gemmar_perf_session *s = context;
    int rc = gemmar_perf_meet_gather(s->meet, mine, all, bytes, standard_wait(s));

    if (rc != 0) {
        gemmar_perf_say("lost rank %u in an all-gather of the library: %s",
                        gemmar_perf_meet_lost(s->meet), strerror(-rc));
    }
    return rc;
}

/* The library's sentence, and what a person can do about it. */
void gemmar_perf_say_error(struct gemmar_perf_session *s, const char *doing, gemmarResult_t result)
{
    const char *text = gemmarGetLastError(s->comm);
    bool hint = result == gemmarSystemError && strstr(text, "verbs device") != NULL &&
                s->o->hca != GEMMAR_PERF_HCA_SOFT;

    if (text[0] == '\0') {
        gemmar_perf_library_log_flush();
    }
    gemmar_perf_say("%s: %s%s%s%s", doing, gemmarGetErrorString(result),
                    text[0] != '\0' ? ": " : "", text,
                    hint ? " (no NIC? --hca soft runs on softhca, a software HCA)" : "");
}

static gemmarConfig_t settings_of(const struct gemmar_perf_session *s)
{
    const struct gemmar_perf_options *o = s->o;
    gemmarConfig_t config = GEMMAR_CONFIG_INITIALIZER;

    config.algo = o->algo;
    config.tile_m = o->tile_m;
    config.tile_n = o->tile_n;
    config.chunk = o->chunk;
    config.ctas = o->vary_facts ? 1 + s->rank % 3 : o->ctas;
    config.stages = o->vary_facts ? 1 + (s->rank * 5 + 2) % 7 : o->stages;
    config.timeoutMs = o->timeout_ms;
    config.log = gemmar_perf_library_log;
    return config;
}

int gemmar_perf_make_host(struct gemmar_perf_session *s)
{
    gemmarHostBootstrap_t bootstrap = {
        .size = sizeof(bootstrap),
        .rank = (int)s->rank,
        .nranks = (int)s->ranks,
        .allGather = gather_for_library,
        .context = s,
    };
    gemmarResult_t result = gemmarCommCreateHost(&s->comm, &bootstrap, &s->config);

    if (result != gemmarSuccess) {
        s->comm = NULL;
        gemmar_perf_say_error(s, "cannot make the communicator", result);
        return 1;
    }
    return 0;
}

static int learn_layout(struct gemmar_perf_session *s)
{
    gemmarCommInfo_t info = {.size = sizeof(info)};
    gemmarResult_t result;
    uint32_t node;

    s->node_of_rank = calloc(s->ranks, sizeof(*s->node_of_rank));
    if (s->node_of_rank == NULL) {
        gemmar_perf_say("no memory");
        return 1;
    }
    result = gemmarCommGetInfo(s->comm, &info);
    if (result != gemmarSuccess) {
        gemmar_perf_say_error(s, "cannot read the communicator's layout", result);
        return 1;
    }
    s->nodes = (uint32_t)info.nodes;
    s->ranks_per_node = (uint32_t)info.localRanks;
    node = (uint32_t)info.node;
    if (gemmar_perf_gather(s, &node, s->node_of_rank, sizeof(node)) != 0) {
        return 1;
    }
    if ((uint64_t)s->o->nodes * s->o->ranks_per_node == s->ranks &&
        (s->nodes != s->o->nodes || s->ranks_per_node != s->o->ranks_per_node)) {
        gemmar_perf_say("asked for %u nodes x %u ranks, the communicator sees %u x %u", s->o->nodes,
                        s->o->ranks_per_node, s->nodes, s->ranks_per_node);
        return 1;
    }
    return 0;
}

static int open_json(struct gemmar_perf_session *s)
{
    if (s->rank != 0 || s->o->json == NULL) {
        return 0;
    }
    s->json = fopen(s->o->json, "ae");
    if (s->json == NULL) {
        gemmar_perf_say("cannot write %s: %s", s->o->json, strerror(errno));
        return 1;
    }
    return 0;
}

int gemmar_perf_session_open(struct gemmar_perf_session *s, const struct gemmar_perf_options *o,
                             const struct gemmar_perf_place *place, char **argv,
                             gemmar_perf_make make)
{
    char why[GEMMAR_PERF_WHY_BYTES];
    int status;

    memset(s, 0, sizeof(*s));
    s->o = o;
    s->rank = place->rank;
    s->ranks = place->ranks;
    s->config = settings_of(s);
    gemmar_perf_machine(s->machine, sizeof(s->machine));
    gemmar_perf_command(argv, s->command, sizeof(s->command));
    gemmar_perf_library_log_verbose(o->verbose);
    if (open_json(s) != 0) {
        return 1;
    }
    if (gemmar_perf_meet_open(place->address, s->rank, s->ranks, standard_wait(s), &s->meet, why,
                              sizeof(why)) != 0) {
        gemmar_perf_say("%s", why);
        return 1;
    }
    status = compare_options(s);
    if (status == 0) {
        status = gemmar_perf_device_prepare(o, s->rank);
    }
    if (status == 0) {
        status = make(s);
    }
    if (status == 0) {
        status = gemmar_perf_device_accept(o, s->ranks);
    }
    return status != 0 ? status : learn_layout(s);
}

int gemmar_perf_session_close(struct gemmar_perf_session *s)
{
    gemmarResult_t result = gemmarCommDestroy(s->comm);
    int status = 0;

    if (result != gemmarSuccess) {
        gemmar_perf_say("cannot close the communicator: %s: %s", gemmarGetErrorString(result),
                        gemmarGetLastError(NULL));
        status = 1;
    }
    s->comm = NULL;
    gemmar_perf_meet_close(s->meet);
    free(s->node_of_rank);
    if (s->json != NULL && fclose(s->json) != 0) {
        gemmar_perf_say("cannot write %s: %s", s->o->json, strerror(errno));
        status = 1;
    }
    return status;
}

int gemmar_perf_gather(struct gemmar_perf_session *s, const void *mine, void *all, size_t bytes)
{
    int rc = gemmar_perf_meet_gather(s->meet, mine, all, bytes, standard_wait(s));

    if (rc != 0) {
        gemmar_perf_say("lost rank %u while results were compared: %s",
                        gemmar_perf_meet_lost(s->meet), strerror(-rc));
    }
    return rc != 0;
}

static void *allocate(size_t bytes)
{
    return aligned_alloc(4096, (bytes + GUARD_BYTES + 4095) / 4096 * 4096);
}

int gemmar_perf_buffers_init(struct gemmar_perf_buffers *b, const struct gemmar_perf_inputs *in)
{
    size_t element = gemmar_perf_dtype_bytes(in->dtype);
    double all = ((double)in->m * (double)in->k + (double)in->k * (double)in->n +
                  (double)in->m * (double)in->n) *
                 (double)element;

    *b = (struct gemmar_perf_buffers){0};
    if (all < (double)(INT64_MAX >> 1)) {
        b->a = allocate((size_t)(in->m * in->k) * element);
        b->b = allocate((size_t)(in->k * in->n) * element);
        b->c_bytes = (size_t)(in->m * in->n) * element;
        b->c = allocate(b->c_bytes);
    }
    if (b->a == NULL || b->b == NULL || b->c == NULL) {
        gemmar_perf_say("no memory for %lld x %lld x %lld: the operands take %.1f GiB per rank",
                        (long long)in->m, (long long)in->n, (long long)in->k,
                        all / (double)(1 << 30));
        gemmar_perf_buffers_release(b);
        return -ENOMEM;
    }
    return 0;
}

void gemmar_perf_buffers_release(struct gemmar_perf_buffers *b)
{
    free(b->a);
    free(b->b);
    free(b->c);
    *b = (struct gemmar_perf_buffers){0};
}

void gemmar_perf_buffers_poison(struct gemmar_perf_buffers *b)
{
    memset(b->c, 0xff, b->c_bytes); /* a NaN in every type */
    memset((char *)b->c + b->c_bytes, GUARD, GUARD_BYTES);
}

bool gemmar_perf_buffers_overrun(const struct gemmar_perf_buffers *b)
{
    const uint8_t *guard = (const uint8_t *)b->c + b->c_bytes;

    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (guard[i] != GUARD) {
            return true;
        }
    }
    return false;
}

int gemmar_perf_fill(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                     const struct gemmar_perf_buffers *b)
{
    char why[GEMMAR_PERF_WHY_BYTES];
    int rc;

    gemmar_perf_meet_busy(s->meet, true);
    rc = gemmar_perf_inputs_fill(in, s->rank, b->a, b->b, why, sizeof(why));
    gemmar_perf_meet_busy(s->meet, false);
    if (rc != 0) {
        gemmar_perf_say("%s", why);
    }
    return rc;
}

uint64_t gemmar_perf_next_delay(struct gemmar_perf_session *s)
{
    uint64_t draw = gemmar_perf_mix(gemmar_perf_mix(s->o->seed, 77), s->calls << 16 | s->rank);

    s->calls++;
    return s->o->skew_us != 0 ? draw % (s->o->skew_us + UINT64_C(1)) : 0;
}

static void delay(struct gemmar_perf_session *s)
{
    uint64_t us = gemmar_perf_next_delay(s);
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

    if (us != 0) {
        (void)nanosleep(&t, NULL); /* cut short by a signal: a shorter delay */
    }
}

gemmarResult_t gemmar_perf_fused(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                                 const struct gemmar_perf_operands *b, gemmarStream_t stream,
                                 double *out_us)
{
    gemmarFusedArgs_t args = {
        .size = sizeof(args),
        .A = b->a,
        .B = b->b,
        .C = b->c,
        .M = in->m,
        .N = in->n,
        .K = in->k,
        .datatype = in->dtype,
        .transB = 1,
        .alpha = 1,
    };
    double start = gemmar_perf_seconds();
    gemmarResult_t result = in->trans_b ? gemmar_fused_ex(&args, s->comm, stream)
                                        : gemmar_fused(b->a, b->b, b->c, in->m, in->n, in->k,
                                                       in->dtype, s->comm, stream);

    *out_us = (gemmar_perf_seconds() - start) * 1e6;
    if (result != gemmarSuccess) {
        gemmar_perf_say_error(s, "gemmar_fused", result);
    }
    return result;
}

gemmarResult_t gemmar_perf_call(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                                const struct gemmar_perf_buffers *b, double *out_us)
{
    struct gemmar_perf_operands operands = {b->a, b->b, b->c};

    delay(s);
    return gemmar_perf_fused(s, in, &operands, NULL, out_us);
}

int gemmar_perf_verify(struct gemmar_perf_session *s, const struct gemmar_perf_inputs *in,
                       const struct gemmar_perf_buffers *b, bool all,
                       struct gemmar_perf_verdict *verdict)
{
    uint64_t budget = in->kind == GEMMAR_PERF_EXACT ? UINT64_MAX : CHECK_BUDGET;
    struct gemmar_perf_rows rows = gemmar_perf_rows_share(in, s->rank, budget);
    struct gemmar_perf_verdict v;
    char why[GEMMAR_PERF_WHY_BYTES];
    int rc;

    if (all) {
        rows = (struct gemmar_perf_rows){0, 1, in->m};
    }
    if (gemmar_perf_buffers_overrun(b)) {
        gemmar_perf_say("a byte behind the result was written");
        s->failed = true;
    }
    gemmar_perf_meet_busy(s->meet, true);
    rc = gemmar_perf_check(in, s->node_of_rank, &rows, b->c, &v, why, sizeof(why));
    gemmar_perf_meet_busy(s->meet, false);
    if (rc != 0) {
        gemmar_perf_say("%s", why);
        return 1;
    }
    if (v.wrong != 0 && verdict->wrong == 0) {
        gemmar_perf_say("C[%lld,%lld] of %lld x %lld x %lld is %.9g, want %.9g (%s inputs)",
                        (long long)v.row, (long long)v.column, (long long)in->m, (long long)in->n,
                        (long long)in->k, v.got, v.want,
                        in->kind == GEMMAR_PERF_EXACT ? "exact" : "real-valued");
    }
    verdict->wrong += v.wrong;
    if (!(v.max_abs_err <= verdict->max_abs_err)) {
        verdict->max_abs_err = v.max_abs_err;
    }
    return 0;
}

struct gemmar_perf_inputs gemmar_perf_session_inputs(const struct gemmar_perf_session *s,
                                                     const struct gemmar_perf_shape *shape,
                                                     enum gemmar_perf_kind kind, uint64_t call)
{
    return (struct gemmar_perf_inputs){
        .kind = kind,
        .dtype = s->o->dtype,
        .seed = s->o->seed,
        .call = call,
        .ranks = s->ranks,
        .trans_b = s->o->trans_b,
        .m = shape->m,
        .n = shape->n,
        .k = shape->k,
        .file_a = s->o->input_a,
        .file_b = s->o->input_b,
    };
}
