// SPDX-License-Identifier: Apache-2.0
// The interface for set-up: NCCL's rules, never docker, veth or a link-local address while there is
// something better, and an error that lists what there is.
#include "transport/bootstrap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_suite.h"

static struct gemmar_knobs knobs;
static struct gemmar_interface list[16];
static char last_line[2048];
static int lines;

static void sink(void *user, enum gemmar_log_level level, const char *text)
{
    (void)user;
    lines += level == GEMMAR_LOG_WARN;
    (void)snprintf(last_line, sizeof(last_line), "%s", text);
}

static const struct gemmar_logger logger = {.sink = sink, .level = GEMMAR_LOG_INFO};

static struct gemmar_socket_address address(const char *text)
{
    struct gemmar_socket_address a;

    memset(&a, 0, sizeof(a));
    if (inet_pton(AF_INET, text, &a.in.sin_addr) == 1) {
        a.in.sin_family = AF_INET;
        a.length = sizeof(a.in);
    } else {
        ck_assert_int_eq(inet_pton(AF_INET6, text, &a.in6.sin6_addr), 1);
        a.in6.sin6_family = AF_INET6;
        a.length = sizeof(a.in6);
        a.in6.sin6_scope_id = gemmar_socket_address_is_link_local(&a) ? 7 : 0;
    }
    return a;
}

static struct gemmar_socket_address prefix(int family, int bits)
{
    struct gemmar_socket_address a = address(family == AF_INET ? "0.0.0.0" : "::");
    unsigned char *at =
        family == AF_INET ? (unsigned char *)&a.in.sin_addr : (unsigned char *)&a.in6.sin6_addr;

    for (int b = 0; b < bits; b++) {
        at[b / 8] |= (unsigned char)(0x80 >> b % 8);
    }
    return a;
}

/* "name address/bits" of each interface, separated by ", "; an address in brackets is down. */
static int make_list(const char *text)
{
    int n = 0, used = 0, bits;
    char name[16], at[64];

    memset(list, 0, sizeof(list));
    for (; sscanf(text, "%15s %63[^/]/%d%n", name, at, &bits, &used) == 3; n++) {
        bool down = at[0] == '(';

        memcpy(list[n].name, name, sizeof(name));
        list[n].up = !down;
        list[n].address = address(at + down);
        list[n].netmask = prefix(list[n].address.any.sa_family, bits);
        text += used;
        text += strspn(text, "), ");
    }
    ck_assert_str_eq(text, "");
    return n;
}

#define HOST "lo 127.0.0.1/8, docker0 172.17.0.1/16, eth0 192.0.2.2/24, eth1 198.51.100.2/24"
#define SIX  "lo ::1/128, docker0 fd00:d::1/64, eth0 fe80::2/64, eth1 fd00:1::2/64, eth1 fe80::3/64"

