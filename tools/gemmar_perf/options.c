// SPDX-License-Identifier: Apache-2.0
// The command line of gemmar_perf.
#include "tools/gemmar_perf/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/models.h"
#include "tools/gemmar_perf/npy.h"
#include "transport/build_id.h"

static const char usage[] =
    "usage: gemmar_perf [OPTION]...\n"
    "Measure and check gemmar_fused(): C = sum over the ranks of A * B, fused with its "
    "all-reduce.\n"
    "\n"
    "  --device cpu|cuda       where calls run (cpu)\n"
    "  --gpus LIST             GPUs that the ranks take in turn (all; rank % count)\n"
    "  --graph                 on GPUs: capture a call once and replay it\n"
    "  --output registered|plain   on GPUs: C of gemmarMemAlloc, or of cudaMalloc (registered)\n"
    "  --baseline              on GPUs: cuBLASLt and ncclAllReduce in the same run, and the "
    "bounds\n"
    "  --tune FILE             on GPUs: try the ways to run each shape, keep the best in this "
    "tuning\n"
    "                          table (GEMMAR_TUNING)\n"
    "  --nodes N               nodes to start (1)\n"
    "  --ranks-per-node G      ranks on each (1)\n"
    "  -m, -n, -k LIST         sizes: 1,2,3  2048:32768:x2  1:10:+3  (1024; K is per rank)\n"
    "  --shapes LIST           explicit shapes: 1x1x1,128x256x64\n"
    "  --random COUNT          random ragged shapes up to --largest (4096), from --seed\n"
    "  --model NAME[:LAYER]    N and K of a known model's layers, K split over --tp; list: show\n"
    "  --tp T                  tensor-parallel size of --model (all ranks)\n"
    "  --dtype bf16|fp16|fp32  element type (bf16)\n"
    "  --layout nn|nt          B is [K,N], or [N,K] as weights are stored (nn)\n"
    "  --algo auto|direct|two-shot   between nodes (auto)\n"
    "  --signal stamp|imm      how arrivals are told (stamp)\n"
    "  --iters I --warmup W    timed and untimed calls of a shape (20, 5)\n"
    "  --check                 compare every element, and the bits of all ranks\n"
    "  --check-rows R          on GPUs: rows that each rank looks at (by the size)\n"
    "  --mix CALLS             CALLS calls of shapes drawn from the list, each with new inputs,\n"
    "                          mixed with empty and refused calls; all checked\n"
    "  --skew US               random delay of up to US microseconds per rank and call\n"
    "  --seed S                of inputs, delays and draws (1)\n"
    "  --runs R                do everything R times and compare the bits of the results\n"
    "  --input-a, --input-b FILE.npy   operands, %r in the name stands for the rank\n"
    "  --local-facts vary      other thread counts and stages on every rank\n"
    "  --ctas C --stages S --tile-m M --tile-n N --chunk T   settings of the communicator\n"
    "  --timeout SECONDS       wait for a peer at most this long\n"
    "  --hca auto|soft|real    verbs: what is found, the software HCA, or hardware only (auto)\n"
    "  --rendezvous HOST:PORT  of rank 0, under mpirun, srun or torchrun\n"
    "  --fifo                  measure the FIFO and the proxy alone\n"
    "  --simulate[=NODES]      forecast calls on modelled GPUs and NICs, for these numbers of "
    "nodes\n"
    "                          (1:1024:x2) of --ranks-per-node (8)\n"
    "  --machine NAME=VALUE,...  rates and latencies of --simulate; list: show them\n"
    "  --against FILE          with --simulate: forecast the calls of a JSON file of measured "
    "ones\n"
    "  --json FILE             append one JSON object per shape\n"
    "  --verbose               the library's own lines too\n"
    "  --help, --version\n";

