// SPDX-License-Identifier: Apache-2.0
// Handles that nobody listens behind, servers and clients that speak something else.
#include "test/plugin/cases.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

#define LIMIT_MS 20000u // the case sets the plugin's own timeout to 3 s

static int connect_until(struct world *w, char *handle, void **out_comm)
{
    uint64_t end = now_ms() + LIMIT_MS;
    int rc = 0;
    *out_comm = NULL;
    while (!rc && !*out_comm) {
        rc = net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, out_comm);
        CHECK(rc || *out_comm || now_ms() < end, "connect never returns anything but not yet");
        nap_ms(1);
    }
    return rc;
}

static void expect_refusal(struct world *w, const char *bytes, const char *what)
{
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    void *comm;
    unsigned warnings = net_warnings();
    memcpy(handle, bytes, NET_HANDLE_BYTES);
    int rc = connect_until(w, handle, &comm);
    CHECK(rc && !comm, "%s: connected", what);
    CHECK(net_warnings() == warnings + 1, "%s: error %d and %u warnings", what, rc,
          net_warnings() - warnings);
    w->warnings++;
    guard_free(handle, NET_HANDLE_BYTES);
}

// L-06, with bent-handle, bad-server and bad-client: a peer that is none.
void case_bad_handle(struct world *w)
{
    char handle[NET_HANDLE_BYTES] = {0};
    uint64_t state = w->o->seed;
    expect_refusal(w, handle, "a zeroed handle");
    memset(handle, 0xff, sizeof handle);
    expect_refusal(w, handle, "a handle of ones");
    for (int i = 0; i < 30; i++) {
        for (size_t k = 0; k < sizeof handle; k += 8) {
            uint64_t x = random_next(&state);
            memcpy(handle + k, &x, 8);
        }
        expect_refusal(w, handle, "a random handle");
    }
    // a real handle with one byte changed: the address may still be right, the rest is checked
    void *listener;
    char *real = guard_alloc(NET_HANDLE_BYTES);
    must(net_listen(&w->net, w->ctx, w->o->dev, real, &listener), "listen");
    memcpy(handle, real, sizeof handle);
    handle[0] ^= 0x40;
    expect_refusal(w, handle, "a handle with another first byte");
    must(net_close_listen(&w->net, listener), "closeListen");
    guard_free(real, NET_HANDLE_BYTES);
}

// The socket that listens now and did not before, and its address.
static int find_listener(const int *known, struct sockaddr_in *out_at)
{
    for (int fd = 3; fd < 256; fd++) {
        int listening = 0;
        socklen_t n = sizeof listening, m = sizeof *out_at;
        if (!known[fd] && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) == 0 &&
            listening && getsockname(fd, (struct sockaddr *)out_at, &m) == 0 &&
            out_at->sin_family == AF_INET) {
            return fd;
        }
    }
    fail("no socket listens on IPv4 after listen");
}

static void mark_listeners(int *known)
{
    for (int fd = 3; fd < 256; fd++) {
        int listening = 0;
        socklen_t n = sizeof listening;
        known[fd] =
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) == 0 && listening != 0;
    }
}

static void *listen_at(struct world *w, char *handle, struct sockaddr_in *out_at)
{
    static int known[256];
    void *listener;
    mark_listeners(known);
    must(net_listen(&w->net, w->ctx, w->o->dev, handle, &listener), "listen");
    (void)find_listener(known, out_at);
    return listener;
}

enum server { SERVER_HTTP, SERVER_NOISE, SERVER_SILENT, SERVER_CLOSES, SERVER_NONE };

static void serve(int fd, enum server kind)
{
    static char noise[65536];
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    memset(noise, 0x5c, sizeof noise);
    for (;;) {
        int c = accept(fd, NULL, NULL);
        if (c < 0 || kind == SERVER_CLOSES) {
            (void)close(c);
            continue;
        }
        if (kind == SERVER_HTTP) {
            (void)!write(c, http, sizeof http - 1); // the peer may be gone
        } else if (kind == SERVER_NOISE) {
            (void)!write(c, noise, sizeof noise);
        }
    }
}

