// SPDX-License-Identifier: Apache-2.0
// checkkernel: the tensor-core kernel with all its ranks in one process, checked and timed.
#include "test/kernel/checkkernel.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct options options = {.nodes = 1,
                          .locals = 2,
                          .strategy = -1,
                          .senders = -1,
                          .trans_b = true,
                          .bf16 = true,
                          .runs = 15,
                          .most = {1500, 1500, 700},
                          .seed = 1,
                          .epoch = 1,
                          .timeout_ns = UINT64_C(3000000000),
                          .delay_ns = 2000000};

static const char help[] =
    "usage: checkkernel [OPTION]... [MxNxK]...\n"
    "Multiplies and all-reduces with the tensor-core kernel. Rank r runs on GPU r % count. For "
    "each\n"
    "shape, C of every rank, copied in its stream behind the call, is compared with plain loops, "
    "all\n"
    "ranks and two runs must give the same bits, and rows behind C must not be touched. Ends with "
    "0\n"
    "when all is right, 77 without a GPU.\n"
    "\n"
    "  --ranks R           of a node; 1: the product alone (default 2)\n"
    "  --nodes N           N times as many ranks, joined by a thread that plays proxy and NIC "
    "with\n"
    "                      copy engines: small rings, delays, commands that overtake each other\n"
    "  --algo WHICH        direct or two-shot (default both)\n"
    "  --hold WHICH        the network stands still: data: it takes commands and brings nothing;\n"
    "                      ring: it takes none. Calls must be left and say why; then all is well\n"
    "  --delay MS          that a command in 64, and the second reading of one in 8, waits at "
    "most\n"
    "                      (default 2)\n"
    "  --turns N           calls one behind the other, each with other rows of A and another C\n"
    "                      (default 1, between nodes 4)\n"
    "  --strategy WHICH    push, pull or, with two ranks, exchange (default all)\n"
    "  --nn                B is [K,N] (default [N,K])\n"
    "  --fp16              (default bf16)\n"
    "  --normal            inputs that are about normally distributed, compared within the bound "
    "of\n"
    "                      docs/design.md (default small whole numbers, compared for equality)\n"
    "  --special           a few infinities and NaNs among them\n"
    "  --copies WHICH      0: all ranks write into C; 1: only its own, the others into the "
    "workspace,\n"
    "                      from where the kernel copies; 2: none, the rows of C being odd (default "
    "0)\n"
    "  --random N          N random shapes, types, layouts, copies, alpha, beta, bias\n"
    "  --most MxNxK        the largest of them (default 1500x1500x700)\n"
    "  --seed S            of the inputs and of --random (default 1)\n"
    "  --epoch E           of the first call (default 1)\n"
    "  --skew KCYCLES      ranks begin up to so many thousand cycles apart\n"
    "  --row-step N        compare every N-th row (default: as many as take about a second)\n"
    "  --timeout SECONDS   of a wait for another rank (default 3)\n"
    "What the plan decides otherwise:\n"
    "  --ctas N            CTAs of a rank\n"
    "  --tile MxN          tile of a cluster: 256x256, 256x128, 128x256 or 128x128\n"
    "  --band B            rows of tiles that are walked together\n"
    "  --lead N            rounds of other ranks' tiles before the first own one\n"
    "  --senders N         couriers that may store to other GPUs at once, 0: all\n"
    "Times instead of checks:\n"
    "  --bench             cuBLASLt, the product alone and the fused call, alternating, behind "
    "one\n"
    "                      gate; milliseconds, median over runs of the maximum over ranks; behind\n"
    "                      the product alone: cuBLASLt's time over its time\n"
    "  --runs N            (default 15)\n"
    "  --json FILE         append one object for each shape\n"
    "  --trace FILE        append the events of one more call of the product alone and of the\n"
    "                      strategy: a line for each tile with shape, GPU, way, CTA, tile, then\n"
    "                      1 + owner (and its kind) and the times of enum gemmar_trace_event in "
    "ns;\n"
    "                      tools/plot-trace draws it\n";

static int usage(void)
{
    fputs(help, stderr);
    return 2;
}

static bool parse_strategy(const char *text)
{
    options.strategy = 0;
    while (options.strategy < GEMMAR_STRATEGIES &&
           strcmp(text, gemmar_strategy_name((uint32_t)options.strategy)) != 0) {
        options.strategy++;
    }
    return options.strategy < GEMMAR_STRATEGIES;
}

static bool parse_shape(const char *text, struct shape *out)
{
    return sscanf(text, "%ldx%ldx%ld", &out->m, &out->n, &out->k) == 3;
}

