// SPDX-License-Identifier: Apache-2.0
// Where rank 0 listens, and how the others reach it.
#include "tools/gemmar_perf/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "transport/bootstrap.h"
#include "transport/env.h"
#include "transport/log.h"
#include "transport/socket.h"
#include "transport/wait.h"

#define ADDRESSES 16 /* of one name */
#define LOOK_MS   2  /* between two looks at the attempts under way */

bool gemmar_perf_rendezvous_split(const char *address, char *host, size_t host_bytes,
                                  const char **out_port)
{
    bool bracket = address[0] == '[';
    const char *begin = address + bracket;
    const char *colon = strrchr(address, ':');
    const char *end = bracket ? strchr(begin, ']') : colon;

    if (colon == NULL || end == NULL || end == begin || (bracket && end + 1 != colon) ||
        (size_t)(end - begin) >= host_bytes || colon[1] == '\0') {
        return false;
    }
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    *out_port = colon + 1;
    return true;
}

static int read_knobs(struct gemmar_knobs *knobs, struct gemmar_logger *log, char *why,
                      size_t why_bytes)
{
    *log = (struct gemmar_logger){.level = GEMMAR_LOG_WARN};
    if (gemmar_knobs_read(knobs, log) != 0) {
        (void)snprintf(why, why_bytes, "a variable has a value that is not understood");
        return -EINVAL;
    }
    log->level = GEMMAR_LOG_WARN; /* what is chosen is nobody's business here */
    return 0;
}

static int resolve(const char *address, int flags, int64_t family, struct addrinfo **out_list,
                   char *why, size_t why_bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    const char *port;
    char host[256];
    int rc;

    if (!gemmar_perf_rendezvous_split(address, host, sizeof(host), &port)) {
        (void)snprintf(why, why_bytes, "'%s' is not HOST:PORT", address);
        return -EINVAL;
    }
    hints.ai_family = family == GEMMAR_FAMILY_IPV4   ? AF_INET
                      : family == GEMMAR_FAMILY_IPV6 ? AF_INET6
                                                     : AF_UNSPEC;
    rc = getaddrinfo((flags & AI_PASSIVE) != 0 ? NULL : host, port, &hints, out_list);
    if (rc != 0 && (flags & AI_NUMERICHOST) == 0) {
        (void)snprintf(why, why_bytes, "cannot look up %s: %s", address, gai_strerror(rc));
    }
    return rc != 0 ? -EINVAL : 0;
}

static int listen_at_any(const struct addrinfo *list)
{
    int fd = -EADDRNOTAVAIL;

    /* IPv6 first: its socket takes IPv4 too */
    for (int family = 1; family >= 0 && fd < 0; family--) {
        for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
            struct gemmar_socket_address where, bound;

            if ((a->ai_family == AF_INET6) == (family == 1) &&
                gemmar_socket_address_from(a->ai_addr, &where) == 0) {
                fd = gemmar_socket_listen(&where, &bound);
            }
        }
    }
    return fd;
}

static int listen_at_interface(const struct gemmar_knobs *knobs, const struct gemmar_logger *log,
                               in_port_t port)
{
    struct gemmar_bootstrap_address chosen;
    struct gemmar_socket_address bound;
    int rc = gemmar_bootstrap_address(knobs, log, &chosen);

    if (rc != 0) {
        return rc;
    }
    if (chosen.address.any.sa_family == AF_INET) {
        chosen.address.in.sin_port = port;
    } else {
        chosen.address.in6.sin6_port = port;
    }
    return gemmar_socket_listen(&chosen.address, &bound);
}

int gemmar_perf_rendezvous_listen(const char *address, char *why, size_t why_bytes)
{
    struct gemmar_knobs knobs;
    struct gemmar_logger log;
    struct addrinfo *list;
    int fd, rc = read_knobs(&knobs, &log, why, why_bytes);

    if (rc != 0) {
        return rc;
    }
    if (resolve(address, AI_NUMERICHOST, GEMMAR_FAMILY_ANY, &list, why, why_bytes) == 0) {
        fd = listen_at_any(list);
    } else {
        rc = resolve(address, AI_PASSIVE, knobs.socket_family, &list, why, why_bytes);
        if (rc != 0) {
            return rc;
        }
        fd = knobs.socket_ifname[0] != '\0'
                 ? listen_at_interface(&knobs, &log,
                                       ((const struct sockaddr_in *)(const void *)list->ai_addr)
                                           ->sin_port) /* in the same place for both families */
                 : listen_at_any(list);
    }
    freeaddrinfo(list);
    if (fd < 0) {
        (void)snprintf(why, why_bytes, "cannot listen at %s: %s", address, strerror(-fd));
    }
    return fd;
}

/* Look at all attempts once: a descriptor, -EAGAIN: some are under way, else the last error. */
static int look(struct gemmar_socket_connect *attempts, bool *over, int count)
{
    int last = -EADDRNOTAVAIL, fd = -1;
    bool some = false;

    for (int i = 0; i < count; i++) {
        int rc = over[i] ? 0 : gemmar_socket_connect_poll(&attempts[i], &fd);

        if (!over[i] && rc == 0) {
            return fd;
        }
        some |= !over[i] && rc == -EAGAIN;
        over[i] |= rc != -EAGAIN;
        last = attempts[i].last_error != 0 ? -attempts[i].last_error : rc != 0 ? rc : last;
    }
    return some ? -EAGAIN : last;
}

int gemmar_perf_rendezvous_connect(const char *address, double timeout_s, int *out_fd, char *why,
                                   size_t why_bytes)
{
    struct gemmar_socket_connect attempts[ADDRESSES];
    bool over[ADDRESSES] = {false};
    uint64_t deadline = gemmar_now_ns() + (uint64_t)(timeout_s * 1e9);
    struct gemmar_knobs knobs;
    struct gemmar_logger log;
    struct addrinfo *list;
    int count = 0, fd, rc = read_knobs(&knobs, &log, why, why_bytes);

    if (rc == 0) {
        rc = resolve(address, 0, knobs.socket_family, &list, why, why_bytes);
    }
    if (rc != 0) {
        return rc;
    }
    for (struct addrinfo *a = list; a != NULL && count < ADDRESSES; a = a->ai_next) {
        struct gemmar_socket_address peer;

        if (gemmar_socket_address_from(a->ai_addr, &peer) == 0) {
            gemmar_socket_connect_init(&attempts[count++], &peer, deadline);
        }
    }
    freeaddrinfo(list);
    while ((fd = look(attempts, over, count)) == -EAGAIN) {
        (void)poll(NULL, 0, LOOK_MS);
    }
    for (int i = 0; i < count; i++) {
        gemmar_socket_connect_release(&attempts[i]);
    }
    if (fd < 0) {
        (void)snprintf(why, why_bytes, "rank 0 does not answer at %s: %s", address, strerror(-fd));
        return fd;
    }
    *out_fd = fd;
    return 0;
}
