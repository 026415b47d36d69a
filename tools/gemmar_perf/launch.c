// SPDX-License-Identifier: Apache-2.0
// Start all ranks on this host, forward what they print, end them together.
#include "tools/gemmar_perf/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/gemmar_perf/nodes.h"
#include "tools/gemmar_perf/place.h"
#include "tools/gemmar_perf/say.h"

#define GRACE_S     3 /* beyond the timeout, before the ranks of a failed run are killed */
#define LINE_BYTES  4096
#define SEEN        64
#define TERMINATE_S 2

/* Lines of the ranks' standard error: every sentence is shown once, whoever says it. */
struct lines {
    char text[LINE_BYTES];
    size_t length;
    uint64_t seen[SEEN];
    size_t count;
};

struct launch {
    const struct gemmar_perf_options *o;
    char **argv;
    char program[PATH_MAX]; /* the file itself: valgrind follows this name only */
    uint32_t ranks, running;
    pid_t *child;           /* 0: ended */
    bool *stopped;          /* by a signal: it will not end by itself */
    int out, err, checksum; /* read ends; -1: at their end */
    int signals;
    char address[32];
    char fabric[64];
    int status;         /* of the whole so far */
    uint64_t kill_at;   /* monotonic ns; 0: not */
    uint64_t killed_at; /* of SIGTERM */
    struct lines lines;
    uint64_t sum;
    bool have_sum;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A port of this host that was free a moment ago. */
static int pick_address(char *text, size_t bytes)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &length) != 0) {
        rc = -errno;
    } else {
        (void)snprintf(text, bytes, "127.0.0.1:%u", ntohs(a.sin_port));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void set_number(const char *name, uint32_t value)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%u", value);
    (void)setenv(name, text, 1);
}

/* In the child: who it is. Ranks of a node are neighbours. */
static void set_environment(const struct launch *l, uint32_t rank, int checksum)
{
    char node[64];

    set_number(GEMMAR_PERF_ENV_RANK, rank);
    set_number(GEMMAR_PERF_ENV_RANKS, l->ranks);
    (void)setenv(GEMMAR_PERF_ENV_ADDRESS, l->address, 1);
    (void)snprintf(node, sizeof(node), "perf%d-node%u", (int)getppid(),
                   rank / l->o->ranks_per_node);
    (void)setenv("NCCL_HOSTID", node, 1);
    (void)setenv("SOFTHCA_NODE", node, 1);
    if (l->fabric[0] != '\0') {
        (void)setenv("SOFTHCA_FABRIC", l->fabric, 1);
    }
    if (rank == 0) {
        set_number(GEMMAR_PERF_ENV_CHECKSUM, (uint32_t)checksum);
    }
}

static void be_child(const struct launch *l, uint32_t rank, pid_t parent, int out, int err,
                     int checksum)
{
    sigset_t none;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) {
        _exit(1);
    }
    if (rank == 0) {
        (void)fcntl(checksum, F_SETFD, 0);
    }
    set_environment(l, rank, checksum);
    if (gemmar_perf_nodes_wanted(l->o)) {
        gemmar_perf_nodes_pin(rank, l->ranks);
        if (gemmar_perf_nodes_environment() != 0) {
            _exit(1);
        }
    }
    execv(l->program, l->argv);
    gemmar_perf_say("cannot start itself: %s", strerror(errno));
    _exit(127);
}

static int start_ranks(struct launch *l)
{
    int out[2], err[2], sum[2];
    pid_t parent = getpid();
    int rc = 0;

    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || pipe2(sum, O_CLOEXEC) != 0) {
        return -errno; /* the process ends with it: nothing to close */
    }
    (void)fflush(stdout);
    for (uint32_t r = 0; r < l->ranks && rc == 0; r++) {
        pid_t pid = fork();

        if (pid == 0) {
            be_child(l, r, parent, out[1], err[1], sum[1]);
        }
        if (pid < 0) {
            rc = -errno;
        } else {
            l->child[r] = pid;
            l->running++;
        }
    }
    (void)close(out[1]);
    (void)close(err[1]);
    (void)close(sum[1]);
    l->out = out[0];
    l->err = err[0];
    l->checksum = sum[0];
    return rc;
}

