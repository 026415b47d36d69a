// SPDX-License-Identifier: Apache-2.0
// Device and port discovery.
#include "transport/ib_device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/hca_filter.h"
#include "transport/ib_gid.h"
#include "transport/ib_query.h"

uint32_t gemmar_ib_mtu_bytes(enum ibv_mtu mtu)
{
    return 128u << (int)mtu;
}

/* On InfiniBand entry 0 names the port; on RoCE one must be chosen. */
static int find_gid(struct gemmar_ib_device *d)
{
    int count = d->port_attr.gid_tbl_len, index;
    struct gemmar_gid_entry *entries;
    char why[160], text[INET6_ADDRSTRLEN];

    if (d->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET && d->knobs->ib_gid_index < 0) {
        struct gemmar_gid_entry entry;

        gemmar_ib_gid_read(d->verbs, d->context, d->name, d->port, 0, &entry);
        d->gid = entry.gid;
        d->gid_index = d->port_attr.flags & IBV_QPF_GRH_REQUIRED ? 0 : -1;
        return 0;
    }
    entries = calloc((size_t)(count > 0 ? count : 1), sizeof(*entries));
    if (entries == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        gemmar_ib_gid_read(d->verbs, d->context, d->name, d->port, i, &entries[i]);
    }
    index = gemmar_ib_gid_choose(entries, count, d->knobs, why, sizeof(why));
    if (index < 0) {
        gemmar_warn(d->log, "ib_gid: device %s port %d: %s", d->name, d->port, why);
    } else {
        d->gid_index = index;
        d->gid = entries[index].gid;
        gemmar_ib_gid_text(&d->gid, text);
        gemmar_info(d->log, "ib_gid: device %s port %d gid index %d address %s: %s", d->name,
                    d->port, index, text, why);
    }
    free(entries);
    return index < 0 ? index : 0;
}

static void close_port(struct gemmar_ib_device *d)
{
    gemmar_ib_event_stop(d);
    if (d->pd != NULL && d->verbs->dealloc_pd(d->pd) != 0) {
        gemmar_warn(d->log, "ib_device: device %s: protection domain still in use", d->name);
    }
    if (d->context != NULL && d->verbs->close_device(d->context) != 0) {
        gemmar_warn(d->log, "ib_device: device %s: close failed", d->name);
    }
    (void)pthread_mutex_destroy(&d->mr_lock);
    memset(d, 0, sizeof(*d));
}

/* 0: opened; 1: not to be used, said why; negative errno otherwise. */
static int open_port(struct gemmar_ib_device *d, struct ibv_device *device, uint8_t port)
{
    int rc;

    d->port = port;
    d->stop_fd = -1;
    d->gid_index = -1;
    (void)pthread_mutex_init(&d->mr_lock, NULL); /* default attributes: cannot fail on Linux */
    errno = 0;
    d->context = d->verbs->open_device(device);
    if (d->context == NULL) {
        rc = errno != 0 ? -errno : -EIO;
        gemmar_warn(d->log,
                    "ib_device: cannot open device %s: %s; check /dev/infiniband/uverbs* and the "
                    "limits on locked memory and files",
                    d->name, strerror(-rc));
        goto undo;
    }
    rc = d->verbs->query_device(d->context, &d->attr);
    if (rc == 0) {
        rc = d->verbs->query_port(d->context, port, &d->port_attr);
    }
    if (rc != 0) {
        rc = rc > 0 ? -rc : rc;
        gemmar_warn(d->log, "ib_device: device %s port %d: query failed: %s", d->name, port,
                    strerror(-rc));
        goto undo;
    }
    if (d->port_attr.state != IBV_PORT_ACTIVE) {
        gemmar_info(d->log, "ib_device: device %s port %d is not active (state %d), left out",
                    d->name, port, (int)d->port_attr.state);
        rc = 1;
        goto undo;
    }
    d->guid = be64toh(d->attr.node_guid) + port - 1;
    d->speed_mbps = gemmar_ib_port_speed(&d->port_attr);
    d->numa_node = gemmar_ib_device_place(d->name, d->pci_path, sizeof(d->pci_path));
    rc = find_gid(d);
    if (rc != 0) {
        goto undo;
    }
    d->pd = d->verbs->alloc_pd(d->context);
    if (d->pd == NULL) {
        rc = errno != 0 ? -errno : -ENOMEM;
        gemmar_warn(d->log, "ib_device: device %s: no protection domain: %s", d->name,
                    strerror(-rc));
        goto undo;
    }
    d->dmabuf = gemmar_ib_has_dmabuf(d->verbs, d->pd);
    d->relaxed = d->knobs->ib_relaxed_ordering == 1 ||
                 (d->knobs->ib_relaxed_ordering == 2 && d->verbs->reg_mr_iova2 != NULL);
    rc = gemmar_ib_event_start(d);
    if (rc == 0) {
        gemmar_info(d->log, "ib_device: device %s port %d %s %u Mb/s mtu %u lid %u numa %d",
                    d->name, port,
                    d->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand",
                    d->speed_mbps, gemmar_ib_mtu_bytes(d->port_attr.active_mtu), d->port_attr.lid,
                    d->numa_node);
        return 0;
    }
undo:
    close_port(d);
    return rc;
}

