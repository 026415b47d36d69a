// SPDX-License-Identifier: Apache-2.0
// net-cost: messages over a connection of a process to itself, both ends in lockstep in one thread,
// for counting the plugin's instructions. instructions.py runs it under callgrind, which counts
// inside the functions counted_*: the calls that succeeded of one side, after the warm-up.
//
// usage: net-cost PLUGIN API send|recv MESSAGES WARM_UP BYTES
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "test/plugin/net.h"

#define COUNTED __attribute__((noinline))

struct cost {
    struct net net;
    void *send, *recv, *send_mh, *recv_mh;
    char *from, *to;
    size_t bytes;
    unsigned long early; // calls that were not ready: they are in the figure and should not be
    long nap_ns;         // before a counted call, for softhca's thread to do its part
};

static void must(int rc, const char *what)
{
    if (rc) {
        (void)fprintf(stderr, "net-cost: %s returned %d\n", what, rc);
        exit(1);
    }
}

static void nap(long ns)
{
    struct timespec t = {.tv_nsec = ns};
    (void)nanosleep(&t, NULL); // a shorter nap shows up as an early call
}

static int post_send(struct cost *c, void **request)
{
    return net_isend(&c->net, c->send, c->from, c->bytes, 7, c->send_mh, request);
}

static int post_recv(struct cost *c, void **request)
{
    void *data = c->to, *mh = c->recv_mh;
    int tag = 7;
    *request = NULL;
    return net_irecv(&c->net, c->recv, 1, &data, &c->bytes, &tag, &mh, request);
}

static int test(struct cost *c, void *request, int *done)
{
    int bytes;
    return net_test(&c->net, request, done, 1, &bytes);
}

COUNTED static int counted_isend(struct cost *c, void **request)
{
    int rc = post_send(c, request);
    __asm__ volatile("" ::: "memory"); // no tail call: callgrind toggles at the return
    return rc;
}

COUNTED static int counted_irecv(struct cost *c, void **request)
{
    int rc = post_recv(c, request);
    __asm__ volatile("" ::: "memory");
    return rc;
}

COUNTED static int counted_test(struct cost *c, void *request, int *done)
{
    int rc = test(c, request, done);
    __asm__ volatile("" ::: "memory");
    return rc;
}

// The nap before a counted call becomes as long as such calls need. The other side's may fail.
static void adapt(struct cost *c, int counted, int ready)
{
    if (counted && !ready) {
        c->early++;
        c->nap_ns = c->nap_ns < 10000000 ? c->nap_ns * 2 : c->nap_ns;
    } else if (counted && c->nap_ns > 50000) {
        c->nap_ns -= c->nap_ns / 2048;
    }
}

static void finish(struct cost *c, void *request, int counted)
{
    for (int done = 0; !done;) {
        nap(counted ? c->nap_ns : 20000);
        must(counted ? counted_test(c, request, &done) : test(c, request, &done), "test");
        adapt(c, counted, done);
    }
}

static void message(struct cost *c, int count_send, int count_recv)
{
    void *sent = NULL, *received = NULL;
    must(count_recv ? counted_irecv(c, &received) : post_recv(c, &received), "irecv");
    if (!received) {
        (void)fputs("net-cost: no request for a single receive\n", stderr);
        exit(1);
    }
    while (!sent) {
        nap(count_send ? c->nap_ns : 20000);
        must(count_send ? counted_isend(c, &sent) : post_send(c, &sent), "isend");
        adapt(c, count_send, sent != NULL);
    }
    // the counted side last: when the other one is done, it nearly is
    finish(c, count_recv ? sent : received, 0);
    finish(c, count_recv ? received : sent, count_send || count_recv);
}

static void *memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        must(-1, "mmap");
    }
    return memset(p, 1, bytes);
}

static void open_pair(struct cost *c)
{
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    void *ctx, *listener;
    must(net_init(&c->net, 1, NET_NO_TC, &ctx), "init");
    must(net_listen(&c->net, ctx, 0, handle, &listener), "listen");
    while (!c->send || !c->recv) {
        if (!c->send) {
            must(net_connect(&c->net, ctx, 0, NET_NO_TC, handle, &c->send), "connect");
        }
        if (!c->recv) {
            must(net_accept(&c->net, listener, &c->recv), "accept");
        }
        nap(100000);
    }
    c->from = memory(c->bytes);
    c->to = memory(c->bytes);
    must(net_reg(&c->net, c->send, c->from, c->bytes, &c->send_mh), "regMr");
    must(net_reg(&c->net, c->recv, c->to, c->bytes, &c->recv_mh), "regMr");
}

int main(int argc, char **argv)
{
    struct cost c = {.nap_ns = 100000};
    const char *error;
    int absent;
    if (argc != 7) {
        (void)fputs("usage: net-cost PLUGIN API send|recv MESSAGES WARM_UP BYTES\n", stderr);
        return 2;
    }
    int sending = strcmp(argv[3], "send") == 0;
    unsigned long messages = strtoul(argv[4], NULL, 10), warm_up = strtoul(argv[5], NULL, 10);
    c.bytes = strtoul(argv[6], NULL, 10);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    if (net_open(&c.net, argv[1], atoi(argv[2]), &error, &absent)) {
        (void)fprintf(stderr, "net-cost: %s\n", error);
        return absent ? 77 : 1;
    }
    open_pair(&c);
    for (unsigned long i = 0; i < warm_up; i++) {
        message(&c, 0, 0);
    }
    for (unsigned long i = 0; i < messages; i++) {
        message(&c, sending, !sending);
    }
    (void)printf("early %lu nap %ld\n", c.early, c.nap_ns);
    must(net_dereg(&c.net, c.send, c.send_mh), "deregMr");
    must(net_dereg(&c.net, c.recv, c.recv_mh), "deregMr");
    must(net_close_send(&c.net, c.send), "closeSend");
    must(net_close_recv(&c.net, c.recv), "closeRecv");
    return 0;
}