enum {
    OPT_DEVICE = 256,
    OPT_GPUS,
    OPT_GRAPH,
    OPT_OUTPUT,
    OPT_BASELINE,
    OPT_TUNE,
    OPT_CHECK_ROWS,
    OPT_RANDOM,
    OPT_LARGEST,
    OPT_NODES,
    OPT_RANKS,
    OPT_SHAPES,
    OPT_MODEL,
    OPT_TP,
    OPT_DTYPE,
    OPT_LAYOUT,
    OPT_ALGO,
    OPT_SIGNAL,
    OPT_ITERS,
    OPT_WARMUP,
    OPT_CHECK,
    OPT_MIX,
    OPT_SKEW,
    OPT_SEED,
    OPT_RUNS,
    OPT_INPUT_A,
    OPT_INPUT_B,
    OPT_FACTS,
    OPT_CTAS,
    OPT_STAGES,
    OPT_TILE_M,
    OPT_TILE_N,
    OPT_CHUNK,
    OPT_TIMEOUT,
    OPT_HCA,
    OPT_RENDEZVOUS,
    OPT_FIFO,
    OPT_SIMULATE,
    OPT_MACHINE,
    OPT_AGAINST,
    OPT_JSON,
    OPT_VERBOSE,
    OPT_VERSION,
};

static const struct option table[] = {
    {"device", required_argument, NULL, OPT_DEVICE},
    {"gpus", required_argument, NULL, OPT_GPUS},
    {"graph", no_argument, NULL, OPT_GRAPH},
    {"output", required_argument, NULL, OPT_OUTPUT},
    {"baseline", no_argument, NULL, OPT_BASELINE},
    {"tune", required_argument, NULL, OPT_TUNE},
    {"check-rows", required_argument, NULL, OPT_CHECK_ROWS},
    {"random", required_argument, NULL, OPT_RANDOM},
    {"largest", required_argument, NULL, OPT_LARGEST},
    {"nodes", required_argument, NULL, OPT_NODES},
    {"ranks-per-node", required_argument, NULL, OPT_RANKS},
    {"shapes", required_argument, NULL, OPT_SHAPES},
    {"model", required_argument, NULL, OPT_MODEL},
    {"tp", required_argument, NULL, OPT_TP},
    {"dtype", required_argument, NULL, OPT_DTYPE},
    {"layout", required_argument, NULL, OPT_LAYOUT},
    {"algo", required_argument, NULL, OPT_ALGO},
    {"signal", required_argument, NULL, OPT_SIGNAL},
    {"iters", required_argument, NULL, OPT_ITERS},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"check", no_argument, NULL, OPT_CHECK},
    {"mix", required_argument, NULL, OPT_MIX},
    {"skew", required_argument, NULL, OPT_SKEW},
    {"seed", required_argument, NULL, OPT_SEED},
    {"runs", required_argument, NULL, OPT_RUNS},
    {"input-a", required_argument, NULL, OPT_INPUT_A},
    {"input-b", required_argument, NULL, OPT_INPUT_B},
    {"local-facts", required_argument, NULL, OPT_FACTS},
    {"ctas", required_argument, NULL, OPT_CTAS},
    {"stages", required_argument, NULL, OPT_STAGES},
    {"tile-m", required_argument, NULL, OPT_TILE_M},
    {"tile-n", required_argument, NULL, OPT_TILE_N},
    {"chunk", required_argument, NULL, OPT_CHUNK},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"hca", required_argument, NULL, OPT_HCA},
    {"rendezvous", required_argument, NULL, OPT_RENDEZVOUS},
    {"fifo", no_argument, NULL, OPT_FIFO},
    {"simulate", optional_argument, NULL, OPT_SIMULATE},
    {"machine", required_argument, NULL, OPT_MACHINE},
    {"against", required_argument, NULL, OPT_AGAINST},
    {"json", required_argument, NULL, OPT_JSON},
    {"verbose", no_argument, NULL, OPT_VERBOSE},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