static const struct {
    const char *interfaces, *ifname, *near, *want;
    int family;
} cases[] = {
    {HOST, "", "", "eth0 192.0.2.2", GEMMAR_FAMILY_ANY},
    {HOST, "eth", "", "eth0 192.0.2.2", GEMMAR_FAMILY_ANY},
    {HOST, "=eth1", "", "eth1 198.51.100.2", GEMMAR_FAMILY_ANY},
    {HOST, "eth1,eth0", "", "eth0 192.0.2.2", GEMMAR_FAMILY_ANY}, /* the system's order counts */
    {HOST, "lo", "", "lo 127.0.0.1", GEMMAR_FAMILY_ANY},
    {HOST, "^docker,lo", "", "eth0 192.0.2.2", GEMMAR_FAMILY_ANY},
    {HOST, "^docker,lo,eth0", "", "eth1 198.51.100.2", GEMMAR_FAMILY_ANY},
    {HOST, "^=eth0,=docker0", "", "error", GEMMAR_FAMILY_ANY},
    {HOST, "^eth", "", "lo 127.0.0.1", GEMMAR_FAMILY_ANY},
    {HOST, "docker", "", "docker0 172.17.0.1", GEMMAR_FAMILY_ANY},
    {HOST, "=eth", "", "none", GEMMAR_FAMILY_ANY},
    {HOST, "eth9", "", "none", GEMMAR_FAMILY_ANY},
    {HOST, "=", "", "error", GEMMAR_FAMILY_ANY},
    {HOST, "", "", "none", GEMMAR_FAMILY_IPV6},
    /* InfiniBand's own interfaces first, also behind others; NCCL_COMM_ID does not change that. */
    {HOST ", ib0 10.0.0.2/24", "", "", "ib0 10.0.0.2", GEMMAR_FAMILY_ANY},
    {HOST ", ib0 10.0.0.2/24", "", "198.51.100.9", "ib0 10.0.0.2", GEMMAR_FAMILY_ANY},
    {HOST ", ib0 (10.0.0.2/24)", "", "", "eth0 192.0.2.2", GEMMAR_FAMILY_ANY},
    /* The subnet of NCCL_COMM_ID, whatever the interface's name; a foreign one changes nothing. */
    {HOST, "", "198.51.100.9", "eth1 198.51.100.2", GEMMAR_FAMILY_ANY},
    {HOST, "", "172.17.255.9", "docker0 172.17.0.1", GEMMAR_FAMILY_ANY},
    {HOST, "", "172.18.0.9", "eth0 192.0.2.2", GEMMAR_FAMILY_ANY},
    {HOST, "eth0", "198.51.100.9", "eth0 192.0.2.2", GEMMAR_FAMILY_ANY},
    {HOST, "", "fd00:1::9", "eth0 192.0.2.2", GEMMAR_FAMILY_ANY},
    {SIX, "", "fd00:1::9", "eth1 fd00:1::2", GEMMAR_FAMILY_ANY},
    {SIX, "", "fd00:d::9", "docker0 fd00:d::1", GEMMAR_FAMILY_ANY},
    {SIX, "", "fe80::9", "eth0 fe80::2", GEMMAR_FAMILY_ANY},
    /* Only docker, only lo, only virbr are left. */
    {"lo 127.0.0.1/8, docker0 172.17.0.1/16", "", "", "docker0 172.17.0.1", GEMMAR_FAMILY_ANY},
    {"virbr0 192.168.122.1/24, lo 127.0.0.1/8", "", "", "lo 127.0.0.1", GEMMAR_FAMILY_ANY},
    {"virbr0 192.168.122.1/24", "", "", "virbr0 192.168.122.1", GEMMAR_FAMILY_ANY},
    {"lo ::1/128", "", "", "none", GEMMAR_FAMILY_ANY},
    {"lo ::1/128", "lo", "", "none", GEMMAR_FAMILY_ANY},
    {"", "", "", "none", GEMMAR_FAMILY_ANY},
    /* IPv6 only: a routable address before a link-local one, which is still better than none. */
    {SIX, "", "", "eth1 fd00:1::2", GEMMAR_FAMILY_ANY},
    {SIX, "eth0", "", "eth0 fe80::2 scope 7", GEMMAR_FAMILY_ANY},
    {"lo ::1/128, eth0 fe80::2/64", "", "", "eth0 fe80::2 scope 7", GEMMAR_FAMILY_ANY},
    {"veth1 fe80::5/64, eth0 fd00::2/64", "", "", "eth0 fd00::2", GEMMAR_FAMILY_ANY},
    {"usb0 169.254.3.1/16, eth0 10.1.1.1/24", "", "", "eth0 10.1.1.1", GEMMAR_FAMILY_ANY},
    {HOST ", eth0 fd00::2/64", "", "", "eth0 fd00::2", GEMMAR_FAMILY_IPV6},
    {HOST ", eth0 fd00::2/64", "=eth1", "", "none", GEMMAR_FAMILY_IPV6},
    {HOST ", eth0 fd00::2/64", "", "", "eth0 192.0.2.2", GEMMAR_FAMILY_IPV4},
    {SIX, "", "", "none", GEMMAR_FAMILY_IPV4},
    {"eth0 fd00::2/64, lo 127.0.0.1/8", "", "fd00::9", "lo 127.0.0.1", GEMMAR_FAMILY_IPV4},
};

