// SPDX-License-Identifier: Apache-2.0
// How the ranks of one run find each other: a star of TCP connections around rank 0.
#include "tools/gemmar_perf/meet.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tools/gemmar_perf/say.h"

#define RETRY_MS 20

/* What a rank says first. */
struct hello {
    char magic[8];
    uint32_t rank, ranks;
};
static const char magic[8] = "gmrperf1";

struct gemmar_perf_meet {
    uint32_t rank, ranks;
    int failed;    /* negative errno of the first failure */
    uint32_t lost; /* rank of that failure */
    int *fd;       /* rank 0: of every other rank; else fd[0] is rank 0's */
};

static int set_up(int fd, double timeout_s)
{
    int on = 1;
    struct timeval t = {(time_t)timeout_s,
                        (suseconds_t)((timeout_s - (double)(time_t)timeout_s) * 1e6)};

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t)) != 0) {
        return -errno;
    }
    return 0;
}

static int put(int fd, const void *data, size_t bytes)
{
    const char *p = data;

    while (bytes != 0) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 && errno != EAGAIN ? -errno : -ETIMEDOUT;
        }
        p += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int get(int fd, void *data, size_t bytes)
{
    char *p = data;

    while (bytes != 0) {
        ssize_t n = recv(fd, p, bytes, 0);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n == 0) {
            return -ECONNRESET;
        }
        if (n < 0) {
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        }
        p += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int resolve(const char *address, int flags, struct addrinfo **out_list, char *why,
                   size_t why_bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    char host[256];
    const char *colon = strrchr(address, ':');
    int rc;

    if (colon == NULL || colon == address || (size_t)(colon - address) >= sizeof(host)) {
        (void)snprintf(why, why_bytes, "'%s' is not HOST:PORT", address);
        return -EINVAL;
    }
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
    rc = getaddrinfo(host, colon + 1, &hints, out_list);
    if (rc != 0) {
        (void)snprintf(why, why_bytes, "cannot look up %s: %s", address, gai_strerror(rc));
        return -EINVAL;
    }
    return 0;
}

static int listen_at(const char *address, uint32_t ranks, char *why, size_t why_bytes)
{
    struct addrinfo *list;
    int on = 1, fd = -1, rc = resolve(address, AI_PASSIVE, &list, why, why_bytes);

    if (rc != 0) {
        return rc;
    }
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
                        bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, (int)ranks) != 0)) {
            rc = -errno;
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        rc = rc != 0 ? rc : -EADDRNOTAVAIL;
        (void)snprintf(why, why_bytes, "cannot listen at %s: %s", address, strerror(-rc));
        return rc;
    }
    return fd;
}

/* Rank 0: take one connection; strangers and ranks of other runs are turned away. */
static int take_one(struct gemmar_perf_meet *m, int listener, double left_s)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    struct hello hello;
    int fd;

    if (poll(&p, 1, left_s > 0 ? (int)(left_s * 1000) + 1 : 0) <= 0) {
        return -ETIMEDOUT;
    }
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        return -EAGAIN;
    }
    if (set_up(fd, left_s > 1 ? left_s : 1) != 0 || get(fd, &hello, sizeof(hello)) != 0 ||
        memcmp(hello.magic, magic, sizeof(magic)) != 0 || hello.ranks != m->ranks ||
        hello.rank == 0 || hello.rank >= m->ranks || m->fd[hello.rank] >= 0) {
        (void)close(fd);
        return -EAGAIN;
    }
    m->fd[hello.rank] = fd;
    return 0;
}

static int take_all(struct gemmar_perf_meet *m, const char *address, double timeout_s, char *why,
                    size_t why_bytes)
{
    double deadline = gemmar_perf_seconds() + timeout_s;
    int listener = listen_at(address, m->ranks, why, why_bytes), rc = 0;
    uint32_t here = 1;

    if (listener < 0) {
        return listener;
    }
    while (here < m->ranks && rc == 0) {
        rc = take_one(m, listener, deadline - gemmar_perf_seconds());
        here += rc == 0;
        rc = rc == -EAGAIN ? 0 : rc;
    }
    (void)close(listener);
    if (rc != 0) {
        (void)snprintf(why, why_bytes, "%u of %u ranks came to %s within %.1f s", here, m->ranks,
                       address, timeout_s);
    }
    return rc;
}

static int connect_to(struct gemmar_perf_meet *m, const char *address, double timeout_s, char *why,
                      size_t why_bytes)
{
    double deadline = gemmar_perf_seconds() + timeout_s;
    struct hello hello = {.rank = m->rank, .ranks = m->ranks};
    struct addrinfo *list;
    int fd = -1, rc = resolve(address, 0, &list, why, why_bytes);

    if (rc != 0) {
        return rc;
    }
    memcpy(hello.magic, magic, sizeof(magic));
    while (fd < 0 && gemmar_perf_seconds() < deadline) {
        for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
            fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
            if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
                rc = -errno;
                (void)close(fd);
                fd = -1;
            }
        }
        if (fd < 0) {
            (void)poll(NULL, 0, RETRY_MS);
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        (void)snprintf(why, why_bytes, "rank 0 does not answer at %s: %s", address, strerror(-rc));
        return rc;
    }
    m->fd[0] = fd;
    rc = set_up(fd, timeout_s);
    rc = rc == 0 ? put(fd, &hello, sizeof(hello)) : rc;
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
    int rc = 0;

    memmove(all, mine, bytes);
    for (uint32_t r = 1; r < m->ranks && rc == 0; r++) {
        m->lost = r;
        rc = set_up(m->fd[r], timeout_s);
        rc = rc == 0 ? get(m->fd[r], all + r * bytes, bytes) : rc;
    }
    for (uint32_t r = 1; r < m->ranks && rc == 0; r++) {
        m->lost = r;
        rc = put(m->fd[r], all, m->ranks * bytes);
    }
    return rc;
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
        rc = set_up(m->fd[0], timeout_s);
        rc = rc == 0 ? put(m->fd[0], mine, bytes) : rc;
        rc = rc == 0 ? get(m->fd[0], all, m->ranks * bytes) : rc;
    }
    if (rc != 0) {
        m->failed = rc;
        /* the others must not wait for an answer that will not come */
        for (uint32_t i = 0; i < (m->rank == 0 ? m->ranks : 1); i++) {
            if (m->fd[i] >= 0) {
                (void)shutdown(m->fd[i], SHUT_RDWR);
            }
        }
    }
    return rc;
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
    for (uint32_t i = 0; i < (meet->rank == 0 ? meet->ranks : 1); i++) {
        if (meet->fd[i] >= 0) {
            (void)close(meet->fd[i]);
        }
    }
    free(meet->fd);
    free(meet);
}