/* What only the parser needs. */
struct parser {
    struct gemmar_perf_options *o;
    struct gemmar_perf_sizes m, n, k;
    const char *model;
    const char *shapes;
    uint32_t tp;
    uint32_t random, largest;
    bool machine;     /* --machine was there */
    const char *name; /* of the option at hand, with its dashes */
    char name_text[32];
    char *why;
    size_t why_bytes;
};

static const char *const dtype_words[] = {"bf16", "fp16", "fp32", NULL};
static const gemmarDataType_t dtype_values[] = {gemmarBfloat16, gemmarFloat16, gemmarFloat32};
static const char *const algo_words[] = {"auto", "direct", "two-shot", NULL};
static const char *const layout_words[] = {"nn", "nt", NULL};
static const char *const signal_words[] = {"stamp", "imm", NULL};
static const char *const hca_words[] = {"auto", "soft", "real", NULL};
static const char *const device_words[] = {"cpu", "cuda", NULL};
static const char *const output_words[] = {"registered", "plain", NULL};
static const char *const facts_words[] = {"same", "vary", NULL};

const char *gemmar_perf_dtype_name(gemmarDataType_t dtype)
{
    return dtype == gemmarBfloat16 ? "bf16" : dtype == gemmarFloat16 ? "fp16" : "fp32";
}

const char *gemmar_perf_algo_name(gemmarAlgo_t algo)
{
    return algo <= gemmarAlgoTwoShot ? algo_words[algo] : "none";
}

size_t gemmar_perf_dtype_bytes(gemmarDataType_t dtype)
{
    return dtype == gemmarFloat32 ? 4 : 2;
}

static int bad_count(struct parser *p, const char *text, uint64_t low, uint64_t high)
{
    (void)snprintf(p->why, p->why_bytes, "%s %s is not a number from %llu to %llu", p->name, text,
                   (unsigned long long)low, (unsigned long long)high);
    return -EINVAL;
}

static int take_u64(struct parser *p, const char *text, uint64_t low, uint64_t high,
                    uint64_t *out_value)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low ||
        value > high) {
        return bad_count(p, text, low, high);
    }
    *out_value = value;
    return 0;
}

static int take_u32(struct parser *p, const char *text, uint32_t low, uint32_t high,
                    uint32_t *out_value)
{
    uint64_t value;
    int rc = take_u64(p, text, low, high, &value);

    if (rc == 0) {
        *out_value = (uint32_t)value;
    }
    return rc;
}

static int take_word(struct parser *p, const char *text, const char *const *words, int *out_index)
{
    char all[64] = "";

    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out_index = i;
            return 0;
        }
        (void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
                       i == 0                 ? ""
                       : words[i + 1] == NULL ? " or "
                                              : ", ",
                       words[i]);
    }
    (void)snprintf(p->why, p->why_bytes, "%s %s: want %s", p->name, text, all);
    return -EINVAL;
}

static int take_sizes(struct parser *p, const char *text, struct gemmar_perf_sizes *out_sizes)
{
    char reason[256];
    int rc = gemmar_perf_sizes_parse(text, out_sizes, reason, sizeof(reason));

    if (rc != 0) {
        (void)snprintf(p->why, p->why_bytes, "%s: %s", p->name, reason);
    }
    return rc;
}

static int take_gpus(struct parser *p, const char *text)
{
    struct gemmar_perf_sizes list = {.count = 0};

    if (take_sizes(p, text, &list) != 0) {
        return -EINVAL;
    }
    if (list.count > GEMMAR_PERF_MAX_GPUS) {
        (void)snprintf(p->why, p->why_bytes, "%s %s: %d GPUs at most", p->name, text,
                       GEMMAR_PERF_MAX_GPUS);
        return -EINVAL;
    }
    for (size_t i = 0; i < list.count; i++) {
        if (list.value[i] > INT32_MAX) {
            (void)snprintf(p->why, p->why_bytes, "%s %s: no number of a GPU", p->name, text);
            return -EINVAL;
        }
        p->o->gpus[i] = (uint32_t)list.value[i];
    }
    p->o->gpu_count = (uint32_t)list.count;
    return 0;
}

