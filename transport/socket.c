// SPDX-License-Identifier: Apache-2.0
// Non-blocking TCP for set-up between peers.
#include "transport/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "transport/wait.h"

#define BACKLOG        16384 /* every rank of a large job may connect at once; the kernel clamps it */
#define FIRST_PAUSE_NS 1000000u
#define LAST_PAUSE_NS  1000000000u

int gemmar_socket_address_from(const struct sockaddr *from, struct gemmar_socket_address *out)
{
    struct gemmar_socket_address address;

    memset(&address, 0, sizeof(address));
    if (from->sa_family == AF_INET) {
        address.length = sizeof(address.in);
    } else if (from->sa_family == AF_INET6) {
        address.length = sizeof(address.in6);
    } else {
        return -EAFNOSUPPORT;
    }
    memcpy(&address.any, from, address.length);
    *out = address;
    return 0;
}

bool gemmar_socket_address_is_link_local(const struct gemmar_socket_address *a)
{
    return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr)
                                        : (ntohl(a->in.sin_addr.s_addr) >> 16) == 0xa9fe;
}

bool gemmar_socket_address_equal(const struct gemmar_socket_address *a,
                                 const struct gemmar_socket_address *b)
{
    if (a->any.sa_family != b->any.sa_family) {
        return false;
    }
    if (a->any.sa_family == AF_INET) {
        return a->in.sin_port == b->in.sin_port && a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
    }
    return a->in6.sin6_port == b->in6.sin6_port && a->in6.sin6_scope_id == b->in6.sin6_scope_id &&
           memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr)) == 0;
}

const char *gemmar_socket_address_text(const struct gemmar_socket_address *a, char *text,
                                       size_t bytes)
{
    char host[INET6_ADDRSTRLEN] = "?", name[IF_NAMESIZE], scope[IF_NAMESIZE + 1] = "";
    unsigned port = 0;

    if (a->length != 0 && a->any.sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &a->in.sin_addr, host, sizeof(host)); /* the room is enough */
        port = ntohs(a->in.sin_port);
    } else if (a->length != 0 && a->any.sa_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof(host)); /* same */
        port = ntohs(a->in6.sin6_port);
        if (a->in6.sin6_scope_id != 0 && if_indextoname(a->in6.sin6_scope_id, name) != NULL) {
            (void)snprintf(scope, sizeof(scope), "%%%s", name);
        } else if (a->in6.sin6_scope_id != 0) {
            (void)snprintf(scope, sizeof(scope), "%%%u", (unsigned)a->in6.sin6_scope_id);
        }
    }
    (void)snprintf(text, bytes, "%s%s<%u>", host, scope, port);
    return text;
}

/* Of a connection. Only the idle probes may be missing on a system. */
static int set_options(int fd)
{
    int on = 1, idle = 20, interval = 5, probes = 4;

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
        return -errno;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    }
    return 0;
}

static int open_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd >= 0 ? fd : -errno;
}

int gemmar_socket_listen(const struct gemmar_socket_address *where,
                         struct gemmar_socket_address *out_bound)
{
    struct gemmar_socket_address bound = *where;
    in_port_t port = where->any.sa_family == AF_INET ? where->in.sin_port : where->in6.sin6_port;
    int on = 1, rc = 0, fd = open_socket(where->any.sa_family);

    if (fd < 0) {
        return fd;
    }
    if ((port != 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) ||
        bind(fd, &where->any, where->length) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, &bound.any, &bound.length) != 0) {
        rc = -errno;
        goto undo_socket;
    }
    *out_bound = bound;
    return fd;

undo_socket:
    gemmar_socket_close(fd);
    return rc;
}

/* accept() also hands out errors that the connection met before it was taken from the queue. */
static bool is_of_the_client(int error)
{
    return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN ||
           error == ENOPROTOOPT || error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH ||
           error == EOPNOTSUPP || error == ENETUNREACH || error == EWOULDBLOCK;
}

int gemmar_socket_accept(int listener, struct gemmar_socket_address *out_peer)
{
    struct gemmar_socket_address peer = {.length = sizeof(peer.in6)};
    int fd = accept4(listener, &peer.any, &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC), rc;

    if (fd < 0) {
        return is_of_the_client(errno) ? -EAGAIN : -errno;
    }
    rc = set_options(fd);
    if (rc != 0) {
        gemmar_socket_close(fd);
        return rc == -EINVAL ? -EAGAIN : rc; /* EINVAL: the client has gone again */
    }
    if (out_peer != NULL) {
        *out_peer = peer;
    }
    return fd;
}

void gemmar_socket_connect_init(struct gemmar_socket_connect *c,
                                const struct gemmar_socket_address *peer, uint64_t deadline_ns)
{
    *c = (struct gemmar_socket_connect){
        .peer = *peer, .fd = -1, .deadline_ns = deadline_ns, .pause_ns = FIRST_PAUSE_NS};
}