static pid_t start_server(const struct sockaddr_in *at, enum server kind)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
              bind(fd, (const struct sockaddr *)at, sizeof *at) == 0 && listen(fd, 16) == 0,
          "cannot listen where the plugin did");
    pid_t child = fork(); // it only touches its own socket
    if (child == 0) {
        (void)alarm(120);
        serve(fd, kind);
    }
    (void)close(fd);
    CHECK(child > 0, "fork");
    return child;
}

// A handle that was good once; now another program owns the port, or nobody.
static void ask_server(struct world *w, int kind)
{
    static const char *const names[] = {"an HTTP server", "a server of noise", "a silent server",
                                        "a server that closes", "nobody"};
    struct sockaddr_in at;
    char text[64], *handle = guard_alloc(NET_HANDLE_BYTES);
    void *listener = listen_at(w, handle, &at);
    must(net_close_listen(&w->net, listener), "closeListen");
    pid_t server = kind == SERVER_NONE ? 0 : start_server(&at, (enum server)kind);
    uint64_t start = now_ms();
    expect_refusal(w, handle, names[kind]);
    (void)snprintf(text, sizeof text, "%u", ntohs(at.sin_port));
    CHECK(net_logged(text), "%s: no line names port %s", names[kind], text);
    note("%s: refused after %llu ms", names[kind], (unsigned long long)(now_ms() - start));
    if (server) {
        (void)kill(server, SIGKILL);
        (void)waitpid(server, NULL, 0);
    }
    guard_free(handle, NET_HANDLE_BYTES);
}

// Begun and not ended: the context's end is the connection's.
static void abandon_connect(struct world *w)
{
    struct sockaddr_in at;
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    void *comm = NULL, *listener = listen_at(w, handle, &at);
    must(net_close_listen(&w->net, listener), "closeListen");
    pid_t server = start_server(&at, SERVER_SILENT);
    for (int i = 0; i < 20; i++) {
        must(net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, &comm), "connect");
        nap_ms(5);
    }
    must(net_finalize(&w->net, w->ctx), "finalize");
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
    guard_free(handle, NET_HANDLE_BYTES);
    must(net_init(&w->net, 2, NET_NO_TC, &w->ctx), "init");
}

void case_bad_server(struct world *w)
{
    struct held before;
    (void)setenv("GEMMAR_SETUP_TIMEOUT", "1", 1);
    (void)signal(SIGPIPE, SIG_IGN);
    world_open(w);
    for (int round = 0; round < 2; round++) {
        for (int kind = SERVER_HTTP; kind <= SERVER_NONE; kind++) {
            ask_server(w, kind);
        }
        if (w->o->api >= 11) { // older ones have no finalize
            abandon_connect(w);
        }
        if (round == 0) {
            held_take(&before); // what is made once is made
        }
    }
    held_check(&before, "after the bad servers");
    world_close(w);
}

static int client(const struct sockaddr_in *at, const void *bytes, size_t n)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) == 0,
          "cannot connect to the plugin");
    (void)!write(fd, bytes, n); // it may close at once
    return fd;
}

static void connect_and_use(struct world *w, struct pair *p, const char *handle)
{
    uint64_t end = now_ms() + LIMIT_MS;
    struct plan plan;
    char *copy = guard_alloc(NET_HANDLE_BYTES);
    memcpy(copy, handle, NET_HANDLE_BYTES);
    while (!p->send || !p->recv) {
        if (!p->recv) {
            must(net_accept(&w->net, p->listener, &p->recv), "accept");
        }
        if (!p->send) {
            must(net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, copy, &p->send), "connect");
        }
        CHECK(now_ms() < end, "the real peer does not come through");
        nap_ms(1);
    }
    plan_init(&plan, 10, 2, 1);
    for (unsigned k = 0; k < 10; k++) {
        group_fill(&plan.groups[k], 2, 1000, 1000);
    }
    plan_run(w, p, &plan);
    plan_release(&plan);
    guard_free(copy, NET_HANDLE_BYTES);
}