/* What a sentence says, whichever rank says it. */
static uint64_t meaning(const char *line)
{
    const char *rank = strstr(line, ": rank ");
    uint64_t hash = 1469598103934665603u;

    if (rank != NULL && strchr(rank + 7, ':') != NULL) {
        line = strchr(rank + 7, ':');
    }
    for (; *line != '\0'; line++) {
        hash = (hash ^ (uint8_t)*line) * 1099511628211u;
    }
    return hash;
}

static void show_line(struct launch *l)
{
    struct lines *s = &l->lines;
    uint64_t hash;

    s->text[s->length] = '\0';
    s->length = 0;
    hash = meaning(s->text);
    for (size_t i = 0; i < s->count && i < SEEN && !l->o->verbose; i++) {
        if (s->seen[i] == hash) {
            return;
        }
    }
    s->seen[s->count++ % SEEN] = hash;
    (void)fprintf(stderr, "%s\n", s->text);
}

/* Read what there is; false at the end. */
static bool forward(struct launch *l, int fd, bool is_error)
{
    char block[LINE_BYTES];
    ssize_t n = read(fd, block, sizeof(block));

    if (n <= 0) {
        return n < 0 && errno == EINTR;
    }
    if (!is_error) {
        (void)fwrite(block, 1, (size_t)n, stdout);
        (void)fflush(stdout);
        return true;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (block[i] == '\n') {
            show_line(l);
        } else if (l->lines.length + 1 < sizeof(l->lines.text)) {
            l->lines.text[l->lines.length++] = block[i];
        }
    }
    return true;
}

static void signal_all(const struct launch *l, int signal)
{
    for (uint32_t r = 0; r < l->ranks; r++) {
        if (l->child[r] > 0) {
            (void)kill(l->child[r], signal);
        }
    }
}

/* The run has failed: the others get the timeout to notice by themselves. */
static void fail(struct launch *l, int status)
{
    uint64_t patience = l->o->timeout_ms != 0 ? l->o->timeout_ms / 1000 + 1 : 60;

    if (l->status == 0) {
        l->status = status;
        l->kill_at = now_ns() + (patience + GRACE_S) * 1000000000u;
    }
}

