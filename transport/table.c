// SPDX-License-Identifier: Apache-2.0
// The one transport of a process, counted by its users.
//
// The first user reads the knobs, loads libibverbs and opens the devices; the last one closes them
// again, so that threads and descriptors exist only while somebody uses them. A forked child has
// none of the threads: it gets -EPERM from acquire, and its release and close do nothing.
#include "transport/table.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/build_id.h"
#include "transport/channel.h"
#include "transport/env.h"
#include "transport/ib_device.h"
#include "transport/ib_verbs.h"
#include "transport/log.h"
#include "transport/order.h"

/* What all users share. */
struct core {
    uint32_t users;
    pid_t process;            /* that made it */
    struct gemmar_logger log; /* of the first user, until the last one leaves */
    struct gemmar_knobs knobs;
    struct gemmar_ib_verbs verbs;
    uint32_t device_count;
    struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
};

/* One user's hold. */
struct gemmar_transport {
    struct core *core;
    struct gemmar_logger log;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core *the_core; /* under the lock */

/* Before the first registration of the process; it cannot be taken back, so once is enough. */
static void fork_init(const struct gemmar_ib_verbs *verbs, const struct gemmar_logger *log)
{
    static bool done; /* under the lock */
    int rc;

    if (done) {
        return;
    }
    done = true;
    rc = verbs->fork_init();
    if (rc != 0) {
        gemmar_info(log, "ib_verbs: ibv_fork_init: %s; a child must not touch registered memory",
                    strerror(rc > 0 ? rc : -rc));
    }
}

/* Under the lock. */
static int core_open(const struct gemmar_logger *log, struct core **out)
{
    struct core *core = calloc(1, sizeof(*core));
    int rc;

    if (core == NULL) {
        return -ENOMEM;
    }
    core->log = *log;
    core->process = getpid();
    rc = gemmar_knobs_read(&core->knobs, &core->log);
    if (rc == 0 && core->knobs.ib_disable) {
        gemmar_warn(&core->log, "ib_device: NCCL_IB_DISABLE is 1, no verbs device is used");
        rc = -ENODEV;
    }
    if (rc == 0) {
        rc = gemmar_ib_verbs_load(&core->knobs, &core->log, &core->verbs);
    }
    if (rc == 0) {
        fork_init(&core->verbs, &core->log);
        rc = gemmar_ib_devices_open(&core->verbs, &core->knobs, &core->log, core->devices,
                                    &core->device_count);
    }
    if (rc != 0) {
        free(core);
        return rc;
    }
    *out = core;
    return 0;
}

static int acquire(const struct gemmar_transport_settings *settings,
                   struct gemmar_transport **out_transport)
{
    struct gemmar_transport *t;
    int rc = 0;

    if (settings == NULL || settings->size < sizeof(*settings)) {
        return -EINVAL;
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return -ENOMEM;
    }
    t->log = (struct gemmar_logger){settings->log, settings->log_user, GEMMAR_LOG_WARN};
    (void)pthread_mutex_lock(&lock);
    if (the_core != NULL && the_core->process != getpid()) {
        gemmar_warn(&t->log, "transport: not usable in a child of the process that opened it");
        rc = -EPERM;
    } else if (the_core == NULL) {
        rc = core_open(&t->log, &the_core);
    }
    if (rc == 0) {
        the_core->users++;
        t->core = the_core;
        t->log.level = the_core->log.level;
    }
    (void)pthread_mutex_unlock(&lock);
    if (rc != 0) {
        free(t);
        return rc;
    }
    *out_transport = t;
    return 0;
}

static void release(struct gemmar_transport *t)
{
    struct core *last = NULL;

    if (t == NULL || t->core->process != getpid()) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    if (--t->core->users == 0) {
        last = t->core;
        the_core = NULL;
        gemmar_ib_devices_close(last->devices, last->device_count);
    }
    (void)pthread_mutex_unlock(&lock);
    free(last);
    free(t);
}

static int device_count(struct gemmar_transport *t, uint32_t *out_count)
{
    *out_count = t->core->device_count;
    return 0;
}

static int device(struct gemmar_transport *t, uint32_t index,
                  struct gemmar_transport_device *out_device)
{
    const struct gemmar_ib_device *d;
    struct gemmar_transport_device found = {.size = sizeof(found)};

    if (index >= t->core->device_count || out_device->size < sizeof(found)) {
        return -EINVAL;
    }
    d = &t->core->devices[index];
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
    return gemmar_channel_open(t->core->devices, t->core->device_count, &t->log, settings,
                               out_channel);
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
    .build_id = GEMMAR_BUILD_ID,
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
