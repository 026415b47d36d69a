// SPDX-License-Identifier: Apache-2.0
// comm_pairs [-n RANKS] [-g GPUS] [-t TEST,...] [-b MIN] [-e MAX] [-f FACTOR] [-p PAIRS] [-m MS]
// [-s] [-c] OUT Processes that act as nodes make two NCCL communicators each, one over the plugin
// and one over NCCL's own IB transport (by netName, so NCCL_NET must not be set), and time blocks
// of collectives on them in turns. Both share process, processors, streams and memory; what remains
// between them is the transport. MS is how long a block should take; -s: IB comes first; -c: each
// rank gets processors of its own. OUT gets one JSON object a line: test, size, wrong values, and
// microseconds of each block. Status 77 where the driver or NCCL is not there.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#define PLUGIN     0
#define BUILTIN    1
#define MAX_PAIRS  1000u
#define WARM       3u   // collectives before the clock of a block starts, 1 of the longest ones
#define MIN_REPEAT 4u   // in a block
#define MAX_REPEAT 500u // below NCCL's limit of launches that wait
#define FLOAT      sizeof(float)
#define CHECK      (4u << 20) // elements that are looked at, from either end of a result

// Between the ranks; each field is written by the rank named and read after the next meeting.
struct shared {
    pthread_barrier_t meeting;
    struct unique_id id[2]; // rank 0
    double us[MAX_RANKS];   // each its own
    uint64_t wrong[MAX_RANKS];
};

struct test {
    const char *name;
    void (*issue)(void *comm, uint64_t count); // of `count` elements for each rank
    float (*expect)(uint64_t count, uint64_t at);
    int parts;   // the size is that of one part for each rank
    int results; // the result has one, too
};

static const char *const names[2] = {"Gemmar", "IB"};
static struct shared *all;
static int rank, ranks = 2, gpus = 1, first = PLUGIN, is_pinned;
static uint64_t least = 8, most = 128u << 20, factor = 2;
static unsigned pairs = 11;
static double block_ms = 10;
static const char *wanted = "all_reduce,all_gather,reduce_scatter,sendrecv,alltoall";
static uint64_t from, to; // device memory of `most` bytes each
static float *host;       // as much
static void *comms[2], *stream, *before, *after;

static float sent(int by, uint64_t at)
{
    return (float)(at % 1000 + (uint64_t)by);
}

static float sum(uint64_t at)
{
    return (float)(at % 1000 * (uint64_t)ranks + (uint64_t)(ranks * (ranks - 1) / 2));
}

static void all_reduce(void *comm, uint64_t count)
{
    MUST(nccl.reduce(from, to, count, NCCL_FLOAT, NCCL_SUM, comm, stream));
}

static float all_reduced(uint64_t count, uint64_t at)
{
    (void)count;
    return sum(at);
}

static void all_gather(void *comm, uint64_t count)
{
    MUST(nccl.gather(from, to, count, NCCL_FLOAT, comm, stream));
}

static float all_gathered(uint64_t count, uint64_t at)
{
    return sent((int)(at / count), at % count);
}

static void reduce_scatter(void *comm, uint64_t count)
{
    MUST(nccl.scatter(from, to, count, NCCL_FLOAT, NCCL_SUM, comm, stream));
}

static float reduce_scattered(uint64_t count, uint64_t at)
{
    return sum((uint64_t)rank * count + at);
}

static void sendrecv(void *comm, uint64_t count)
{
    MUST(nccl.start());
    MUST(nccl.send(from, count, NCCL_FLOAT, (rank + 1) % ranks, comm, stream));
    MUST(nccl.receive(to, count, NCCL_FLOAT, (rank + ranks - 1) % ranks, comm, stream));
    MUST(nccl.end());
}

static float sendreceived(uint64_t count, uint64_t at)
{
    (void)count;
    return sent((rank + ranks - 1) % ranks, at);
}

static void alltoall(void *comm, uint64_t count)
{
    MUST(nccl.start());
    for (int r = 0; r < ranks; r++) {
        uint64_t offset = (uint64_t)r * count * FLOAT;
        MUST(nccl.send(from + offset, count, NCCL_FLOAT, r, comm, stream));
        MUST(nccl.receive(to + offset, count, NCCL_FLOAT, r, comm, stream));
    }
    MUST(nccl.end());
}

static float all_to_all(uint64_t count, uint64_t at)
{
    return sent((int)(at / count), (uint64_t)rank * count + at % count);
}

