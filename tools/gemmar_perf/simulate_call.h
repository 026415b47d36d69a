// SPDX-License-Identifier: Apache-2.0
// One simulated call: the plan's tiles in the plan's order over a modelled machine.
//
// One node is simulated with all its ranks; the other nodes do the same at the same time, so that
// what this node sends to the one d behind it is what it gets from the one d before it. No threads,
// no clock, no randomness: the same arguments give the same result.
#ifndef GEMMAR_PERF_SIMULATE_CALL_H
#define GEMMAR_PERF_SIMULATE_CALL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/plan.h"
#include "tools/gemmar_perf/simulate_machine.h"

struct gemmar_sim_call {
    int64_t m, n, k; /* k of one rank */
    uint32_t dtype;  /* enum gemmar_dtype, of 16 bits */
    uint32_t nodes, locals;
    uint32_t algo;           /* enum gemmar_algo; LOCAL: the plan's choice */
    uint32_t tile_m, tile_n; /* 0: the plan's choice */
};

struct gemmar_sim_result {
    struct gemmar_plan plan;
    double time_us;
    double product_us;     /* when the last product was done */
    double sums_us;        /* when the last node sum was in staging */
    double arrived_us;     /* when the last data had come from another node */
    double nvlink_bytes;   /* out, the rank that sends most */
    uint64_t wire_bytes;   /* the same, by the NIC */
    uint64_t wire_formula; /* gemmar_parts_wire_bytes() of that rank */
};

/* 0; or -EINVAL, -EOVERFLOW (no plan), -ENOMEM, -EDEADLK (items wait for each other: an order of
 * visits that must not be) with a sentence. */
int gemmar_sim_run(const struct gemmar_sim_machine *machine, const struct gemmar_sim_call *call,
                   struct gemmar_sim_result *out, char *why, size_t why_bytes);

/* The algorithm that the plan would choose between nodes. */
uint32_t gemmar_sim_choice(const struct gemmar_sim_machine *machine,
                           const struct gemmar_sim_call *call);

#endif
