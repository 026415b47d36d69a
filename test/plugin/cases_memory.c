// SPDX-License-Identifier: Apache-2.0
// Registrations: small ones that share a page, and one that serves several comms.
#include "test/plugin/cases.h"

#include <string.h>
#include <sys/mman.h>

#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

#define PAGE  4096u
#define BYTES 64u

static char *map_at(void *at, size_t bytes)
{
    char *p = mmap(at, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    CHECK(p != MAP_FAILED, "no memory");
    return p;
}

// One message within this process, each end in its own registration.
static void send_one(struct world *w, const struct pair *p, char *from, void *from_mh, char *to,
                     void *to_mh, uint64_t key)
{
    void *data = to, *sent = NULL, *received = NULL;
    size_t room = BYTES;
    int tag = 1, size;
    pattern_fill(from, BYTES, key);
    memset(to, NET_POISON, BYTES);
    must(net_irecv(&w->net, p->recv, 1, &data, &room, &tag, &to_mh, &received), "irecv");
    CHECK(received, "irecv gave no request");
    while (!sent) {
        must(net_isend(&w->net, p->send, from, BYTES, 1, from_mh, &sent), "isend");
        breathe();
    }
    while (sent || received) {
        int done = 0;
        if (sent) {
            must(net_test(&w->net, sent, &done, 1, &size), "test of a send");
            sent = done ? NULL : sent;
        }
        if (received) {
            must(net_test(&w->net, received, &done, 1, &size), "test of a receive");
            received = done ? NULL : received;
        }
        breathe();
    }
    CHECK(pattern_check(to, BYTES, key) == BYTES, "wrong data from %p", (void *)from);
}

static void six_orders(struct world *w, const struct pair *p, char *page, char *to, void *to_mh)
{
    static const unsigned at[3] = {0, 512, 4000};
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (unsigned o = 0; o < 6; o++) {
        void *mh[3];
        for (unsigned i = 0; i < 3; i++) {
            must(net_reg(&w->net, p->send, page + at[i], BYTES, &mh[i]), "regMr");
        }
        for (unsigned k = 0; k < 3; k++) {
            for (unsigned i = k; i < 3; i++) {
                unsigned buffer = orders[o][i];
                send_one(w, p, page + at[buffer], mh[buffer], to, to_mh, o * 100 + k * 10 + i);
            }
            must(net_dereg(&w->net, p->send, mh[orders[o][k]]), "deregMr");
        }
    }
}

// The same address with other memory behind it: a registration that was kept would send the old.
static void other_backing(struct world *w, const struct pair *p, char *to, void *to_mh)
{
    char *page = map_at(NULL, PAGE);
    for (unsigned round = 0; round < 4; round++) {
        void *mh;
        must(net_reg(&w->net, p->send, page, PAGE, &mh), "regMr");
        send_one(w, p, page, mh, to, to_mh, 1000 + round);
        must(net_dereg(&w->net, p->send, mh), "deregMr");
        (void)map_at(page, PAGE);
    }
    (void)munmap(page, PAGE); // our own mapping
}

static void other_comm(struct world *w, char *page, char *to)
{
    struct pair a, b;
    struct net_props props;
    void *from_mh, *to_mh;
    must(net_properties(&w->net, w->o->dev, &props), "getProperties");
    if (!props.reg_is_global) {
        note("registrations belong to a comm");
        return;
    }
    pair_open(w, &a, w->o->dev);
    must(net_reg(&w->net, a.send, page, PAGE, &from_mh), "regMr");
    must(net_reg(&w->net, a.recv, to, PAGE, &to_mh), "regMr");
    pair_open(w, &b, w->o->dev);
    send_one(w, &a, page, from_mh, to, to_mh, 2000);
    send_one(w, &b, page, from_mh, to, to_mh, 2001);
    pair_close(w, &a);
    send_one(w, &b, page, from_mh, to, to_mh, 2002);
    must(net_dereg(&w->net, b.send, from_mh), "deregMr");
    must(net_dereg(&w->net, b.recv, to_mh), "deregMr");
    pair_close(w, &b);
}

// M-03: small buffers of one page.
void case_memory(struct world *w)
{
    struct pair p;
    struct held before;
    void *to_mh;
    char *page = map_at(NULL, PAGE), *to = map_at(NULL, PAGE);
    pair_open(w, &p, w->o->dev);
    held_take(&before);
    must(net_reg(&w->net, p.recv, to, PAGE, &to_mh), "regMr");
    six_orders(w, &p, page, to, to_mh);
    other_backing(w, &p, to, to_mh);
    must(net_dereg(&w->net, p.recv, to_mh), "deregMr");
    held_check(&before, "after all were deregistered");
    other_comm(w, page, to);
    held_check(&before, "after the other comms were closed");
    pair_close(w, &p);
    (void)munmap(page, PAGE);
    (void)munmap(to, PAGE);
}
