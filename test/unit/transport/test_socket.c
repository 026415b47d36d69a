// SPDX-License-Identifier: Apache-2.0
// Set-up sockets: no call waits, a peer that closes is told, and a listener that comes late is
// found.
#include "transport/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_suite.h"
#include "transport/wait.h"

#define LONG_NS UINT64_C(20000000000)
#define CALL_NS 4000000000u /* a call that waits for the network takes longer */
#define SKIPPED 77

static struct gemmar_socket_address loopback(int family)
{
    struct gemmar_socket_address a;

    memset(&a, 0, sizeof(a));
    if (family == AF_INET) {
        a.in =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        a.length = sizeof(a.in);
    } else {
        a.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
        a.length = sizeof(a.in6);
    }
    return a;
}

/* Until the connection stands or fails for good; each call must return at once. */
static int connect_all(struct gemmar_socket_connect *c, int *out_fd)
{
    struct gemmar_wait wait;
    int rc;

    gemmar_wait_init(&wait, LONG_NS);
    do {
        uint64_t before = gemmar_now_ns();

        rc = gemmar_socket_connect_poll(c, out_fd);
        ck_assert_uint_lt(gemmar_now_ns() - before, CALL_NS);
    } while (rc == -EAGAIN && gemmar_wait_step(&wait));
    return rc;
}

static int accept_one(int listener, struct gemmar_socket_address *out_peer)
{
    struct gemmar_wait wait;
    int fd;

    gemmar_wait_init(&wait, LONG_NS);
    do {
        fd = gemmar_socket_accept(listener, out_peer);
    } while (fd == -EAGAIN && gemmar_wait_step(&wait));
    return fd;
}

struct pair {
    int listener, a, b; /* a connected, b accepted */
};

static struct pair make_pair(int family)
{
    struct gemmar_socket_address bound, where = loopback(family);
    struct gemmar_socket_connect c;
    struct pair p = {-1, -1, -1};

    p.listener = gemmar_socket_listen(&where, &bound);
    ck_assert_int_ge(p.listener, 0);
    gemmar_socket_connect_init(&c, &bound, gemmar_now_ns() + LONG_NS);
    ck_assert_int_eq(connect_all(&c, &p.a), 0);
    p.b = accept_one(p.listener, NULL);
    ck_assert_int_ge(p.b, 0);
    return p;
}

static void close_pair(struct pair *p)
{
    gemmar_socket_close(p->a);
    gemmar_socket_close(p->b);
    gemmar_socket_close(p->listener);
}

static void check_flags(int fd, bool connected)
{
    int value = 0;
    socklen_t length = sizeof(value);

    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_ne(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    if (connected) {
        ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length), 0);
        ck_assert_int_ne(value, 0);
        ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length), 0);
        ck_assert_int_ne(value, 0);
    }
}

static bool has_ipv6(void)
{
    struct gemmar_socket_address bound, where = loopback(AF_INET6);
    int fd = gemmar_socket_listen(&where, &bound);

    gemmar_socket_close(fd);
    return fd >= 0;
}

/* Everything from one thread, over both families. */
START_TEST(one_thread_connects_to_itself)
{
    int family = _i == 0 ? AF_INET : AF_INET6;
    struct gemmar_socket_address where = loopback(family), bound, peer, own;
    struct gemmar_socket_connect c;
    int listener, a = -1, b;

    if (family == AF_INET6 && !has_ipv6()) {
        return;
    }
    listener = gemmar_socket_listen(&where, &bound);
    ck_assert_int_ge(listener, 0);
    ck_assert_uint_ne(family == AF_INET ? bound.in.sin_port : bound.in6.sin6_port, 0);
    ck_assert_int_eq(gemmar_socket_accept(listener, &peer), -EAGAIN);
    gemmar_socket_connect_init(&c, &bound, gemmar_now_ns() + LONG_NS);
    ck_assert_int_eq(connect_all(&c, &a), 0);
    ck_assert_int_eq(c.fd, -1);
    gemmar_socket_connect_release(&c); /* the descriptor is ours by now */
    b = accept_one(listener, &peer);
    ck_assert_int_ge(b, 0);
    own.length = sizeof(own.in6);
    ck_assert_int_eq(getsockname(a, &own.any, &own.length), 0);
    ck_assert(gemmar_socket_address_equal(&own, &peer));
    ck_assert(!gemmar_socket_address_equal(&own, &bound));
    check_flags(listener, false);
    check_flags(a, true);
    check_flags(b, true);
    gemmar_socket_close(a);
    gemmar_socket_close(b);
    gemmar_socket_close(listener);
}
END_TEST