static const struct test tests[] = {
    {"all_reduce", all_reduce, all_reduced, 0, 0},
    {"all_gather", all_gather, all_gathered, 1, 1},
    {"reduce_scatter", reduce_scatter, reduce_scattered, 1, 0},
    {"sendrecv", sendrecv, sendreceived, 0, 0},
    {"alltoall", alltoall, all_to_all, 1, 1},
};

static void meet(void)
{
    int error = pthread_barrier_wait(&all->meeting);
    must(error && error != PTHREAD_BARRIER_SERIAL_THREAD, "pthread_barrier_wait");
}

// Wrong values among those from begin on.
static uint64_t look(const struct test *t, uint64_t count, uint64_t begin, uint64_t length)
{
    uint64_t wrong = 0;
    MUST(cu.out(host, to + begin * FLOAT, length * FLOAT));
    for (uint64_t i = 0; i < length; i++) {
        wrong += host[i] != t->expect(count, begin + i);
    }
    return wrong;
}

// Wrong values of all ranks after one collective.
static uint64_t verify(const struct test *t, int variant, uint64_t count)
{
    uint64_t results = count * (t->results ? (uint64_t)ranks : 1), wrong = 0;
    uint64_t head = results < CHECK ? results : CHECK;
    uint64_t tail = results - head < CHECK ? results - head : CHECK;
    MUST(cu.fill(to, 0xff, results * FLOAT)); // not a number
    MUST(cu.wait(NULL));                      // the fill; our stream would not wait for it
    t->issue(comms[variant], count);
    MUST(cu.wait(stream));
    wrong += look(t, count, 0, head) + look(t, count, results - tail, tail);
    all->wrong[rank] = wrong;
    meet();
    wrong = 0;
    for (int r = 0; r < ranks; r++) {
        wrong += all->wrong[r];
    }
    meet();
    return wrong;
}

// Microseconds of one of `repeat` collectives in a row, the mean of the ranks.
static double block(const struct test *t, int variant, uint64_t count, unsigned repeat)
{
    float ms = 0;
    double us = 0;
    meet();
    unsigned warm = repeat == MIN_REPEAT ? 1 : WARM;
    for (unsigned i = 0; i < warm + repeat; i++) {
        if (i == warm) {
            MUST(cu.record(before, stream));
        }
        t->issue(comms[variant], count);
    }
    MUST(cu.record(after, stream));
    MUST(cu.wait(stream));
    MUST(cu.elapsed(&ms, before, after));
    all->us[rank] = (double)ms * 1e3 / repeat;
    meet();
    for (int r = 0; r < ranks; r++) {
        us += all->us[r] / ranks;
    }
    return us; // every block begins with a meeting, so nobody has written the next one yet
}

static unsigned repeats(const struct test *t, uint64_t count)
{
    double us = 0;
    for (int v = 0; v < 2; v++) {
        double took = block(t, v, count, MIN_REPEAT);
        us = took > us ? took : us;
    }
    double wish = block_ms * 1e3 / us; // the same in each rank: it has the same times
    return wish < MIN_REPEAT ? MIN_REPEAT : wish > MAX_REPEAT ? MAX_REPEAT : (unsigned)wish;
}

static void print(FILE *out, const double *us)
{
    for (unsigned p = 0; p < pairs; p++) {
        (void)fprintf(out, "%s%.3f", p ? ", " : "", us[p]);
    }
}

static uint64_t measure(const struct test *t, uint64_t bytes, FILE *out)
{
    uint64_t count = bytes / FLOAT / (t->parts ? (uint64_t)ranks : 1), wrong = 0;
    static double us[2][MAX_PAIRS];
    if (!count) {
        return 0;
    }
    for (int v = 0; v < 2; v++) {
        wrong += verify(t, v, count);
    }
    unsigned repeat = repeats(t, count);
    for (unsigned p = 0; p < pairs; p++) {
        int v = (first + (int)p) % 2; // so that each comes first as often
        us[v][p] = block(t, v, count, repeat);
        us[!v][p] = block(t, !v, count, repeat);
    }
    if (rank == 0) {
        (void)fprintf(out,
                      "{\"test\": \"%s\", \"bytes\": %llu, \"repeat\": %u, \"wrong\": %llu, "
                      "\"plugin\": [",
                      t->name, (unsigned long long)(bytes), repeat, (unsigned long long)wrong);
        print(out, us[PLUGIN]);
        (void)fprintf(out, "], \"builtin\": [");
        print(out, us[BUILTIN]);
        (void)fprintf(out, "]}\n");
        must(fflush(out), "write");
    }
    return wrong;
}

static int is_wanted(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = wanted; (at = strstr(at, name)); at += length) {
        if ((at == wanted || at[-1] == ',') && (!at[length] || at[length] == ',')) {
            return 1;
        }
    }
    return 0;
}

