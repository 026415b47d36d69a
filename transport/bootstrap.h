// SPDX-License-Identifier: Apache-2.0
// The address that this process listens on for set-up: NCCL's choice of an interface, so that what
// works for NCCL's own sockets works for these.
#ifndef GEMMAR_BOOTSTRAP_H
#define GEMMAR_BOOTSTRAP_H

#include <net/if.h>
#include <stdbool.h>

#include "transport/env.h"
#include "transport/log.h"
#include "transport/socket.h"

/* One address of one interface, in the system's order: IPv4 before IPv6. */
struct gemmar_interface {
    char name[IF_NAMESIZE];
    bool up; /* and attached */
    struct gemmar_socket_address address, netmask;
};

struct gemmar_bootstrap_address {
    struct gemmar_socket_address address; /* port 0; link-local IPv6 with its scope */
    char interface[IF_NAMESIZE];
};

/*
 * Choose among `list`. With NCCL_SOCKET_IFNAME: the first one that it admits. Without: ib*, then
 * the subnet of `near` (of NCCL_COMM_ID; NULL: unknown), then all but docker*, lo* and virbr*, then
 * docker*, lo*, virbr*. NCCL_SOCKET_FAMILY holds for all of them. Interfaces that are down and ::1
 * never count. Unlike NCCL, of several that pass the same step one with a link-local address comes
 * last: it reaches only one segment, and every veth has one.
 * -EINVAL: a filter that is not understood. -ENODEV: none passes; the logged sentence lists all.
 */
int gemmar_bootstrap_choose(const struct gemmar_knobs *knobs, const struct gemmar_interface *list,
                            int count, const struct gemmar_socket_address *near,
                            const struct gemmar_logger *log, struct gemmar_bootstrap_address *out);

/* The same over this host's interfaces. A host name in NCCL_COMM_ID is looked up, which may block:
 * for initialisation. Errors: as above, and those of getifaddrs. All are logged. */
int gemmar_bootstrap_address(const struct gemmar_knobs *knobs, const struct gemmar_logger *log,
                             struct gemmar_bootstrap_address *out);

/* A scope counts only on its own host: give a peer's link-local address the one of my interface. */
void gemmar_bootstrap_adopt_scope(struct gemmar_socket_address *peer,
                                  const struct gemmar_bootstrap_address *mine);

#endif
