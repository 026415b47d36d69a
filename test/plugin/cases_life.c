// SPDX-License-Identifier: Apache-2.0
// Connections that come late, many at once, cut in the middle, closed in any state.
#include "test/plugin/cases.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

#define LIMIT_MS 20000u

static void exchange(struct world *w, const struct pair *p, unsigned count, uint64_t seed)
{
    struct plan plan;
    plan_init(&plan, count, 2, seed);
    for (unsigned k = 0; k < count; k++) {
        group_fill(&plan.groups[k], 1 + (int)(k % 3), 100 + 1000 * k, 4096 + 1000 * k);
    }
    plan_run(w, p, &plan);
    plan_release(&plan);
}

// A machine that is itself stopped for a while may make one call slow.
static void check_slowest(struct world *w)
{
    CHECK(w->net.slow_calls <= 1 && w->net.slowest_ns < 1000000000u, "a call of %s took %llu ms",
          w->net.slowest_call, (unsigned long long)w->net.slowest_ns / 1000000);
    note("slowest: %s, %llu us", w->net.slowest_call, (unsigned long long)w->net.slowest_ns / 1000);
}

// C-02, with late, pairs, cut and vanish: connect must not wait for accept.
// One thread calls both ends in turn, and one listener serves several connections.
void case_connect(struct world *w)
{
    struct pair p[4];
    char *handle = guard_alloc(NET_HANDLE_BYTES), *copy = guard_alloc(NET_HANDLE_BYTES);
    memset(p, 0, sizeof p);
    must(net_listen(&w->net, w->ctx, w->o->dev, handle, &p[0].listener), "listen");
    for (int i = 0; i < 4; i++) {
        memcpy(copy, handle, NET_HANDLE_BYTES); // connect keeps its state there
        while (!p[i].send || !p[i].recv) {
            if (!p[i].send) {
                must(net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, copy, &p[i].send),
                     "connect");
            }
            if (!p[i].recv) {
                must(net_accept(&w->net, p[0].listener, &p[i].recv), "accept");
            }
            breathe();
        }
        exchange(w, &p[i], 5, (uint64_t)i);
    }
    for (int i = 0; i < 4; i++) {
        must(net_close_send(&w->net, p[i].send), "closeSend");
        must(net_close_recv(&w->net, p[i].recv), "closeRecv");
    }
    must(net_close_listen(&w->net, p[0].listener), "closeListen");
    guard_free(handle, NET_HANDLE_BYTES);
    guard_free(copy, NET_HANDLE_BYTES);
    check_slowest(w);
}

// One end calls for a while before the other one starts.
static void late(struct world *w, int sender_waits, unsigned ms)
{
    struct pair p = {0};
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    uint64_t start = now_ms() + ms;
    must(net_listen(&w->net, w->ctx, w->o->dev, handle, &p.listener), "listen");
    while (!p.send || !p.recv) {
        int started = now_ms() >= start;
        if (!p.send && (sender_waits || started)) {
            must(net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, &p.send), "connect");
        }
        if (!p.recv && (!sender_waits || started)) {
            must(net_accept(&w->net, p.listener, &p.recv), "accept");
        }
        CHECK(started || !p.recv || !p.send, "connected to nobody");
        nap_ms(1);
    }
    exchange(w, &p, 5, 1);
    pair_close(w, &p);
    guard_free(handle, NET_HANDLE_BYTES);
}

void case_late(struct world *w)
{
    late(w, 1, w->o->api == NET_NEWEST ? 10000 : 1500);
    late(w, 0, 1500);
    check_slowest(w);
}

#define PAIRS 64