/* More bytes than the buffers hold: both sides make progress in turn, none waits. */
START_TEST(many_bytes_arrive_exactly)
{
    enum { BYTES = 16 << 20 };
    struct pair p = make_pair(AF_INET);
    unsigned char *from = malloc(BYTES), *to = calloc(1, BYTES);
    struct gemmar_socket_io out = {from, BYTES, 0}, in = {to, BYTES, 0};
    int sent, got, turns = 0;

    ck_assert(from != NULL && to != NULL);
    for (int i = 0; i < BYTES; i++) {
        from[i] = (unsigned char)(i ^ i >> 8 ^ i >> 16);
    }
    ck_assert_int_eq(gemmar_socket_recv(p.b, &in), -EAGAIN);
    ck_assert_int_eq(gemmar_socket_send(p.a, &out), -EAGAIN);
    ck_assert_uint_gt(out.done, 0);
    do {
        sent = gemmar_socket_send(p.a, &out);
        got = gemmar_socket_recv(p.b, &in);
        ck_assert(sent == 0 || sent == -EAGAIN);
        turns++;
    } while (got == -EAGAIN);
    ck_assert_int_eq(got, 0);
    ck_assert_int_eq(sent, 0);
    ck_assert_int_gt(turns, 1);
    ck_assert_mem_eq(from, to, BYTES);
    ck_assert_int_eq(gemmar_socket_recv(p.b, &in), 0); /* nothing is left to receive */
    ck_assert_int_eq(gemmar_socket_send(p.a, &(struct gemmar_socket_io){NULL, 0, 0}), 0);
    free(from);
    free(to);
    close_pair(&p);
}
END_TEST

