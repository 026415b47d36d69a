// SPDX-License-Identifier: Apache-2.0
// net-contract: drives a net plugin's function table as NCCL does. TAP on standard output.
// Each case runs in processes of its own, once with both ends in one thread and once with an end in
// each of two processes; a crash or a hang is that case's failure.
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/plugin/world.h"

static const char usage[] =
    "net-contract --plugin PATH|nccl [--api 6..12] [--case NAME,...] [--mode one|two|both]\n"
    "             [--dev N | --rails N] [--sender-hca LIST] [--receiver-hca LIST]\n"
    "             [--max-bytes N] [--transfers N] [--rounds N] [--seed N] [--seconds N]\n"
    "             [--while COMMAND] [--list]\n"
    "  --plugin     the library to load, or nccl: the hidden table of libnccl 2.28.9 (API 11)\n"
    "  --rails      all cases use a virtual NIC of the first N devices (not table, properties)\n"
    "  --sender-hca, --receiver-hca  NCCL_IB_HCA of each, where they are two processes\n"
    "  --max-bytes  largest message (67108864)\n"
    "  --transfers  messages of the random mix (10000)\n"
    "  --rounds     of load, use and unload (100)\n"
    "  --seconds    limit of a case (120)\n"
    "  --while      a shell command that breaks and mends rails during the case `disturbed`\n"
    "VERBOSE=1 shows what the plugin logs, also where a case goes well.\n";

static int is_chosen(const struct options *o, const struct contract_case *c)
{
    const char *at = o->only;
    size_t n = strlen(c->name);
    while (at && *at) {
        if (strncmp(at, c->name, n) == 0 && (at[n] == ',' || !at[n])) {
            return 1;
        }
        at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    }
    return !o->only;
}

static void run_side(const struct options *o, const struct contract_case *c, struct shared *shared,
                     unsigned roles)
{
    struct world w = {.o = o, .shared = shared, .roles = roles};
    const char *node = roles == (SENDER | RECEIVER) ? "self"
                       : roles == SENDER            ? "sender"
                                                    : "receiver";
    (void)setenv("SOFTHCA_NODE", node, 1); // before softhca is in the process
    const char *hca = roles == SENDER ? o->hca[0] : roles == RECEIVER ? o->hca[1] : NULL;
    if (hca) {
        (void)setenv("NCCL_IB_HCA", hca, 1);
    }
    if (!c->raw) {
        world_open(&w);
    }
    c->run(&w);
    if (!c->raw) {
        world_close(&w);
    }
    if (!w.net.reference && net_warnings() != w.warnings) {
        fail("%u warnings in the log, not %u", net_warnings(), w.warnings);
    }
    exit(0);
}

static pid_t start_side(const struct options *o, const struct contract_case *c,
                        struct shared *shared, unsigned roles)
{
    (void)fflush(NULL);
    pid_t child = fork(); // before NCCL and the verbs library are in the process
    if (child == 0) {
        run_side(o, c, shared, roles);
    }
    if (child < 0) {
        perror("fork");
        exit(2);
    }
    return child;
}

// The wait status of the first side that does not end well, else 0. -1: the time is over.
static int wait_sides(pid_t *sides, int n, unsigned seconds)
{
    int left = n, bad = 0;
    time_t end = time(NULL) + (time_t)seconds;
    sigset_t chld;
    (void)sigemptyset(&chld);
    (void)sigaddset(&chld, SIGCHLD); // blocked in main
    while (left) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        for (int i = 0; pid > 0 && i < n; i++) {
            if (sides[i] == pid) {
                sides[i] = 0;
                left--;
                bad = bad ? bad : status;
            }
        }
        if ((bad || time(NULL) >= end) && left) {
            bad = bad ? bad : -1;
            for (int i = 0; i < n; i++) {
                if (sides[i] > 0) {
                    (void)kill(sides[i], SIGKILL); // ours, not yet waited for
                }
            }
        }
        if (pid == 0) {
            struct timespec t = {.tv_sec = 1};
            (void)sigtimedwait(&chld, NULL, &t); // wakes up in any case
        }
    }
    return bad;
}

