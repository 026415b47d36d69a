// SPDX-License-Identifier: Apache-2.0
// Non-blocking TCP for set-up between peers: every call returns at once, so that a connection is a
// state machine that one thread can drive from both ends. Nothing here logs: the caller knows which
// peer it is about. Sockets are close-on-exec, send without SIGPIPE and without Nagle's delay, and
// probe an idle peer, so that one whose host vanished is told after about 40 seconds.
//
// Threads: any, one at a time per socket.
#ifndef GEMMAR_SOCKET_H
#define GEMMAR_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* "address%interface<port>", the longest one. */
#define GEMMAR_SOCKET_TEXT_BYTES (INET6_ADDRSTRLEN + 16 + 8)

struct gemmar_socket_address {
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    };
    socklen_t length; /* bytes of the member that is in use, 0: none */
};

/* A byte count that is sent or received bit by bit. Caller's storage; `data` must stay. */
struct gemmar_socket_io {
    void *data;
    size_t bytes, done;
};

/* A connection on its way. Caller's storage. */
struct gemmar_socket_connect {
    struct gemmar_socket_address peer;
    int fd;               /* of the attempt under way, or -1 */
    int last_error;       /* positive errno of the last attempt that failed, 0: none did */
    unsigned attempts;    /* begun so far */
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    uint64_t retry_at_ns; /* of the next attempt */
    uint64_t pause_ns;    /* before the attempt after it */
};

/* Copy a socket address of the system's. -EAFNOSUPPORT unless it is IPv4 or IPv6. */
int gemmar_socket_address_from(const struct sockaddr *from, struct gemmar_socket_address *out);

bool gemmar_socket_address_is_link_local(const struct gemmar_socket_address *address);

/* Do both have the same family, address, port and scope? */
bool gemmar_socket_address_equal(const struct gemmar_socket_address *a,
                                 const struct gemmar_socket_address *b);

/* "10.0.0.1<4711>" or "fe80::1%eth0<4711>"; returns `text`, cut at `bytes`. */
const char *gemmar_socket_address_text(const struct gemmar_socket_address *address, char *text,
                                       size_t bytes);

/* Listen; port 0 takes any free one (a fixed one may be taken again while old connections of it
 * linger). The descriptor, with the bound address in `out_bound`, or a negative errno. */
int gemmar_socket_listen(const struct gemmar_socket_address *where,
                         struct gemmar_socket_address *out_bound);

/* The descriptor of a client (its address in `out_peer` unless NULL), -EAGAIN: none is there, else
 * a negative errno (-EMFILE: no descriptor left). A client that has gone again is no error. */
int gemmar_socket_accept(int listener, struct gemmar_socket_address *out_peer);

/* Begin to connect. Touches no network yet. */
void gemmar_socket_connect_init(struct gemmar_socket_connect *connecting,
                                const struct gemmar_socket_address *peer, uint64_t deadline_ns);

/*
 * 0: connected, the descriptor in `out_fd` is the caller's. -EAGAIN: not yet; an attempt that was
 * refused, not answered, found no way to the host or no free port here is repeated after a pause of
 * 1 ms that doubles up to 1 s. -ETIMEDOUT: the deadline has passed; `last_error` says what the
 * attempts ran into (0: no answer). Any other error ends the matter at once.
 */
int gemmar_socket_connect_poll(struct gemmar_socket_connect *connecting, int *out_fd);

/* Give up, in any state, also after init alone or success. */
void gemmar_socket_connect_release(struct gemmar_socket_connect *connecting);

/* Send or receive what is left. 0: all done, -EAGAIN: call again, -ECONNRESET: the peer has closed,
 * else a negative errno. */
int gemmar_socket_send(int fd, struct gemmar_socket_io *io);
int gemmar_socket_recv(int fd, struct gemmar_socket_io *io);

/* Has the peer closed? 0: no, or bytes that came before are still unread; -ECONNRESET: yes; else a
 * negative errno. Takes nothing from the stream. */
int gemmar_socket_check(int fd);

/* End the connection for both ends, while other threads may still use the descriptor. -1 is legal.
 */
void gemmar_socket_shutdown(int fd);

/* -1 is legal. */
void gemmar_socket_close(int fd);

#endif
