// SPDX-License-Identifier: Apache-2.0
// Peers that stop, processes that end in the middle of their work, calls of verbs that fail.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/net_abi.h"
#include "test/plugin/field.h"
#include "test/plugin/line.h"
#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

#define STOP_MS  5000u
#define ROUNDS   20u
#define LIMIT_MS 20000u

static void plan_round(struct plan *plan, unsigned groups, uint64_t seed)
{
    plan_init(plan, groups, 8, seed);
    for (unsigned k = 0; k < plan->count; k++) {
        size_t bytes = k * 4321 % 200000;
        group_fill(&plan->groups[k], 1 + (int)(k % 3), bytes, bytes);
    }
}

// Rounds of exact traffic; the end that will be stopped tells when the long one begins.
static void run_rounds(struct world *w, int stops)
{
    struct pair p;
    struct plan plan;
    world_open(w);
    pair_open(w, &p, w->o->dev);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t start = now_ms();
        plan_round(&plan, round == ROUNDS / 2 ? 1000 : 60, w->o->seed + round);
        if (stops && round == ROUNDS / 2) {
            __atomic_store_n(&w->shared->word, 1, __ATOMIC_RELEASE);
        }
        plan_run(w, &p, &plan);
        plan_release(&plan);
        if (now_ms() - start > STOP_MS / 2) {
            note("round %u took %llu ms", round, (unsigned long long)(now_ms() - start));
        }
    }
    pair_close(w, &p);
    world_close(w);
}

static void wait_for_word(struct world *w, pid_t child)
{
    int status;
    while (!__atomic_load_n(&w->shared->word, __ATOMIC_ACQUIRE)) {
        CHECK(waitpid(child, &status, WNOHANG) == 0, "ended before it was stopped");
        nap_ms(1);
    }
}

// This end runs in a child, which is stopped for a while in the middle of its traffic.
static void be_stopped(struct world *w)
{
    int status;
    pid_t child = fork(); // before the library is in the process
    CHECK(child >= 0, "fork");
    if (child == 0) {
        (void)alarm(w->o->seconds);
        run_rounds(w, 1);
        CHECK(net_warnings() == 0, "%u warnings", net_warnings());
        exit(0);
    }
    wait_for_word(w, child);
    nap_ms(50);                 // into the traffic
    (void)kill(child, SIGSTOP); // ours, not yet waited for
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "it was not stopped");
    nap_ms(STOP_MS);
    (void)kill(child, SIGCONT);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "status %d after a stop of %u ms", status, STOP_MS);
}

void case_e05_stopped_receiver(struct world *w)
{
    if (w->roles == RECEIVER) {
        be_stopped(w);
    } else {
        run_rounds(w, 0);
    }
}

void case_e05_stopped_sender(struct world *w)
{
    if (w->roles == SENDER) {
        be_stopped(w);
    } else {
        run_rounds(w, 0);
    }
}

#define PENDING 8u // receives that the one who stops has announced

enum { ANNOUNCED = 1, STOPPED }; // shared->word of the case

static void announce_and_wait(struct world *w)
{
    struct pair p;
    struct plan plan;
    size_t room = 16;
    int tag = 1;
    void *mh, *request, *data = guard_alloc(room);
    world_open(w);
    pair_open(w, &p, w->o->dev);
    plan_round(&plan, 60, w->o->seed);
    plan_run(w, &p, &plan);
    must(net_reg(&w->net, p.recv, data, room, &mh), "regMr");
    for (unsigned i = 0; i < PENDING; i++) {
        must(net_irecv(&w->net, p.recv, 1, &data, &room, &tag, &mh, &request), "irecv");
    }
    do {
        nap_ms(100);
    } while (probe_open_sends()); // the sender has been told
    __atomic_store_n(&w->shared->word, ANNOUNCED, __ATOMIC_RELEASE);
    for (;;) {
        nap_ms(1000);
    }
}

static void stop_for_ever(struct world *w)
{
    int status;
    pid_t child = fork(); // before the library is in the process
    CHECK(child >= 0, "fork");
    if (child == 0) {
        (void)alarm(w->o->seconds);
        announce_and_wait(w);
    }
    wait_for_word(w, child);
    (void)kill(child, SIGSTOP);
    (void)waitpid(child, &status, WUNTRACED);
    __atomic_store_n(&w->shared->word, STOPPED, __ATOMIC_RELEASE);
    world_meet(w); // the sender has been told
    (void)kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
}