static const char *choose(int c)
{
    static char text[128];
    struct gemmar_bootstrap_address got;
    struct gemmar_socket_address near;
    int n = make_list(cases[c].interfaces), rc;

    (void)snprintf(knobs.socket_ifname, sizeof(knobs.socket_ifname), "%s", cases[c].ifname);
    knobs.socket_family = cases[c].family;
    if (cases[c].near[0] != '\0') {
        near = address(cases[c].near);
    }
    memset(&got, 0, sizeof(got));
    rc = gemmar_bootstrap_choose(&knobs, list, n, cases[c].near[0] != '\0' ? &near : NULL, &logger,
                                 &got);
    if (rc == 0) {
        char at[GEMMAR_SOCKET_TEXT_BYTES];
        uint32_t scope = got.address.any.sa_family == AF_INET6 ? got.address.in6.sin6_scope_id : 0;

        got.address.in6.sin6_scope_id = 0;
        (void)gemmar_socket_address_text(&got.address, at, sizeof(at));
        at[strcspn(at, "<")] = '\0';
        (void)snprintf(text, sizeof(text), scope != 0 ? "%s %s scope %u" : "%s %s", got.interface,
                       at, scope);
        return text;
    }
    ck_assert_int_eq(lines, 1);
    ck_assert_uint_eq(got.address.length, 0); /* untouched */
    return rc == -ENODEV ? "none" : rc == -EINVAL ? "error" : "?";
}

START_TEST(rules_choose_this_interface)
{
    const char *got = choose(_i);

    /* Without a scope in the expectation the address must have none, but for subnets given so. */
    if (strcmp(cases[_i].near, "fe80::9") == 0) {
        ck_assert_str_eq(got, "eth0 fe80::2 scope 7");
        return;
    }
    ck_assert_msg(strcmp(got, cases[_i].want) == 0, "%d '%s' '%s' near '%s': %s, not %s", _i,
                  cases[_i].interfaces, cases[_i].ifname, cases[_i].near, got, cases[_i].want);
}
END_TEST

START_TEST(absent_interface_lists_those_found)
{
    struct gemmar_bootstrap_address got;
    int n = make_list(HOST ", eth2 (fd00::7/64)");

    (void)snprintf(knobs.socket_ifname, sizeof(knobs.socket_ifname), "=eth7");
    ck_assert_int_eq(gemmar_bootstrap_choose(&knobs, list, n, NULL, &logger, &got), -ENODEV);
    ck_assert_str_eq(last_line,
                     "bootstrap: no interface for set-up matches NCCL_SOCKET_IFNAME =eth7; found: "
                     "lo 127.0.0.1, docker0 172.17.0.1, eth0 192.0.2.2, eth1 198.51.100.2, "
                     "eth2 fd00::7 (down)");
    knobs.socket_family = GEMMAR_FAMILY_IPV6;
    knobs.socket_ifname[0] = '\0';
    ck_assert_int_eq(gemmar_bootstrap_choose(&knobs, list, n, NULL, &logger, &got), -ENODEV);
    ck_assert_ptr_nonnull(
        strstr(last_line, "no interface with an IPv6 address for set-up; found: lo 127.0.0.1, "));
}
END_TEST

START_TEST(long_list_of_interfaces_is_cut)
{
    static struct gemmar_interface many[200];
    struct gemmar_bootstrap_address got;

    for (int i = 0; i < 200; i++) {
        many[i].address = address("fd00:1111:2222:3333:4444:5555:6666:7777");
        memcpy(many[i].name, "eth012345678901", 16);
    }
    ck_assert_int_eq(gemmar_bootstrap_choose(&knobs, many, 200, NULL, &logger, &got), -ENODEV);
    ck_assert_uint_lt(strlen(last_line), 1023);
}
END_TEST

