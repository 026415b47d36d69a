// SPDX-License-Identifier: Apache-2.0
// What ranks on GPUs of several nodes are started with, and what NCCL's log says of its networks.
#include "tools/gemmar_perf/nodes.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "tools/gemmar_perf/nccl_log.h"

START_TEST(only_gpus_of_several_nodes_over_softhca_are_prepared)
{
    struct gemmar_perf_options o = {.cuda = true, .nodes = 2, .hca = GEMMAR_PERF_HCA_SOFT};

    ck_assert(gemmar_perf_nodes_wanted(&o));
    o.nodes = 1;
    ck_assert(!gemmar_perf_nodes_wanted(&o));
    o = (struct gemmar_perf_options){.cuda = true, .nodes = 2, .hca = GEMMAR_PERF_HCA_AUTO};
    ck_assert(!gemmar_perf_nodes_wanted(&o));
    o = (struct gemmar_perf_options){.nodes = 2, .hca = GEMMAR_PERF_HCA_SOFT};
    ck_assert(!gemmar_perf_nodes_wanted(&o));
}
END_TEST

START_TEST(ranks_share_the_processors_or_leave_them)
{
    cpu_set_t all, mine;
    int count;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    count = CPU_COUNT(&all);
    gemmar_perf_nodes_pin(0, (uint32_t)count); /* one for each is too few */
    ck_assert_int_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
    ck_assert(CPU_EQUAL(&all, &mine));
    if (count >= 8) {
        gemmar_perf_nodes_pin(1, 2);
        ck_assert_int_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
        ck_assert_int_eq(CPU_COUNT(&mine), count / 2);
        ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);
    }
}
END_TEST

START_TEST(connections_are_counted_by_network)
{
    static const char log[] =
        "h:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin Gemmar (v11)\n"
        "h:1:1 [0] NCCL INFO NET/IB : Using [0]soft0:1/IB [RO]; OOB lo:127.0.0.1<0>\n"
        "h:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Gemmar/0/GDRDMA\n"
        "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Gemmar/0/GDRDMA/Shared\n"
        "h:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0(0)/GDRDMA\n"
        "h:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] [send] via NET/IB/0\n"
        "h:1:1 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[1] [send] via NET/IB/0/Shared";
    struct gemmar_perf_nccl_facts f;

    gemmar_perf_nccl_log_parse(log, &f);
    ck_assert(f.loaded);
    ck_assert_uint_eq(f.plugin.all, 2);
    ck_assert_uint_eq(f.plugin.direct, 2);
    ck_assert_uint_eq(f.builtin.all, 3);
    ck_assert_uint_eq(f.builtin.direct, 1);
    gemmar_perf_nccl_log_parse("", &f);
    ck_assert(!f.loaded && f.plugin.all == 0 && f.builtin.all == 0);
}
END_TEST

/* As NCCL does it: by the name, which empties the file. */
START_TEST(the_log_is_what_nccl_writes_by_its_name)
{
    struct gemmar_perf_nccl_facts f;
    FILE *out;
    int log;

    (void)unsetenv("NCCL_DEBUG");
    (void)unsetenv("NCCL_DEBUG_FILE");
    log = gemmar_perf_nccl_log_open();
    ck_assert_int_ge(log, 0);
    ck_assert_str_eq(getenv("NCCL_DEBUG"), "INFO");
    out = fopen(getenv("NCCL_DEBUG_FILE"), "w");
    ck_assert_ptr_nonnull(out);
    (void)fputs("x via NET/IB/0/GDRDMA\n", out);
    (void)fflush(out);
    ck_assert(gemmar_perf_nccl_log_read(log, &f));
    ck_assert_uint_eq(f.builtin.direct, 1);
    (void)fputs("x via NET/IB/1\n", out);
    (void)fclose(out);
    ck_assert(gemmar_perf_nccl_log_read(log, &f));
    ck_assert_uint_eq(f.builtin.all, 2);
    gemmar_perf_nccl_log_close(log);
    ck_assert_int_eq(gemmar_perf_nccl_log_open(), -1); /* it is somebody's now */
    ck_assert(!gemmar_perf_nccl_log_read(-1, &f));
    ck_assert_uint_eq(f.builtin.all, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {only_gpus_of_several_nodes_over_softhca_are_prepared,
                                  ranks_share_the_processors_or_leave_them,
                                  connections_are_counted_by_network,
                                  the_log_is_what_nccl_writes_by_its_name, NULL};

    return tap_run("tools-nodes", tests);
}
