// SPDX-License-Identifier: Apache-2.0
// The command line of gemmar_perf.
#ifndef GEMMAR_PERF_OPTIONS_H
#define GEMMAR_PERF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gemmar/gemmar.h>

#include "tools/gemmar_perf/shapes.h"
#include "tools/gemmar_perf/simulate_machine.h"

#define GEMMAR_PERF_MAX_GPUS 16

enum gemmar_perf_hca {
    GEMMAR_PERF_HCA_AUTO, /* whatever libibverbs finds */
    GEMMAR_PERF_HCA_SOFT, /* softhca on a private fabric */
    GEMMAR_PERF_HCA_REAL, /* refuse softhca */
};

struct gemmar_perf_options {
    /* Equal on all ranks; compared before the first call. */
    struct gemmar_perf_shapes shapes;
    gemmarDataType_t dtype;
    gemmarAlgo_t algo;
    bool trans_b; /* layout nt */
    bool check;
    bool cuda;           /* run on GPUs */
    bool graph;          /* GPU: calls are captured once and replayed */
    bool baseline;       /* GPU: time cuBLASLt and ncclAllReduce beside, and the bounds */
    bool plain;          /* GPU: C is memory of cudaMalloc, not a registered buffer */
    uint32_t check_rows; /* GPU: rows that a rank looks at in a check; 0: by the size */
    uint32_t iters, warmup;
    uint32_t mix;        /* calls of mixed shapes with changing inputs; 0: the table of shapes */
    uint32_t skew_us;    /* longest random delay before a call */
    uint32_t timeout_ms; /* 0: the library's */
    uint64_t seed;
    uint32_t tile_m, tile_n, chunk;
    /* Of this rank. */
    uint32_t nodes, ranks_per_node;
    uint32_t runs;
    uint32_t gpus[GEMMAR_PERF_MAX_GPUS], gpu_count; /* that ranks take in turn; 0: all */
    uint32_t ctas, stages;
    bool vary_facts; /* other ctas and stages on every rank */
    bool imm;
    bool fifo;
    bool verbose;
    enum gemmar_perf_hca hca;
    const char *input_a, *input_b, *json;
    const char *tune;       /* GPU: the tuning table to be written; NULL: measure as usual */
    const char *rendezvous; /* host:port of rank 0 */
    struct gemmar_perf_sizes simulate; /* numbers of nodes; none: calls are made */
    struct gemmar_sim_machine machine; /* that is simulated */
    const char *against;               /* measured calls to simulate; NULL: none */
};

enum gemmar_perf_parse {
    GEMMAR_PERF_PARSE_RUN,
    GEMMAR_PERF_PARSE_DONE, /* --help, --version, --model list: printed, exit 0 */
    GEMMAR_PERF_PARSE_BAD,  /* `why` has the sentence, exit 2 */
};

enum gemmar_perf_parse gemmar_perf_options_parse(int argc, char **argv,
                                                 struct gemmar_perf_options *out_options, char *why,
                                                 size_t why_bytes);

/* "bf16", "fp16", "fp32". */
const char *gemmar_perf_dtype_name(gemmarDataType_t dtype);
/* "auto", "direct", "two-shot", "none". */
const char *gemmar_perf_algo_name(gemmarAlgo_t algo);
/* Bytes of an element. */
size_t gemmar_perf_dtype_bytes(gemmarDataType_t dtype);

#endif
