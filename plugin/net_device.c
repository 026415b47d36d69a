// SPDX-License-Identifier: Apache-2.0
// The devices that NCCL sees.
#include "plugin/net_device.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/ib_device.h"

#define MAX_DEVICES (GEMMAR_MAX_DEVICES + NET_MAX_VDEVICES)

/* Under the lock, except that texts of existing devices do not change. */
static struct {
    unsigned users;
    bool probed;
    bool kept;   /* more than the last probe has found is in it, and nobody has asked */
    bool merges; /* NCCL_IB_MERGE_NICS */
    int ports, count, found_count;
    struct net_device device[MAX_DEVICES];
    struct net_device found[GEMMAR_MAX_DEVICES]; /* by the last probe */
} table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_table(void)
{
    (void)pthread_mutex_lock(&lock);
}

static void unlock_table(void)
{
    (void)pthread_mutex_unlock(&lock);
}

static void port_name(const struct gemmar_ib_device *d, char *out, size_t bytes)
{
    (void)snprintf(out, bytes, "%s:%d", d->name, d->port);
}

/* NCCL takes functions, and virtual functions where it is told to, that share a PCI path for one
 * NIC. What is no such path is left alone. */
static void merge_functions(char *path, bool virtual_functions)
{
    size_t n = strlen(path); /* ends in dddd:bb:dd.f */
    char merged[sizeof(((struct net_device *)0)->pci_path)], real[PATH_MAX];

    if (n < 7 || path[n - 2] != '.') {
        return;
    }
    memcpy(merged, path, n + 1);
    merged[n - 1] = '0';
    if (virtual_functions) {
        merged[n - 3] = '0';
        merged[n - 4] = '0';
    }
    if (realpath(merged, real) != NULL && strcmp(real, merged) == 0) {
        memcpy(path, merged, n + 1);
    }
}

static void describe(const struct gemmar_ib_device *d, int index, struct net_device *out)
{
    memset(out, 0, sizeof(*out));
    port_name(d, out->name, sizeof(out->name));
    memcpy(out->pci_path, d->pci_path, sizeof(out->pci_path));
    merge_functions(out->pci_path, d->knobs->ib_merge_vfs != 0);
    out->guid = d->guid;
    out->port = d->port;
    out->speed_mbps = d->speed_mbps;
    out->ethernet = d->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    out->dmabuf = d->dmabuf;
    out->max_queue_pairs = d->attr.max_qp;
    out->longest = d->port_attr.max_msg_sz > 0 ? d->port_attr.max_msg_sz : UINT32_MAX;
    out->members = 1;
    out->member[0] = index;
}

/* Under the lock; `out` is no entry of the table. */
static void join(const int *members, int count, struct net_device *out)
{
    size_t used;

    *out = table.device[members[0]];
    used = strlen(out->name);
    out->members = count;
    for (int i = 1; i < count; i++) {
        const struct net_device *d = &table.device[members[i]];

        out->member[i] = members[i];
        out->speed_mbps += d->speed_mbps;
        out->dmabuf = out->dmabuf && d->dmabuf;
        out->longest = d->longest < out->longest ? d->longest : out->longest;
        if (used < sizeof(out->name)) { /* a longer name is cut */
            used += (size_t)snprintf(out->name + used, sizeof(out->name) - used, "+%s", d->name);
        }
    }
}