void gemmar_socket_connect_release(struct gemmar_socket_connect *c)
{
    gemmar_socket_close(c->fd);
    c->fd = -1;
}

/* Begin an attempt: a positive errno when it is over already. EINTR: as in progress. */
static int begin(struct gemmar_socket_connect *c)
{
    c->attempts++;
    c->fd = open_socket(c->peer.any.sa_family);
    if (c->fd < 0) {
        int error = -c->fd;

        c->fd = -1;
        return error;
    }
    if (set_options(c->fd) != 0 || (connect(c->fd, &c->peer.any, c->peer.length) != 0 &&
                                    errno != EINPROGRESS && errno != EINTR)) {
        return errno;
    }
    return 0;
}

/* A port of this host where nobody listens may be given to our own end: TCP then connects the
 * socket to itself. */
static bool is_itself(int fd, const struct gemmar_socket_address *peer)
{
    struct gemmar_socket_address own = {.length = sizeof(own.in6)};

    return getsockname(fd, &own.any, &own.length) == 0 && gemmar_socket_address_equal(&own, peer);
}

/* The attempt's end: 0, a positive errno, or EINPROGRESS. */
static int ended(const struct gemmar_socket_connect *c)
{
    struct pollfd ready = {.fd = c->fd, .events = POLLOUT};
    int error = 0, n = poll(&ready, 1, 0);
    socklen_t length = sizeof(error);

    if (n <= 0) {
        return n == 0 || errno == EINTR ? EINPROGRESS : errno;
    }
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        return errno;
    }
    return error == 0 && is_itself(c->fd, &c->peer) ? ECONNREFUSED : error;
}

/* EADDRNOTAVAIL: all of this host's free ports are in use, or linger. */
static bool is_worth_another(int error)
{
    return error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH ||
           error == ECONNRESET || error == EADDRNOTAVAIL || error == EINTR;
}

/* An attempt came to `error`: another one later, or the end. */
static int fail(struct gemmar_socket_connect *c, int error, uint64_t now)
{
    gemmar_socket_connect_release(c);
    c->last_error = error;
    if (!is_worth_another(error)) {
        return -error;
    }
    c->retry_at_ns = now + c->pause_ns;
    c->pause_ns = c->pause_ns * 2 < LAST_PAUSE_NS ? c->pause_ns * 2 : LAST_PAUSE_NS;
    return -EAGAIN;
}

int gemmar_socket_connect_poll(struct gemmar_socket_connect *c, int *out_fd)
{
    uint64_t now = gemmar_now_ns();
    int error = 0;

    if (c->fd < 0 && now >= c->retry_at_ns) {
        error = begin(c);
    }
    if (error == 0 && c->fd >= 0) {
        error = ended(c);
        if (error == 0) {
            *out_fd = c->fd;
            c->fd = -1;
            return 0;
        }
    }
    if (error != 0 && error != EINPROGRESS) {
        int rc = fail(c, error, now);

        if (rc != -EAGAIN) {
            return rc;
        }
    }
    if (c->deadline_ns != 0 && now >= c->deadline_ns) {
        gemmar_socket_connect_release(c);
        return -ETIMEDOUT;
    }
    return -EAGAIN;
}

int gemmar_socket_send(int fd, struct gemmar_socket_io *io)
{
    while (io->done < io->bytes) {
        ssize_t n = send(fd, (const char *)io->data + io->done, io->bytes - io->done,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n >= 0) {
            io->done += (size_t)n;
        } else if (errno == EPIPE) {
            return -ECONNRESET;
        } else if (errno != EINTR) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
    }
    return 0;
}

int gemmar_socket_recv(int fd, struct gemmar_socket_io *io)
{
    while (io->done < io->bytes) {
        ssize_t n = recv(fd, (char *)io->data + io->done, io->bytes - io->done, MSG_DONTWAIT);

        if (n > 0) {
            io->done += (size_t)n;
        } else if (n == 0) {
            return -ECONNRESET;
        } else if (errno != EINTR) {
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        }
    }
    return 0;
}

int gemmar_socket_check(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n > 0 || (n < 0 && (errno == EINTR || errno == EWOULDBLOCK))) {
        return 0;
    }
    return n == 0 ? -ECONNRESET : -errno;
}

void gemmar_socket_shutdown(int fd)
{
    if (fd >= 0) {
        (void)shutdown(fd, SHUT_RDWR); /* fails when the peer was quicker */
    }
}

void gemmar_socket_close(int fd)
{
    if (fd >= 0) {
        (void)close(fd); /* the stream's fate is settled by the protocol, not by close */
    }
}
