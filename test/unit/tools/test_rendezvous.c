// SPDX-License-Identifier: Apache-2.0
// Where rank 0 listens, and how the others reach it.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/tools/tap.h"
#include "tools/gemmar_perf/meet.h"
#include "tools/gemmar_perf/rendezvous.h"
#include "transport/socket.h"

static char why[1024];

START_TEST(addresses_come_apart)
{
    const char *port;
    char host[16];

    ck_assert(gemmar_perf_rendezvous_split("node1:29500", host, sizeof(host), &port));
    ck_assert_str_eq(host, "node1");
    ck_assert_str_eq(port, "29500");
    ck_assert(gemmar_perf_rendezvous_split("[fe80::1%eth0]:1", host, sizeof(host), &port));
    ck_assert_str_eq(host, "fe80::1%eth0");
    ck_assert(gemmar_perf_rendezvous_split("::1:80", host, sizeof(host), &port));
    ck_assert_str_eq(host, "::1");
    ck_assert(!gemmar_perf_rendezvous_split("node1", host, sizeof(host), &port));
    ck_assert(!gemmar_perf_rendezvous_split(":1", host, sizeof(host), &port));
    ck_assert(!gemmar_perf_rendezvous_split("node1:", host, sizeof(host), &port));
    ck_assert(!gemmar_perf_rendezvous_split("[]:1", host, sizeof(host), &port));
    ck_assert(!gemmar_perf_rendezvous_split("[::1]", host, sizeof(host), &port));
    ck_assert(!gemmar_perf_rendezvous_split("a-name-of-16-xyz:1", host, sizeof(host), &port));
}
END_TEST

static struct sockaddr_in6 bound(int fd)
{
    struct sockaddr_in6 a;
    socklen_t length = sizeof(a);

    memset(&a, 0, sizeof(a));
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &length), 0);
    return a;
}

static bool is_loopback4(const struct sockaddr_in6 *a)
{
    return a->sin6_family == AF_INET &&
           ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

START_TEST(a_numeric_address_is_taken_as_it_is)
{
    struct sockaddr_in6 a;
    int fd;

    ck_assert_int_eq(setenv("NCCL_SOCKET_IFNAME", "=none9", 1), 0);
    fd = gemmar_perf_rendezvous_listen("127.0.0.1:0", why, sizeof(why));
    ck_assert_msg(fd >= 0, "%s", why);
    a = bound(fd);
    ck_assert(is_loopback4(&a));
    gemmar_socket_close(fd);
}
END_TEST

/* A host's own name is often an address of the loopback there: nobody else could come. */
START_TEST(a_name_is_listened_for_everywhere)
{
    struct sockaddr_in6 a;
    int fd = gemmar_perf_rendezvous_listen("localhost:0", why, sizeof(why));

    ck_assert_msg(fd >= 0, "%s", why);
    a = bound(fd);
    ck_assert(!is_loopback4(&a) && !IN6_IS_ADDR_LOOPBACK(&a.sin6_addr));
    gemmar_socket_close(fd);
}
END_TEST

START_TEST(a_named_interface_is_the_one)
{
    struct sockaddr_in6 a;
    int fd;

    ck_assert_int_eq(setenv("NCCL_SOCKET_IFNAME", "=lo", 1), 0);
    ck_assert_int_eq(setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1), 0);
    fd = gemmar_perf_rendezvous_listen("some-name:0", why, sizeof(why));
    ck_assert_msg(fd >= 0, "%s", why);
    a = bound(fd);
    ck_assert(is_loopback4(&a));
    gemmar_socket_close(fd);
    ck_assert_int_eq(setenv("NCCL_SOCKET_IFNAME", "=none9", 1), 0);
    ck_assert_int_eq(gemmar_perf_rendezvous_listen("some-name:0", why, sizeof(why)), -ENODEV);
}
END_TEST

struct rank {
    char address[32];
    uint32_t rank, ranks;
    double timeout;
    int opened, gathered;
    uint32_t all[3], lost;
};

static void *be_rank(void *argument)
{
    struct rank *r = argument;
    struct gemmar_perf_meet *meet;
    char text[512];

    r->opened =
        gemmar_perf_meet_open(r->address, r->rank, r->ranks, r->timeout, &meet, text, sizeof(text));
    if (r->opened == 0) {
        r->gathered = gemmar_perf_meet_gather(meet, &r->rank, r->all, sizeof(r->rank), r->timeout);
        r->lost = gemmar_perf_meet_lost(meet);
        gemmar_perf_meet_close(meet);
    }
    return NULL;
}

static void free_address(char *text, size_t bytes)
{
    int fd = gemmar_perf_rendezvous_listen("127.0.0.1:0", why, sizeof(why));
    struct sockaddr_in6 a = bound(fd);

    (void)snprintf(text, bytes, "127.0.0.1:%u", ntohs(a.sin6_port));
    gemmar_socket_close(fd);
}

/* Who connects and says nothing keeps nobody out. */
START_TEST(a_silent_stranger_does_not_matter)
{
    struct rank ranks[2] = {{.rank = 0, .ranks = 2, .timeout = 30}};
    pthread_t thread;
    int stranger;

    free_address(ranks[0].address, sizeof(ranks[0].address));
    ranks[1] = ranks[0];
    ranks[1].rank = 1;
    ck_assert_int_eq(pthread_create(&thread, NULL, be_rank, &ranks[0]), 0);
    ck_assert_int_eq(
        gemmar_perf_rendezvous_connect(ranks[0].address, 30, &stranger, why, sizeof(why)), 0);
    (void)be_rank(&ranks[1]);
    (void)pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ranks[i].opened, 0);
        ck_assert_int_eq(ranks[i].gathered, 0);
        ck_assert_uint_eq(ranks[i].all[1], 1);
    }
    gemmar_socket_close(stranger);
}
END_TEST

/* Rank 2 comes and never gathers: rank 1 hears from rank 0 who is lost. */
START_TEST(everybody_names_the_rank_that_is_silent)
{
    struct rank ranks[2] = {{.rank = 0, .ranks = 3, .timeout = 2}};
    struct gemmar_perf_meet *silent;
    pthread_t thread[2];

    free_address(ranks[0].address, sizeof(ranks[0].address));
    ranks[1] = ranks[0];
    ranks[1].rank = 1;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_create(&thread[i], NULL, be_rank, &ranks[i]), 0);
    }
    ck_assert_int_eq(gemmar_perf_meet_open(ranks[0].address, 2, 3, 2, &silent, why, sizeof(why)),
                     0);
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(thread[i], NULL);
        ck_assert_int_eq(ranks[i].opened, 0);
        ck_assert_int_eq(ranks[i].gathered, -ETIMEDOUT);
        ck_assert_uint_eq(ranks[i].lost, 2);
    }
    gemmar_perf_meet_close(silent);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {addresses_come_apart,
                                  a_numeric_address_is_taken_as_it_is,
                                  a_name_is_listened_for_everywhere,
                                  a_named_interface_is_the_one,
                                  a_silent_stranger_does_not_matter,
                                  everybody_names_the_rank_that_is_silent,
                                  NULL};

    return tap_run("rendezvous", tests);
}
