// SPDX-License-Identifier: Apache-2.0
// The parts of tools/example that need no GPU: processes that find each other, and the bound.
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "test/unit/tools/tap.h"
#include "tools/example/check.h"
#include "tools/example/job.h"

static void set(const char *name, const char *value)
{
    (void)setenv(name, value, 1);
}

static void clear(void)
{
    static const char *const names[] = {
        "RANK",        "WORLD_SIZE",           "LOCAL_RANK",           "MASTER_ADDR",
        "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
        "PMI_SIZE",    "SLURM_PROCID",         "SLURM_NTASKS"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unsetenv(names[i]);
    }
}

START_TEST(launchers)
{
    struct job job;

    clear();
    ck_assert_int_eq(job_from_environment(&job, NULL), 0);
    set("SLURM_PROCID", "0"); /* a shell in an allocation of one task */
    set("SLURM_NTASKS", "1");
    ck_assert_int_eq(job_from_environment(&job, NULL), 0);
    set("OMPI_COMM_WORLD_RANK", "2");
    set("OMPI_COMM_WORLD_SIZE", "4");
    set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
    ck_assert_int_eq(job_from_environment(&job, NULL), -1); /* no address */
    ck_assert_int_eq(job_from_environment(&job, "there:5"), 1);
    ck_assert_str_eq(job.meet, "there:5");
    ck_assert_int_eq(job.rank * 100 + job.ranks * 10 + job.local, 241);
    set("RANK", "3");
    set("WORLD_SIZE", "4");
    set("LOCAL_RANK", "1");
    set("MASTER_ADDR", "here");
    set("MASTER_PORT", "29500");
    ck_assert_int_eq(job_from_environment(&job, NULL), 1);
    ck_assert_str_eq(job.meet, "here:29501"); /* torchrun listens at 29500 */
    ck_assert_int_eq(job.rank, 3);
    set("RANK", "4");
    ck_assert_int_eq(job_from_environment(&job, NULL), -1);
}
END_TEST

/* What a rank of a forked job got; its exit status says whether it was right. */
static void end_rank(struct job *job, int nodes)
{
    const char *node = getenv("NCCL_HOSTID");
    char text[128] = "", want[32];
    int right;

    if (job->rank == 0) {
        (void)snprintf(text, sizeof(text), "from rank 0");
    }
    right = job_share(job, text, sizeof(text)) == 0 && strcmp(text, "from rank 0") == 0;
    (void)snprintf(want, sizeof(want), "example-node-%d", job->rank / (job->ranks / nodes));
    right = right && (nodes == 1 ? node == NULL : node != NULL && strcmp(node, want) == 0);
    _exit(right ? 0 : 1);
}

START_TEST(all_ranks_get_what_rank_0_has)
{
    static const int cases[][2] = {{1, 1}, {2, 1}, {5, 1}, {4, 2}};
    struct job job;
    int status;

    (void)unsetenv("NCCL_HOSTID");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        status = job_fork(&job, cases[i][0], cases[i][1]);
        if (status < 0) {
            end_rank(&job, cases[i][1]);
        }
        ck_assert_int_eq(status, 0);
    }
    ck_assert_int_eq(job_fork(&job, 3, 2), 1);
}
END_TEST

START_TEST(one_that_fails_ends_the_others)
{
    time_t begin = time(NULL);
    struct job job;
    int status = job_fork(&job, 3, 1);

    if (status < 0) {
        if (job.rank == 1) {
            _exit(3);
        }
        (void)sleep(30);
        _exit(0);
    }
    ck_assert_int_eq(status, 1);
    ck_assert_int_lt(time(NULL) - begin, 10);
}
END_TEST

START_TEST(one_that_does_not_come_is_not_waited_for_for_ever)
{
    struct job job;
    int status = job_fork(&job, 2, 1);
    char byte = 1;

    if (status < 0) {
        job.wait_seconds = 1;
        _exit(job.rank == 0 ? job_share(&job, &byte, 1) : 0);
    }
    ck_assert_int_eq(status, 1);
}
END_TEST

/* Connect to rank 0 without the word that ranks begin with. */
static void disturb(const struct job *job)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    uint32_t hello[2] = {0, 1};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    to.sin_port = htons((uint16_t)atoi(strrchr(job->meet, ':') + 1));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
        send(fd, hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
        _exit(1);
    }
    (void)close(fd);
}

START_TEST(a_stranger_is_no_rank)
{
    struct job job;
    int status = job_fork(&job, 2, 1);

    if (status < 0) {
        if (job.rank == 1) {
            disturb(&job);
        }
        end_rank(&job, 1);
    }
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(rank_0_may_come_late_and_listens_by_name)
{
    struct job job;
    int status = job_fork(&job, 2, 1);

    if (status < 0) {
        if (job.rank == 0) { /* as under a launcher: it has no socket yet */
            (void)close(job.listener);
            job.listener = -1;
            (void)usleep(300000);
        }
        end_rank(&job, 1);
    }
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(bf16_rounds_to_nearest_even)
{
    ck_assert_uint_eq(to_bf16(1.0f), 0x3f80);
    ck_assert_uint_eq(to_bf16(1.0f + 0x1p-8f), 0x3f80); /* half way: even */
    ck_assert_uint_eq(to_bf16(1.0f + 0x3p-8f), 0x3f82);
    ck_assert(from_bf16(0xc040) == -3.0f);
}
END_TEST

START_TEST(the_bound_lets_rounding_pass_and_nothing_else)
{
    float row[2] = {4, 4}, column[2] = {9, 9}, partials[4] = {2, 2, 2, 2};
    struct bound b = {2, 2, 1 << 14, 2, row, column, partials};
    double limit = 2 * ldexp(1, 14 - 24) * 6 + (pow(1 + 1.0 / 256, 6) - 1) * 2;
    uint16_t one[4], other[4];
    struct difference d;

    for (int i = 0; i < 4; i++) {
        one[i] = other[i] = to_bf16(1);
    }
    d = check_compare(&b, one, other);
    ck_assert(d.over == 0 && d.unequal == 0 && d.worst == 0);
    other[2] = to_bf16(1.0f + 0x1p-7f);
    d = check_compare(&b, one, other);
    ck_assert(d.over == 0 && d.unequal == 1 && fabs(d.worst - 0x1p-7 / limit) < 1e-6);
    other[2] = to_bf16(1.0f + (float)limit + 0x1p-6f);
    d = check_compare(&b, one, other);
    ck_assert(d.over == 1 && d.unequal == 1 && d.worst > 1);
    other[2] = 0x7fc0; /* NaN */
    d = check_compare(&b, one, other);
    ck_assert_uint_eq(d.over, 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {launchers,
                                  all_ranks_get_what_rank_0_has,
                                  one_that_fails_ends_the_others,
                                  one_that_does_not_come_is_not_waited_for_for_ever,
                                  a_stranger_is_no_rank,
                                  rank_0_may_come_late_and_listens_by_name,
                                  bf16_rounds_to_nearest_even,
                                  the_bound_lets_rounding_pass_and_nothing_else,
                                  NULL};

    return tap_run("example", tests);
}
