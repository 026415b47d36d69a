// SPDX-License-Identifier: Apache-2.0
// What a simulated call is compared with: bounds, and a product followed by an all-reduce.
#ifndef GEMMAR_PERF_SIMULATE_BOUNDS_H
#define GEMMAR_PERF_SIMULATE_BOUNDS_H

#include "tools/gemmar_perf/simulate_call.h"

/* Microseconds, docs/design.md section 12. */
struct gemmar_sim_bounds {
    double gemm, hbm, nvlink, net;
    double largest;
    const char *which;
};

/* `algo` as the call ran. */
struct gemmar_sim_bounds gemmar_sim_bounds(const struct gemmar_sim_machine *machine,
                                           const struct gemmar_sim_call *call, uint32_t algo);

/* Microseconds. */
struct gemmar_sim_unfused {
    double gemm;       /* cuBLASLt */
    double ring, tree; /* ncclAllReduce by these algorithms, alone */
    double total;      /* the product, then the faster one */
};

/* Ring: each byte of C twice less 2/R around all ranks, 2 (R - 1) steps, the slower of NVLink and
 * NICs sets the pace. Tree: the same inside a node; between nodes each byte once each way for two
 * nodes, twice for more, over all NICs of a node, and 2 log2 N steps. */
struct gemmar_sim_unfused gemmar_sim_unfused(const struct gemmar_sim_machine *machine,
                                             const struct gemmar_sim_call *call);

#endif