START_TEST(recv_takes_no_byte_beyond_its_own)
{
    struct pair p = make_pair(AF_INET);
    char text[] = "abcdefgh", first[4] = "", second[5] = "";
    struct gemmar_socket_io out = {text, 8, 0}, in = {first, 3, 0}, rest = {second, 5, 0};
    struct gemmar_wait wait;
    int rc;

    ck_assert_int_eq(gemmar_socket_send(p.a, &out), 0);
    gemmar_wait_init(&wait, LONG_NS);
    while ((rc = gemmar_socket_recv(p.b, &in)) == -EAGAIN && gemmar_wait_step(&wait)) {
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_str_eq(first, "abc");
    ck_assert_int_eq(gemmar_socket_recv(p.b, &rest), 0);
    ck_assert_mem_eq(second, "defgh", 5);
    close_pair(&p);
}
END_TEST

static int wait_for_close(int fd)
{
    struct gemmar_wait wait;
    int rc;

    gemmar_wait_init(&wait, LONG_NS);
    do {
        rc = gemmar_socket_check(fd);
    } while (rc == 0 && gemmar_wait_step(&wait));
    return rc;
}

START_TEST(closing_of_the_peer_is_told_after_its_last_bytes)
{
    struct pair p = make_pair(AF_INET);
    char byte = 'x';
    struct gemmar_socket_io io = {&byte, 1, 0}, more = {&byte, 1, 0};

    ck_assert_int_eq(gemmar_socket_check(p.a), 0);
    ck_assert_int_eq(gemmar_socket_check(p.b), 0);
    ck_assert_int_eq(gemmar_socket_send(p.a, &io), 0);
    gemmar_socket_close(p.a);
    p.a = -1;
    (void)usleep(100000); /* the closing has come by now; the byte is still unread */
    ck_assert_int_eq(gemmar_socket_check(p.b), 0);
    io.done = 0;
    ck_assert_int_eq(gemmar_socket_recv(p.b, &io), 0);
    ck_assert_int_eq(wait_for_close(p.b), -ECONNRESET);
    ck_assert_int_eq(gemmar_socket_recv(p.b, &more), -ECONNRESET);
    close_pair(&p);
}
END_TEST

/* Twice: the first send after a reset meets the reset, the second one would raise SIGPIPE. */
START_TEST(sending_to_a_closed_peer_raises_no_signal)
{
    struct pair p = make_pair(AF_INET);
    char bytes[64] = "";
    struct gemmar_wait wait;
    int rc;

    ck_assert(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    gemmar_socket_close(p.b);
    p.b = -1;
    gemmar_wait_init(&wait, LONG_NS);
    do {
        rc = gemmar_socket_send(p.a, &(struct gemmar_socket_io){bytes, sizeof(bytes), 0});
    } while (rc == 0 && gemmar_wait_step(&wait));
    ck_assert_int_eq(rc, -ECONNRESET);
    rc = gemmar_socket_send(p.a, &(struct gemmar_socket_io){bytes, sizeof(bytes), 0});
    ck_assert_int_eq(rc, -ECONNRESET);
    close_pair(&p);
}
END_TEST

/* A port that nobody listens on: bound, so that nobody else takes it. */
static int unused_port(struct gemmar_socket_address *out)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *out = loopback(AF_INET);
    ck_assert_int_eq(bind(fd, &out->any, out->length), 0);
    ck_assert_int_eq(getsockname(fd, &out->any, &out->length), 0);
    return fd;
}

START_TEST(refused_until_the_deadline_says_what_it_met)
{
    struct gemmar_socket_address peer;
    struct gemmar_socket_connect c;
    int held = unused_port(&peer), fd = -2;
    uint64_t begin = gemmar_now_ns();

    gemmar_socket_connect_init(&c, &peer, begin + 300000000u);
    ck_assert_int_eq(connect_all(&c, &fd), -ETIMEDOUT);
    ck_assert_uint_ge(gemmar_now_ns() - begin, 300000000u);
    ck_assert_int_eq(c.last_error, ECONNREFUSED);
    ck_assert_int_eq(fd, -2); /* untouched */
    ck_assert_int_eq(c.fd, -1);
    /* 1 ms, doubled each time: at most 9 pauses begin in 300 ms. */
    ck_assert_uint_ge(c.attempts, 2);
    ck_assert_uint_le(c.attempts, 10);
    gemmar_socket_connect_release(&c);
    gemmar_socket_close(held);
}
END_TEST

START_TEST(listener_that_comes_late_is_found)
{
    struct gemmar_socket_address peer;
    struct gemmar_socket_connect c;
    int listener = unused_port(&peer), fd = -1;

    gemmar_socket_connect_init(&c, &peer, gemmar_now_ns() + LONG_NS);
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(gemmar_socket_connect_poll(&c, &fd), -EAGAIN);
        (void)usleep(2000);
    }
    ck_assert_int_eq(c.last_error, ECONNREFUSED);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(connect_all(&c, &fd), 0);
    gemmar_socket_close(fd);
    gemmar_socket_close(listener);
}
END_TEST

