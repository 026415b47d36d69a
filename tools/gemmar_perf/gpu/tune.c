// SPDX-License-Identifier: Apache-2.0
// --tune: measure how each shape runs best, and keep it in a tuning table.
//
// All ways are tried on one communicator. Its GEMMAR_TUNING is a file beside the table; rank 0
// writes the way to try into it, and gemmarCommReserve, which reads it again, gives it to all
// ranks.
#include "tools/gemmar_perf/gpu/tune.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/dtype.h"
#include "kernels/plan.h"
#include "kernels/tuning.h"
#include "tools/gemmar_perf/gpu/ways.h"
#include "tools/gemmar_perf/say.h"

#define BETTER 0.995 /* of the best time so far: less is noise */
#define LEAD   2     /* as the model has them */
#define LINK   (1 << 20)
#define BAND   8

static const char head[] = "# M N K type G tile strategy lead link band, by gemmar_perf --tune\n";

struct tuner {
    struct gemmar_perf_session *s;
    const struct gemmar_perf_shape *shape;
    struct gemmar_tuning table; /* rank 0 */
    /* Of the entries that this run measured: their microseconds, and those of the model's way. */
    double us[GEMMAR_TUNING_ENTRIES], model[GEMMAR_TUNING_ENTRIES];
    struct gemmar_tuning_entry best;
    double best_us;
    uint32_t tried;
};

static int name_of(char *path, const struct gemmar_perf_session *s, const char *suffix)
{
    if (snprintf(path, PATH_MAX, "%s%s", s->o->tune, suffix) >= PATH_MAX) {
        gemmar_perf_say("--tune: the name is too long");
        return 1;
    }
    return 0;
}

/* Rank 0: the file that the library reads holds this way, or none. */
static int offer(const struct gemmar_perf_session *s, const struct gemmar_tuning_entry *entry)
{
    char path[PATH_MAX], line[GEMMAR_TUNING_LINE_BYTES] = "";
    FILE *file;
    int rc;

    if (name_of(path, s, ".try") != 0) {
        return 1;
    }
    if (entry != NULL) {
        gemmar_tuning_line(entry, line, sizeof(line));
    }
    file = fopen(path, "we");
    if (file == NULL) {
        gemmar_perf_say("cannot write %s: %s", path, strerror(errno));
        return 1;
    }
    rc = fprintf(file, "%s\n", line) < 0;
    if (fclose(file) != 0 || rc != 0) {
        gemmar_perf_say("cannot write %s", path);
        return 1;
    }
    return 0;
}

int gemmar_perf_tune_begin(struct gemmar_perf_session *s)
{
    /* What would go before the table. */
    static const char *const other[][2] = {{"GEMMAR_STRATEGY", "auto"},
                                           {"GEMMAR_TILE_M", "0"},
                                           {"GEMMAR_TILE_N", "0"},
                                           {"GEMMAR_DETERMINISTIC", "0"}};
    char path[PATH_MAX];
    bool failed = name_of(path, s, ".try") != 0;

    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        failed = setenv(other[i][0], other[i][1], 1) != 0 || failed;
    }
    if (!failed && s->rank == 0) {
        failed = setenv("GEMMAR_TUNING", path, 1) != 0 || offer(s, NULL) != 0;
    }
    return gemmar_perf_gpu_agree(s, failed);
}

/* All ranks take this way from now on, NULL: the model's. *out_can: the library can run it. */
static int take(struct tuner *t, const struct gemmar_tuning_entry *entry, bool *out_can)
{
    struct gemmar_perf_session *s = t->s;
    gemmarResult_t result;

    if (gemmar_perf_gpu_agree(s, s->rank == 0 && offer(s, entry) != 0) != 0) {
        return 1;
    }
    gemmar_perf_meet_busy(s->meet, true);
    result = gemmarCommReserve(s->comm, t->shape->m, t->shape->n, t->shape->k, s->o->dtype);
    gemmar_perf_meet_busy(s->meet, false);
    *out_can = result == gemmarSuccess;
    if (result != gemmarSuccess) {
        gemmar_perf_say_error(s, "gemmarCommReserve", result);
    }
    return gemmar_perf_gpu_agree(s, result != gemmarSuccess && result != gemmarInvalidArgument);
}