void case_pairs(struct world *w)
{
    static struct pair p[PAIRS];
    static char *handle[PAIRS];
    int left = 2 * PAIRS;
    for (int i = 0; i < PAIRS; i++) {
        handle[i] = guard_alloc(NET_HANDLE_BYTES);
        must(net_listen(&w->net, w->ctx, w->o->dev, handle[i], &p[i].listener), "listen");
    }
    while (left) {
        for (int i = 0; i < PAIRS; i++) {
            if (!p[i].send) {
                must(net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle[i], &p[i].send),
                     "connect");
                left -= p[i].send != NULL;
            }
            int k = PAIRS - 1 - i;
            if (!p[k].recv) {
                must(net_accept(&w->net, p[k].listener, &p[k].recv), "accept");
                left -= p[k].recv != NULL;
            }
        }
        breathe();
    }
    check_slowest(w);
    for (int i = 0; i < PAIRS; i++) {
        exchange(w, &p[i], 2, (uint64_t)i);
    }
    for (int i = 0; i < PAIRS; i++) {
        pair_close(w, &p[i]);
        guard_free(handle[i], NET_HANDLE_BYTES);
    }
}

// The listener goes away after some steps of both. Returns 1 when the pair was complete by then.
static int cut_after(struct world *w, int steps)
{
    struct pair p = {0};
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    must(net_listen(&w->net, w->ctx, w->o->dev, handle, &p.listener), "listen");
    for (int i = 0; i < steps && (!p.send || !p.recv); i++) {
        if (!p.send) {
            must(net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, &p.send), "connect");
        }
        if (!p.recv && i % 2 == 1) {
            must(net_accept(&w->net, p.listener, &p.recv), "accept");
        }
        nap_ms(1);
    }
    int complete = p.send && p.recv;
    must(net_close_listen(&w->net, p.listener), "closeListen");
    uint64_t end = now_ms() + LIMIT_MS;
    unsigned warnings = net_warnings();
    while (steps && !p.send) { // with no step nothing was begun
        int rc = net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, &p.send);
        if (rc) {
            CHECK(net_warnings() > warnings, "connect returned %d without a word", rc);
            break;
        }
        CHECK(p.send || now_ms() < end, "connect waits for a listener that is closed");
        nap_ms(1);
    }
    w->warnings = net_warnings();
    if (p.send) {
        must(net_close_send(&w->net, p.send), "closeSend");
    }
    if (p.recv) {
        must(net_close_recv(&w->net, p.recv), "closeRecv");
    }
    guard_free(handle, NET_HANDLE_BYTES);
    return complete;
}

void case_cut(struct world *w)
{
    struct held before;
    int steps = 0;
    (void)cut_after(w, 1000); // what is made once is made
    held_take(&before);
    while (!cut_after(w, steps)) {
        held_check(&before, "after a handshake that was cut");
        CHECK(++steps < 1000, "a handshake of 1000 steps");
    }
    note("cut after 0 to %d steps", steps);
}

// Posts what will not be finished: receives without a send, and a group that lacks one.
static void leave_work(struct world *w, const struct pair *p, char *memory, void *send_mh,
                       void *recv_mh)
{
    void *data[2] = {memory, memory + 64}, *mhs[2] = {recv_mh, recv_mh}, *request = NULL;
    size_t room[2] = {64, 64};
    int tags[2] = {1, 2};
    for (int i = 0; i < 3; i++) {
        must(net_irecv(&w->net, p->recv, 2, data, room, tags, mhs, &request), "irecv");
        CHECK(request, "irecv gave no request");
    }
    request = NULL;
    uint64_t end = now_ms() + LIMIT_MS;
    while (!request && now_ms() < end) {
        must(net_isend(&w->net, p->send, memory + 128, 64, 1, send_mh, &request), "isend");
        nap_ms(1);
    }
    CHECK(request, "isend gave no request");
}

