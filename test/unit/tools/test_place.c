// SPDX-License-Identifier: Apache-2.0
// Which rank a process is, from each launcher's variables.
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "test/unit/tools/tap.h"
#include "tools/gemmar_perf/place.h"

static char why[512];
static struct gemmar_perf_place place;

static void clear(void)
{
    static const char *const names[] = {GEMMAR_PERF_ENV_RANK,
                                        GEMMAR_PERF_ENV_RANKS,
                                        GEMMAR_PERF_ENV_ADDRESS,
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_JOB_ID",
                                        "SLURM_JOB_NODELIST"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unsetenv(names[i]);
    }
}

static int find(const char *rendezvous)
{
    return gemmar_perf_place_find(rendezvous, &place, why, sizeof(why));
}

START_TEST(without_a_launcher_it_launches)
{
    clear();
    ck_assert_int_eq(find(NULL), 0);
    ck_assert_ptr_null(place.launcher);
    (void)setenv("SLURM_PROCID", "0", 1); /* inside salloc */
    (void)setenv("SLURM_NTASKS", "1", 1);
    ck_assert_int_eq(find(NULL), 0);
    ck_assert_ptr_null(place.launcher);
}
END_TEST

START_TEST(torchrun)
{
    clear();
    (void)setenv("RANK", "3", 1);
    (void)setenv("WORLD_SIZE", "4", 1);
    ck_assert_int_eq(find(NULL), -EINVAL); /* where is rank 0? */
    ck_assert_ptr_nonnull(strstr(why, "MASTER_ADDR"));
    (void)setenv("MASTER_ADDR", "host", 1);
    (void)setenv("MASTER_PORT", "29500", 1);
    ck_assert_int_eq(find(NULL), 0);
    ck_assert_str_eq(place.launcher, "torchrun");
    ck_assert_uint_eq(place.rank, 3);
    ck_assert_uint_eq(place.ranks, 4);
    ck_assert_str_eq(place.address, "host:29500");
    (void)setenv("RANK", "4", 1);
    ck_assert_int_eq(find(NULL), -EINVAL);
}
END_TEST

START_TEST(a_rank_that_is_none)
{
    static const char *const none[][2] = {
        {"-1", "2"}, {"", "2"}, {"1x", "2"}, {"0", "99999999999"}, {"0", "0"}};

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        clear();
        (void)setenv("RANK", none[i][0], 1);
        (void)setenv("WORLD_SIZE", none[i][1], 1);
        ck_assert_int_eq(find("there:1234"), -EINVAL);
        ck_assert_ptr_nonnull(strstr(why, "WORLD_SIZE"));
    }
    clear();
    (void)setenv("RANK", "none", 1); /* somebody else's */
    ck_assert_int_eq(find(NULL), 0);
}
END_TEST

START_TEST(mpirun)
{
    char first[sizeof(place.address)];

    clear();
    (void)setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    (void)setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    ck_assert_int_eq(find(NULL), -EINVAL);
    ck_assert_int_eq(find("there:1234"), 0);
    ck_assert_str_eq(place.address, "there:1234");
    (void)setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    (void)setenv("PMIX_NAMESPACE", "prterun-1@1", 1);
    ck_assert_int_eq(find(NULL), 0);
    ck_assert_int_eq(strncmp(place.address, "127.0.0.1:", 10), 0);
    (void)strcpy(first, place.address);
    (void)setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    ck_assert_int_eq(find(NULL), 0);
    ck_assert_str_eq(place.address, first);
}
END_TEST

START_TEST(srun)
{
    clear();
    (void)setenv("SLURM_PROCID", "7", 1);
    (void)setenv("SLURM_NTASKS", "8", 1);
    (void)setenv("SLURM_JOB_ID", "4711", 1);
    (void)setenv("SLURM_JOB_NODELIST", "gpu[07-09,12],other", 1);
    ck_assert_int_eq(find(NULL), 0);
    ck_assert_str_eq(place.launcher, "srun");
    ck_assert_int_eq(strncmp(place.address, "gpu07:", 6), 0);
}
END_TEST

START_TEST(first_host_of_a_list)
{
    char host[16];

    ck_assert_int_eq(gemmar_perf_place_first_host("one", host, sizeof(host)), 0);
    ck_assert_str_eq(host, "one");
    ck_assert_int_eq(gemmar_perf_place_first_host("a,b", host, sizeof(host)), 0);
    ck_assert_str_eq(host, "a");
    ck_assert_int_eq(gemmar_perf_place_first_host("n[003,5]", host, sizeof(host)), 0);
    ck_assert_str_eq(host, "n003");
    ck_assert_int_eq(gemmar_perf_place_first_host("", host, sizeof(host)), -EINVAL);
    ck_assert_int_eq(gemmar_perf_place_first_host("n[", host, sizeof(host)), -EINVAL);
    ck_assert_int_eq(gemmar_perf_place_first_host("a-very-long-host-name", host, sizeof(host)),
                     -EINVAL);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        without_a_launcher_it_launches, torchrun, a_rank_that_is_none, mpirun, srun,
        first_host_of_a_list,           NULL};

    return tap_run("place", tests);
}