/* The accept queue is full: the kernel drops our request, as a network without an answer does. */
START_TEST(silence_ends_at_the_deadline)
{
    struct gemmar_socket_address peer;
    struct gemmar_socket_connect c, fill[4];
    int listener = unused_port(&peer), fd = -1, filled[4] = {-1, -1, -1, -1};
    uint64_t begin;

    ck_assert_int_eq(listen(listener, 0), 0);
    for (int i = 0; i < 4; i++) {
        gemmar_socket_connect_init(&fill[i], &peer, 0);
        for (int turn = 0; turn < 20 && filled[i] < 0; turn++) {
            (void)gemmar_socket_connect_poll(&fill[i], &filled[i]);
            (void)usleep(1000);
        }
    }
    begin = gemmar_now_ns();
    gemmar_socket_connect_init(&c, &peer, begin + 200000000u);
    ck_assert_int_eq(connect_all(&c, &fd), -ETIMEDOUT);
    ck_assert_uint_lt(gemmar_now_ns() - begin, 20 * 200000000u);
    ck_assert_int_eq(c.last_error, 0);
    ck_assert_uint_eq(c.attempts, 1);
    for (int i = 0; i < 4; i++) {
        gemmar_socket_connect_release(&fill[i]);
        gemmar_socket_close(filled[i]);
    }
    gemmar_socket_close(listener);
}
END_TEST

START_TEST(hopeless_connection_ends_at_once)
{
    struct gemmar_socket_address peer = loopback(AF_INET);
    struct gemmar_socket_connect c;
    int fd = -1;

    peer.in.sin_addr.s_addr = htonl(INADDR_BROADCAST);
    peer.in.sin_port = htons(9);
    gemmar_socket_connect_init(&c, &peer, gemmar_now_ns() + LONG_NS);
    ck_assert_int_eq(connect_all(&c, &fd), -c.last_error);
    ck_assert(c.last_error == EACCES || c.last_error == ENETUNREACH || c.last_error == EINVAL);
    gemmar_socket_connect_release(&c);
}
END_TEST

static int count_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) != -1;
    }
    return n;
}

START_TEST(abandoned_connections_leave_no_descriptor)
{
    struct gemmar_socket_address bound, where = loopback(AF_INET), refused;
    int held = unused_port(&refused), listener = gemmar_socket_listen(&where, &bound), fd;
    int before = count_descriptors();

    for (int i = 0; i < 100; i++) {
        struct gemmar_socket_connect c;

        gemmar_socket_connect_init(&c, i % 2 == 0 ? &bound : &refused, 0);
        if (i % 4 != 0 && gemmar_socket_connect_poll(&c, &fd) == 0) {
            gemmar_socket_close(fd);
        }
        gemmar_socket_connect_release(&c);
        gemmar_socket_connect_release(&c);
    }
    ck_assert_int_eq(count_descriptors(), before);
    /* Clients that are gone again are no errors of the listener. */
    while ((fd = gemmar_socket_accept(listener, NULL)) >= 0) {
        gemmar_socket_close(fd);
    }
    ck_assert_int_eq(fd, -EAGAIN);
    ck_assert_int_eq(count_descriptors(), before);
    gemmar_socket_close(listener);
    gemmar_socket_close(held);
}
END_TEST

START_TEST(fixed_port_is_listened_on_or_refused)
{
    struct gemmar_socket_address bound, again, where = loopback(AF_INET);
    int fd = gemmar_socket_listen(&where, &bound);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(gemmar_socket_listen(&bound, &again), -EADDRINUSE);
    gemmar_socket_close(fd);
    fd = gemmar_socket_listen(&bound, &again);
    ck_assert_int_ge(fd, 0);
    ck_assert(gemmar_socket_address_equal(&bound, &again));
    gemmar_socket_close(fd);
    where.in.sin_addr.s_addr = htonl(0xc6336401); /* 198.51.100.1: not of this host */
    ck_assert_int_eq(gemmar_socket_listen(&where, &again), -EADDRNOTAVAIL);
}
END_TEST