static int take_timeout(struct parser *p, const char *text)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds >= 0.001 && seconds <= 86400)) {
        (void)snprintf(p->why, p->why_bytes, "%s %s is not a number of seconds from 0.001 to 86400",
                       p->name, text);
        return -EINVAL;
    }
    p->o->timeout_ms = (uint32_t)(seconds * 1000 + 0.5);
    return 0;
}

static int take_nodes(struct parser *p, const char *text)
{
    struct gemmar_perf_sizes list = {.count = 0};

    if (take_sizes(p, text != NULL ? text : "1:1024:x2", &list) != 0) {
        return -EINVAL;
    }
    for (size_t i = 0; i < list.count; i++) {
        if (list.value[i] < 1 || list.value[i] > 65536) {
            (void)snprintf(p->why, p->why_bytes, "%s %s: 1 to 65536 nodes", p->name, text);
            return -EINVAL;
        }
    }
    p->o->simulate = list;
    return 0;
}

static int take_machine(struct parser *p, const char *text)
{
    char reason[256];

    if (gemmar_sim_machine_parse(text, &p->o->machine, reason, sizeof(reason)) != 0) {
        (void)snprintf(p->why, p->why_bytes, "%s: %s", p->name, reason);
        return -EINVAL;
    }
    p->machine = true;
    return 0;
}

static int take_choice(struct parser *p, int option, const char *text)
{
    struct gemmar_perf_options *o = p->o;
    int i = 0, rc;

    switch (option) {
    case OPT_DEVICE:
        rc = take_word(p, text, device_words, &i);
        o->cuda = i == 1;
        return rc;
    case OPT_OUTPUT:
        rc = take_word(p, text, output_words, &i);
        o->plain = i == 1;
        return rc;
    case OPT_DTYPE:
        rc = take_word(p, text, dtype_words, &i);
        o->dtype = dtype_values[i];
        return rc;
    case OPT_LAYOUT:
        rc = take_word(p, text, layout_words, &i);
        o->trans_b = i == 1;
        return rc;
    case OPT_ALGO:
        rc = take_word(p, text, algo_words, &i);
        o->algo = (gemmarAlgo_t)i;
        return rc;
    case OPT_SIGNAL:
        rc = take_word(p, text, signal_words, &i);
        o->imm = i == 1;
        return rc;
    case OPT_FACTS:
        rc = take_word(p, text, facts_words, &i);
        o->vary_facts = i == 1;
        return rc;
    default:
        rc = take_word(p, text, hca_words, &i);
        o->hca = (enum gemmar_perf_hca)i;
        return rc;
    }
}

static int take_number(struct parser *p, int option, const char *text)
{
    struct gemmar_perf_options *o = p->o;

    switch (option) {
    case OPT_NODES: return take_u32(p, text, 1, 256, &o->nodes);
    case OPT_RANKS: return take_u32(p, text, 1, 16, &o->ranks_per_node);
    case OPT_CHECK_ROWS: return take_u32(p, text, 1, UINT32_MAX, &o->check_rows);
    case OPT_RANDOM: return take_u32(p, text, 1, GEMMAR_PERF_MAX_SHAPES, &p->random);
    case OPT_LARGEST: return take_u32(p, text, 1, 1u << 20, &p->largest);
    case OPT_TP: return take_u32(p, text, 1, 4096, &p->tp);
    case OPT_ITERS: return take_u32(p, text, 0, 1000000, &o->iters);
    case OPT_WARMUP: return take_u32(p, text, 0, 1000000, &o->warmup);
    case OPT_MIX: return take_u32(p, text, 1, 1000000, &o->mix);
    case OPT_SKEW: return take_u32(p, text, 0, 10000000, &o->skew_us);
    case OPT_SEED: return take_u64(p, text, 0, UINT64_MAX, &o->seed);
    case OPT_RUNS: return take_u32(p, text, 1, 100, &o->runs);
    case OPT_CTAS: return take_u32(p, text, 1, 1024, &o->ctas);
    case OPT_STAGES: return take_u32(p, text, 1, 64, &o->stages);
    case OPT_TILE_M: return take_u32(p, text, 1, 1024, &o->tile_m);
    case OPT_TILE_N: return take_u32(p, text, 1, 1024, &o->tile_n);
    default: return take_u32(p, text, 1, 1024, &o->chunk);
    }
}