/* The slowest rank's median; infinite when it cannot run. Equal on all ranks. */
static int time_way(struct tuner *t, const struct gemmar_tuning_entry *entry, double *out_us)
{
    struct gemmar_perf_times times;
    double all[GEMMAR_PERF_GPU_RANKS];
    bool can;

    *out_us = INFINITY;
    if (take(t, entry, &can) != 0) {
        return 1;
    }
    if (!can) {
        return 0;
    }
    if (gemmar_perf_time_ways(t->s, t->shape, NULL, &times) != 0 ||
        gemmar_perf_gather(t->s, &times.us[GEMMAR_PERF_FUSED], all, sizeof(all[0])) != 0) {
        return 1;
    }
    *out_us = 0;
    for (uint32_t r = 0; r < t->s->ranks; r++) {
        *out_us = fmax(*out_us, all[r]);
    }
    return 0;
}

static int try_way(struct tuner *t, const struct gemmar_tuning_entry *entry)
{
    char line[GEMMAR_TUNING_LINE_BYTES];
    double us;

    if (time_way(t, entry, &us) != 0) {
        return 1;
    }
    t->tried++;
    if (t->s->rank == 0) {
        gemmar_tuning_line(entry, line, sizeof(line));
        (void)printf("#   %-64s %10.2f us\n", line, us);
    }
    if (us < BETTER * t->best_us) {
        t->best = *entry;
        t->best_us = us;
    }
    return 0;
}

static struct gemmar_tuning_entry entry_of(const struct tuner *t, uint32_t tile, uint32_t strategy)
{
    struct gemmar_tuning_entry e;

    memset(&e, 0, sizeof(e));
    e.m = t->shape->m;
    e.n = t->shape->n;
    e.k = t->shape->k;
    e.dtype = t->s->o->dtype == gemmarFloat16 ? GEMMAR_DTYPE_FP16 : GEMMAR_DTYPE_BF16;
    e.locals = t->s->ranks_per_node;
    e.how = (struct gemmar_tuned){tile, strategy, LEAD, LINK, BAND};
    return e;
}

/* Is half of this tile outside of every result, so that a smaller one does as well? */
static bool too_large(const struct gemmar_perf_shape *shape, uint32_t tile)
{
    uint32_t m, n;

    gemmar_plan_tile(tile, &m, &n);
    return (m == 256 && shape->m <= 128) || (n == 256 && shape->n <= 128);
}

/* Every tile, with a limit of the bytes on the link and without: that is all one for a single wave
 * of tiles, whose stores hold nothing up. */
static int search_exchange(struct tuner *t)
{
    struct gemmar_tuning_entry e;

    if (!gemmar_plan_can_exchange(t->shape->m, t->shape->n, t->s->nodes, t->s->ranks_per_node)) {
        return 0;
    }
    for (uint32_t i = 0; i < 2 * GEMMAR_TILE_SHAPES; i++) {
        e = entry_of(t, i / 2, GEMMAR_STRATEGY_EXCHANGE);
        e.how.link_bytes = i % 2 == 0 ? LINK : 0;
        if (!too_large(t->shape, e.how.shape) && try_way(t, &e) != 0) {
            return 1;
        }
    }
    return 0;
}

/* Tiles and leads together, then pull with the best of them, the exchange of two ranks, and more or
 * fewer bytes on the link. */
static int search(struct tuner *t)
{
    static const uint32_t leads[] = {LEAD, 1, 3}, links[] = {LINK / 2, LINK * 2};
    struct gemmar_tuning_entry e;

    for (uint32_t tile = 0; tile < GEMMAR_TILE_SHAPES; tile++) {
        for (size_t i = 0; i < 3 && !too_large(t->shape, tile); i++) {
            e = entry_of(t, tile, GEMMAR_STRATEGY_PUSH);
            e.how.lead = leads[i];
            if (try_way(t, &e) != 0) {
                return 1;
            }
        }
    }
    e = entry_of(t, t->best.how.shape, GEMMAR_STRATEGY_PULL);
    if ((t->s->ranks_per_node > 1 && try_way(t, &e) != 0) || search_exchange(t) != 0) {
        return 1;
    }
    for (size_t i = 0; i < 2 && t->best.how.strategy == GEMMAR_STRATEGY_PUSH; i++) {
        e = t->best;
        e.how.link_bytes = links[i];
        if (try_way(t, &e) != 0) {
            return 1;
        }
    }
    return 0;
}

