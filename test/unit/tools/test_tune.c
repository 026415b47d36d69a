// SPDX-License-Identifier: Apache-2.0
// The search of --tune against a library that runs in made-up times, without a GPU.
#include "tools/gemmar_perf/gpu/tune.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/dtype.h"
#include "kernels/plan.h"
#include "kernels/tuning.h"
#include "tap.h"
#include "tools/gemmar_perf/gpu/ways.h"

static struct {
    struct gemmar_tuning table; /* that the last reserve read */
    int reserves, timed;
    bool no_pull;
} library;

static struct gemmar_perf_options options;
static struct gemmar_perf_session session;
static struct gemmar_tuning result;
static char path[64], why[400];

int gemmar_perf_gpu_agree(struct gemmar_perf_session *s, bool failed)
{
    (void)s;
    return failed;
}

int gemmar_perf_gather(struct gemmar_perf_session *s, const void *mine, void *all, size_t bytes)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        memcpy((char *)all + r * bytes, mine, bytes);
    }
    return 0;
}

void gemmar_perf_meet_busy(struct gemmar_perf_meet *meet, bool busy)
{
    (void)meet;
    (void)busy;
}

void gemmar_perf_say_error(struct gemmar_perf_session *s, const char *doing, gemmarResult_t error)
{
    (void)s;
    (void)doing;
    (void)error;
}

gemmarResult_t gemmarCommReserve(gemmarComm_t comm, int64_t M, int64_t N, int64_t K,
                                 gemmarDataType_t datatype)
{
    (void)comm;
    (void)M;
    (void)N;
    (void)K;
    (void)datatype;
    library.reserves++;
    ck_assert_int_eq(gemmar_tuning_read(getenv("GEMMAR_TUNING"), &library.table, why, sizeof(why)),
                     0);
    return library.no_pull && library.table.count != 0 &&
                   library.table.entry[0].how.strategy == GEMMAR_STRATEGY_PULL
               ? gemmarInvalidArgument
               : gemmarSuccess;
}

/* 256x128, lead 3 and 2 MiB are the fastest; pull is, where it can run and M is 512, and an
 * exchange without a limit where it is 2048. */
int gemmar_perf_time_ways(struct gemmar_perf_session *s, const struct gemmar_perf_shape *shape,
                          struct gemmar_perf_product *product, struct gemmar_perf_times *out_times)
{
    const struct gemmar_tuning_entry *e = &library.table.entry[0];
    double us = 100;

    (void)s;
    (void)product;
    library.timed++;
    if (library.table.count != 0) {
        ck_assert(e->m == shape->m && e->n == shape->n && e->k == shape->k && e->locals == 2);
        us = e->how.shape == GEMMAR_TILE_256X128 ? 80 : 90 + e->how.shape;
        us -= e->how.lead == 3 ? 4 : 0;
        us -= e->how.link_bytes == 2 << 20 ? 2 : 0;
        us -= e->how.strategy == GEMMAR_STRATEGY_PULL ? shape->m == 512 ? 30 : -30 : 0;
        if (e->how.strategy == GEMMAR_STRATEGY_EXCHANGE) {
            us += shape->m == 2048 ? -20 : 20;
            us += e->how.link_bytes == 0 ? 0 : 1;
        }
    }
    out_times->us[GEMMAR_PERF_FUSED] = us;
    return 0;
}

static void tune(int64_t m, int64_t n)
{
    options.shapes.shape[0] = (struct gemmar_perf_shape){m, n, 64};
    options.shapes.count = 1;
    library.timed = 0;
    ck_assert_int_eq(gemmar_perf_tune_begin(&session), 0);
    ck_assert_int_eq(gemmar_perf_tune(&session), 0);
    ck_assert_int_eq(gemmar_tuning_read(path, &result, why, sizeof(why)), 0);
}

static const struct gemmar_tuned *kept(int64_t m, int64_t n)
{
    for (uint64_t i = 0; i < result.count; i++) {
        if (result.entry[i].m == m && result.entry[i].n == n) {
            return &result.entry[i].how;
        }
    }
    ck_abort_msg("no entry of %lld x %lld", (long long)m, (long long)n);
    return NULL;
}

static void begin(void)
{
    int fd;

    (void)snprintf(path, sizeof(path), "/tmp/test_tune_XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    (void)unlink(path);
    options = (struct gemmar_perf_options){.dtype = gemmarBfloat16, .iters = 5, .tune = path};
    session =
        (struct gemmar_perf_session){.o = &options, .ranks = 2, .nodes = 1, .ranks_per_node = 2};
    library.no_pull = false;
    /* As the TAP reader takes lines of ours for noise, they go elsewhere. */
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
}

START_TEST(the_fastest_way_is_kept)
{
    begin();
    tune(1000, 1000);
    ck_assert_uint_eq(result.count, 1);
    ck_assert_uint_eq(kept(1000, 1000)->shape, GEMMAR_TILE_256X128);
    ck_assert_uint_eq(kept(1000, 1000)->lead, 3);
    ck_assert_uint_eq(kept(1000, 1000)->link_bytes, 2 << 20);
    ck_assert_uint_eq(kept(1000, 1000)->strategy, GEMMAR_STRATEGY_PUSH);
    ck_assert_int_eq(library.timed, 2 + 12 + 1 + 8 + 2);
    tune(512, 1000);
    ck_assert_uint_eq(kept(512, 1000)->strategy, GEMMAR_STRATEGY_PULL);
    ck_assert_uint_eq(kept(1000, 1000)->lead, 3); /* the other entry stays */
    tune(2048, 1000);
    ck_assert_uint_eq(kept(2048, 1000)->strategy, GEMMAR_STRATEGY_EXCHANGE);
    ck_assert_uint_eq(kept(2048, 1000)->link_bytes, 0);
    session.nodes = 2; /* they cannot */
    tune(2048, 1000);
    ck_assert_uint_eq(kept(2048, 1000)->strategy, GEMMAR_STRATEGY_PUSH);
    ck_assert_int_eq(library.timed, 2 + 12 + 1 + 2);
    session.nodes = 1;
    library.no_pull = true;
    tune(512, 1000);
    ck_assert_uint_eq(result.count, 3);
    ck_assert_uint_eq(kept(512, 1000)->strategy, GEMMAR_STRATEGY_PUSH);
    (void)unlink(path);
}
END_TEST

START_TEST(large_tiles_are_left_out_for_few_rows)
{
    begin();
    tune(128, 1000);
    ck_assert_int_eq(library.timed, 2 + 6 + 1 + 4 + 2);
    ck_assert_uint_eq(kept(128, 1000)->shape, GEMMAR_TILE_128X256);
    tune(1, 1);
    ck_assert_int_eq(library.timed, 2 + 3 + 1 + 2 + 2);
    tune(0, 5); /* nothing to try */
    ck_assert_int_eq(library.timed, 0);
    (void)unlink(path);
}
END_TEST

START_TEST(a_file_that_is_no_table_is_left_alone)
{
    FILE *file;

    begin();
    file = fopen(path, "w");
    ck_assert_int_ge(fputs("not a table\n", file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(gemmar_perf_tune_begin(&session), 0);
    ck_assert_int_eq(gemmar_perf_tune(&session), 1);
    ck_assert_int_eq(gemmar_tuning_read(path, &result, why, sizeof(why)) < 0, 1);
    (void)unlink(path);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {the_fastest_way_is_kept, large_tiles_are_left_out_for_few_rows,
                                  a_file_that_is_no_table_is_left_alone, NULL};

    return tap_run("tune", tests);
}