static int take_option(struct parser *p, int option, const char *text)
{
    struct gemmar_perf_options *o = p->o;

    switch (option) {
    case 'm': return take_sizes(p, text, &p->m);
    case 'n': return take_sizes(p, text, &p->n);
    case 'k': return take_sizes(p, text, &p->k);
    case OPT_SHAPES: p->shapes = text; return 0;
    case OPT_MODEL: p->model = text; return 0;
    case OPT_CHECK: o->check = true; return 0;
    case OPT_GRAPH: o->graph = true; return 0;
    case OPT_BASELINE: o->baseline = true; return 0;
    case OPT_GPUS: return take_gpus(p, text);
    case OPT_INPUT_A: o->input_a = text; return 0;
    case OPT_INPUT_B: o->input_b = text; return 0;
    case OPT_TIMEOUT: return take_timeout(p, text);
    case OPT_RENDEZVOUS: o->rendezvous = text; return 0;
    case OPT_FIFO: o->fifo = true; return 0;
    case OPT_SIMULATE: return take_nodes(p, text);
    case OPT_MACHINE: return take_machine(p, text);
    case OPT_AGAINST: o->against = text; return 0;
    case OPT_JSON: o->json = text; return 0;
    case OPT_TUNE: o->tune = text; return 0;
    case OPT_VERBOSE: o->verbose = true; return 0;
    case OPT_DEVICE:
    case OPT_OUTPUT:
    case OPT_DTYPE:
    case OPT_LAYOUT:
    case OPT_ALGO:
    case OPT_SIGNAL:
    case OPT_FACTS:
    case OPT_HCA: return take_choice(p, option, text);
    default: return take_number(p, option, text);
    }
}

/* With operands from files, sizes that were not asked for are those of the files. */
static int sizes_of_files(struct parser *p)
{
    const char *path[2] = {p->o->input_a, p->o->input_b};
    int64_t rows[2] = {-1, -1}, columns[2] = {-1, -1};

    for (int i = 0; i < 2; i++) {
        struct gemmar_npy npy;

        if (path[i] == NULL || strstr(path[i], "%r") != NULL) {
            continue; /* a file per rank is looked at by the rank */
        }
        if (gemmar_npy_open(path[i], &npy, p->why, p->why_bytes) != 0) {
            return -EINVAL;
        }
        rows[i] = npy.rows;
        columns[i] = npy.columns;
    }
    if (p->o->trans_b) {
        int64_t swap = rows[1];

        rows[1] = columns[1];
        columns[1] = swap;
    }
    if (rows[0] >= 0 && p->m.count == 0) {
        p->m = (struct gemmar_perf_sizes){1, {rows[0]}};
    }
    if (columns[1] >= 0 && p->n.count == 0) {
        p->n = (struct gemmar_perf_sizes){1, {columns[1]}};
    }
    if (p->k.count == 0 && (columns[0] >= 0 || rows[1] >= 0)) {
        p->k = (struct gemmar_perf_sizes){1, {columns[0] >= 0 ? columns[0] : rows[1]}};
    }
    return 0;
}

