// SPDX-License-Identifier: Apache-2.0
// An end that is killed under traffic: the other one is told.
#include "test/plugin/cases.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/plugin/traffic.h"

#define BYTES    65536u
#define WINDOW   4u
#define WARM_UP  20u    // messages before the kill
#define DEATH_MS 20000u // within which the other end must have been told
#define CLOSE_MS 5000u

enum { BEFORE, KILL_NOW }; // shared->word of the killed cases

struct end {
    struct world *w;
    void *comm, *mh, *request[WINDOW];
    char *data;
    int sending;
    unsigned done;
};

static void end_open(struct world *w, struct end *e, const struct pair *p)
{
    *e = (struct end){.w = w, .sending = p->send != NULL, .comm = p->send ? p->send : p->recv};
    e->data = aligned_alloc(4096, (size_t)WINDOW * BYTES);
    CHECK(e->data, "no memory");
    memset(e->data, NET_POISON, (size_t)WINDOW * BYTES);
    must(net_reg(&w->net, e->comm, e->data, (size_t)WINDOW * BYTES, &e->mh), "regMr");
}

static int end_post(struct end *e, unsigned i)
{
    void *data = e->data + (size_t)i * BYTES;
    size_t room = BYTES;
    int tag = 1;
    e->request[i] = NULL;
    return e->sending
               ? net_isend(&e->w->net, e->comm, data, BYTES, tag, e->mh, &e->request[i])
               : net_irecv(&e->w->net, e->comm, 1, &data, &room, &tag, &e->mh, &e->request[i]);
}

// 0, or what a call returned.
static int end_turn(struct end *e)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < WINDOW; i++) {
        int done = 0, size;
        rc = e->request[i] ? net_test(&e->w->net, e->request[i], &done, 1, &size) : end_post(e, i);
        if (!rc && done) {
            CHECK(size == (int)BYTES, "%d bytes, not %u", size, BYTES);
            e->request[i] = NULL;
            e->done++;
        }
    }
    return rc;
}

// The end that lives: asks for the kill, and must be told.
static void survive(struct world *w)
{
    struct pair p;
    struct end e;
    uint64_t asked = 0;
    int rc;
    world_open(w);
    pair_open(w, &p, w->o->dev);
    end_open(w, &e, &p);
    while (!(rc = end_turn(&e))) {
        if (!asked && e.done >= WARM_UP) {
            asked = now_ms();
            __atomic_store_n(&w->shared->word, KILL_NOW, __ATOMIC_RELEASE);
        }
        CHECK(!asked || now_ms() < asked + DEATH_MS, "the peer is dead and no call says so");
        breathe();
    }
    CHECK(asked, "error %d before the peer was killed", rc);
    note("%u messages, error %d after %llu ms", e.done, rc, (unsigned long long)(now_ms() - asked));
    CHECK(net_warnings() > 0 && net_logged(" peer 127.0.0.1"), "no line names the peer");
    CHECK(w->o->rails > 1 || net_warnings() == 1, "%u lines for one error", net_warnings());
    CHECK(end_post(&e, 0) == rc, "the next call returns something else");
    w->warnings = net_warnings();
    uint64_t start = now_ms();
    must(net_dereg(&w->net, e.comm, e.mh), "deregMr");
    must(e.sending ? net_close_send(&w->net, e.comm) : net_close_recv(&w->net, e.comm), "close");
    CHECK(now_ms() < start + CLOSE_MS, "closing took %llu ms",
          (unsigned long long)(now_ms() - start));
    if (p.listener) {
        must(net_close_listen(&w->net, p.listener), "closeListen");
    }
    free(e.data);
    world_close(w);
}

// The end that is killed, in a process of its own; this one does it.
static void be_killed(struct world *w)
{
    pid_t child = fork(); // before the library is in the process
    int status;
    CHECK(child >= 0, "fork");
    if (child == 0) {
        struct pair p;
        struct end e;
        (void)alarm(w->o->seconds);
        world_open(w);
        pair_open(w, &p, w->o->dev);
        end_open(w, &e, &p);
        for (;;) {
            must(end_turn(&e), "a call");
            breathe();
        }
    }
    while (__atomic_load_n(&w->shared->word, __ATOMIC_ACQUIRE) == BEFORE) {
        CHECK(waitpid(child, &status, WNOHANG) == 0, "ended before it was killed");
        nap_ms(1);
    }
    (void)kill(child, SIGKILL); // ours, not yet waited for
    (void)waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "ended before it was killed");
}

void case_killed_receiver(struct world *w)
{
    if (w->roles == RECEIVER) {
        be_killed(w);
    } else {
        survive(w);
    }
}

void case_killed_sender(struct world *w)
{
    if (w->roles == SENDER) {
        be_killed(w);
    } else {
        survive(w);
    }
}
