// SPDX-License-Identifier: Apache-2.0
// A small NCCL application: one tensor-parallel MLP layer, in two ways that are checked against
// each other and timed. `diff before.c after.c` shows what gemmar_fused changes. docs/example.md
// explains.
#include "layer.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define INNER_OF_A_RANK 3584 /* Llama 3 70B on 8 GPUs */

struct options {
    int64_t tokens, hidden;
    int64_t inner; /* of all ranks together; 0: INNER_OF_A_RANK for each */
    int calls, ranks, nodes;
    const char *meet;
};

static const char usage[] =
    "mlp_layer [--tokens 4096] [--hidden 8192] [--inner 3584*RANKS] [--calls 50]\n"
    "          [--ranks GPUS] [--nodes 1] [--meet HOST:PORT]\n"
    "Started by torchrun --no-python, mpirun or srun it is one rank (address of rank 0: --meet, "
    "or\n"
    "MASTER_ADDR and MASTER_PORT + 1). Else it starts one process for every GPU, or --ranks of "
    "them;\n"
    "with --nodes they count as that many nodes (NCCL_HOSTID).\n";

static int parse_number(const char *text, int64_t most, int64_t *out)
{
    char *end;
    long long value = strtoll(text, &end, 10);

    if (*text == '\0' || *end != '\0' || value < 1 || value > most) {
        say("'%s' is not a number from 1 to %lld", text, (long long)most);
        return 1;
    }
    *out = value;
    return 0;
}

/* 0: go on, 1: wrong, 2: only help was wanted. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {{"tokens", required_argument, NULL, 't'},
                                          {"hidden", required_argument, NULL, 'd'},
                                          {"inner", required_argument, NULL, 'i'},
                                          {"calls", required_argument, NULL, 'c'},
                                          {"ranks", required_argument, NULL, 'r'},
                                          {"nodes", required_argument, NULL, 'n'},
                                          {"meet", required_argument, NULL, 'm'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int64_t calls = 50, ranks = 0, nodes = 1;
    int c, wrong = 0;

    *o = (struct options){.tokens = 4096, .hidden = 8192};
    while (!wrong && (c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 't': wrong = parse_number(optarg, 1 << 20, &o->tokens); break;
        case 'd': wrong = parse_number(optarg, 1 << 20, &o->hidden); break;
        case 'i': wrong = parse_number(optarg, 1 << 20, &o->inner); break;
        case 'c': wrong = parse_number(optarg, 1000000, &calls); break;
        case 'r': wrong = parse_number(optarg, 1024, &ranks); break;
        case 'n': wrong = parse_number(optarg, 1024, &nodes); break;
        case 'm': o->meet = optarg; break;
        case 'h': (void)fputs(usage, stdout); return 2;
        default: wrong = 1; break;
        }
    }
    if (wrong || optind != argc) {
        (void)fputs(usage, stderr);
        return 1;
    }
    o->calls = (int)calls;
    o->ranks = (int)ranks;
    o->nodes = (int)nodes;
    return 0;
}

/* Uniform numbers in [-scale, scale]. A rank that is asked for the same seed gets the same ones. */
static int fill(void **out, int64_t rows, int64_t columns, float scale, uint64_t seed)
{
    size_t count = (size_t)(rows * columns);
    uint16_t *host = malloc(count * 2);
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    int failed;

    if (host == NULL) {
        say("no memory for a matrix of %zu elements", count);
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        host[i] = to_bf16((float)(int32_t)(state >> 32) * 0x1p-31f * scale);
    }
    failed = bad_cuda(cudaMalloc(out, count * 2), "memory of a matrix") ||
             bad_cuda(cudaMemcpy(*out, host, count * 2, cudaMemcpyHostToDevice), "copy to the GPU");
    free(host);
    return failed;
}

/* Scaled so that h and y are about 1 in size whatever the shape. */
static int make_matrices(struct layer *l, int rank)
{
    float scale1 = 3 / sqrtf((float)l->hidden);
    float scale2 = 2 / sqrtf((float)l->inner * (float)l->ranks);
    uint64_t own = 2 * (uint64_t)rank;

    return fill(&l->x, l->tokens, l->hidden, 1, 1) ||
           fill(&l->w1, l->hidden, l->inner, scale1, own + 2) ||
           fill(&l->w2, l->inner, l->hidden, scale2, own + 3) ||
           bad_cuda(cudaMalloc(&l->h, (size_t)(l->tokens * l->inner) * 2), "memory of h");
}