/* Number of ports, without keeping the device open. */
static int count_ports(const struct gemmar_ib_verbs *verbs, struct ibv_device *device)
{
    struct ibv_context *context = verbs->open_device(device);
    struct ibv_device_attr attr;
    int ports = 1;

    if (context == NULL) {
        return 1; /* open_port says why it cannot be opened */
    }
    if (verbs->query_device(context, &attr) == 0) {
        ports = attr.phys_port_cnt;
    }
    (void)verbs->close_device(context); /* nothing was made in it */
    return ports;
}

int gemmar_ib_devices_open(const struct gemmar_ib_verbs *verbs, const struct gemmar_knobs *knobs,
                           const struct gemmar_logger *log, struct gemmar_ib_device *devices,
                           uint32_t *out_count)
{
    struct gemmar_hca_filter filter;
    char why[160];
    struct ibv_device **list;
    int found = 0, rc;
    uint32_t count = 0;

    rc = gemmar_hca_filter_parse(knobs->ib_hca, &filter, why, sizeof(why));
    if (rc != 0) {
        gemmar_warn(log, "env: NCCL_IB_HCA '%.200s' %s", knobs->ib_hca, why);
        return rc;
    }
    if (knobs->ib_disable) {
        gemmar_warn(log, "ib_device: NCCL_IB_DISABLE is 1, no verbs device is used");
        return -ENODEV;
    }
    list = verbs->get_device_list(&found);
    for (int i = 0; list != NULL && i < found; i++) {
        const char *name = verbs->get_device_name(list[i]);
        int ports;

        if (!gemmar_hca_filter_match(&filter, name, -1)) {
            continue;
        }
        ports = count_ports(verbs, list[i]);
        for (int port = 1; port <= ports && count < GEMMAR_MAX_DEVICES; port++) {
            struct gemmar_ib_device *d = &devices[count];

            if (!gemmar_hca_filter_match(&filter, name, port)) {
                continue;
            }
            memset(d, 0, sizeof(*d));
            d->verbs = verbs;
            d->knobs = knobs;
            d->log = log;
            (void)snprintf(d->name, sizeof(d->name), "%s", name);
            count += open_port(d, list[i], (uint8_t)port) == 0;
        }
    }
    if (list != NULL) {
        verbs->free_device_list(list);
    }
    if (count == 0) {
        gemmar_warn(log, "ib_device: no usable verbs device (%d found, NCCL_IB_HCA '%.200s')",
                    found, knobs->ib_hca);
        return -ENODEV;
    }
    *out_count = count;
    return 0;
}

void gemmar_ib_devices_close(struct gemmar_ib_device *devices, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        close_port(&devices[i]);
    }
}
