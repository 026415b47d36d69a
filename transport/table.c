// SPDX-License-Identifier: Apache-2.0
// The transport behind the table of transport.h: holds on the process-wide core, and channels.
#include "transport/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/build_id.h"
#include "transport/channel.h"
#include "transport/core.h"
#include "transport/order.h"

/* One user. */
struct gemmar_transport {
    struct gemmar_hold hold;
};

static int acquire(const struct gemmar_transport_settings *settings,
                   struct gemmar_transport **out_transport)
{
    struct gemmar_transport *t;
    int rc;

    if (settings == NULL || settings->size < sizeof(*settings)) {
        return -EINVAL;
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return -ENOMEM;
    }
    t->hold.log = (struct gemmar_logger){settings->log, settings->log_user, GEMMAR_LOG_WARN};
    rc = gemmar_core_hold(&t->hold);
    if (rc != 0) {
        free(t);
        return rc;
    }
    *out_transport = t;
    return 0;
}

static void release(struct gemmar_transport *t)
{
    if (t == NULL || !gemmar_core_is_ours(&t->hold)) {
        return;
    }
    gemmar_core_release(&t->hold);
    free(t);
}

static int device_count(struct gemmar_transport *t, uint32_t *out_count)
{
    *out_count = t->hold.core->device_count;
    return 0;
}

static int device(struct gemmar_transport *t, uint32_t index,
                  struct gemmar_transport_device *out_device)
{
    const struct gemmar_ib_device *d;
    struct gemmar_transport_device found = {.size = sizeof(found)};

    if (index >= t->hold.core->device_count || out_device->size < sizeof(found)) {
        return -EINVAL;
    }
    d = &t->hold.core->devices[index];
    memcpy(found.name, d->name, sizeof(found.name));
    memcpy(found.pci_path, d->pci_path, sizeof(found.pci_path));
    found.guid = d->guid;
    found.port = d->port;
    found.link_layer = d->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ? GEMMAR_LINK_ETHERNET
                                                                          : GEMMAR_LINK_INFINIBAND;
    found.speed_mbps = d->speed_mbps;
    found.numa_node = d->numa_node;
    found.gid_index = d->gid_index;
    found.mtu = gemmar_ib_mtu_bytes(d->port_attr.active_mtu);
    found.dmabuf = d->dmabuf;
    *out_device = found;
    return 0;
}

static int channel_open(struct gemmar_transport *t, const struct gemmar_channel_settings *settings,
                        struct gemmar_channel **out_channel)
{
    return gemmar_channel_open(t->hold.core->devices, t->hold.core->device_count, &t->hold.log,
                               settings, out_channel);
}

static int channel_ring(struct gemmar_channel *c, struct gemmar_fifo_ring *out_ring)
{
    *out_ring = c->fifo.ring;
    return 0;
}

static uint32_t channel_qp(struct gemmar_channel *c, uint32_t peer, uint32_t slot)
{
    return peer < c->peer_count ? gemmar_rdma_write_qp(c, peer, slot)->qp->qp_num : 0;
}

/* All members after `size` are words that the proxy alone counts up. */
static void channel_counters(struct gemmar_channel *c, struct gemmar_channel_counters *out_counters)
{
    size_t words = sizeof(c->counters) / sizeof(uint64_t);
    size_t wanted = out_counters->size / sizeof(uint64_t);
    const uint64_t *from = (const uint64_t *)&c->counters;
    uint64_t *to = (uint64_t *)out_counters;

    for (size_t i = 1; i < words && i < wanted; i++) {
        to[i] = gemmar_load_relaxed(&from[i]);
    }
}

/* Default visibility, and named by plugin.map: the one door of the library. */
__attribute__((visibility("default"))) const struct gemmar_transport_table gemmarTransport_v1 = {
    .size = sizeof(struct gemmar_transport_table),
    .version = GEMMAR_TRANSPORT_VERSION,
    .build_id = gemmar_build_id,
    .acquire = acquire,
    .release = release,
    .device_count = device_count,
    .device = device,
    .channel_open = channel_open,
    .channel_blob = gemmar_channel_blob,
    .channel_connect = gemmar_channel_connect,
    .channel_start = gemmar_channel_start,
    .channel_ring = channel_ring,
    .channel_drain = gemmar_channel_drain,
    .channel_error = gemmar_channel_error,
    .channel_counters = channel_counters,
    .channel_qp = channel_qp,
    .channel_close = gemmar_channel_close,
};
