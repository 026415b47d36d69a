// SPDX-License-Identifier: Apache-2.0
// Verbs devices: one object per usable port, found once while the transport is in use.
#ifndef GEMMAR_IB_DEVICE_H
#define GEMMAR_IB_DEVICE_H

#include <pthread.h>
#include <stdbool.h>

#include "transport/env.h"
#include "transport/ib_verbs.h"

#define GEMMAR_MAX_DEVICES 32

struct gemmar_ib_mr;
struct gemmar_ib_qp_watch;

struct gemmar_ib_device {
    const struct gemmar_ib_verbs *verbs;
    const struct gemmar_knobs *knobs;
    const struct gemmar_logger *log;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    struct ibv_port_attr port_attr; /* as found; never changed by a peer's */
    char name[64];
    char pci_path[256]; /* resolved, or "" */
    int numa_node;      /* -1: unknown */
    uint8_t port;
    uint64_t guid;
    uint32_t speed_mbps;
    int gid_index; /* -1: no global header needed */
    union ibv_gid gid;
    bool dmabuf;
    int relaxed; /* 1: bulk data is registered with relaxed ordering */

    /* Registration cache, kept by ib_mr.c under mr_lock. */
    pthread_mutex_t mr_lock;
    struct gemmar_ib_mr *mrs;

    /* Event thread, kept by ib_event.c; who is told of a queue pair's end, under watch_lock. */
    pthread_t event_thread;
    pthread_mutex_t watch_lock;
    struct gemmar_ib_qp_watch *watches;
    int stop_fd; /* eventfd; -1 while no thread runs */
    /* Port events and fatal events. Writer: event thread (release). Readers: proxies (acquire).
     * Host memory. `fatal` holds an enum ibv_event_type + 1, `port_down` 0 or 1. */
    uint64_t fatal;
    uint64_t port_down;
};

/* Open every active port that NCCL_IB_HCA selects into devices[GEMMAR_MAX_DEVICES]; ports that are
 * left out are told at level info. -ENODEV with a logged sentence when there is none. */
int gemmar_ib_devices_open(const struct gemmar_ib_verbs *verbs, const struct gemmar_knobs *knobs,
                           const struct gemmar_logger *log, struct gemmar_ib_device *devices,
                           uint32_t *out_count);
void gemmar_ib_devices_close(struct gemmar_ib_device *devices, uint32_t count);

/* Start and stop the thread that reads the device's asynchronous events. */
int gemmar_ib_event_start(struct gemmar_ib_device *device);
void gemmar_ib_event_stop(struct gemmar_ib_device *device);

/* The device reports that a queue pair is in error. Event thread, and under watch_lock: it returns
 * soon, never watches or unwatches, and logs what it makes of it. */
typedef void (*gemmar_ib_qp_event_fn)(void *user, struct ibv_qp *qp, enum ibv_event_type type);

/* Caller's storage; all members are the caller's but `next`. */
struct gemmar_ib_qp_watch {
    struct gemmar_ib_qp_watch *next;
    struct ibv_qp *qp;
    gemmar_ib_qp_event_fn fn;
    void *user;
};

/* Be told when IBV_EVENT_QP_FATAL, QP_REQ_ERR or QP_ACCESS_ERR comes for watch->qp; without a watch
 * such an event is only logged. Unwatch before the queue pair is destroyed: after it no call is
 * running or will come. Any thread; a watch with qp NULL may be unwatched, too. */
void gemmar_ib_qp_watch(struct gemmar_ib_device *device, struct gemmar_ib_qp_watch *watch);
void gemmar_ib_qp_unwatch(struct gemmar_ib_device *device, struct gemmar_ib_qp_watch *watch);

/* Bytes of an enum ibv_mtu. */
uint32_t gemmar_ib_mtu_bytes(enum ibv_mtu mtu);

#endif
