// SPDX-License-Identifier: Apache-2.0
// The devices that NCCL sees: one per usable port, then the virtual ones that it made of them.
//
// The table outlives the open devices: NCCL asks for properties between init and the first
// communicator, when nothing is open. It is made anew by an init while nothing uses it, so that an
// index stays valid as long as somebody may hold it.
#ifndef GEMMAR_NET_DEVICE_H
#define GEMMAR_NET_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "plugin/net_abi.h"
#include "transport/core.h"

#define NET_MAX_VDEVICES 64

struct net_device {
    char name[256]; /* members joined by + */
    char pci_path[256];
    uint64_t guid;
    int port;
    uint32_t speed_mbps; /* sum of the members */
    bool ethernet, dmabuf;
    int max_queue_pairs;
    uint64_t longest; /* bytes of one work request, smallest of the members */
    int members;
    int member[GEMMAR_NET_VDEVICE_DEVICES]; /* indices; a port has itself */
};

/* Read the ports if that has to be done. 0 or a negative errno, logged. */
int net_devices_probe(const struct gemmar_logger *log);
/* Somebody who may hold an index: contexts, listeners, communicators, registrations. */
void net_devices_use(void);
void net_devices_leave(void);

int net_device_count(void);
/* The same for NCCL. It makes virtual devices once while it keeps the library loaded, so a probe
 * keeps them, and ports that are not active now; it asks for the count right after an init only
 * when it has loaded the library anew, and takes all for ports: then both are forgotten. */
int net_device_count_anew(void);
/* A copy in `out`; -EINVAL for an index that does not exist. */
int net_device_get(int dev, struct net_device *out);
/* Addresses that stay valid while the device exists; "" is told as NULL. */
int net_device_texts(int dev, const char **out_name, const char **out_pci_path);
/* Index of the device of these members, made if need be. -EINVAL with the reason logged. */
int net_device_make(const struct gemmar_net_vprops_v12 *members, const struct gemmar_logger *log,
                    int *out_dev);
/* The open ports of a device, in member order: a virtual one may have lost some, which is logged
 * and stays so as long as the devices are open. -ENODEV, logged, when none is there any more. */
int net_device_open_ports(int dev, struct gemmar_core *core, const struct gemmar_logger *log,
                          struct gemmar_ib_device **out, uint32_t *out_count);

/* How many these are, with nothing logged. -EINVAL: no such device; -ENODEV: none. */
int net_device_open_count(int dev, struct gemmar_core *core, uint32_t *out_count);

#endif