static bool parse_option(int c)
{
    bool ring = optarg != NULL && strcmp(optarg, "ring") == 0;

    switch (c) {
    case 'O': options.nodes = atoi(optarg); break;
    case 'a':
        options.algo = strcmp(optarg, "two-shot") == 0 ? GEMMAR_ALGO_TWO_SHOT : GEMMAR_ALGO_DIRECT;
        break;
    case 'H': options.hold = ring ? NIC_HOLDS_RING : NIC_HOLDS_DATA; break;
    case 'U': options.turns = atoi(optarg); break;
    case 'r': options.locals = atoi(optarg); break;
    case 'c': options.ctas = (uint32_t)atoi(optarg); break;
    case 's': return parse_strategy(optarg);
    case 't': return sscanf(optarg, "%ux%u", &options.tile_m, &options.tile_n) == 2;
    case 'B': options.band = (uint32_t)atoi(optarg); break;
    case 'n': options.trans_b = false; break;
    case 'h': options.bf16 = false; break;
    case 'N': options.numbers = ORACLE_NORMAL; break;
    case 'p': options.numbers = ORACLE_SPECIAL; break;
    case 'R': options.random = atoi(optarg); break;
    case 'm': return parse_shape(optarg, &options.most);
    case 'S': options.seed = strtoull(optarg, NULL, 0); break;
    case 'e': options.epoch = strtoull(optarg, NULL, 0); break;
    case 'k': options.skew = atoi(optarg); break;
    case 'w': options.row_step = atoi(optarg); break;
    case 'o': options.timeout_ns = (uint64_t)atoi(optarg) * 1000000000u; break;
    case 'd': options.delay_ns = strtoull(optarg, NULL, 0) * 1000000u + 1; break;
    case 'b': options.bench = true; break;
    case 'u': options.runs = atoi(optarg) < MAX_RUNS ? atoi(optarg) : MAX_RUNS; break;
    case 'j': options.json = optarg; break;
    case 'T': options.trace = optarg; break;
    case 'l': options.lead = (uint32_t)atoi(optarg); break;
    case 'C': options.copies = (uint32_t)atoi(optarg); break;
    case 'x': options.senders = atoi(optarg); break;
    default: return false;
    }
    return true;
}

static bool parse(int argc, char **argv)
{
    static const struct option longs[] = {
        {"ranks", required_argument, NULL, 'r'},
        {"ctas", required_argument, NULL, 'c'},
        {"strategy", required_argument, NULL, 's'},
        {"tile", required_argument, NULL, 't'},
        {"band", required_argument, NULL, 'B'},
        {"nn", no_argument, NULL, 'n'},
        {"fp16", no_argument, NULL, 'h'},
        {"normal", no_argument, NULL, 'N'},
        {"random", required_argument, NULL, 'R'},
        {"seed", required_argument, NULL, 'S'},
        {"epoch", required_argument, NULL, 'e'},
        {"skew", required_argument, NULL, 'k'},
        {"row-step", required_argument, NULL, 'w'},
        {"timeout", required_argument, NULL, 'o'},
        {"bench", no_argument, NULL, 'b'},
        {"runs", required_argument, NULL, 'u'},
        {"json", required_argument, NULL, 'j'},
        {"trace", required_argument, NULL, 'T'},
        {"senders", required_argument, NULL, 'x'},
        {"lead", required_argument, NULL, 'l'},
        {"copies", required_argument, NULL, 'C'},
        {"nodes", required_argument, NULL, 'O'},
        {"algo", required_argument, NULL, 'a'},
        {"hold", required_argument, NULL, 'H'},
        {"turns", required_argument, NULL, 'U'},
        {"most", required_argument, NULL, 'm'},
        {"delay", required_argument, NULL, 'd'},
        {"special", no_argument, NULL, 'p'},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (!parse_option(c)) {
            return false;
        }
    }
    options.turns = options.turns > 0 ? options.turns : options.nodes > 1 ? 4 : 1;
    options.ranks = options.nodes * options.locals;
    return options.nodes >= 1 && options.locals >= 1 && options.ranks <= MAX_RANKS &&
           options.runs >= 1 && options.turns <= MAX_TURNS &&
           (options.nodes > 1 ? !options.bench : options.hold == NIC_RUNS) &&
           can(options.strategy) && (options.random > 0 || optind < argc);
}

static void one(const struct shape *s, const struct call_kind *kind)
{
    uint32_t first = options.nodes == 1  ? GEMMAR_ALGO_LOCAL
                     : options.algo != 0 ? options.algo
                                         : GEMMAR_ALGO_DIRECT;
    uint32_t last = options.nodes == 1 || options.algo != 0 ? first : GEMMAR_ALGO_TWO_SHOT;

    if (options.bench) {
        bench(s, kind);
        return;
    }
    if (options.hold != NIC_RUNS) {
        check_hold(s, kind);
        return;
    }
    for (uint32_t algo = first; algo <= last; algo++) {
        for (int strategy = 0; strategy < GEMMAR_STRATEGIES; strategy++) {
            if (options.strategy < 0 ? can(strategy) : options.strategy == strategy) {
                check(s, kind, algo, strategy, options.seed);
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct call_kind kind = {.alpha = 1};
    struct shape s;

    if (!parse(argc, argv)) {
        return usage();
    }
    for (int i = optind; i < argc; i++) {
        if (!parse_shape(argv[i], &s)) {
            return usage();
        }
    }
    /* Streams that share a queue of the GPU would hold copies behind kernels that wait for them. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    json = options.json != NULL ? fopen(options.json, "a") : NULL;
    open_ranks();
    kind.trans_b = options.trans_b;
    kind.bf16 = options.bf16;
    kind.copies = options.copies;
    if (options.random > 0) {
        check_random();
    }
    for (int i = optind; i < argc; i++) {
        (void)parse_shape(argv[i], &s);
        one(&s, &kind);
    }
    if (json != NULL) {
        fclose(json);
    }
    printf("%lu failures\n", failures);
    return failures != 0;
}
