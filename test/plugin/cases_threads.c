// SPDX-License-Identifier: Apache-2.0
// Several threads, each with comms of its own; memory that is registered as a dma-buf.
#include "test/plugin/cases.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/net_abi.h"
#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

#define THREADS 16
#define ROUNDS  10u

struct thread {
    struct world world; // a copy: the library and the context are shared, the rest is not
    struct shared shared;
    pthread_t thread;
    unsigned number;
};

static void plan_small(struct plan *plan, unsigned count, uint64_t seed)
{
    plan_init(plan, count, 4, seed);
    for (unsigned k = 0; k < count; k++) {
        group_fill(&plan->groups[k], 1 + (int)(k % 2), k * 97 % 5000, 5000);
    }
}

static void *thread_main(void *argument)
{
    struct thread *t = argument;
    struct world *w = &t->world;
    struct plan plan;
    plan_small(&plan, 64, w->o->seed + t->number); // the bytes tell one thread from another
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct pair p;
        pair_open(w, &p, w->o->dev);
        plan_run(w, &p, &plan);
        pair_close(w, &p);
    }
    plan_release(&plan);
    return NULL;
}

// C-05: threads share nothing but the library.
void case_threads(struct world *w)
{
    struct held before;
    struct thread *threads = calloc(THREADS + 1, sizeof *threads);
    CHECK(threads, "no memory");
    for (unsigned i = 0; i <= THREADS; i++) {
        threads[i].world = *w;
        threads[i].world.shared = &threads[i].shared;
        threads[i].number = i;
    }
    (void)thread_main(&threads[THREADS]); // what is made once is made
    held_take(&before);
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]) == 0,
              "no thread %u", i);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i].thread, NULL); // ours
    }
    held_check(&before, "after all threads");
    free(threads);
}

#define BYTES (1u << 20)

// GPU memory as the plugin sees it: a descriptor that can be mapped. NCCL closes it at once.
static char *map_dmabuf(struct world *w, void *comm, void **out_mh)
{
    int fd = memfd_create("net-contract", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 2 * BYTES) == 0, "no shared memory");
    char *p = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED, "no shared memory");
    must(net_reg_dmabuf(&w->net, comm, p + 4096, BYTES, 4096, fd, out_mh), "regMrDmaBuf");
    CHECK(fcntl(fd, F_GETFD) >= 0, "regMrDmaBuf closed the caller's descriptor");
    (void)close(fd);
    return p;
}

static void wait_request(struct world *w, void *request, int *size)
{
    for (int done = 0; !done;) {
        must(net_test(&w->net, request, &done, 1, size), "test");
        breathe();
    }
}

static void flush(struct world *w, const struct pair *p, void *data, void *mh, int bytes)
{
    void *request;
    memset(&request, NET_POISON, sizeof request);
    must(net_iflush(&w->net, p->recv, 1, &data, &bytes, &mh, &request), "iflush");
    CHECK(request && !guard_untouched(&request, sizeof request), "no flush of GPU memory");
    wait_request(w, request, NULL);
}

static void send_between(struct world *w, const struct pair *p, char *from, void *from_mh, void *to,
                         void *to_mh)
{
    void *sent = NULL, *received = NULL;
    size_t room = BYTES;
    int tag = 1, size = 0;
    must(net_irecv(&w->net, p->recv, 1, &to, &room, &tag, &to_mh, &received), "irecv");
    CHECK(received, "irecv gave no request");
    while (!sent) {
        must(net_isend(&w->net, p->send, from, BYTES, tag, from_mh, &sent), "isend");
        breathe();
    }
    wait_request(w, received, &size);
    CHECK(size == (int)BYTES, "received %d bytes", size);
    wait_request(w, sent, &size);
}

void case_dmabuf(struct world *w)
{
    struct net_props props;
    struct pair p;
    void *from_mh, *to_mh;
    (void)setenv("SOFTHCA_DMABUF", "2", 1);
    world_open(w);
    must(net_properties(&w->net, w->o->dev, &props), "getProperties");
    if (!(props.ptr_support & GEMMAR_NET_PTR_DMABUF)) {
        skip(w, "no dma-buf");
    }
    pair_open(w, &p, w->o->dev);
    char *from = map_dmabuf(w, p.send, &from_mh), *to = map_dmabuf(w, p.recv, &to_mh);
    for (unsigned round = 0; round < 4; round++) {
        pattern_fill(from + 4096, BYTES, round);
        memset(to, NET_POISON, 2 * BYTES);
        send_between(w, &p, from + 4096, from_mh, to + 4096, to_mh);
        flush(w, &p, to + 4096, to_mh, (int)BYTES);
        CHECK(pattern_check(to + 4096, BYTES, round) == BYTES, "wrong data");
        CHECK(guard_untouched(to, 4096) && guard_untouched(to + 4096 + BYTES, BYTES - 4096),
              "written outside of the receive");
    }
    must(net_dereg(&w->net, p.send, from_mh), "deregMr");
    must(net_dereg(&w->net, p.recv, to_mh), "deregMr");
    pair_close(w, &p);
    (void)munmap(from, 2 * BYTES); // our own mappings
    (void)munmap(to, 2 * BYTES);
    world_close(w);
}

// A fault rule lets a read of the first flush fail as it does when the port goes down before its
// event has come. Another rail is left: the flush is made up for, and so are the next ones.
void case_flush_error(struct world *w)
{
    int dev = rails_open(w), tag = 1, size = 0;
    size_t room = BYTES;
    struct pair p;
    void *mh, *request = NULL;
    if (!getenv("SOFTHCA_FAULTS")) {
        skip(w, "needs a fault rule");
    }
    pair_open(w, &p, dev);
    char *at = map_dmabuf(w, p.recv ? p.recv : p.send, &mh);
    void *data = at + 4096;
    for (unsigned round = 0; round < 4; round++) {
        if (p.send) {
            pattern_fill(data, BYTES, round);
            while (!request) {
                must(net_isend(&w->net, p.send, data, BYTES, tag, mh, &request), "isend");
                breathe();
            }
        } else {
            must(net_irecv(&w->net, p.recv, 1, &data, &room, &tag, &mh, &request), "irecv");
        }
        wait_request(w, request, &size);
        request = NULL;
        if (p.recv) {
            flush(w, &p, data, mh, (int)BYTES);
            CHECK(pattern_check(data, BYTES, round) == BYTES, "wrong data");
        }
    }
    if (p.recv) {
        CHECK(probe_faults() > 0, "the rule has not hit a flush");
    }
    must(net_dereg(&w->net, p.recv ? p.recv : p.send, mh), "deregMr");
    pair_close(w, &p);
    (void)munmap(at, 2 * BYTES); // our own mapping
}
