// SPDX-License-Identifier: Apache-2.0
// Device and port discovery.
#include "transport/ib_device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/advice.h"
#include "transport/hca_filter.h"
#include "transport/ib_gid.h"
#include "transport/ib_query.h"

#define LEFT_OUT_MAX 16

uint32_t gemmar_ib_mtu_bytes(enum ibv_mtu mtu)
{
    return 128u << (int)mtu;
}

/* Why ports are not used. They are told together at the end: beside a device that works each one
 * has a line of its own, otherwise the sentence that there is none carries them all. */
struct left_out {
    int count;
    struct {
        enum gemmar_log_level level;
        char text[320];
    } port[LEFT_OUT_MAX];
};

static void leave_out(struct left_out *l, enum gemmar_log_level level,
                      const struct gemmar_ib_device *d, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void leave_out(struct left_out *l, enum gemmar_log_level level,
                      const struct gemmar_ib_device *d, const char *format, ...)
{
    va_list args;
    int n;

    if (l->count == LEFT_OUT_MAX) {
        return;
    }
    l->port[l->count].level = level;
    n = d->port != 0
            ? snprintf(l->port[l->count].text, sizeof(l->port[0].text), "device %s port %d ",
                       d->name, d->port)
            : snprintf(l->port[l->count].text, sizeof(l->port[0].text), "device %s ", d->name);
    va_start(args, format);
    (void)vsnprintf(l->port[l->count].text + n, sizeof(l->port[0].text) - (size_t)n, format, args);
    va_end(args);
    l->count++;
}

/* On InfiniBand entry 0 names the port, whatever NCCL_IB_GID_INDEX says: as in NCCL, job scripts
 * set it for all of their clusters. On RoCE one must be chosen. */
static int find_gid(struct gemmar_ib_device *d, struct left_out *l)
{
    int count = d->port_attr.gid_tbl_len, index;
    struct gemmar_gid_entry *entries;
    char why[160], text[INET6_ADDRSTRLEN];

    if (d->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
        struct gemmar_gid_entry entry;

        gemmar_ib_gid_read(d->verbs, d->context, d->name, d->port, 0, &entry);
        d->gid = entry.gid;
        d->gid_index = d->port_attr.flags & IBV_QPF_GRH_REQUIRED ? 0 : -1;
        return 0;
    }
    entries = calloc((size_t)(count > 0 ? count : 1), sizeof(*entries));
    if (entries == NULL) {
        leave_out(l, GEMMAR_LOG_WARN, d, "has a GID table that does not fit into memory");
        return -ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        gemmar_ib_gid_read(d->verbs, d->context, d->name, d->port, i, &entries[i]);
    }
    index = gemmar_ib_gid_choose(entries, count, d->knobs, why, sizeof(why));
    if (index < 0) {
        leave_out(l, GEMMAR_LOG_WARN, d, "has no GID to use: %s", why);
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
    (void)pthread_mutex_destroy(&d->watch_lock);
    memset(d, 0, sizeof(*d));
}

static int open_context(struct gemmar_ib_device *d, struct ibv_device *device, struct left_out *l)
{
    char advice[GEMMAR_ADVICE_BYTES];
    int error;

    errno = 0;
    d->context = d->verbs->open_device(device);
    if (d->context != NULL) {
        return 0;
    }
    error = errno != 0 ? errno : EIO;
    (void)gemmar_advice_limit(error, 0, advice, sizeof(advice));
    if (error == EACCES || error == EPERM) {
        (void)snprintf(advice, sizeof(advice),
                       "; /dev/infiniband/uverbs* must be readable and writable for user %u",
                       (unsigned)geteuid());
    } else if (error == ENOENT || error == ENODEV || error == ENXIO) {
        (void)snprintf(advice, sizeof(advice),
                       "; /dev/infiniband/uverbs* is missing, a container must be given it");
    }
    leave_out(l, GEMMAR_LOG_WARN, d, "cannot be opened: %s%s", strerror(error), advice);
    return -error;
}

static int query(struct gemmar_ib_device *d, struct left_out *l)
{
    int rc = d->verbs->query_device(d->context, &d->attr);

    if (rc == 0) {
        rc = d->verbs->query_port(d->context, d->port, &d->port_attr);
    }
    if (rc != 0) {
        rc = rc > 0 ? -rc : rc;
        leave_out(l, GEMMAR_LOG_WARN, d, "cannot be queried: %s", strerror(-rc));
        return rc;
    }
    if (d->port_attr.state != IBV_PORT_ACTIVE) {
        leave_out(l, GEMMAR_LOG_INFO, d, "is not active (state %d)", (int)d->port_attr.state);
        return -ENETDOWN;
    }
    return 0;
}

/* 0, or a negative errno whose reason is in `l`. */
static int open_port(struct gemmar_ib_device *d, struct ibv_device *device, struct left_out *l)
{
    char advice[GEMMAR_ADVICE_BYTES];
    int rc;

    d->stop_fd = -1;
    d->gid_index = -1;
    (void)pthread_mutex_init(&d->mr_lock, NULL); /* default attributes: cannot fail on Linux */
    (void)pthread_mutex_init(&d->watch_lock, NULL);
    rc = open_context(d, device, l);
    if (rc == 0) {
        rc = query(d, l);
    }
    if (rc != 0) {
        goto undo;
    }
    d->guid = be64toh(d->attr.node_guid) + d->port - 1;
    d->speed_mbps = gemmar_ib_port_speed(&d->port_attr);
    d->numa_node = gemmar_ib_device_place(d->name, d->pci_path, sizeof(d->pci_path));
    rc = find_gid(d, l);
    if (rc != 0) {
        goto undo;
    }
    errno = 0;
    d->pd = d->verbs->alloc_pd(d->context);
    if (d->pd == NULL) {
        rc = errno != 0 ? -errno : -ENOMEM;
        leave_out(l, GEMMAR_LOG_WARN, d, "has no protection domain to give: %s%s", strerror(-rc),
                  gemmar_advice_limit(-rc, 0, advice, sizeof(advice)));
        goto undo;
    }
    d->dmabuf = gemmar_ib_has_dmabuf(d->verbs, d->pd);
    d->relaxed = d->knobs->ib_relaxed_ordering == 1 ||
                 (d->knobs->ib_relaxed_ordering == 2 && d->verbs->reg_mr_iova2 != NULL);
    rc = gemmar_ib_event_start(d);
    if (rc == 0) {
        gemmar_info(d->log, "ib_device: device %s port %d %s %u Mb/s mtu %u lid %u numa %d",
                    d->name, d->port,
                    d->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand",
                    d->speed_mbps, gemmar_ib_mtu_bytes(d->port_attr.active_mtu), d->port_attr.lid,
                    d->numa_node);
        return 0;
    }
    leave_out(l, GEMMAR_LOG_INFO, d, "has no event thread: %s", strerror(-rc)); /* told already */
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

/* The last word on a search: every reason once, in as much of one line as is free. */
static void tell(const struct left_out *l, const struct gemmar_knobs *knobs,
                 const struct gemmar_logger *log, int found, int list_error, uint32_t count)
{
    char text[800] = "";
    size_t used = 0;

    for (int i = 0; i < l->count && count != 0; i++) {
        gemmar_log(log, l->port[i].level, "ib_device: %s, left out", l->port[i].text);
    }
    if (count != 0) {
        return;
    }
    if (list_error != 0) {
        used = (size_t)snprintf(
            text, sizeof(text), ": ibv_get_device_list: %s%s", strerror(list_error),
            list_error == ENOSYS ? "; no RDMA driver (modprobe ib_uverbs), or a container "
                                   "without /sys/class/infiniband_verbs"
                                 : "");
    }
    for (int i = 0; i < l->count && used < sizeof(text); i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s %s", i > 0 ? ";" : ":",
                                 l->port[i].text);
    }
    gemmar_warn(log, "ib_device: no usable verbs device (%d found, NCCL_IB_HCA '%.100s')%s", found,
                knobs->ib_hca, text);
}

/* The ports of one device that the filter admits; returns how many were opened. */
static uint32_t open_ports(const struct gemmar_ib_device *model, struct ibv_device *device,
                           const struct gemmar_hca_filter *filter, struct gemmar_ib_device *devices,
                           uint32_t room, struct left_out *l)
{
    int ports = count_ports(model->verbs, device);
    uint32_t count = 0;

    for (int port = 1; port <= ports && count < room; port++) {
        struct gemmar_ib_device one = *model;

        one.port = (uint8_t)port;
        if (!gemmar_hca_filter_match(filter, one.name, port)) {
            leave_out(l, GEMMAR_LOG_TRACE, &one, "is not selected");
            continue;
        }
        devices[count] = one;
        count += open_port(&devices[count], device, l) == 0;
    }
    return count;
}

int gemmar_ib_devices_open(const struct gemmar_ib_verbs *verbs, const struct gemmar_knobs *knobs,
                           const struct gemmar_logger *log, struct gemmar_ib_device *devices,
                           uint32_t *out_count)
{
    struct left_out left_out = {.count = 0};
    struct gemmar_hca_filter filter;
    char why[160];
    struct ibv_device **list;
    int found = 0, list_error, rc;
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
    errno = 0;
    list = verbs->get_device_list(&found);
    list_error = list == NULL ? errno : 0;
    for (int i = 0; list != NULL && i < found; i++) {
        struct gemmar_ib_device model = {.verbs = verbs, .knobs = knobs, .log = log};

        (void)snprintf(model.name, sizeof(model.name), "%s", verbs->get_device_name(list[i]));
        if (gemmar_hca_filter_match(&filter, model.name, -1)) {
            count += open_ports(&model, list[i], &filter, &devices[count],
                                GEMMAR_MAX_DEVICES - count, &left_out);
        } else {
            leave_out(&left_out, GEMMAR_LOG_TRACE, &model, "is not selected");
        }
    }
    if (list != NULL) {
        verbs->free_device_list(list);
    }
    tell(&left_out, knobs, log, found, list_error, count);
    if (count == 0) {
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