/* Under the lock. The port's index, or -1. */
static int find_port(const char *name)
{
    for (int i = 0; i < table.ports; i++) {
        if (strcmp(name, table.device[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Under the lock. Does the table have all ports that were found? */
static bool knows_all(void)
{
    for (int i = 0; i < table.found_count; i++) {
        if (find_port(table.found[i].name) < 0) {
            return false;
        }
    }
    return table.probed;
}

/* Under the lock. Begin again with the ports that were found. */
static void take_found(void)
{
    memcpy(table.device, table.found, (size_t)table.found_count * sizeof(table.device[0]));
    table.count = table.ports = table.found_count;
}

/* Under the lock. What is known of them now; the others have only gone for a while. */
static void renew(void)
{
    for (int i = 0; i < table.found_count; i++) {
        int at = find_port(table.found[i].name);

        table.device[at] = table.found[i];
        table.device[at].member[0] = at;
    }
    for (int i = table.ports; i < table.count; i++) {
        struct net_device joined;

        join(table.device[i].member, table.device[i].members, &joined);
        table.device[i] = joined;
    }
}

/* Under the lock. Indices stay where there is no new port: an NCCL that has kept the library loaded
 * asks for ports, and makes virtual devices of them, once, and goes on with these indices in later
 * communicators, also while a port is down. */
static int probe(const struct gemmar_logger *log)
{
    struct gemmar_hold hold = {.log = *log};
    int rc = gemmar_core_hold(&hold);

    if (rc != 0) {
        table.probed = false;
        table.count = 0;
        return rc;
    }
    table.found_count = (int)hold.core->device_count;
    for (int i = 0; i < table.found_count; i++) {
        describe(&hold.core->devices[i], i, &table.found[i]);
    }
    if (knows_all()) {
        renew();
    } else {
        take_found();
    }
    table.kept = table.count > table.found_count;
    table.merges = hold.core->knobs.ib_merge_nics != 0;
    table.probed = true;
    gemmar_core_release(&hold);
    return 0;
}

int net_devices_probe(const struct gemmar_logger *log)
{
    int rc = 0;

    lock_table();
    if (table.users == 0 || !table.probed) {
        rc = probe(log);
    }
    unlock_table();
    return rc;
}

void net_devices_use(void)
{
    lock_table();
    table.users++;
    unlock_table();
}

void net_devices_leave(void)
{
    lock_table();
    table.users--;
    unlock_table();
}

int net_device_count(void)
{
    int count;

    lock_table();
    count = table.count;
    unlock_table();
    return count;
}

int net_device_count_anew(void)
{
    lock_table();
    if (table.kept) {
        take_found();
    }
    table.kept = false;
    unlock_table();
    return net_device_count();
}

int net_device_get(int dev, struct net_device *out)
{
    int rc = -EINVAL;

    lock_table();
    if (dev >= 0 && dev < table.count) {
        *out = table.device[dev];
        rc = 0;
    }
    unlock_table();
    return rc;
}

int net_device_texts(int dev, const char **out_name, const char **out_pci_path)
{
    int rc = -EINVAL;

    lock_table();
    if (dev >= 0 && dev < table.count) {
        const struct net_device *d = &table.device[dev];

        *out_name = d->name;
        *out_pci_path = d->pci_path[0] != '\0' ? d->pci_path : NULL;
        rc = 0;
    }
    unlock_table();
    return rc;
}

/* Under the lock. NULL and a reason unless the members can be one device. */
static const char *why_not(const struct gemmar_net_vprops_v12 *v)
{
    if (v->ndevs < 1 || v->ndevs > GEMMAR_NET_VDEVICE_DEVICES) {
        return "between 1 and 8 members are possible";
    }
    if (v->ndevs > 1 && !table.merges) {
        return "NCCL_IB_MERGE_NICS is 0";
    }
    for (int i = 0; i < v->ndevs; i++) {
        if (v->devs[i] < 0 || v->devs[i] >= table.ports) {
            return "a member is not a port";
        }
        if (table.device[v->devs[i]].ethernet != table.device[v->devs[0]].ethernet) {
            return "InfiniBand and RoCE do not mix";
        }
        for (int j = 0; j < i; j++) {
            if (v->devs[j] == v->devs[i]) {
                return "a member comes twice";
            }
        }
    }
    return NULL;
}

/* Under the lock; -1 when there is none. */
static int find_set(const struct gemmar_net_vprops_v12 *v)
{
    for (int i = 0; i < table.count; i++) {
        const struct net_device *d = &table.device[i];
        int found = 0;

        for (int a = 0; a < v->ndevs; a++) {
            for (int b = 0; b < d->members; b++) {
                found += d->member[b] == v->devs[a];
            }
        }
        if (found == v->ndevs && d->members == v->ndevs) {
            return i;
        }
    }
    return -1;
}

int net_device_make(const struct gemmar_net_vprops_v12 *members, const struct gemmar_logger *log,
                    int *out_dev)
{
    struct net_device joined;
    const char *why;
    int index;

    lock_table();
    table.kept = false;
    why = why_not(members);
    index = why == NULL ? find_set(members) : -1;
    if (why == NULL && index < 0 && table.count == MAX_DEVICES) {
        why = "too many virtual devices";
    }
    if (why == NULL && index < 0) {
        join(members->devs, members->ndevs, &joined);
        index = table.count++;
        table.device[index] = joined;
    }
    unlock_table();
    if (why != NULL) {
        gemmar_warn(log, "net: no virtual device of %d ports: %s", members->ndevs, why);
        return -EINVAL;
    }
    *out_dev = index;
    return 0;
}

/* The ports of `d` that are open, in member order; `missing` has the name of one that is not. */
static uint32_t open_ports(const struct net_device *d, struct gemmar_core *core,
                           struct gemmar_ib_device **out, struct net_device *missing)
{
    uint32_t count = 0;

    for (int i = 0; i < d->members; i++) {
        struct net_device port;
        char name[sizeof(port.name)];
        uint32_t at = 0;

        (void)net_device_get(d->member[i], &port); /* members exist as long as the device */
        for (; at < core->device_count; at++) {
            port_name(&core->devices[at], name, sizeof(name));
            if (strcmp(name, port.name) == 0) {
                break;
            }
        }
        if (at < core->device_count) {
            out[count++] = &core->devices[at];
        } else {
            *missing = port;
        }
    }
    return count;
}

int net_device_open_count(int dev, struct gemmar_core *core, uint32_t *out_count)
{
    struct gemmar_ib_device *ports[GEMMAR_NET_VDEVICE_DEVICES];
    struct net_device d, missing;
    int rc = net_device_get(dev, &d);

    *out_count = rc == 0 ? open_ports(&d, core, ports, &missing) : 0;
    return rc == 0 && *out_count == 0 ? -ENODEV : rc;
}

int net_device_open_ports(int dev, struct gemmar_core *core, const struct gemmar_logger *log,
                          struct gemmar_ib_device **out, uint32_t *out_count)
{
    struct net_device d, missing;

    if (net_device_get(dev, &d) != 0) {
        gemmar_warn(log, "net: there is no device %d", dev);
        return -EINVAL;
    }
    *out_count = open_ports(&d, core, out, &missing);
    if (*out_count == 0) {
        gemmar_warn(log, "net: device %s has gone, or its port is not active any more", d.name);
        return -ENODEV;
    }
    if (*out_count < (uint32_t)d.members) {
        gemmar_warn(
            log,
            "net: device %s has gone, or its port is not active any more: what is connected "
            "now uses %u of the %d ports of %s",
            missing.name, *out_count, d.members, d.name);
    }
    return 0;
}