static int run_case(const struct options *o, const struct contract_case *c, unsigned mode,
                    unsigned number)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t sides[2];
    if (shared == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    struct timespec from, to;
    (void)clock_gettime(CLOCK_MONOTONIC, &from); // cannot fail for this clock
    if (mode == 1) {
        sides[0] = start_side(o, c, shared, SENDER | RECEIVER);
    } else {
        sides[0] = start_side(o, c, shared, RECEIVER);
        sides[1] = start_side(o, c, shared, SENDER);
    }
    int status = wait_sides(sides, (int)mode, o->seconds);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    int skipped = status > 0 && WIFEXITED(status) && WEXITSTATUS(status) == SKIP;
    if (status == -1) {
        (void)printf("# not done after %u s\n", o->seconds);
    } else if (status && WIFSIGNALED(status)) {
        (void)printf("# ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    (void)printf("%sok %u - v%d %s, %s process%s%s%s\n", status && !skipped ? "not " : "", number,
                 o->api, c->name, mode == 1 ? "one" : "two", mode == 1 ? "" : "es",
                 skipped ? " # SKIP " : "", skipped ? shared->reason : "");
    (void)printf("# %.1f s\n", seconds);
    (void)munmap(shared, sizeof *shared);
    return status && !skipped;
}

static uint64_t number(const char *text)
{
    char *end;
    errno = 0;
    uint64_t v = strtoull(text, &end, 0);
    if (errno || *end || end == text || *text == '-') {
        (void)fprintf(stderr, "net-contract: '%s' is not a number\n%s", text, usage);
        exit(2);
    }
    return v;
}

static void parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {{"plugin", required_argument, NULL, 'p'},
                                          {"api", required_argument, NULL, 'a'},
                                          {"case", required_argument, NULL, 'c'},
                                          {"mode", required_argument, NULL, 'm'},
                                          {"dev", required_argument, NULL, 'd'},
                                          {"rails", required_argument, NULL, 'R'},
                                          {"sender-hca", required_argument, NULL, 'S'},
                                          {"receiver-hca", required_argument, NULL, 'E'},
                                          {"max-bytes", required_argument, NULL, 'b'},
                                          {"transfers", required_argument, NULL, 't'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"seconds", required_argument, NULL, 'l'},
                                          {"while", required_argument, NULL, 'w'},
                                          {"list", no_argument, NULL, 'L'},
                                          {0}};
    int c;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (c) {
        case 'p': o->library = optarg; break;
        case 'a': o->api = (int)number(optarg); break;
        case 'c': o->only = optarg; break;
        case 'm': o->modes = *optarg == 'o' ? 1 : *optarg == 't' ? 2 : 3; break;
        case 'd': o->dev = (int)number(optarg); break;
        case 'R': o->rails = (int)number(optarg); break;
        case 'S': o->hca[0] = optarg; break;
        case 'E': o->hca[1] = optarg; break;
        case 'b': o->max_bytes = number(optarg); break;
        case 't': o->transfers = (unsigned)number(optarg); break;
        case 'r': o->rounds = (unsigned)number(optarg); break;
        case 's': o->seed = number(optarg); break;
        case 'w': o->disturbance = optarg; break;
        case 'l': o->seconds = (unsigned)number(optarg); break;
        case 'L':
            for (const struct contract_case *k = contract_cases; k->name; k++) {
                (void)puts(k->name);
            }
            exit(0);
        default: (void)fputs(usage, stderr); exit(2);
        }
    }
    if (!o->library || o->api < NET_OLDEST || o->api > NET_NEWEST || optind != argc) {
        (void)fputs(usage, stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct options o = {.api = 11,
                        .max_bytes = 64u << 20,
                        .transfers = 10000,
                        .rounds = 100,
                        .seconds = 120,
                        .seed = 20240229,
                        .modes = 3};
    unsigned count = 0, failed = 0;
    sigset_t chld;
    parse(argc, argv, &o);
    (void)sigemptyset(&chld);
    (void)sigaddset(&chld, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &chld, NULL);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    int reference = strcmp(o.library, "nccl") == 0;
    for (const struct contract_case *c = contract_cases; c->name; c++) {
        if (!is_chosen(&o, c) || (c->oldest > o.api && !o.only)) {
            continue;
        }
        for (unsigned mode = 1; mode <= 2; mode++) {
            if (!(c->modes & o.modes & mode)) {
                continue;
            }
            count++;
            if ((reference && c->no_reference) || c->oldest > o.api) {
                (void)printf("ok %u - v%d %s # SKIP %s\n", count, o.api, c->name,
                             c->oldest > o.api ? "not in this version" : c->no_reference);
                continue;
            }
            failed += (unsigned)run_case(&o, c, mode, count);
        }
    }
    (void)printf("1..%u\n", count);
    return failed ? 1 : 0;
}
