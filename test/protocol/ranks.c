// SPDX-License-Identifier: Apache-2.0
// Processes as ranks.
#include "test/protocol/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "transport/order.h"

#define GATHER_BYTES (64 << 10)

/* All-gather over shared memory: two halves by turn, because a rank that is two turns ahead proves
 * that everybody has read. */
struct meeting {
    uint64_t turn[RANKS_MAX]; /* records written. Writer: that rank (release) */
    uint64_t gone[RANKS_MAX]; /* 1: its process has ended. Writer: the test (release) */
    uint64_t shared[RANKS_NUMBERS];
    struct report report[RANKS_MAX];
    char record[2][RANKS_MAX][GATHER_BYTES];
};

struct context {
    struct meeting *meeting;
    int rank, ranks;
    uint64_t turn;
};

static struct meeting *meeting; /* one run at a time, in a process of Check's own */
static char fabric[64];

uint64_t ranks_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void ranks_sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&t, NULL);
}

static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    struct context *c = context;
    struct meeting *m = c->meeting;
    uint64_t end = ranks_ms() + RANKS_GATHER_MS, turn = ++c->turn;

    if (bytes > GATHER_BYTES) {
        return EMSGSIZE;
    }
    memcpy(m->record[turn & 1][c->rank], mine, bytes);
    gemmar_store_release(&m->turn[c->rank], turn);
    for (int r = 0; r < c->ranks; r++) {
        while (gemmar_load_acquire(&m->turn[r]) < turn) {
            if (gemmar_load_acquire(&m->gone[r]) != 0 && gemmar_load_acquire(&m->turn[r]) < turn) {
                return ECONNRESET;
            }
            if (ranks_ms() > end) {
                return ETIMEDOUT;
            }
            struct timespec nap = {.tv_nsec = 50000};
            (void)nanosleep(&nap, NULL);
        }
        memcpy((char *)all + (size_t)r * bytes, m->record[turn & 1][r], bytes);
    }
    return 0;
}

void ranks_fail(struct rank *rank, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(rank->report->broken, sizeof(rank->report->broken), format, args);
    va_end(args);
    _exit(9);
}

gemmarComm_t ranks_create(struct rank *rank)
{
    gemmarComm_t comm = NULL;
    gemmarResult_t result = gemmarCommCreateHost(&comm, &rank->bootstrap, &rank->config);

    if (result != gemmarSuccess) {
        ranks_fail(rank, "create: %d %s", result, gemmarGetLastError(NULL));
    }
    return comm;
}

void ranks_destroy(struct rank *rank, gemmarComm_t comm)
{
    gemmarResult_t result = gemmarCommDestroy(comm);

    if (result != gemmarSuccess) {
        ranks_fail(rank, "destroy: %d %s", result, gemmarGetLastError(NULL));
    }
}

/* Refusals are told to the log too; `report` has all that the tests ask for. */
static void drop_line(void *user, int level, const char *text)
{
    if (getenv("PROTOCOL_LOG") != NULL) {
        (void)fprintf(stderr, "%d rank %d: %s\n", level, *(const int *)user, text);
    }
}

/* Shared memory with this process number in its name. */
static int segments_of(uint64_t pid, bool drop)
{
    DIR *dir = opendir("/dev/shm");
    struct dirent *e;
    int count = 0;

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (strncmp(e->d_name, "gemmar-", 7) != 0 || (uint64_t)atoi(e->d_name + 7) != pid) {
            continue;
        }
        count++;
        if (drop) {
            (void)unlinkat(dirfd(dir), e->d_name, 0);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return count;
}

static int left_segments(void)
{
    int count = 0;

    for (int r = 0; r < RANKS_MAX; r++) {
        uint64_t pid = meeting->report[r].number[RANKS_NUMBERS - 1];

        count += pid != 0 ? segments_of(pid, false) : 0;
    }
    return count;
}

static void child(const struct run *run, int index)
{
    static char node[16];
    static struct context context;
    struct rank rank = {
        .rank = index,
        .ranks = run->nodes * run->per_node,
        .nodes = run->nodes,
        .config = GEMMAR_CONFIG_INITIALIZER,
        .report = &meeting->report[index],
        .shared = meeting->shared,
        .argument = run->argument,
    };

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)segments_of((uint64_t)getpid(), true); /* of one that was killed and had our number */
    (void)snprintf(node, sizeof(node), "node%d", index / run->per_node);
    (void)setenv("SOFTHCA_NODE", node, 1);
    context = (struct context){.meeting = meeting, .rank = index, .ranks = rank.ranks};
    rank.bootstrap = (gemmarHostBootstrap_t){
        .size = sizeof(rank.bootstrap),
        .rank = index,
        .nranks = rank.ranks,
        .allGather = gather,
        .context = &context,
        .node = node,
    };
    rank.config.log = drop_line;
    rank.config.logUser = &rank.rank;
    run->body(&rank);
    exit(0); /* not _exit: the leak checker looks at the end */
}