/* A network of its own, in which the one free port is the one that is connected to. */
static int connect_to_own_port(void)
{
    struct gemmar_socket_address peer = loopback(AF_INET);
    struct gemmar_socket_connect c;
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd, rc;
    FILE *range;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        return SKIPPED;
    }
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) != 0 || range == NULL ||
        fputs("40001 40001", range) < 0 || fclose(range) != 0) {
        return SKIPPED;
    }
    peer.in.sin_port = htons(40001);
    gemmar_socket_connect_init(&c, &peer, gemmar_now_ns() + 300000000u);
    do {
        rc = gemmar_socket_connect_poll(&c, &fd);
        (void)usleep(1000);
    } while (rc == -EAGAIN);
    return rc == -ETIMEDOUT && c.attempts > 1 ? 0 : 1;
}

START_TEST(socket_is_never_connected_to_itself)
{
    pid_t child = fork();
    int status;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        _exit(connect_to_own_port());
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SKIPPED);
}
END_TEST

START_TEST(text_names_address_scope_and_port)
{
    struct gemmar_socket_address a = loopback(AF_INET);
    char text[GEMMAR_SOCKET_TEXT_BYTES], cut[6];

    a.in.sin_addr.s_addr = htonl(0x0a000001);
    a.in.sin_port = htons(4711);
    ck_assert_str_eq(gemmar_socket_address_text(&a, text, sizeof(text)), "10.0.0.1<4711>");
    ck_assert_str_eq(gemmar_socket_address_text(&a, cut, sizeof(cut)), "10.0.");
    a = loopback(AF_INET6);
    a.in6.sin6_port = htons(65535);
    ck_assert_str_eq(gemmar_socket_address_text(&a, text, sizeof(text)), "::1<65535>");
    ck_assert_int_eq(inet_pton(AF_INET6, "fe80::1", &a.in6.sin6_addr), 1);
    a.in6.sin6_scope_id = if_nametoindex("lo");
    ck_assert_str_eq(gemmar_socket_address_text(&a, text, sizeof(text)), "fe80::1%lo<65535>");
    a.in6.sin6_scope_id = 123456;
    ck_assert_str_eq(gemmar_socket_address_text(&a, text, sizeof(text)), "fe80::1%123456<65535>");
    memset(&a, 0, sizeof(a));
    ck_assert_str_eq(gemmar_socket_address_text(&a, text, sizeof(text)), "?<0>");
}
END_TEST

START_TEST(only_internet_addresses_are_taken)
{
    struct sockaddr other = {.sa_family = AF_UNIX};
    struct gemmar_socket_address a = {.length = 5}, b = loopback(AF_INET);

    ck_assert_int_eq(gemmar_socket_address_from(&other, &a), -EAFNOSUPPORT);
    ck_assert_uint_eq(a.length, 5);
    ck_assert_int_eq(gemmar_socket_address_from(&b.any, &a), 0);
    ck_assert(gemmar_socket_address_equal(&a, &b));
    a.in.sin_port = 1;
    ck_assert(!gemmar_socket_address_equal(&a, &b));
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");

    tcase_add_loop_test(tests, one_thread_connects_to_itself, 0, 2);
    tcase_add_test(tests, many_bytes_arrive_exactly);
    tcase_add_test(tests, recv_takes_no_byte_beyond_its_own);
    tcase_add_test(tests, closing_of_the_peer_is_told_after_its_last_bytes);
    tcase_add_test(tests, sending_to_a_closed_peer_raises_no_signal);
    tcase_add_test(tests, refused_until_the_deadline_says_what_it_met);
    tcase_add_test(tests, listener_that_comes_late_is_found);
    tcase_add_test(tests, silence_ends_at_the_deadline);
    tcase_add_test(tests, hopeless_connection_ends_at_once);
    tcase_add_test(tests, abandoned_connections_leave_no_descriptor);
    tcase_add_test(tests, fixed_port_is_listened_on_or_refused);
    tcase_add_test(tests, socket_is_never_connected_to_itself);
    tcase_add_test(tests, text_names_address_scope_and_port);
    tcase_add_test(tests, only_internet_addresses_are_taken);
    return run_suite("socket", tests, 60);
}
