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
    bool kept;   /* virtual devices from before the last probe are in it, and nobody has asked */
    bool merges; /* NCCL_IB_MERGE_NICS */
    int ports, count;
    struct net_device device[MAX_DEVICES];
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

/* Under the lock. Are these the ports that the table has? */
static bool same_ports(const struct gemmar_core *core)
{
    char name[sizeof(table.device[0].name)];

    if (!table.probed || table.ports != (int)core->device_count) {
        return false;
    }
    for (int i = 0; i < table.ports; i++) {
        port_name(&core->devices[i], name, sizeof(name));
        if (strcmp(name, table.device[i].name) != 0) {
            return false;
        }
    }
    return true;
}

/* Under the lock. Virtual devices stay where their ports do: an NCCL that has kept the library
 * loaded makes them once, and goes on with their indices in later communicators. */
static int probe(const struct gemmar_logger *log)
{
    struct gemmar_hold hold = {.log = *log};
    int rc = gemmar_core_hold(&hold);

    if (rc != 0) {
        table.probed = false;
        table.count = 0;
        return rc;
    }
    table.count = same_ports(hold.core) ? table.count : (int)hold.core->device_count;
    table.ports = (int)hold.core->device_count;
    for (int i = 0; i < table.ports; i++) {
        describe(&hold.core->devices[i], i, &table.device[i]);
    }
    for (int i = table.ports; i < table.count; i++) {
        struct net_device joined;

        join(table.device[i].member, table.device[i].members, &joined);
        table.device[i] = joined;
    }
    table.kept = table.count > table.ports;
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
    table.count = table.kept ? table.ports : table.count;
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

int net_device_open_ports(int dev, struct gemmar_core *core, const struct gemmar_logger *log,
                          struct gemmar_ib_device **out, uint32_t *out_count)
{
    struct net_device wanted, port;

    if (net_device_get(dev, &wanted) != 0) {
        gemmar_warn(log, "net: there is no device %d", dev);
        return -EINVAL;
    }
    for (int i = 0; i < wanted.members; i++) {
        char name[sizeof(port.name)];
        uint32_t at = 0;

        (void)net_device_get(wanted.member[i], &port); /* members exist as long as the device */
        for (; at < core->device_count; at++) {
            port_name(&core->devices[at], name, sizeof(name));
            if (strcmp(name, port.name) == 0) {
                break;
            }
        }
        if (at == core->device_count) {
            gemmar_warn(log, "net: device %s has gone, or its port is not active any more",
                        port.name);
            return -ENODEV;
        }
        out[i] = &core->devices[at];
    }
    *out_count = (uint32_t)wanted.members;
    return 0;
}