static int send_until_told(struct world *w, void *comm)
{
    uint64_t start = now_ms();
    void *request = NULL;
    int rc = 0;
    while (!rc) {
        int done = 0, size;
        rc = request ? net_test(&w->net, request, &done, 1, &size)
                     : net_isend(&w->net, comm, NULL, 0, 1, NULL, &request);
        CHECK(!done, "a message has gone to a process that is stopped");
        CHECK(rc || now_ms() < start + LIMIT_MS, "the peer has stopped and no call says so");
        breathe();
    }
    note("error %d after %llu ms", rc, (unsigned long long)(now_ms() - start));
    return rc;
}

// While a process is stopped, softhca's device of it is, too: to the peer the path is dead.
void case_e05_stopped_for_ever(struct world *w)
{
    struct pair p;
    struct plan plan;
    (void)setenv("NCCL_IB_TIMEOUT", "14", 1);
    (void)setenv("NCCL_IB_RETRY_CNT", "3", 1);
    if (w->roles == RECEIVER) {
        stop_for_ever(w);
        return;
    }
    world_open(w);
    pair_open(w, &p, w->o->dev);
    plan_round(&plan, 60, w->o->seed);
    plan_run(w, &p, &plan);
    plan_release(&plan);
    while (__atomic_load_n(&w->shared->word, __ATOMIC_ACQUIRE) != STOPPED) {
        nap_ms(1);
    }
    int rc = send_until_told(w, p.send);
    CHECK(rc == GEMMAR_NCCL_REMOTE_ERROR, "error %d, not %d", rc, GEMMAR_NCCL_REMOTE_ERROR);
    CHECK(net_warnings() == 1 && net_logged("cannot be reached"), "%u warnings", net_warnings());
    w->warnings = 1;
    uint64_t start = now_ms();
    must(net_close_send(&w->net, p.send), "closeSend");
    CHECK(now_ms() < start + 2000, "the close took %llu ms",
          (unsigned long long)(now_ms() - start));
    world_close(w);
    world_meet(w);
}

enum way { WAY_EXIT, WAY_QUICK, WAY_TERM, WAY_ABORT, WAYS };

// Ends with comms that are open and work that is under way.
static void end_so(struct world *w, enum way way)
{
    static struct line l;
    world_open(w);
    must(line_open(w, &l, 100000, 0), "the set-up");
    must(line_run(w, &l, 1), "transfers");
    for (unsigned i = 0; i < LINE_MESSAGES / 2; i++) {
        void *data = l.to + i * l.bytes, *request;
        int tag = 5;
        must(net_irecv(&w->net, l.p.recv, 1, &data, &l.bytes, &tag, &l.to_mh, &request), "irecv");
        must(net_isend(&w->net, l.p.send, l.from, l.bytes, tag, l.from_mh, &request), "isend");
    }
    switch (way) {
    case WAY_EXIT: exit(3); // NOLINT(concurrency-mt-unsafe): it is what is tested
    case WAY_QUICK: _exit(3);
    case WAY_TERM: (void)raise(SIGTERM); break;
    default: abort();
    }
    _exit(4);
}

static void watch_end(struct world *w, enum way way)
{
    int status;
    (void)fflush(NULL);
    pid_t child = fork(); // before the library is in the process
    CHECK(child >= 0, "fork");
    if (child == 0) {
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)alarm(30);
        end_so(w, way);
    }
    (void)waitpid(child, &status, 0);
    int well = way == WAY_TERM    ? WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM
               : way == WAY_ABORT ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT
                                  : WIFEXITED(status) && WEXITSTATUS(status) == 3;
    CHECK(well, "way %d: ended with status 0x%x", (int)way, status);
}

void case_e06_exit(struct world *w)
{
    for (unsigned i = 0; i < 10; i++) {
        for (int way = 0; way < WAYS; way++) {
            watch_end(w, (enum way)way);
        }
    }
}

struct attempt {
    const char *call; // NULL: none fails
    unsigned nth;
    struct held *clean; // shared
};

#define NOT_HIT 10 // exit code: there are fewer such calls

