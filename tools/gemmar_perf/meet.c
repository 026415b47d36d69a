// SPDX-License-Identifier: Apache-2.0
// How the ranks of one run find each other: a star of TCP connections around rank 0.
#include "tools/gemmar_perf/meet.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tools/gemmar_perf/rendezvous.h"
#include "tools/gemmar_perf/say.h"
#include "transport/socket.h"

#define LONGEST_BEAT_MS 250
#define HELLO_S         1.0 /* a stranger may keep rank 0 from its ranks for this long */

/* What a rank says first. */
struct hello {
    char magic[8];
    uint32_t rank, ranks;
};
static const char magic[8] = "gmrperf2";

enum { DATA = 1, BEAT, LOST };

/* In front of data, or all there is. */
struct frame {
    uint16_t kind;
    uint16_t error; /* LOST: errno */
    uint32_t value; /* DATA: bytes that follow; LOST: the rank */
};

struct gemmar_perf_meet {
    uint32_t rank, ranks;
    uint32_t links;
    int failed;    /* negative errno of the first failure */
    uint32_t lost; /* rank of that failure */
    int beat_ms;
    int *fd; /* [links] rank 0: of every other rank; else fd[0] is rank 0's */
    /* While busy: the thread that says so, and how it is told to end. */
    pthread_t beater;
    int quiet; /* eventfd, or -1 */
    bool beating;
};

/* Wait until the socket can do something, `slice_ms` at most. */
static void wait_for(int fd, short events, int slice_ms)
{
    struct pollfd p = {.fd = fd, .events = events};

    (void)poll(&p, 1, slice_ms); /* whatever it says: the socket itself is asked next */
}

static int put(int fd, const void *data, size_t bytes, double timeout_s)
{
    struct gemmar_socket_io io = {.data = (void *)(uintptr_t)data, .bytes = bytes};
    double deadline = gemmar_perf_seconds() + timeout_s;
    size_t before = 0;
    int rc;

    while ((rc = gemmar_socket_send(fd, &io)) == -EAGAIN) {
        if (io.done != before) {
            deadline = gemmar_perf_seconds() + timeout_s;
            before = io.done;
        } else if (gemmar_perf_seconds() > deadline) {
            return -ETIMEDOUT;
        }
        wait_for(fd, POLLOUT, LONGEST_BEAT_MS);
    }
    return rc;
}

static int put_frame(int fd, uint16_t kind, uint32_t value, double timeout_s)
{
    struct frame f = {.kind = kind, .value = value};

    return put(fd, &f, sizeof(f), timeout_s);
}

/* To all that this rank is linked with. One that takes nothing has enough to read. */
static void beat(const struct gemmar_perf_meet *m)
{
    for (uint32_t i = 0; i < m->links; i++) {
        struct pollfd p = {.fd = m->fd[i], .events = POLLOUT};

        if (m->fd[i] >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0) {
            (void)put_frame(m->fd[i], BEAT, 0, HELLO_S); /* who is gone is noticed by the gather */
        }
    }
}

/* All of `io`; silence since *since for timeout_s ends it. Rank 0 tells the others that it waits.
 */
static int get(const struct gemmar_perf_meet *m, int fd, struct gemmar_socket_io *io, double *since,
               double timeout_s)
{
    double next_beat = gemmar_perf_seconds() + m->beat_ms * 1e-3;
    size_t before = io->done;
    int rc;

    while ((rc = gemmar_socket_recv(fd, io)) == -EAGAIN) {
        double now = gemmar_perf_seconds();

        if (io->done != before) {
            before = io->done;
            *since = now;
        } else if (now - *since > timeout_s) {
            return -ETIMEDOUT;
        }
        if (m->rank == 0 && now >= next_beat) {
            beat(m);
            next_beat = now + m->beat_ms * 1e-3;
        }
        wait_for(fd, POLLIN, m->beat_ms);
    }
    *since = gemmar_perf_seconds();
    return rc;
}