void case_closes(struct world *w)
{
    static char memory[4096] __attribute__((aligned(4096)));
    struct held before;
    for (int round = 0; round < 9; round++) {
        struct pair p;
        void *send_mh, *recv_mh;
        if (round == 1) {
            held_take(&before); // what is made once is made
        }
        pair_open(w, &p, w->o->dev);
        must(net_reg(&w->net, p.send, memory, sizeof memory, &send_mh), "regMr");
        must(net_reg(&w->net, p.recv, memory, sizeof memory, &recv_mh), "regMr");
        if (round % 3) {
            leave_work(w, &p, memory, send_mh, recv_mh);
        }
        if (round % 3 != 2) { // else the work may still be running
            nap_ms(20);
        }
        must(net_dereg(&w->net, p.send, send_mh), "deregMr");
        must(net_dereg(&w->net, p.recv, recv_mh), "deregMr");
        if (round % 2) {
            must(net_close_listen(&w->net, p.listener), "closeListen");
        }
        if (round / 3 == 1) {
            must(net_close_recv(&w->net, p.recv), "closeRecv");
        }
        uint64_t start = now_ms();
        must(net_close_send(&w->net, p.send), "closeSend");
        CHECK(now_ms() - start < 5000, "closeSend took %llu ms",
              (unsigned long long)(now_ms() - start));
        if (round / 3 != 1) {
            must(net_close_recv(&w->net, p.recv), "closeRecv");
        }
        if (round % 2 == 0) {
            must(net_close_listen(&w->net, p.listener), "closeListen");
        }
        if (round) {
            held_check(&before, "after the comms were closed");
        }
    }
}

// A process of its own: begins to connect and ends after some calls.
static pid_t start_vanisher(struct world *w, unsigned slot, unsigned calls)
{
    pid_t child = fork(); // before the library is in the process
    if (child) {
        CHECK(child > 0, "fork");
        return child;
    }
    void *comm = NULL;
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    (void)alarm(60);
    while (!__atomic_load_n(&w->shared->ready[slot], __ATOMIC_ACQUIRE)) {
        nap_ms(1);
    }
    world_open(w);
    memcpy(handle, w->shared->handle[slot], NET_HANDLE_BYTES);
    for (unsigned i = 0; i < calls && !comm; i++) {
        must(net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, &comm), "connect");
        nap_ms(5);
    }
    _exit(0);
}

// Accepts while the other end comes and goes; then the listener, if it is still good, serves again.
static void serve_vanisher(struct world *w, struct pair *p, pid_t child, unsigned calls)
{
    int status, rc = 0, gone = 0;
    uint64_t end = now_ms() + LIMIT_MS, quiet = 0;
    while (!rc && !p->recv && (!gone || now_ms() < quiet)) {
        rc = net_accept(&w->net, p->listener, &p->recv);
        if (!gone && waitpid(child, &status, WNOHANG) == child) {
            gone = 1;
            quiet = now_ms() + 300;
        }
        CHECK(now_ms() < end, "accept waits for a peer that is gone");
        nap_ms(1);
    }
    if (!gone) {
        (void)waitpid(child, &status, 0);
    }
    note("after %u calls: accept returned %d%s", calls, rc, p->recv ? " and a comm" : "");
    if (p->recv) {
        must(net_close_recv(&w->net, p->recv), "closeRecv");
        p->recv = NULL;
    }
}

void case_vanish(struct world *w)
{
    static const unsigned calls[] = {1, 1, 2, 3, 4, 50};
    enum { N = sizeof calls / sizeof *calls };
    pid_t children[N];
    struct held before;
    for (unsigned i = 0; i < N; i++) {
        children[i] = start_vanisher(w, i, calls[i]);
    }
    world_open(w);
    for (unsigned i = 0; i < N; i++) {
        struct pair p = {0};
        if (i == 1) {
            held_take(&before); // what is made once is made
        }
        char *handle = guard_alloc(NET_HANDLE_BYTES);
        must(net_listen(&w->net, w->ctx, w->o->dev, handle, &p.listener), "listen");
        memcpy(w->shared->handle[i], handle, NET_HANDLE_BYTES);
        __atomic_store_n(&w->shared->ready[i], 1, __ATOMIC_RELEASE);
        serve_vanisher(w, &p, children[i], calls[i]);
        while (!p.send || !p.recv) { // the real peer
            if (!p.send) {
                must(net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, &p.send),
                     "connect");
            }
            if (!p.recv) {
                must(net_accept(&w->net, p.listener, &p.recv), "accept");
            }
            breathe();
        }
        exchange(w, &p, 3, i);
        pair_close(w, &p);
        guard_free(handle, NET_HANDLE_BYTES);
        if (i) {
            held_check(&before, "after a peer that vanished");
        }
    }
    w->warnings = net_warnings(); // a lost peer is worth a line
    world_close(w);
}