// A whole life of the library; any call may fail. The first error.
static int live(struct world *w, unsigned *out_hits)
{
    const char *error;
    struct line l = {0};
    int absent, rc;
    CHECK(net_open(&w->net, w->o->library, w->o->api, &error, &absent) == 0, "%s", error);
    w->ctx = NULL;
    rc = net_init(&w->net, 1, NET_NO_TC, &w->ctx);
    if (!rc) {
        rc = line_open(w, &l, 4096, 1); // with flushes
        rc = rc ? rc : line_run(w, &l, 1);
        int more = line_close(w, &l);
        CHECK(rc || !more, "the close returned %d", more);
        must(net_finalize(&w->net, w->ctx), "finalize");
    }
    *out_hits = probe_faults();
    net_close(&w->net);
    return rc;
}

static int fail_once(struct world *w, const void *arg)
{
    const struct attempt *a = arg;
    unsigned hits = 0;
    char rule[128];
    (void)setenv("GEMMAR_TIMEOUT", "3", 1);
    (void)setenv("GEMMAR_SETUP_TIMEOUT", "3", 1);
    (void)setenv("SOFTHCA_DMABUF", "2", 1);
    if (a->call) {
        (void)snprintf(rule, sizeof rule, "call name=%s nth=%u count=1 errno=12", a->call, a->nth);
        (void)setenv("SOFTHCA_FAULTS", rule, 1);
    }
    int rc = live(w, &hits);
    if (a->call && !hits) {
        return NOT_HIT;
    }
    CHECK(!rc || net_warnings() > 0, "%s: error %d without a word", a->call, rc);
    CHECK(a->call || !rc, "error %d without a fault", rc);
    (void)unsetenv("SOFTHCA_FAULTS");
    must(live(w, &hits), "what came after the fault");
    if (a->call) {
        held_check(a->clean, a->call);
    } else {
        held_take(a->clean);
    }
    return 0;
}

void case_e07_failing_calls(struct world *w)
{
    static const struct {
        const char *name;
        unsigned most; // which fail; 0: all there are
    } calls[] = {{"open_device", 0}, {"query_device", 0}, {"query_port", 0}, {"query_gid", 12},
                 {"alloc_pd", 0},    {"reg_mr", 0},       {"create_cq", 0},  {"create_qp", 0},
                 {"modify_qp", 0},   {"post_recv", 0},    {"post_send", 12}, {"poll_cq", 12}};
    struct held *clean =
        mmap(NULL, sizeof *clean, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned runs = 0;
    CHECK(clean != MAP_FAILED, "no memory");
    (void)field_child(w, fail_once, &(struct attempt){.clean = clean});
    for (unsigned c = 0; c < sizeof calls / sizeof *calls; c++) {
        unsigned k = 1;
        while (!calls[c].most || k <= calls[c].most) {
            const struct attempt a = {calls[c].name, k, clean};
            if (field_child(w, fail_once, &a) == NOT_HIT) {
                break;
            }
            k++;
        }
        note("%s: %u calls", calls[c].name, k - 1);
        CHECK(k > 1, "%s is never called", calls[c].name);
        runs += k - 1;
    }
    note("%u failing calls", runs);
    (void)munmap(clean, sizeof *clean);
}

#define FAILURES 10000u

// Neither route takes the memory: the caller keeps its descriptor, and nothing else stays.
void case_m01_failed_registrations(struct world *w)
{
    struct line l;
    struct held before;
    struct stat is;
    size_t bytes = 1 << 16;
    unsigned failures = 0;
    void *mh;
    int fd = memfd_create("net-field", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0, "no shared memory");
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED, "no memory");
    (void)setenv("SOFTHCA_DMABUF", "2", 1);
    world_open(w);
    must(line_open(w, &l, 4096, 1), "the set-up");
    must(line_run(w, &l, 1), "transfers");
    held_take(&before);
    field_rule(w, "call name=reg_mr nth=1 count=1000000 errno=14");
    while (failures < FAILURES) {
        int rc = net_reg_dmabuf(&w->net, l.p.recv, at, bytes, 0, fd, &mh);
        failures += rc != 0;
        if (!rc) { // the rule is not in force yet
            must(net_dereg(&w->net, l.p.recv, mh), "deregMr");
        }
    }
    CHECK(net_warnings() == FAILURES, "%u lines for %u failures", net_warnings(), FAILURES);
    CHECK(fstat(fd, &is) == 0, "the descriptor was closed");
    held_check(&before, "after failed registrations");
    must(line_run(w, &l, 1), "transfers after failed registrations");
    field_clear(w);
    w->warnings = FAILURES;
    must(line_close(w, &l), "the close");
    (void)munmap(at, bytes); // our own mapping
    (void)close(fd);
    world_close(w);
}