// Strangers come first and stay; then the real peer comes.
static void strangers_first(struct world *w)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static char noise[8192];
    struct sockaddr_in at;
    struct pair p = {0};
    int fds[6];
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    p.listener = listen_at(w, handle, &at);
    memset(noise, 0x5c, sizeof noise);
    fds[0] = client(&at, http, sizeof http - 1);
    fds[1] = client(&at, noise, sizeof noise);
    fds[2] = client(&at, "", 0); // silent
    fds[3] = client(&at, noise, 3);
    fds[4] = client(&at, "", 0);
    (void)close(fds[3]);
    (void)close(fds[4]);
    connect_and_use(w, &p, handle);
    fds[3] = client(&at, "", 0); // in the middle of its handshake when the listener goes
    void *nobody = NULL;
    must(net_accept(&w->net, p.listener, &nobody), "accept");
    CHECK(!nobody, "a silent client is connected");
    pair_close(w, &p);
    for (int i = 0; i < 4; i++) {
        (void)close(fds[i]);
    }
    guard_free(handle, NET_HANDLE_BYTES);
}

void case_bad_client(struct world *w)
{
    struct held before;
    (void)setenv("GEMMAR_SETUP_TIMEOUT", "3", 1);
    (void)signal(SIGPIPE, SIG_IGN);
    world_open(w);
    strangers_first(w);
    held_take(&before); // what is made once is made
    strangers_first(w);
    held_check(&before, "after the strangers");
    w->warnings = net_warnings(); // a stranger may be told of
    world_close(w);
}

// A handle with one bit changed leads nowhere, or the bit does not matter. Returns 1 then.
static int connect_bent(struct world *w, void *listener, const char *bytes)
{
    uint64_t end = now_ms() + LIMIT_MS;
    struct pair p = {0};
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    int rc = 0;
    memcpy(handle, bytes, NET_HANDLE_BYTES);
    while (!rc && (!p.send || !p.recv)) {
        if (!p.send) {
            rc = net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, &p.send);
        }
        if (!p.recv) {
            must(net_accept(&w->net, listener, &p.recv), "accept");
        }
        CHECK(now_ms() < end, "no end with a bent handle");
        nap_ms(1);
    }
    int connected = p.send && p.recv;
    if (p.send) {
        must(net_close_send(&w->net, p.send), "closeSend");
    }
    if (p.recv) {
        must(net_close_recv(&w->net, p.recv), "closeRecv");
    }
    guard_free(handle, NET_HANDLE_BYTES);
    return connected;
}

void case_bent_handle(struct world *w)
{
    char bent[NET_HANDLE_BYTES], *handle = guard_alloc(NET_HANDLE_BYTES);
    struct held before;
    void *listener;
    int connected = 0, tried = 0, good = 0;
    (void)setenv("GEMMAR_SETUP_TIMEOUT", "0.2", 1);
    world_open(w);
    must(net_listen(&w->net, w->ctx, w->o->dev, handle, &listener), "listen");
    for (int i = 0; i < 5 && !good; i++) { // a busy machine may need longer once
        good = connect_bent(w, listener, handle);
    }
    CHECK(good, "the handle as it was leads nowhere");
    held_take(&before);
    for (unsigned i = 0; i < NET_HANDLE_BYTES; i++) {
        if (handle[i] == 0) {
            continue;
        }
        memcpy(bent, handle, sizeof bent);
        bent[i] = (char)(bent[i] ^ 1 << i % 8);
        int through = connect_bent(w, listener, bent);
        if (through) {
            note("byte %u, %02x, does not matter", i, (unsigned char)handle[i]);
        }
        connected += through;
        tried++;
    }
    held_check(&before, "after bent handles");
    CHECK(connected * 8 < tried, "%d of %d bent handles connect", connected, tried);
    w->warnings = net_warnings(); // one for each refusal
    must(net_close_listen(&w->net, listener), "closeListen");
    guard_free(handle, NET_HANDLE_BYTES);
    world_close(w);
}
