// SPDX-License-Identifier: Apache-2.0
#include "plugin/net_compat.h"

#include <string.h>

#include "plugin/net_wire.h"
#include "transport/log.h"

static const struct gemmar_logger to_stderr = {.level = GEMMAR_LOG_WARN};

static int refuse(const char *what, int value)
{
    gemmar_warn(&to_stderr, "net: %s: %d", what, value);
    return GEMMAR_NCCL_INVALID_ARGUMENT;
}

int gemmar_net_compat_connect_class(void *ctx, int dev, int traffic_class, void *handle,
                                    void **out_send_comm,
                                    struct gemmar_net_device_handle **out_device_comm)
{
    if (out_device_comm) {
        *out_device_comm = NULL;
    }
    return gemmar_net_connect(ctx, dev, traffic_class, handle, out_send_comm);
}

int gemmar_net_compat_connect(void *ctx, int dev, void *handle, void **out_send_comm,
                              struct gemmar_net_device_handle **out_device_comm)
{
    return gemmar_net_compat_connect_class(ctx, dev, GEMMAR_NET_TRAFFIC_CLASS_UNDEFINED, handle,
                                           out_send_comm, out_device_comm);
}

int gemmar_net_compat_accept(void *listen_comm, void **out_recv_comm,
                             struct gemmar_net_device_handle **out_device_comm)
{
    if (out_device_comm) {
        *out_device_comm = NULL;
    }
    return gemmar_net_accept(listen_comm, out_recv_comm);
}

/* The fields that all versions from v7 on have, each at its own offset. */
#define COPY_PROPS(to, from)                                                                       \
    do {                                                                                           \
        (to)->name = (from)->name;                                                                 \
        (to)->pci_path = (from)->pci_path;                                                         \
        (to)->guid = (from)->guid;                                                                 \
        (to)->ptr_support = (from)->ptr_support;                                                   \
        (to)->speed = (from)->speed;                                                               \
        (to)->port = (from)->port;                                                                 \
        (to)->latency = (from)->latency;                                                           \
        (to)->max_comms = (from)->max_comms;                                                       \
        (to)->max_recvs = (from)->max_recvs;                                                       \
        (to)->device_type = (from)->device_type;                                                   \
        (to)->device_version = (from)->device_version;                                             \
    } while (0)

int gemmar_net_compat_props_v7(int dev, struct gemmar_net_props_v7 *out)
{
    struct gemmar_net_props_v12 props;
    int result = gemmar_net_properties(dev, &props);

    if (result == GEMMAR_NCCL_SUCCESS) {
        COPY_PROPS(out, &props);
    }
    return result;
}

int gemmar_net_compat_props_v8(int dev, struct gemmar_net_props_v8 *out)
{
    struct gemmar_net_props_v12 props;
    int result = gemmar_net_properties(dev, &props);

    if (result == GEMMAR_NCCL_SUCCESS) {
        COPY_PROPS(out, &props);
        out->reg_is_global = props.reg_is_global;
    }
    return result;
}

int gemmar_net_compat_props_v11(int dev, struct gemmar_net_props_v11 *out)
{
    struct gemmar_net_props_v12 props;
    int result = gemmar_net_properties(dev, &props);

    if (result != GEMMAR_NCCL_SUCCESS) {
        return result;
    }
    /* Made through v12 by another user of the process: no list of four says what it is. */
    if (props.vprops.ndevs > GEMMAR_NET_VDEVICE_DEVICES_V9) {
        return refuse("more ports in a virtual device than this API version can name",
                      props.vprops.ndevs);
    }
    COPY_PROPS(out, &props);
    out->reg_is_global = props.reg_is_global;
    out->force_flush = props.force_flush;
    out->vprops.ndevs = props.vprops.ndevs;
    memcpy(out->vprops.devs, props.vprops.devs, sizeof(out->vprops.devs));
    out->max_p2p_bytes = props.max_p2p_bytes;
    out->max_coll_bytes = props.max_coll_bytes;
    out->max_multi_request_size = props.max_multi_request_size;
    return GEMMAR_NCCL_SUCCESS;
}

int gemmar_net_compat_props_v9(int dev, struct gemmar_net_props_v9 *out)
{
    struct gemmar_net_props_v11 props;
    int result = gemmar_net_compat_props_v11(dev, &props);

    static_assert(offsetof(struct gemmar_net_props_v11, max_multi_request_size) == sizeof(*out),
                  "v9 is the head of v11");
    if (result == GEMMAR_NCCL_SUCCESS) {
        memcpy(out, &props, sizeof(*out));
    }
    return result;
}

int gemmar_net_compat_make_vdevice(int *out_dev, const struct gemmar_net_vprops_v9 *members)
{
    struct gemmar_net_vprops_v12 copy = {.ndevs = members->ndevs};

    if (members->ndevs < 0 || members->ndevs > GEMMAR_NET_VDEVICE_DEVICES_V9) {
        return refuse("ports of a virtual device, at most 4 in this API version", members->ndevs);
    }
    memcpy(copy.devs, members->devs, (size_t)members->ndevs * sizeof(copy.devs[0]));
    return gemmar_net_make_vdevice(out_dev, &copy);
}

int gemmar_net_compat_reg_mr_int(void *comm, void *data, int size, int type, void **out_mhandle)
{
    return size < 0 ? refuse("bytes to register", size)
                    : gemmar_net_reg_mr(comm, data, (size_t)size, type, out_mhandle);
}

int gemmar_net_compat_isend_int(void *send_comm, void *data, int size, int tag, void *mhandle,
                                void **out_request)
{
    return size < 0
               ? refuse("bytes to send", size)
               : gemmar_net_isend(send_comm, data, (size_t)size, tag, mhandle, NULL, out_request);
}

int gemmar_net_compat_irecv_int(void *recv_comm, int n, void **data, int *sizes, int *tags,
                                void **mhandles, void **request)
{
    size_t wide[NET_PARTS];
    int i;

    *request = NULL; /* before v9 it is not a wish of NCCL but what the last call left there */
    if (n < 1 || n > NET_PARTS) {
        return refuse("receives in one group, at least 1 and at most 8", n);
    }
    for (i = 0; i < n; i++) {
        if (sizes[i] < 0) {
            return refuse("bytes to receive", sizes[i]);
        }
        wide[i] = (size_t)sizes[i];
    }
    return gemmar_net_irecv(recv_comm, n, data, wide, tags, mhandles, NULL, request);
}

int gemmar_net_shared_init(struct gemmar_net_shared *shared, gemmar_nccl_logger logger,
                           gemmar_nccl_profiler profiler)
{
    int result = GEMMAR_NCCL_SUCCESS;
    void *ctx = NULL;

    pthread_mutex_lock(&shared->lock);
    if (shared->ctx) {
        result = gemmar_net_init_again(shared->ctx);
    } else {
        result = gemmar_net_init(shared->api_version, NULL, logger, profiler, &ctx);
        if (result == GEMMAR_NCCL_SUCCESS) {
            shared->ctx = ctx;
        }
    }
    pthread_mutex_unlock(&shared->lock);
    return result;
}