static void reap(struct launch *l)
{
    int how;
    pid_t pid;

    while ((pid = waitpid(-1, &how, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        for (uint32_t r = 0; r < l->ranks; r++) {
            if (l->child[r] != pid) {
                continue;
            }
            l->stopped[r] = WIFSTOPPED(how);
            if (WIFSTOPPED(how) || WIFCONTINUED(how)) {
                continue;
            }
            l->child[r] = 0;
            l->running--;
            if (WIFSIGNALED(how)) {
                if (l->killed_at == 0) {
                    gemmar_perf_say("rank %u was ended by signal %d (%s)", r, WTERMSIG(how),
                                    strsignal(WTERMSIG(how)));
                }
                fail(l, 1);
            } else if (WEXITSTATUS(how) != 0) {
                fail(l, WEXITSTATUS(how) == 2 ? 2 : 1);
            }
        }
    }
}

static void take_signals(struct launch *l)
{
    struct signalfd_siginfo info;

    while (read(l->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP) {
            l->status = 128 + (int)info.ssi_signo;
            l->kill_at = now_ns();
        }
    }
    reap(l);
}

/* Are all that still run stopped? Then there is nothing to wait for. */
static bool none_moves(const struct launch *l)
{
    uint32_t stopped = 0;

    for (uint32_t r = 0; r < l->ranks; r++) {
        stopped += l->child[r] > 0 && l->stopped[r];
    }
    return stopped == l->running;
}

static void enforce_deadline(struct launch *l)
{
    uint64_t now = now_ns();

    if (l->kill_at == 0 || l->running == 0 || (now < l->kill_at && !none_moves(l))) {
        return;
    }
    if (l->killed_at == 0) {
        if (l->status < 128) {
            gemmar_perf_say("%u ranks did not end by themselves after the failure%s: killed",
                            l->running, none_moves(l) ? " (stopped by a signal)" : "");
        }
        l->killed_at = now;
        signal_all(l, SIGTERM);
        signal_all(l, SIGCONT); /* a stopped one takes the other signal only now */
    } else if (now - l->killed_at > TERMINATE_S * UINT64_C(1000000000)) {
        signal_all(l, SIGKILL);
    }
}

static void watch(struct launch *l)
{
    while (l->running != 0 || l->out >= 0 || l->err >= 0) {
        struct pollfd p[3] = {
            {.fd = l->out, .events = POLLIN},
            {.fd = l->err, .events = POLLIN},
            {.fd = l->signals, .events = POLLIN},
        };

        if (poll(p, 3, 200) < 0 && errno != EINTR) {
            break;
        }
        if (p[0].revents != 0 && !forward(l, l->out, false)) {
            (void)close(l->out);
            l->out = -1;
        }
        if (p[1].revents != 0 && !forward(l, l->err, true)) {
            (void)close(l->err);
            l->err = -1;
        }
        take_signals(l);
        enforce_deadline(l);
    }
    l->have_sum = read(l->checksum, &l->sum, sizeof(l->sum)) == (ssize_t)sizeof(l->sum);
    (void)close(l->checksum);
}

static int run_once(struct launch *l)
{
    int rc;

    if (readlink("/proc/self/exe", l->program, sizeof(l->program) - 1) < 0) {
        gemmar_perf_say("cannot find itself: %s", strerror(errno));
        return 1;
    }
    if (l->o->hca == GEMMAR_PERF_HCA_SOFT && getenv("SOFTHCA_FABRIC") == NULL) {
        (void)snprintf(l->fabric, sizeof(l->fabric), "/dev/shm/gemmar-perf.XXXXXX");
        if (mkdtemp(l->fabric) == NULL) {
            gemmar_perf_say("cannot make a folder in /dev/shm: %s", strerror(errno));
            return 1;
        }
    }
    rc = pick_address(l->address, sizeof(l->address));
    if (rc == 0) {
        rc = start_ranks(l);
    }
    if (rc != 0) {
        gemmar_perf_say("cannot start %u ranks: %s", l->ranks, strerror(-rc));
        l->status = 1;
        l->kill_at = now_ns();
    }
    if (l->running != 0) {
        watch(l);
    }
    if (l->fabric[0] != '\0') {
        (void)nftw(l->fabric, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    return l->status;
}

static int open_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int gemmar_perf_launch(const struct gemmar_perf_options *options, char **argv)
{
    uint32_t ranks = options->nodes * options->ranks_per_node;
    pid_t *child = calloc(ranks, sizeof(*child));
    bool *stopped = calloc(ranks, sizeof(*stopped));
    int signals = open_signals();
    uint64_t first_sum = 0;
    int status = 0;

    if (child == NULL || stopped == NULL || signals < 0) {
        gemmar_perf_say("cannot start %u ranks: %s", ranks, strerror(errno));
        status = 1;
    }
    for (uint32_t run = 0; run < options->runs && status == 0; run++) {
        static struct launch l; /* large */

        l = (struct launch){
            .o = options, .argv = argv, .ranks = ranks, .child = child, .stopped = stopped};
        l.out = l.err = l.checksum = -1;
        l.signals = signals;
        status = run_once(&l);
        if (status == 0 && options->runs > 1) {
            if (!l.have_sum || (run != 0 && l.sum != first_sum)) {
                gemmar_perf_say("run %u has other bits than run 1: checksum 0x%016llx, was "
                                "0x%016llx",
                                run + 1, (unsigned long long)l.sum, (unsigned long long)first_sum);
                status = 1;
            } else if (run + 1 == options->runs && run != 0) {
                (void)printf("# %u runs are bit-identical\n", options->runs);
            }
            first_sum = l.sum;
        }
    }
    if (signals >= 0) {
        (void)close(signals);
    }
    free(stopped);
    free(child);
    return status;
}