static int span_shapes(struct parser *p)
{
    static const struct gemmar_perf_sizes standard = {1, {1024}};
    struct gemmar_perf_options *o = p->o;
    bool sizes = p->m.count + p->n.count + p->k.count != 0;

    if (p->shapes != NULL &&
        gemmar_perf_shapes_parse(p->shapes, &o->shapes, p->why, p->why_bytes) != 0) {
        return -EINVAL;
    }
    if (p->model != NULL) {
        if (p->n.count + p->k.count != 0) {
            (void)snprintf(p->why, p->why_bytes, "--model gives N and K: drop -n and -k");
            return -EINVAL;
        }
        return gemmar_perf_models_span(p->model, p->m.count != 0 ? &p->m : &standard,
                                       p->tp != 0 ? p->tp : o->nodes * o->ranks_per_node,
                                       &o->shapes, p->why, p->why_bytes);
    }
    if (p->random != 0 && gemmar_perf_shapes_random(o->seed, p->random, p->largest, &o->shapes,
                                                    p->why, p->why_bytes) != 0) {
        return -EINVAL;
    }
    if ((p->shapes != NULL || p->random != 0) && !sizes) {
        return 0;
    }
    return gemmar_perf_shapes_span(
        p->m.count != 0 ? &p->m : &standard, p->n.count != 0 ? &p->n : &standard,
        p->k.count != 0 ? &p->k : &standard, &o->shapes, p->why, p->why_bytes);
}

/* Which options go with which device. */
static int check_device(struct parser *p)
{
    const struct gemmar_perf_options *o = p->o;
    const char *alone = o->graph             ? "--graph"
                        : o->baseline        ? "--baseline"
                        : o->plain           ? "--output plain"
                        : o->gpu_count != 0  ? "--gpus"
                        : o->check_rows != 0 ? "--check-rows"
                        : o->tune != NULL    ? "--tune"
                                             : NULL;

    if (!o->cuda && alone != NULL) {
        (void)snprintf(p->why, p->why_bytes, "%s needs --device cuda", alone);
        return -EINVAL;
    }
    if (o->cuda && o->dtype == gemmarFloat32) {
        (void)snprintf(p->why, p->why_bytes, "--dtype fp32 is for --device cpu");
        return -EINVAL;
    }
    if (o->cuda && (o->input_a != NULL || o->input_b != NULL)) {
        (void)snprintf(p->why, p->why_bytes, "--input-%c is for --device cpu",
                       o->input_a != NULL ? 'a' : 'b');
        return -EINVAL;
    }
    return 0;
}

/* What a search for the best way to run goes with: nothing that it tries itself, or that runs
 * otherwise. */
static int check_tune(struct parser *p)
{
    const struct gemmar_perf_options *o = p->o;
    const char *other = o->tile_m != 0   ? "--tile-m"
                        : o->tile_n != 0 ? "--tile-n"
                        : o->mix != 0    ? "--mix"
                        : o->baseline    ? "--baseline"
                        : o->check       ? "--check"
                        : o->json        ? "--json"
                        : o->iters == 0  ? "--iters 0"
                                         : NULL;

    if (o->tune != NULL && other != NULL) {
        (void)snprintf(p->why, p->why_bytes, "--tune does not go with %s", other);
        return -EINVAL;
    }
    return 0;
}

/* A simulation makes no call, and knows GPUs only. */
static int check_simulate(struct parser *p)
{
    const struct gemmar_perf_options *o = p->o;
    const char *other = o->cuda       ? "--device cuda"
                        : o->check    ? "--check"
                        : o->mix != 0 ? "--mix"
                        : o->fifo     ? "--fifo"
                                      : NULL;

    if (o->simulate.count == 0 && (p->machine || o->against != NULL)) {
        (void)snprintf(p->why, p->why_bytes, "%s goes with --simulate",
                       p->machine ? "--machine" : "--against");
        return -EINVAL;
    }
    if (o->simulate.count != 0 && other != NULL) {
        (void)snprintf(p->why, p->why_bytes, "--simulate makes no call: drop %s", other);
        return -EINVAL;
    }
    if (o->simulate.count != 0 && o->dtype == gemmarFloat32) {
        (void)snprintf(p->why, p->why_bytes, "--simulate knows GPUs: --dtype bf16 or fp16");
        return -EINVAL;
    }
    return 0;
}

