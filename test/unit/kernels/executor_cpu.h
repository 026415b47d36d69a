// SPDX-License-Identifier: Apache-2.0
// The protocol test on the CPU executor.
#ifndef GEMMAR_TEST_EXECUTOR_CPU_H
#define GEMMAR_TEST_EXECUTOR_CPU_H

#include <check.h>
#include <stdlib.h>

#include "kernels/cpu/executor.h"

/* Products add in the order of k without contraction, as the reference does. */
#define MACHINE_ADDS_IN_ORDER 1

struct machine {
    struct gemmar_cpu_executor *executor;
};

static void *zeros(uint64_t bytes)
{
    void *p = calloc(1, bytes + 64);

    ck_assert_ptr_nonnull(p);
    return p;
}

static void give(void *p)
{
    free(p);
}

static void machine_map(void *base, uint64_t bytes)
{
    (void)base;
    (void)bytes;
}

static void machine_unmap(void *base)
{
    (void)base;
}

static struct machine *machine_open(void)
{
    struct machine *m = zeros(sizeof(*m));

    ck_assert_int_eq(gemmar_cpu_executor_open(&m->executor), 0);
    return m;
}

static void machine_close(struct machine *m)
{
    gemmar_cpu_executor_close(m->executor);
    give(m);
}

static int machine_run(struct machine *m, const struct gemmar_call *call)
{
    return gemmar_cpu_run(m->executor, call);
}

#endif
