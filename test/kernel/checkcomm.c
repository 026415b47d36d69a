// SPDX-License-Identifier: Apache-2.0
// checkcomm: communicators of GPUs through the public functions, one rank per GPU, for a machine
// with at least two.
//
// Ranks are threads of one process, or with --processes a process each. With --nodes=N they are
// processes of N nodes (NCCL_HOSTID), which share the GPUs and need a network: see
// test/kernel/over_softhca. NCCL is loaded as Python does it, outside the global scope. Ends with 0
// when all is right, 77 without enough GPUs.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/kernel/checkcomm.h"

struct nccl {
    ncclResult_t (*unique_id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
    ncclResult_t (*destroy)(ncclComm_t);
};

static struct nccl nccl;
static struct rank ranks[MAX_RANKS]; /* of this process */
static const char *only;

/* On how many nodes. */
enum where { ONE = 1, SEVERAL = 2, ANY = ONE | SEVERAL };

static const struct {
    const char *name;
    void (*run)(struct rank *);
    enum where where;
} tests[] = {
    {"wrong_creation", test_wrong_creation, ANY},
    {"nodes", test_nodes, SEVERAL},
    {"signals", test_signals, SEVERAL},
    {"algorithms", test_algorithms, SEVERAL},
    {"results", test_results, ANY},
    {"registered", test_registered, ANY},
    {"refused_registration", test_refused_registration, ANY},
    {"graph", test_graph, ANY},
    {"graph_of_two_streams", test_graph_of_two_streams, ANY},
    {"growth", test_growth, ANY},
    {"streams", test_streams, ANY},
    {"arguments", test_arguments, ANY},
    {"compare_calls", test_compare_calls, ANY},
    {"other_arguments", test_other_arguments, ONE}, /* found out by what local ranks tell */
    {"never_calls", test_never_calls, ANY},
    {"two_at_once", test_two_at_once, ONE},
    {"abort", test_abort, ANY},
    {"again", test_again, ANY},
    {"host_time", test_host_time, ANY},
    {"two_communicators", test_two_communicators, ANY},
};

/* Named by --only: they leave NCCL's communicator without a rank. */
static const struct {
    const char *name;
    void (*run)(struct rank *);
} last_tests[] = {
    {"peer_dies", peer_dies},      {"gone_in_reserve", test_gone_in_reserve},
    {"killed", test_killed},       {"port_down", test_port_down},
    {"wrong_key", test_wrong_key}, {"flap", test_flap},
};

/* Is it in the list of names after --only? */
static bool is_asked_for(const char *name)
{
    size_t length = strlen(name);

    for (const char *at = only; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return only == NULL;
}

static void *run_rank(void *argument)
{
    struct rank *r = argument;

    r->test = "set-up";
    r->device = r->rank % r->all->gpus;
    cuda(r, cudaSetDevice(r->device), "device");
    cuda(r, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "stream");
    cuda(r, cudaStreamCreate(&r->other), "stream");
    check(r, nccl.init(&r->nccl, r->all->ranks, r->all->id, r->rank) == ncclSuccess,
          "ncclCommInitRank");
    for (size_t i = 0; only != NULL && i < sizeof(last_tests) / sizeof(last_tests[0]); i++) {
        if (strcmp(only, last_tests[i].name) == 0) {
            r->test = only;
            last_tests[i].run(r);
            return NULL;
        }
    }
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        int failures = __atomic_load_n(&r->all->failures, __ATOMIC_RELAXED);
        double began = now_us();

        if (!is_asked_for(tests[i].name) ||
            (tests[i].where & (r->all->nodes > 1 ? SEVERAL : ONE)) == 0) {
            continue;
        }
        barrier(r);
        r->test = tests[i].name;
        tests[i].run(r);
        barrier(r);
        if (r->rank == 0) {
            printf("%s %s (%.2f s)\n",
                   __atomic_load_n(&r->all->failures, __ATOMIC_RELAXED) == failures ? "ok"
                                                                                    : "not ok",
                   tests[i].name, (now_us() - began) * 1e-6);
            fflush(stdout);
        }
    }
    check(r, nccl.destroy(r->nccl) == ncclSuccess, "ncclCommDestroy");
    return NULL;
}

/* Where it hangs. */
static void say_steps(int signal)
{
    (void)signal;
    for (int i = 0; i < MAX_RANKS; i++) {
        if (ranks[i].all != NULL) {
            dprintf(2, "rank %d: test %s, step %s\n", ranks[i].rank, ranks[i].test, ranks[i].step);
        }
    }
    _exit(3);
}

static void run_threads(struct shared *all)
{
    pthread_t threads[MAX_RANKS];

    for (int i = 0; i < all->ranks; i++) {
        ranks[i].all = all;
        ranks[i].rank = i;
        (void)pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < all->ranks; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

static bool load_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    static const char *const names[] = {"ncclGetUniqueId", "ncclCommInitRank", "ncclCommDestroy"};
    void *functions[3];

    if (library == NULL) {
        fprintf(stderr, "checkcomm: %s\n", dlerror());
        return false;
    }
    for (int i = 0; i < 3; i++) {
        functions[i] = dlsym(library, names[i]);
        if (functions[i] == NULL) {
            fprintf(stderr, "checkcomm: no %s\n", names[i]);
            return false;
        }
    }
    memcpy(&nccl, functions, sizeof(nccl));
    return true;
}

/* No CUDA call before the fork. The first rank makes the id. */
static void run_processes(struct shared *all)
{
    for (int i = 0; i < all->ranks; i++) {
        if (fork() == 0) {
            struct rank *r = &ranks[0];
            char node[16];

            (void)snprintf(node, sizeof(node), "node%d", i / (all->ranks / all->nodes));
            if (all->nodes > 1) {
                (void)setenv("NCCL_HOSTID", node, 1);
            }
            r->all = all;
            r->rank = i;
            r->test = "set-up";
            if (!load_nccl()) {
                _exit(1);
            }
            if (i == 0) {
                check(r, nccl.unique_id(&all->id) == ncclSuccess, "ncclGetUniqueId");
            }
            barrier(r);
            (void)run_rank(r);
            _exit(0);
        }
    }
    for (int i = 0; i < all->ranks; i++) {
        int status = 0;

        if (wait(&status) < 0 ||
            (status != 0 && !(WIFSIGNALED(status) && is_asked_for("killed") && only != NULL))) {
            __atomic_fetch_add(&all->failures, 1, __ATOMIC_RELAXED);
            printf("FAILED: a rank ended with status 0x%x\n", (unsigned)status);
        }
    }
}

/* How many GPUs there are, asked in a process of its own: none of the ranks' may touch CUDA before
 * it is forked. */
static int count_gpus(void)
{
    pid_t child = fork();
    int status = 0, gpus = 0;

    if (child == 0) {
        _exit(cudaGetDeviceCount(&gpus) == cudaSuccess ? gpus : 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : 0;
}

int main(int argc, char **argv)
{
    struct shared *all =
        mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    bool processes = false;

    if (all == MAP_FAILED) {
        return 1;
    }
    all->ranks = 2;
    all->nodes = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--processes") == 0) {
            processes = true;
        } else if (strncmp(argv[i], "--ranks=", 8) == 0) {
            all->ranks = atoi(argv[i] + 8);
        } else if (strncmp(argv[i], "--nodes=", 8) == 0) {
            all->nodes = atoi(argv[i] + 8);
        } else if (strncmp(argv[i], "--only=", 7) == 0) {
            only = argv[i] + 7;
        } else {
            fprintf(stderr, "usage: checkcomm [--processes | --nodes=N] [--ranks=N] "
                            "[--only=TEST,...]\n"
                            "       checkcomm --processes --only=peer_dies\n"
                            "       checkcomm --nodes=2 --only=LAST"
                            " (peer_dies, gone_in_reserve, killed, port_down, wrong_key, "
                            "flap)\n");
            return 2;
        }
    }
    if (all->ranks < 2 || all->ranks > MAX_RANKS) {
        fprintf(stderr, "checkcomm: 2 to %d ranks\n", MAX_RANKS);
        return 2;
    }
    if (all->nodes < 1 || all->ranks % all->nodes != 0) {
        fprintf(stderr, "checkcomm: %d ranks on %d nodes\n", all->ranks, all->nodes);
        return 2;
    }
    all->gpus = count_gpus();
    if (all->gpus < all->ranks / all->nodes || all->gpus < 1) {
        printf("checkcomm: skipped: the %d ranks of a node need a GPU each\n",
               all->ranks / all->nodes);
        return 77;
    }
    processes = processes || all->nodes > 1;
    (void)signal(SIGTERM, say_steps);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)pthread_barrierattr_init(&attributes);
    (void)pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)pthread_barrier_init(&all->barrier, &attributes, (unsigned)all->ranks);
    if (processes) {
        run_processes(all);
    } else if (load_nccl() && nccl.unique_id(&all->id) == ncclSuccess) {
        run_threads(all);
    } else {
        all->failures++;
    }
    printf("checkcomm: %d checks, %d failed, %d ranks as %s, %d nodes\n", all->checks,
           all->failures, all->ranks, processes ? "processes" : "threads", all->nodes);
    return all->failures != 0;
}