static int check_together(struct parser *p)
{
    struct gemmar_perf_options *o = p->o;

    if (o->ranks_per_node == 0) {
        o->ranks_per_node = o->simulate.count != 0 ? 8 : 1;
    }
    if (check_simulate(p) != 0 || check_device(p) != 0 || check_tune(p) != 0) {
        return -EINVAL;
    }
    if (o->mix != 0 && (o->input_a != NULL || o->input_b != NULL)) {
        (void)snprintf(p->why, p->why_bytes,
                       "--mix makes new inputs for every call: drop --input-%c",
                       o->input_a != NULL ? 'a' : 'b');
        return -EINVAL;
    }
    if (o->input_a != NULL || o->input_b != NULL) {
        if (sizes_of_files(p) != 0) {
            return -EINVAL;
        }
    }
    if (span_shapes(p) != 0) {
        return -EINVAL;
    }
    if ((o->input_a != NULL || o->input_b != NULL) && o->shapes.count != 1) {
        (void)snprintf(p->why, p->why_bytes, "operands from files have one shape, not %zu",
                       o->shapes.count);
        return -EINVAL;
    }
    return 0;
}

/* The option that getopt_long just returned, for sentences. */
static void name_option(struct parser *p, int option)
{
    p->name = p->name_text;
    (void)snprintf(p->name_text, sizeof(p->name_text), "-%c", option < 256 ? option : '?');
    for (int i = 0; table[i].name != NULL; i++) {
        if (table[i].val == option) {
            (void)snprintf(p->name_text, sizeof(p->name_text), "--%s", table[i].name);
        }
    }
}

static enum gemmar_perf_parse parse(struct parser *p, int argc, char **argv)
{
    int option;

    opterr = 0;
    optind = 0; /* glibc: begin again, also after an earlier parse */
    while ((option = getopt_long(argc, argv, ":m:n:k:h", table, NULL)) != -1) {
        if (option == '?' || option == ':') {
            (void)snprintf(p->why, p->why_bytes, "%s '%s'; see gemmar_perf --help",
                           option == '?' ? "unknown option" : "a value is missing behind",
                           argv[optind - 1]);
            return GEMMAR_PERF_PARSE_BAD;
        }
        if (option == 'h') {
            (void)fputs(usage, stdout);
            return GEMMAR_PERF_PARSE_DONE;
        }
        if (option == OPT_VERSION) {
            (void)printf("gemmar_perf %s\n", gemmar_build_id);
            return GEMMAR_PERF_PARSE_DONE;
        }
        if (option == OPT_MACHINE && strcmp(optarg, "list") == 0) {
            gemmar_sim_machine_list(stdout);
            return GEMMAR_PERF_PARSE_DONE;
        }
        if (option == OPT_MODEL && strcmp(optarg, "list") == 0) {
            gemmar_perf_models_list(stdout);
            return GEMMAR_PERF_PARSE_DONE;
        }
        name_option(p, option);
        if (take_option(p, option, optarg) != 0) {
            return GEMMAR_PERF_PARSE_BAD;
        }
    }
    if (optind < argc) {
        (void)snprintf(p->why, p->why_bytes, "unexpected argument '%s'; see gemmar_perf --help",
                       argv[optind]);
        return GEMMAR_PERF_PARSE_BAD;
    }
    return check_together(p) == 0 ? GEMMAR_PERF_PARSE_RUN : GEMMAR_PERF_PARSE_BAD;
}

enum gemmar_perf_parse gemmar_perf_options_parse(int argc, char **argv,
                                                 struct gemmar_perf_options *out_options, char *why,
                                                 size_t why_bytes)
{
    static struct parser p; /* large */

    *out_options = (struct gemmar_perf_options){
        .dtype = gemmarBfloat16,
        .iters = 20,
        .warmup = 5,
        .seed = 1,
        .nodes = 1,
        .runs = 1,
        .machine = gemmar_sim_machine_default(),
    };
    p = (struct parser){.o = out_options, .largest = 4096, .why = why, .why_bytes = why_bytes};
    return parse(&p, argc, argv);
}
