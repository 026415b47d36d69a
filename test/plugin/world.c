// SPDX-License-Identifier: Apache-2.0
// Loading, connecting and waiting for the cases.
#include "test/plugin/world.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void say(const char *format, va_list args)
{
    char line[1024];
    int n = snprintf(line, sizeof line, "# ");
    (void)vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    for (char *c = line; *c; c++) { // TAP is text, whatever a peer may have sent
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
    strcat(line, "\n");
    (void)!write(STDOUT_FILENO, line, strlen(line)); // in one piece; nobody is left to tell
}

void note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    char line[NET_LINE_BYTES];
    for (unsigned age = 5; age-- > 0;) {
        if (net_line(age, line)) {
            note("logged: %s", line);
        }
    }
    _exit(1);
}

void skip(struct world *w, const char *reason)
{
    (void)snprintf(w->shared->reason, sizeof w->shared->reason, "%s", reason);
    _exit(SKIP);
}

void must(int rc, const char *what)
{
    CHECK(rc == 0, "%s returned %d", what, rc);
}

void breathe(void)
{
    (void)sched_yield();
}

void nap_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&t, NULL); // a shorter nap does no harm
}

uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); // cannot fail for this clock
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

uint64_t random_next(uint64_t *state) // splitmix64
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t random_below(uint64_t *state, uint64_t n)
{
    return random_next(state) % n;
}

static void make_rails(struct world *w)
{
    int devs[] = {0, 1, 2, 3, 4, 5, 6, 7};
    CHECK(w->o->rails <= w->devices && w->o->rails <= 8, "%d rails of %d devices", w->o->rails,
          w->devices);
    w->own = *w->o;
    w->o = &w->own;
    must(net_make_vdevice(&w->net, w->own.rails, devs, &w->own.dev), "makeVDevice");
}

void world_open(struct world *w)
{
    const char *error;
    int absent;
    if (net_open(&w->net, w->o->library, w->o->api, &error, &absent)) {
        if (absent) {
            skip(w, error);
        }
        fail("%s", error);
    }
    must(net_init(&w->net, 1, NET_NO_TC, &w->ctx), "init");
    must(net_devices(&w->net, &w->devices), "devices");
    CHECK(w->devices > 0, "no device");
    if (w->o->rails > 1) {
        make_rails(w);
    }
}

void world_close(struct world *w)
{
    must(net_finalize(&w->net, w->ctx), "finalize");
    net_close(&w->net);
}

void world_meet(struct world *w)
{
    if (w->roles == (SENDER | RECEIVER)) {
        return;
    }
    unsigned me = w->roles == SENDER ? 0 : 1;
    __atomic_store_n(&w->shared->met[me], ++w->meetings, __ATOMIC_RELEASE);
    while (__atomic_load_n(&w->shared->met[1 - me], __ATOMIC_ACQUIRE) < w->meetings) {
        nap_ms(1);
    }
}

static void offer_handle(struct world *w, struct pair *p, int dev, unsigned slot)
{
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    must(net_listen(&w->net, w->ctx, dev, handle, &p->listener), "listen");
    CHECK(p->listener, "listen: success without a comm");
    memcpy(w->shared->handle[slot], handle, NET_HANDLE_BYTES);
    guard_free(handle, NET_HANDLE_BYTES); // the connecting side works on a copy
    __atomic_store_n(&w->shared->ready[slot], 1, __ATOMIC_RELEASE);
}

static char *take_handle(struct world *w, unsigned slot)
{
    while (!__atomic_load_n(&w->shared->ready[slot], __ATOMIC_ACQUIRE)) {
        nap_ms(1);
    }
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    return memcpy(handle, w->shared->handle[slot], NET_HANDLE_BYTES);
}

void pair_open_on(struct world *w, struct pair *p, int send_dev, int recv_dev)
{
    unsigned slot = w->handles++ % HANDLES;
    char *handle = NULL;
    memset(p, 0, sizeof *p);
    if (w->handles > HANDLES) {
        world_meet(w); // the slot's last user is through
    }
    if (w->roles & RECEIVER) {
        offer_handle(w, p, recv_dev, slot);
    }
    if (w->roles & SENDER) {
        handle = take_handle(w, slot);
    }
    while ((w->roles & SENDER && !p->send) || (w->roles & RECEIVER && !p->recv)) {
        if (w->roles & SENDER && !p->send) {
            must(net_connect(&w->net, w->ctx, send_dev, NET_NO_TC, handle, &p->send), "connect");
        }
        if (w->roles & RECEIVER && !p->recv) {
            must(net_accept(&w->net, p->listener, &p->recv), "accept");
        }
        breathe();
    }
    if (handle) {
        w->shared->ready[slot] = 0; // the receiver sets it again after a meeting
        guard_free(handle, NET_HANDLE_BYTES);
    }
}

void pair_open(struct world *w, struct pair *p, int dev)
{
    pair_open_on(w, p, dev, dev);
}

void pair_close(struct world *w, struct pair *p)
{
    world_meet(w);
    if (p->send) {
        must(net_close_send(&w->net, p->send), "closeSend");
    }
    if (p->recv) {
        must(net_close_recv(&w->net, p->recv), "closeRecv");
        must(net_close_listen(&w->net, p->listener), "closeListen");
    }
    memset(p, 0, sizeof *p);
}