/* The data that a peer sends next, behind any number of beats. */
static int get_data(struct gemmar_perf_meet *m, int fd, void *data, size_t bytes, double since,
                    double timeout_s)
{
    for (;;) {
        struct frame f;
        struct gemmar_socket_io head = {.data = &f, .bytes = sizeof(f)};
        struct gemmar_socket_io body = {.data = data, .bytes = bytes};
        int rc = get(m, fd, &head, &since, timeout_s);

        if (rc != 0) {
            return rc;
        }
        switch (f.kind) {
        case BEAT: break;
        case DATA: return f.value == bytes ? get(m, fd, &body, &since, timeout_s) : -EPROTO;
        case LOST: m->lost = f.value; return f.error != 0 ? -(int)f.error : -ECONNRESET;
        default: return -EPROTO;
        }
    }
}

static int put_data(int fd, const void *data, size_t bytes, double timeout_s)
{
    int rc = put_frame(fd, DATA, (uint32_t)bytes, timeout_s);

    return rc == 0 ? put(fd, data, bytes, timeout_s) : rc;
}

/* Rank 0: take one connection; strangers and ranks of other runs are turned away. */
static int take_one(struct gemmar_perf_meet *m, int listener, double left_s)
{
    struct hello hello;
    struct gemmar_socket_io io = {.data = &hello, .bytes = sizeof(hello)};
    double since;
    int fd = gemmar_socket_accept(listener, NULL);

    if (fd == -EAGAIN) {
        wait_for(listener, POLLIN, left_s < 1 ? (int)(left_s * 1e3) + 1 : 1000);
        fd = gemmar_socket_accept(listener, NULL);
    }
    if (fd < 0) {
        return fd;
    }
    since = gemmar_perf_seconds();
    if (get(m, fd, &io, &since, HELLO_S) != 0 || memcmp(hello.magic, magic, sizeof(magic)) != 0 ||
        hello.ranks != m->ranks || hello.rank == 0 || hello.rank >= m->ranks ||
        m->fd[hello.rank] >= 0) {
        gemmar_socket_close(fd);
        return -EAGAIN;
    }
    m->fd[hello.rank] = fd;
    return 0;
}

static int take_all(struct gemmar_perf_meet *m, const char *address, double timeout_s, char *why,
                    size_t why_bytes)
{
    double deadline = gemmar_perf_seconds() + timeout_s, left = timeout_s;
    int listener = gemmar_perf_rendezvous_listen(address, why, why_bytes), rc = 0;
    uint32_t here = 1;

    if (listener < 0) {
        return listener;
    }
    while (here < m->ranks && left > 0 && (rc == 0 || rc == -EAGAIN)) {
        rc = take_one(m, listener, left);
        here += rc == 0;
        left = deadline - gemmar_perf_seconds();
    }
    gemmar_socket_close(listener);
    if (here == m->ranks) {
        return 0;
    }
    if (rc == 0 || rc == -EAGAIN) {
        (void)snprintf(why, why_bytes, "%u of %u ranks came to %s within %.1f s", here, m->ranks,
                       address, timeout_s);
        return -ETIMEDOUT;
    }
    (void)snprintf(why, why_bytes, "cannot take connections at %s: %s", address, strerror(-rc));
    return rc;
}

static int connect_to(struct gemmar_perf_meet *m, const char *address, double timeout_s, char *why,
                      size_t why_bytes)
{
    struct hello hello = {.rank = m->rank, .ranks = m->ranks};
    int rc = gemmar_perf_rendezvous_connect(address, timeout_s, &m->fd[0], why, why_bytes);

    if (rc != 0) {
        return rc;
    }
    memcpy(hello.magic, magic, sizeof(magic));
    rc = put(m->fd[0], &hello, sizeof(hello), timeout_s);
    if (rc != 0) {
        (void)snprintf(why, why_bytes, "lost rank 0 at %s: %s", address, strerror(-rc));
    }
    return rc;
}

int gemmar_perf_meet_open(const char *address, uint32_t rank, uint32_t ranks, double timeout_s,
                          struct gemmar_perf_meet **out_meet, char *why, size_t why_bytes)
{
    struct gemmar_perf_meet *m = calloc(1, sizeof(*m));
    uint32_t links = rank == 0 ? ranks : 1;
    int rc = 0;

