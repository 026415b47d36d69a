// SPDX-License-Identifier: Apache-2.0
// Choice of the interface for set-up.
#include "transport/bootstrap.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "transport/hca_filter.h"

#define INTERFACES_MAX 256

static bool is_candidate(const struct gemmar_interface *i, int64_t family)
{
    sa_family_t own = i->address.any.sa_family;

    if (!i->up || (own == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&i->address.in6.sin6_addr))) {
        return false;
    }
    return family == GEMMAR_FAMILY_ANY ||
           own == (family == GEMMAR_FAMILY_IPV4 ? AF_INET : AF_INET6);
}

static bool is_in_subnet(const struct gemmar_interface *i, const struct gemmar_socket_address *near)
{
    const struct gemmar_socket_address *own = &i->address, *mask = &i->netmask;

    if (mask->length == 0 || own->any.sa_family != near->any.sa_family) {
        return false;
    }
    if (own->any.sa_family == AF_INET) {
        return ((own->in.sin_addr.s_addr ^ near->in.sin_addr.s_addr) & mask->in.sin_addr.s_addr) ==
               0;
    }
    for (size_t b = 0; b < sizeof(own->in6.sin6_addr.s6_addr); b++) {
        if (((own->in6.sin6_addr.s6_addr[b] ^ near->in6.sin6_addr.s6_addr[b]) &
             mask->in6.sin6_addr.s6_addr[b]) != 0) {
            return false;
        }
    }
    return own->in6.sin6_scope_id == near->in6.sin6_scope_id;
}

/* One step of the choice: an interface must pass the filter (NULL: any) and lie in the subnet
 * (NULL: any). An index, or -1. */
static int find(const struct gemmar_interface *list, int count, int64_t family,
                const struct gemmar_hca_filter *filter, const struct gemmar_socket_address *near)
{
    for (int link_local = 0; link_local < 2; link_local++) {
        for (int i = 0; i < count; i++) {
            if (is_candidate(&list[i], family) &&
                gemmar_socket_address_is_link_local(&list[i].address) == (link_local == 1) &&
                (filter == NULL || gemmar_hca_filter_match(filter, list[i].name, -1)) &&
                (near == NULL || is_in_subnet(&list[i], near))) {
                return i;
            }
        }
    }
    return -1;
}

static int find_unnamed(const struct gemmar_interface *list, int count, int64_t family,
                        const struct gemmar_socket_address *near)
{
    static const struct gemmar_hca_filter steps[] = {
        {.count = 1, .entry = {{"ib", -1}}},
        {.exclude = true, .count = 3, .entry = {{"docker", -1}, {"lo", -1}, {"virbr", -1}}},
        {.count = 1, .entry = {{"docker", -1}}},
        {.count = 1, .entry = {{"lo", -1}}},
        {.count = 1, .entry = {{"virbr", -1}}},
    };
    int found = find(list, count, family, &steps[0], NULL);

    if (found < 0 && near != NULL) {
        found = find(list, count, family, NULL, near);
    }
    for (size_t s = 1; found < 0 && s < sizeof(steps) / sizeof(steps[0]); s++) {
        found = find(list, count, family, &steps[s], NULL);
    }
    return found;
}

static void log_none(const struct gemmar_knobs *knobs, const struct gemmar_interface *list,
                     int count, const struct gemmar_logger *log)
{
    static const char *const families[] = {"", " with an IPv4 address", " with an IPv6 address"};
    char found[700] = "none", at[GEMMAR_SOCKET_TEXT_BYTES];
    size_t used = 0;

    for (int i = 0; i < count && used < sizeof(found); i++) {
        (void)gemmar_socket_address_text(&list[i].address, at, sizeof(at));
        at[strcspn(at, "<")] = '\0'; /* the port says nothing here */
        used += (size_t)snprintf(found + used, sizeof(found) - used, "%s%s %s%s", i > 0 ? ", " : "",
                                 list[i].name, at, list[i].up ? "" : " (down)");
    }
    gemmar_warn(log, "bootstrap: no interface%s for set-up%s%.200s; found: %s",
                families[knobs->socket_family],
                knobs->socket_ifname[0] != '\0' ? " matches NCCL_SOCKET_IFNAME " : "",
                knobs->socket_ifname, found);
}

