// SPDX-License-Identifier: Apache-2.0
// Full queues and receives that are too small.
#include "test/plugin/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/net_abi.h"
#include "test/plugin/traffic.h"

#define MESSAGE  256u // bytes of a place; message i has i % MESSAGE + 1
#define RECVS    32u  // grouped receives that a comm must take
#define MANY     4096u
#define LIMIT_MS 20000u

struct box { // memory of one end
    char *data;
    void *mh;
};

static struct box box_open(struct world *w, void *comm, size_t bytes)
{
    struct box b = {.data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)};
    CHECK(b.data, "no memory");
    memset(b.data, NET_POISON, bytes);
    must(net_reg(&w->net, comm, b.data, bytes, &b.mh), "regMr");
    return b;
}

static void box_close(struct world *w, void *comm, struct box *b)
{
    must(net_dereg(&w->net, comm, b->mh), "deregMr");
    free(b->data);
}

static size_t message_bytes(unsigned i)
{
    return i % MESSAGE + 1;
}

static void *post_group(struct world *w, const struct pair *p, const struct box *b, unsigned first,
                        int n)
{
    void *data[NET_MAX_RECVS], *mhs[NET_MAX_RECVS], *request = NULL;
    size_t room[NET_MAX_RECVS];
    int tags[NET_MAX_RECVS];
    for (int i = 0; i < n; i++) {
        unsigned k = first + (unsigned)i;
        data[i] = b->data + k * MESSAGE;
        mhs[i] = b->mh;
        room[i] = MESSAGE;
        tags[i] = (int)k;
    }
    memset(&request, NET_POISON, sizeof request);
    int rc = net_irecv(&w->net, p->recv, n, data, room, tags, mhs, &request);
    CHECK(rc == 0, "irecv %u returned %d", first / (unsigned)n, rc);
    return request;
}

static void *post_send(struct world *w, const struct pair *p, const struct box *b, unsigned i)
{
    void *request;
    int rc = net_isend(&w->net, p->send, b->data + i * MESSAGE, message_bytes(i), (int)i, b->mh,
                       &request);
    CHECK(rc == 0, "isend %u returned %d", i, rc);
    return request;
}

// As many groups of n as fit without a test, in the order of requests.
static unsigned fill_receives(struct world *w, const struct pair *p, const struct box *b, int n,
                              void **requests)
{
    unsigned limit = w->net.reference ? RECVS : MANY / (unsigned)n; // NCCL's own: see README
    unsigned count = 0;
    while (count < limit && (requests[count] = post_group(w, p, b, count * (unsigned)n, n))) {
        count++;
    }
    CHECK(count >= RECVS, "only %u receives of %d fit", count, n);
    for (int i = 0; i < 3 && count < limit; i++) {
        CHECK(!post_group(w, p, b, count * (unsigned)n, n), "full, then not full");
    }
    return count;
}

// count sends without a test, which is what a comm must take.
static void fill_sends(struct world *w, const struct pair *p, const struct box *b, unsigned first,
                       unsigned count, void **requests)
{
    uint64_t end = now_ms() + LIMIT_MS;
    for (unsigned i = first; i < first + count; i++) {
        pattern_fill(b->data + i * MESSAGE, message_bytes(i), i);
        while (!(requests[i] = post_send(w, p, b, i))) {
            CHECK(now_ms() < end, "only %u sends without a test", i - first);
            breathe();
        }
    }
}

static void wait_one(struct world *w, void *request, int n, int *sizes, const char *what)
{
    uint64_t end = now_ms() + LIMIT_MS;
    for (int done = 0; !done;) {
        must(net_test(&w->net, request, &done, n, sizes), what);
        CHECK(done || now_ms() < end, "a %s that is never done", what);
        breathe();
    }
}

static void drain_receives(struct world *w, const struct box *b, unsigned count, int n,
                           void **requests)
{
    for (unsigned k = 0; k < count; k++) {
        int sizes[NET_MAX_RECVS];
        wait_one(w, requests[k], n, sizes, "receive");
        for (int i = 0; i < n; i++) {
            unsigned at = k * (unsigned)n + (unsigned)i;
            size_t bytes = message_bytes(at);
            CHECK((size_t)sizes[i] == bytes, "receive %u: %d bytes, not %zu", at, sizes[i], bytes);
            CHECK(pattern_check(b->data + at * MESSAGE, bytes, at) == bytes,
                  "receive %u has the bytes of another message", at);
        }
    }
}