static int write_lines(const struct tuner *t, FILE *file)
{
    int bad = fputs(head, file) < 0;

    for (uint64_t i = 0; i < t->table.count; i++) {
        char line[GEMMAR_TUNING_LINE_BYTES];

        gemmar_tuning_line(&t->table.entry[i], line, sizeof(line));
        bad |= fputs(line, file) < 0;
        if (t->us[i] > 0) {
            bad |= fprintf(file, " # %.2f us, the model's way %.2f us", t->us[i], t->model[i]) < 0;
        }
        bad |= fputc('\n', file) == EOF;
    }
    return bad;
}

/* Rank 0: the best way into the table, and that into its file at once. */
static int keep(struct tuner *t, double model)
{
    char path[PATH_MAX];
    FILE *file;
    uint64_t i = 0;
    int bad;

    if (gemmar_tuning_put(&t->table, &t->best) != 0) {
        gemmar_perf_say("--tune: %s has %d entries already", t->s->o->tune, GEMMAR_TUNING_ENTRIES);
        return 1;
    }
    while (memcmp(&t->table.entry[i], &t->best, sizeof(t->best)) != 0) {
        i++;
    }
    t->us[i] = t->best_us;
    t->model[i] = model;
    if (name_of(path, t->s, ".new") != 0) {
        return 1;
    }
    file = fopen(path, "we");
    bad = file == NULL || write_lines(t, file);
    bad = (file != NULL && fclose(file) != 0) || bad;
    if (bad || rename(path, t->s->o->tune) != 0) {
        gemmar_perf_say("cannot write %s: %s", t->s->o->tune, strerror(errno));
        return 1;
    }
    return 0;
}

static int tune_shape(struct tuner *t)
{
    double begin = gemmar_perf_seconds(), model;
    char line[GEMMAR_TUNING_LINE_BYTES];

    t->best_us = INFINITY;
    t->best = entry_of(t, GEMMAR_TILE_128X128, GEMMAR_STRATEGY_PUSH);
    t->tried = 0;
    /* First for the clocks alone. */
    if (time_way(t, NULL, &model) != 0 || search(t) != 0 || time_way(t, NULL, &model) != 0) {
        return 1;
    }
    if (isinf(t->best_us)) {
        gemmar_perf_say("--tune: no way can run %lld x %lld x %lld", (long long)t->shape->m,
                        (long long)t->shape->n, (long long)t->shape->k);
        return 1;
    }
    if (t->s->rank == 0) {
        gemmar_tuning_line(&t->best, line, sizeof(line));
        (void)printf("%-66s %10.2f us, the model's way %.2f us; %u ways in %.2f s\n", line,
                     t->best_us, model, t->tried, gemmar_perf_seconds() - begin);
        (void)fflush(stdout);
    }
    return gemmar_perf_gpu_agree(t->s, t->s->rank == 0 && keep(t, model) != 0);
}

/* Grow once for all ways: what was outgrown stays until the end. */
static int grow(struct tuner *t)
{
    struct gemmar_tuning_entry e = entry_of(t, GEMMAR_TILE_128X128, GEMMAR_STRATEGY_PULL);
    bool can;

    return take(t, &e, &can);
}

/* Rank 0: go on with what the file has. */
static int read_table(struct tuner *t)
{
    char why[400];
    int rc = gemmar_tuning_read(t->s->o->tune, &t->table, why, sizeof(why));

    if (rc != 0 && rc != -ENOENT) {
        gemmar_perf_say("--tune: %s", why);
        return 1;
    }
    return 0;
}

static int tune_all(struct tuner *t, int (*step)(struct tuner *t))
{
    const struct gemmar_perf_shapes *shapes = &t->s->o->shapes;

    for (size_t i = 0; i < shapes->count; i++) {
        t->shape = &shapes->shape[i];
        if (t->shape->m != 0 && t->shape->n != 0 && step(t) != 0) {
            return 1;
        }
    }
    return 0;
}

int gemmar_perf_tune(struct gemmar_perf_session *s)
{
    struct tuner *t = calloc(1, sizeof(*t));
    char path[PATH_MAX];
    bool failed = t == NULL;
    int status;

    if (!failed) {
        t->s = s;
        failed = s->rank == 0 && read_table(t) != 0;
    }
    status = gemmar_perf_gpu_agree(s, failed);
    if (status == 0 && s->rank == 0) {
        (void)fputs(head, stdout);
    }
    status = status || tune_all(t, grow) || tune_all(t, tune_shape);
    if (s->rank == 0 && name_of(path, s, ".try") == 0) {
        (void)unlink(path); /* a rest does no harm */
    }
    free(t);
    return status;
}