static int begin(struct job *job, const struct options *o, struct layer *l)
{
    int64_t inner = o->inner > 0 ? o->inner : (int64_t)INNER_OF_A_RANK * job->ranks;
    ncclUniqueId id;
    int gpus = 0;

    *l = (struct layer){
        .tokens = o->tokens, .hidden = o->hidden, .inner = inner / job->ranks, .ranks = job->ranks};
    if (inner % job->ranks != 0) {
        say("--inner %lld cannot be split over %d ranks", (long long)inner, job->ranks);
        return 1;
    }
    if (job->rank == 0 && bad_nccl(ncclGetUniqueId(&id), NULL, "identifier")) {
        return 1;
    }
    return bad_cuda(cudaGetDeviceCount(&gpus), "GPUs") ||
           bad_cuda(cudaSetDevice(job->local % (gpus > 0 ? gpus : 1)), "choosing a GPU") ||
           bad_cuda(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), "stream") ||
           job_share(job, &id, sizeof(id)) ||
           bad_nccl(ncclCommInitRank(&l->nccl, job->ranks, id, job->rank), NULL, "communicator") ||
           make_matrices(l, job->rank);
}

static int print_times(const struct layer *l, const struct way *const ways[2], int calls, int rank)
{
    float us[2][2]; /* of a way; eager and from a graph */

    if (layer_time(l, ways, calls, us)) {
        return 1;
    }
    for (int i = 0; i < 2 && rank == 0; i++) {
        printf("%-24s eager %8.1f us   graph %8.1f us\n", ways[i]->name, (double)us[i][0],
               (double)us[i][1]);
    }
    if (rank == 0) {
        printf("%-24s       %8.2f            %8.2f\n", "speed-up", (double)(us[0][0] / us[1][0]),
               (double)(us[0][1] / us[1][1]));
    }
    return 0;
}

/* Both ways once, then the check, then the times. */
static int use(const struct layer *l, const struct options *o, int rank, bool *out_right)
{
    static const struct way *const ways[2] = {&before, &after};
    void *y[2] = {NULL, NULL};
    int failed = 0, opened = 0;

    if (rank == 0) {
        printf("x [%lld,%lld], W1 [%lld,%lld] by columns and W2 by rows over %d ranks, bf16\n",
               (long long)l->tokens, (long long)l->hidden, (long long)l->hidden,
               (long long)l->inner * l->ranks, l->ranks);
    }
    for (; !failed && opened < 2; opened++) {
        failed = ways[opened]->open(l, &y[opened]) || ways[opened]->forward(l) ||
                 layer_wait(l, ways[opened]);
        if (rank == 0 && !failed) {
            printf("%s: first pass done\n", ways[opened]->name);
        }
    }
    failed = failed || layer_check(l, y, out_right) || print_times(l, ways, o->calls, rank);
    while (opened-- > 0) {
        failed |= ways[opened]->close(l, !failed);
    }
    return failed;
}

/* After a failure ncclCommAbort() waits for nobody, and the process ends with its memory. */
static int end(struct layer *l, int failed)
{
    if (failed) {
        if (l->nccl != NULL) {
            (void)ncclCommAbort(l->nccl);
        }
        return 1;
    }
    (void)cudaFree(l->x);
    (void)cudaFree(l->w1);
    (void)cudaFree(l->w2);
    (void)cudaFree(l->h);
    return bad_nccl(ncclCommDestroy(l->nccl), NULL, "destroying the communicator") ||
           bad_cuda(cudaStreamDestroy(l->stream), "stream");
}

/* By a child, so that this process may still fork: it has not used CUDA. */
static int count_gpus(void)
{
    pid_t child = fork();
    int status = 0, count = 0;

    if (child == 0) {
        _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static int run_rank(struct job *job, const struct options *o)
{
    struct layer l;
    bool right = false;
    int failed;

    job_name_rank(job->rank);
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* who waits for a line should see it */
    failed = begin(job, o, &l);
    failed = failed || use(&l, o, job->rank, &right);
    failed = end(&l, failed);
    return failed || !right ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct options o;
    struct job job;
    int status = parse(argc, argv, &o);

    if (status != 0) {
        return status == 2 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    status = job_from_environment(&job, o.meet);
    if (status < 0) {
        return EXIT_FAILURE;
    }
    if (status == 0) {
        o.ranks = o.ranks > 0 ? o.ranks : count_gpus();
        if (o.ranks == 0) {
            say("no GPU on this host");
            return 77;
        }
        status = job_fork(&job, o.ranks, o.nodes);
        if (status >= 0) {
            return status;
        }
    }
    return run_rank(&job, &o);
}
