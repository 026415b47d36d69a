// SPDX-License-Identifier: Apache-2.0
// One end goes in the middle of a recovery: --while takes a rail down under load, and as soon as an
// end logs that it has lost a path it closes, or its process ends. The other end must be told by an
// error, in bounded time, and can close.
#include "test/plugin/cases.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGES  16
#define BYTES     262144u
#define LIMIT_MS  20000u // of the whole
#define PATH_LOST "paths left"

struct end {
    struct world *w;
    void *comm, *mh;
    char *data; // BYTES for each message
    void *request[MESSAGES];
};

static int issue(struct end *e, int i, int sending)
{
    void *data = e->data + (size_t)i * BYTES, *mh = e->mh;
    size_t bytes = BYTES;
    int tag = 7;
    e->request[i] = NULL;
    if (sending) {
        return net_isend(&e->w->net, e->comm, data, bytes, tag, mh, &e->request[i]);
    }
    return net_irecv(&e->w->net, e->comm, 1, &data, &bytes, &tag, &mh, &e->request[i]);
}

// Traffic until an error, whose code is returned, or until this end leaves: 0.
static int traffic(struct end *e, int sending, int leaves)
{
    uint64_t begin = now_ms();
    for (int i = 0;; i = (i + 1) % MESSAGES) {
        int done = 0, bytes, rc;
        CHECK(now_ms() - begin < LIMIT_MS, "no error after %u ms", LIMIT_MS);
        if (leaves && net_logged(PATH_LOST)) {
            return 0;
        }
        if (!e->request[i]) {
            rc = issue(e, i, sending);
        } else {
            rc = net_test(&e->w->net, e->request[i], &done, 1, &bytes);
        }
        if (rc) {
            return rc;
        }
        if (done) {
            e->request[i] = NULL;
        }
        breathe();
    }
}

static void end_open(struct end *e, struct world *w, void *comm)
{
    *e = (struct end){.w = w, .comm = comm};
    e->data = calloc(MESSAGES, BYTES);
    CHECK(e->data, "no memory");
    must(net_reg(&w->net, comm, e->data, (size_t)MESSAGES * BYTES, &e->mh), "regMr");
}

static void run_end(struct world *w, struct pair *p, unsigned leaver, int dies)
{
    int sending = (w->roles & SENDER) != 0, leaves = (w->roles & leaver) != 0, rc;
    struct end e;
    end_open(&e, w, sending ? p->send : p->recv);
    rc = traffic(&e, sending, leaves);
    CHECK(leaves ? !rc : rc, "returned %d", rc);
    if (leaves && dies) {
        _exit(0);
    }
    must(net_dereg(&w->net, e.comm, e.mh), "deregMr"); // also with requests under way
    if (sending) {
        must(net_close_send(&w->net, p->send), "closeSend");
    } else {
        must(net_close_recv(&w->net, p->recv), "closeRecv");
        must(net_close_listen(&w->net, p->listener), "closeListen");
    }
    free(e.data);
}

static void leave(struct world *w, unsigned leaver, int dies)
{
    struct pair p;
    int dev = rails_open(w);
    if (!w->o->disturbance) {
        skip(w, "needs --while");
    }
    pair_open(w, &p, dev);
    if (w->roles & SENDER) {
        command_start(w);
    }
    run_end(w, &p, leaver, dies);
    w->warnings = net_warnings(); // the path and the peer are told
}

// Only the sender wants failover; a fault rule then takes one of its paths. It must not ask a
// receiver that never answers: the first error ends both ends at once, as without failover.
void case_one_sided(struct world *w)
{
    struct pair p;
    if (!getenv("SOFTHCA_FAULTS")) {
        skip(w, "needs a fault rule");
    }
    if (w->roles & RECEIVER) {
        must(setenv("GEMMAR_NET_FAILOVER", "0", 1), "setenv");
    }
    world_open(w);
    pair_open(w, &p, rails_open(w));
    run_end(w, &p, 0, 0);
    CHECK(!net_logged(PATH_LOST), "a recovery was begun");
    w->warnings = net_warnings(); // the error
    world_close(w);
}

void case_sender_closes(struct world *w)
{
    leave(w, SENDER, 0);
}

void case_receiver_closes(struct world *w)
{
    leave(w, RECEIVER, 0);
}

void case_sender_ends(struct world *w)
{
    leave(w, SENDER, 1);
}

void case_receiver_ends(struct world *w)
{
    leave(w, RECEIVER, 1);
}