    if (m == NULL || (m->fd = malloc(links * sizeof(*m->fd))) == NULL) {
        free(m);
        (void)snprintf(why, why_bytes, "no memory");
        return -ENOMEM;
    }
    m->rank = rank;
    m->ranks = ranks;
    m->links = links;
    m->beat_ms =
        timeout_s * 1e3 / 4 < LONGEST_BEAT_MS ? (int)(timeout_s * 1e3 / 4) + 1 : LONGEST_BEAT_MS;
    m->quiet = -1;
    for (uint32_t i = 0; i < links; i++) {
        m->fd[i] = -1;
    }
    if (ranks > 1) {
        rc = rank == 0 ? take_all(m, address, timeout_s, why, why_bytes)
                       : connect_to(m, address, timeout_s, why, why_bytes);
    }
    if (rc != 0) {
        gemmar_perf_meet_close(m);
        return rc;
    }
    *out_meet = m;
    return 0;
}

static int gather_at_root(struct gemmar_perf_meet *m, const void *mine, char *all, size_t bytes,
                          double timeout_s)
{
    double began = gemmar_perf_seconds();
    int rc = 0;

    memmove(all, mine, bytes);
    for (uint32_t r = 1; r < m->ranks && rc == 0; r++) {
        m->lost = r;
        rc = get_data(m, m->fd[r], all + r * bytes, bytes, began, timeout_s);
    }
    for (uint32_t r = 1; r < m->ranks && rc == 0; r++) {
        m->lost = r;
        rc = put_data(m->fd[r], all, m->ranks * bytes, timeout_s);
    }
    return rc;
}

/* The others must not wait for an answer that will not come; rank 0 says whom it lost. */
static void fail(struct gemmar_perf_meet *m, int rc)
{
    struct frame f = {.kind = LOST, .error = (uint16_t)-rc, .value = m->lost};

    m->failed = rc;
    for (uint32_t i = 0; i < m->links; i++) {
        if (m->fd[i] < 0) {
            continue;
        }
        if (m->rank == 0 && i != m->lost) {
            struct gemmar_socket_io io = {.data = &f, .bytes = sizeof(f)};

            (void)gemmar_socket_send(m->fd[i], &io); /* without it the shutdown tells less */
        }
        (void)shutdown(m->fd[i], SHUT_RDWR);
    }
}

int gemmar_perf_meet_gather(struct gemmar_perf_meet *m, const void *mine, void *all, size_t bytes,
                            double timeout_s)
{
    int rc = m->failed;

    if (rc != 0 || bytes == 0) {
        return rc;
    }
    if (m->rank == 0) {
        rc = gather_at_root(m, mine, all, bytes, timeout_s);
    } else {
        m->lost = 0;
        rc = put_data(m->fd[0], mine, bytes, timeout_s);
        rc = rc == 0
                 ? get_data(m, m->fd[0], all, m->ranks * bytes, gemmar_perf_seconds(), timeout_s)
                 : rc;
    }
    if (rc != 0) {
        fail(m, rc);
    }
    return rc;
}

static void *beat_until_quiet(void *argument)
{
    const struct gemmar_perf_meet *m = argument;
    struct pollfd p = {.fd = m->quiet, .events = POLLIN};

    while (poll(&p, 1, m->beat_ms) <= 0) {
        beat(m);
    }
    return NULL;
}

void gemmar_perf_meet_busy(struct gemmar_perf_meet *m, bool busy)
{
    uint64_t one = 1;

    if (busy && !m->beating && m->failed == 0 && m->ranks > 1) {
        m->quiet = eventfd(0, EFD_CLOEXEC);
        m->beating = m->quiet >= 0 && pthread_create(&m->beater, NULL, beat_until_quiet, m) == 0;
    }
    if (!busy && m->beating) {
        if (write(m->quiet, &one, sizeof(one)) == (ssize_t)sizeof(one)) { /* always */
            (void)pthread_join(m->beater, NULL);
        }
        m->beating = false;
    }
    if (!m->beating && m->quiet >= 0) {
        (void)close(m->quiet);
        m->quiet = -1;
    }
}

uint32_t gemmar_perf_meet_lost(const struct gemmar_perf_meet *meet)
{
    return meet->lost;
}

void gemmar_perf_meet_close(struct gemmar_perf_meet *meet)
{
    if (meet == NULL) {
        return;
    }
    gemmar_perf_meet_busy(meet, false);
    for (uint32_t i = 0; i < meet->links; i++) {
        gemmar_socket_close(meet->fd[i]);
    }
    free(meet->fd);
    free(meet);
}