static bool disturb(const struct run *run, const pid_t *pids)
{
    char command[512];

    if ((run->signal == 0 && run->ctl == NULL) || gemmar_load_acquire(&meeting->shared[0]) == 0) {
        return false;
    }
    if (run->signal != 0) {
        (void)kill(pids[run->signal_rank], run->signal);
    }
    if (run->ctl != NULL) {
        (void)snprintf(command, sizeof(command), "'%s' %s", getenv("SOFTHCA_CTL"), run->ctl);
        ck_assert_int_eq(system(command), 0);
    }
    return true;
}

/* What is wrong with a rank's end, or NULL. */
static const char *end_of(const struct run *run, int r, int status)
{
    if (meeting->report[r].broken[0] != '\0') {
        return meeting->report[r].broken;
    }
    if (run->signal != 0 && r == run->signal_rank) {
        return WIFSIGNALED(status) ? NULL : "was to end by a signal and did not";
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? NULL : "ended badly";
}

static int wait_for_all(const struct run *run, const pid_t *pids, int *statuses)
{
    int ranks = run->nodes * run->per_node, left = ranks, hung = -1;
    uint64_t end = ranks_ms() + RANKS_SECONDS * 1000;
    bool sent = false;

    while (left > 0) {
        sent = sent || disturb(run, pids);
        for (int r = 0; r < ranks; r++) {
            if (gemmar_load_relaxed(&meeting->gone[r]) == 0 &&
                waitpid(pids[r], &statuses[r], WNOHANG) == pids[r]) {
                gemmar_store_release(&meeting->gone[r], 1);
                left--;
            } else if (gemmar_load_relaxed(&meeting->gone[r]) == 0 &&
                       (ranks_ms() > end ||
                        (left == 1 && sent && run->signal != 0 && r == run->signal_rank))) {
                hung = ranks_ms() > end ? r : hung;
                (void)kill(pids[r], SIGKILL); /* a stopped one, or one that hangs */
            }
        }
        ranks_sleep_ms(1);
    }
    return hung;
}

/* A fabric for each run: ports stay down in one, and rules stay added. */
static void make_fabric(void)
{
    (void)strcpy(fabric, "/dev/shm/gemmar-test.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fabric));
    ck_assert_int_eq(setenv("SOFTHCA_FABRIC", fabric, 1), 0);
}

static void drop_fabric(void)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf '%s'", fabric);
    (void)!system(command); /* a leftover folder is no failure */
}

struct report *ranks_run(const struct run *run)
{
    int ranks = run->nodes * run->per_node, hung, statuses[RANKS_MAX] = {0};
    pid_t pids[RANKS_MAX];

    ck_assert_int_le(ranks, RANKS_MAX);
    if (meeting != NULL) {
        (void)munmap(meeting, sizeof(*meeting));
    }
    meeting =
        mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(meeting != MAP_FAILED);
    make_fabric();
    (void)fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        ck_assert_int_ge(pids[r], 0);
        if (pids[r] == 0) {
            child(run, r);
        }
        meeting->report[r].number[RANKS_NUMBERS - 1] = (uint64_t)pids[r];
    }
    hung = wait_for_all(run, pids, statuses);
    drop_fabric();
    ck_assert_msg(hung < 0, "rank %d hung", hung);
    for (int r = 0; r < ranks; r++) {
        const char *wrong = end_of(run, r, statuses[r]);

        ck_assert_msg(wrong == NULL, "rank %d (status 0x%x): %s", r, statuses[r], wrong);
    }
    ck_assert_int_eq(left_segments(), 0);
    return meeting->report;
}

struct report *ranks_simple(int nodes, int per_node, void (*body)(struct rank *rank),
                            const void *argument)
{
    struct run run = {.nodes = nodes, .per_node = per_node, .body = body, .argument = argument};

    return ranks_run(&run);
}

int ranks_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