/* Of this machine only lo is known. */
START_TEST(loopback_of_this_host_is_found_by_name)
{
    struct gemmar_bootstrap_address got;

    (void)snprintf(knobs.socket_ifname, sizeof(knobs.socket_ifname), "=lo");
    knobs.socket_family = GEMMAR_FAMILY_IPV4;
    ck_assert_int_eq(gemmar_bootstrap_address(&knobs, &logger, &got), 0);
    ck_assert_str_eq(got.interface, "lo");
    ck_assert_uint_eq(ntohl(got.address.in.sin_addr.s_addr), INADDR_LOOPBACK);
    ck_assert_uint_eq(got.address.in.sin_port, 0);
    ck_assert_uint_eq(got.address.length, sizeof(struct sockaddr_in));

    (void)snprintf(knobs.socket_ifname, sizeof(knobs.socket_ifname), "=gemmar9");
    ck_assert_int_eq(gemmar_bootstrap_address(&knobs, &logger, &got), -ENODEV);
    ck_assert_ptr_nonnull(strstr(last_line, "lo 127.0.0.1"));
}
END_TEST

static const struct {
    const char *comm_id;
    bool used;
} ids[] = {
    {"127.0.0.9:4711", true}, {"127.0.0.9", true}, {"[::1]:4711", false},
    {":4711", false},         {"[", false},        {"[not an address]:1", false},
    {"1.2.3.4.5:9", false},
};

/* No test can rely on an ib* interface being absent; this machine is only asked when it has none.
 */
START_TEST(comm_id_names_the_subnet)
{
    struct gemmar_bootstrap_address got, without;

    ck_assert_int_eq(gemmar_bootstrap_address(&knobs, &logger, &without), 0);
    lines = 0;
    (void)snprintf(knobs.comm_id, sizeof(knobs.comm_id), "%s", ids[_i].comm_id);
    ck_assert_int_eq(gemmar_bootstrap_address(&knobs, &logger, &got), 0);
    if (ids[_i].used && strncmp(without.interface, "ib", 2) != 0) {
        ck_assert_str_eq(got.interface, "lo");
    } else if (strcmp(ids[_i].comm_id, "[::1]:4711") != 0) {
        ck_assert_str_eq(got.interface, without.interface);
    }
    ck_assert_int_eq(lines, 0);
}
END_TEST

START_TEST(scope_of_a_peer_becomes_that_of_my_interface)
{
    struct gemmar_bootstrap_address mine = {.interface = "lo"};
    struct gemmar_socket_address local = address("fe80::9"), global = address("fd00::9"),
                                 four = address("192.0.2.9"), before = four;

    gemmar_bootstrap_adopt_scope(&local, &mine);
    ck_assert_uint_eq(local.in6.sin6_scope_id, if_nametoindex("lo"));
    gemmar_bootstrap_adopt_scope(&global, &mine);
    ck_assert_uint_eq(global.in6.sin6_scope_id, 0);
    gemmar_bootstrap_adopt_scope(&four, &mine);
    ck_assert_mem_eq(&four, &before, sizeof(four));
}
END_TEST

static void setup(void)
{
    memset(&knobs, 0, sizeof(knobs));
    lines = 0;
    last_line[0] = '\0';
}

int main(void)
{
    TCase *tests = tcase_create("all");

    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_loop_test(tests, rules_choose_this_interface, 0,
                        (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(tests, absent_interface_lists_those_found);
    tcase_add_test(tests, long_list_of_interfaces_is_cut);
    tcase_add_test(tests, loopback_of_this_host_is_found_by_name);
    tcase_add_loop_test(tests, comm_id_names_the_subnet, 0, (int)(sizeof(ids) / sizeof(ids[0])));
    tcase_add_test(tests, scope_of_a_peer_becomes_that_of_my_interface);
    return run_suite("bootstrap", tests, 60);
}