static void drain_sends(struct world *w, unsigned first, unsigned count, void **requests)
{
    for (unsigned i = first; i < first + count; i++) {
        int size;
        wait_one(w, requests[i], 1, &size, "send");
        CHECK((size_t)size == message_bytes(i), "send %u: %d bytes", i, size);
    }
}

static void send_all(struct world *w, const struct pair *p, unsigned total)
{
    static void *requests[MANY + NET_MAX_RECVS];
    struct box b = box_open(w, p->send, (MANY + NET_MAX_RECVS) * MESSAGE);
    for (unsigned first = 0; first < total; first += RECVS * NET_MAX_RECVS) {
        unsigned left = total - first;
        unsigned count = left < RECVS * NET_MAX_RECVS ? left : RECVS * NET_MAX_RECVS;
        fill_sends(w, p, &b, first, count, requests);
        for (int i = 0; i < 3 && count == left; i++) {
            CHECK(!post_send(w, p, &b, total), "a send without a receive got a request");
        }
        drain_sends(w, first, count, requests);
    }
    world_meet(w);
    box_close(w, p->send, &b);
}

static void fill_and_drain(struct world *w, const struct pair *p, int n)
{
    static void *requests[MANY];
    struct box b = {0};
    if (p->recv) {
        b = box_open(w, p->recv, (MANY + NET_MAX_RECVS) * MESSAGE);
        w->shared->word = fill_receives(w, p, &b, n, requests);
        note("%u receives of %d without a test", (unsigned)w->shared->word, n);
    }
    world_meet(w);
    unsigned count = (unsigned)w->shared->word;
    if (p->send) {
        send_all(w, p, count * (unsigned)n);
    }
    if (p->recv) {
        drain_receives(w, &b, count, n, requests);
        if (!p->send) {
            world_meet(w);
        }
        box_close(w, p->recv, &b);
    }
}

// a full queue is neither an error nor a lost message.
void case_capacity(struct world *w)
{
    struct pair p;
    pair_open(w, &p, w->o->dev);
    fill_and_drain(w, &p, 1);
    fill_and_drain(w, &p, NET_MAX_RECVS);
    fill_and_drain(w, &p, 1); // still usable
    pair_close(w, &p);
}

// The sender is told; nobody's memory is touched.
static void too_small(struct world *w, size_t room, size_t bytes)
{
    struct pair p;
    struct box to = {0}, from = {0};
    int tag = 0x1267, rc = 0;
    void *request = NULL;
    pair_open(w, &p, w->o->dev);
    if (p.recv) {
        to = box_open(w, p.recv, 3 * 8192);
        void *data = to.data + 8192;
        must(net_irecv(&w->net, p.recv, 1, &data, &room, &tag, &to.mh, &request), "irecv");
        CHECK(request, "irecv gave no request");
    }
    if (p.send) {
        uint64_t end = now_ms() + LIMIT_MS;
        void *sent = NULL;
        from = box_open(w, p.send, 8192);
        while (!rc) {
            int done = 0, size;
            rc = sent ? net_test(&w->net, sent, &done, 1, &size)
                      : net_isend(&w->net, p.send, from.data, bytes, tag, from.mh, &sent);
            CHECK(!done, "a send of %zu bytes into %zu is done", bytes, room);
            CHECK(now_ms() < end, "no error for a send of %zu bytes into %zu", bytes, room);
            breathe();
        }
        CHECK(rc == GEMMAR_NCCL_INVALID_USAGE, "a send of %zu bytes into %zu returned %d", bytes,
              room, rc);
        char text[32];
        (void)snprintf(text, sizeof text, "%zu", bytes);
        CHECK(net_logged(text), "no line names the %s bytes sent", text);
        (void)snprintf(text, sizeof text, "%zu", room);
        CHECK(net_logged(text) && net_logged("0x1267"), "no line names %s bytes and the tag", text);
        rc = net_isend(&w->net, p.send, from.data, bytes, tag, from.mh, &sent);
        CHECK(rc == GEMMAR_NCCL_INVALID_USAGE, "the next isend returned %d", rc);
    }
    nap_ms(50); // whatever was sent in spite of it would be here
    if (p.recv) {
        CHECK(guard_untouched(to.data, 3 * 8192), "memory of the receiver was written");
        box_close(w, p.recv, &to);
    }
    if (p.send) {
        box_close(w, p.send, &from);
        w->warnings++;
    }
    if (p.recv && !p.send) {
        w->warnings = net_warnings(); // it may have learned of its peer's error
    }
    pair_close(w, &p);
}

// sizes that do not match.
void case_too_small(struct world *w)
{
    too_small(w, 4096, 8192);
    too_small(w, 0, 8192);
}