int gemmar_bootstrap_choose(const struct gemmar_knobs *knobs, const struct gemmar_interface *list,
                            int count, const struct gemmar_socket_address *near,
                            const struct gemmar_logger *log, struct gemmar_bootstrap_address *out)
{
    int found;

    if (knobs->socket_ifname[0] != '\0') {
        struct gemmar_hca_filter filter;
        char why[96];
        int rc = gemmar_hca_filter_parse(knobs->socket_ifname, &filter, why, sizeof(why));

        if (rc != 0) {
            gemmar_warn(log, "bootstrap: NCCL_SOCKET_IFNAME '%.200s' %s", knobs->socket_ifname,
                        why);
            return rc;
        }
        found = find(list, count, knobs->socket_family, &filter, NULL);
    } else {
        found = find_unnamed(list, count, knobs->socket_family, near);
    }
    if (found < 0) {
        log_none(knobs, list, count, log);
        return -ENODEV;
    }
    out->address = list[found].address;
    memcpy(out->interface, list[found].name, sizeof(out->interface));
    return 0;
}

static int list_interfaces(struct gemmar_interface *list, const struct gemmar_logger *log)
{
    struct ifaddrs *all;
    int count = 0;

    if (getifaddrs(&all) != 0) {
        int rc = -errno;

        gemmar_warn(log, "bootstrap: cannot list the interfaces: %s", strerror(-rc));
        return rc;
    }
    for (const struct ifaddrs *a = all; a != NULL && count < INTERFACES_MAX; a = a->ifa_next) {
        struct gemmar_interface *i = &list[count];

        if (a->ifa_addr == NULL || gemmar_socket_address_from(a->ifa_addr, &i->address) != 0) {
            continue;
        }
        if (a->ifa_netmask == NULL ||
            gemmar_socket_address_from(a->ifa_netmask, &i->netmask) != 0) {
            i->netmask.length = 0;
        }
        (void)snprintf(i->name, sizeof(i->name), "%s", a->ifa_name); /* fits: IF_NAMESIZE */
        i->up = (a->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
        count++;
    }
    freeifaddrs(all);
    return count;
}

/* The host of "host:port" or "[address%interface]:port". */
static bool resolve(const char *comm_id, const struct gemmar_logger *log,
                    struct gemmar_socket_address *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    bool bracket = comm_id[0] == '[';
    char host[256];
    size_t length = strcspn(comm_id + bracket, bracket ? "]" : ":");
    int rc = EAI_NONAME;

    if (length > 0 && length < sizeof(host)) {
        memcpy(host, comm_id + bracket, length);
        host[length] = '\0';
        rc = getaddrinfo(host, NULL, &hints, &found);
    }
    if (rc == 0 && gemmar_socket_address_from(found->ai_addr, out) != 0) {
        rc = EAI_FAMILY;
    }
    if (found != NULL) {
        freeaddrinfo(found);
    }
    if (rc != 0) {
        gemmar_info(log, "bootstrap: NCCL_COMM_ID '%.200s' chooses no interface: %s", comm_id,
                    gai_strerror(rc));
    }
    return rc == 0;
}

int gemmar_bootstrap_address(const struct gemmar_knobs *knobs, const struct gemmar_logger *log,
                             struct gemmar_bootstrap_address *out)
{
    struct gemmar_interface list[INTERFACES_MAX];
    struct gemmar_socket_address near;
    bool is_near = false;
    int count = list_interfaces(list, log);

    if (count < 0) {
        return count;
    }
    if (knobs->socket_ifname[0] == '\0' && knobs->comm_id[0] != '\0') {
        is_near = resolve(knobs->comm_id, log, &near);
    }
    return gemmar_bootstrap_choose(knobs, list, count, is_near ? &near : NULL, log, out);
}

void gemmar_bootstrap_adopt_scope(struct gemmar_socket_address *peer,
                                  const struct gemmar_bootstrap_address *mine)
{
    if (peer->any.sa_family == AF_INET6 && gemmar_socket_address_is_link_local(peer)) {
        peer->in6.sin6_scope_id = if_nametoindex(mine->interface);
    }
}