static void make_comm(int variant)
{
    struct comm_config config = {.size = sizeof config,
                                 .magic = 0xcafebeef,
                                 .version = 21700,
                                 .blocking = 1,
                                 .cluster = INT32_MIN,
                                 .min_ctas = INT32_MIN,
                                 .max_ctas = INT32_MIN,
                                 .network = names[variant],
                                 .split_share = INT32_MIN};
    if (rank == 0) {
        MUST(nccl.id(&all->id[variant]));
    }
    meet();
    MUST(nccl.init_with(&comms[variant], ranks, all->id[variant], rank, &config));
}

static void make_memory(void)
{
    MUST(cu.alloc(&from, most));
    MUST(cu.alloc(&to, most));
    host = malloc(most);
    must(!host, "malloc");
    for (uint64_t i = 0; i < most / FLOAT; i++) {
        host[i] = sent(rank, i);
    }
    MUST(cu.in(from, host, most));
    MUST(cu.event(&before, 0));
    MUST(cu.event(&after, 0));
}

// The processors that we may use go to the ranks in equal parts.
static void pin(void)
{
    cpu_set_t may, mine;
    CPU_ZERO(&mine);
    must(sched_getaffinity(0, sizeof may, &may), "sched_getaffinity");
    int share = CPU_COUNT(&may) / ranks, nth = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &may) && share && nth++ / share == rank) {
            CPU_SET(cpu, &mine);
        }
    }
    must(CPU_COUNT(&mine) && sched_setaffinity(0, sizeof mine, &mine), "sched_setaffinity");
}

static int child(FILE *out)
{
    uint64_t wrong = 0;
    if (is_pinned) {
        pin();
    }
    drive("comm_pairs", rank, rank % gpus);
    stream = make_stream();
    make_memory();
    make_comm(first);
    make_comm(!first);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        for (uint64_t bytes = least; bytes <= most && is_wanted(tests[i].name); bytes *= factor) {
            wrong += measure(&tests[i], bytes, out);
        }
    }
    MUST(nccl.destroy(comms[PLUGIN]));
    MUST(nccl.destroy(comms[BUILTIN]));
    meet(); // one that ends with wrong values has the others ended
    return wrong != 0;
}

static uint64_t bytes_of(const char *text)
{
    char *unit;
    uint64_t value = strtoull(text, &unit, 10);
    return *unit == 'K'   ? value << 10
           : *unit == 'M' ? value << 20
           : *unit == 'G' ? value << 30
                          : value;
}

static FILE *arguments(int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "n:g:t:b:e:f:p:m:sc")) != -1;) {
        switch (option) {
        case 'n': ranks = atoi(optarg); break;
        case 'g': gpus = atoi(optarg); break;
        case 't': wanted = optarg; break;
        case 'b': least = bytes_of(optarg); break;
        case 'e': most = bytes_of(optarg); break;
        case 'f': factor = bytes_of(optarg); break;
        case 'p': pairs = (unsigned)atoi(optarg); break;
        case 'm': block_ms = atof(optarg); break;
        case 's': first = BUILTIN; break;
        case 'c': is_pinned = 1; break;
        default: exit(2);
        }
    }
    if (ranks < 2 || ranks > MAX_RANKS || gpus < 1 || least < FLOAT || most < least || factor < 2 ||
        pairs < 1 || pairs > MAX_PAIRS || block_ms <= 0 || optind != argc - 1) {
        exit(2);
    }
    FILE *out = fopen(argv[optind], "a");
    must(!out, argv[optind]);
    return out;
}

static void share(void)
{
    pthread_barrierattr_t attributes;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(all == MAP_FAILED, "mmap");
    MUST(pthread_barrierattr_init(&attributes));
    MUST(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    MUST(pthread_barrier_init(&all->meeting, &attributes, (unsigned)ranks));
}

int main(int argc, char **argv)
{
    FILE *out = arguments(argc, argv);
    pid_t pids[MAX_RANKS];
    int result = 0;
    share();
    for (rank = 0; rank < ranks; rank++) {
        pids[rank] = fork();
        must(pids[rank] < 0, "fork");
        if (pids[rank] == 0) {
            _exit(child(out)); // no destructors of libraries that other threads still use
        }
    }
    for (int left = ranks; left > 0; left--) {
        int status = 0;
        must(wait(&status) < 0, "wait");
        int bad = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        for (int r = 0; r < ranks && bad && !result; r++) {
            (void)kill(pids[r], SIGKILL); // the others would wait for it; one may have ended
        }
        result = result ? result : bad;
    }
    return result;
}
