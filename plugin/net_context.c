// SPDX-License-Identifier: Apache-2.0
// Contexts (one per communicator of NCCL from API v11 on), and what NCCL asks of devices.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/net_comm.h"
#include "plugin/net_connect.h"
#include "transport/build_id.h"
#include "transport/ib_query.h"

/* POSIX lets a function's address pass through a void pointer; the copy keeps compilers quiet. */
static void to_nccl(void *user, enum gemmar_log_level level, const char *text)
{
    gemmar_nccl_logger nccl;
    int nccl_level = level == GEMMAR_LOG_WARN   ? GEMMAR_NCCL_LOG_WARN
                     : level == GEMMAR_LOG_INFO ? GEMMAR_NCCL_LOG_INFO
                                                : GEMMAR_NCCL_LOG_TRACE;

    memcpy(&nccl, &user, sizeof(nccl));
    nccl(nccl_level, GEMMAR_NCCL_INIT | GEMMAR_NCCL_NET, "gemmar", 0, "NET/Gemmar : %s", text);
}

struct gemmar_logger net_logger(gemmar_nccl_logger nccl)
{
    struct gemmar_logger log = {.level = GEMMAR_LOG_WARN};

    if (nccl != NULL) {
        log.sink = to_nccl;
        log.level = GEMMAR_LOG_INFO; /* NCCL drops what its user does not want to see */
        memcpy(&log.user, &nccl, sizeof(log.user));
    }
    return log;
}

/* The knobs say how much is told; a bad one is an error of the first thing that needs them. */
static void say_hello(struct net_context *context)
{
    char list[512] = "";
    size_t used = 0;
    int count = net_device_count();

    for (int i = 0; i < count && used < sizeof(list); i++) {
        struct net_device d;

        if (net_device_get(i, &d) == 0 && d.members == 1) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, " %s %s%s", d.name,
                                     d.ethernet ? "RoCE" : "IB", d.dmabuf ? " dma-buf" : "");
        }
    }
    gemmar_info(&context->log, "gemmar %s: network API v%d, %d devices:%s", gemmar_build_id,
                context->version, count, list);
}

int gemmar_net_init(int version, const struct gemmar_net_config *config, gemmar_nccl_logger log,
                    gemmar_nccl_profiler profiler, void **out_context)
{
    int traffic_class = config != NULL ? config->traffic_class : GEMMAR_NET_TRAFFIC_CLASS_UNDEFINED;
    struct net_context *context;
    struct gemmar_logger logger = net_logger(log);
    int rc;

    *out_context = NULL;
    if (traffic_class < -1 || traffic_class > 255) {
        gemmar_warn(&logger, "net: traffic class %d is not one of 0 to 255", traffic_class);
        return GEMMAR_NCCL_INVALID_ARGUMENT;
    }
    rc = net_devices_probe(&logger);
    if (rc != 0) {
        return net_result(rc);
    }
    context = calloc(1, sizeof(*context));
    if (context == NULL) {
        return GEMMAR_NCCL_SYSTEM_ERROR;
    }
    context->version = version;
    context->traffic_class = traffic_class;
    context->profiler = profiler;
    context->log = logger;
    context->counted = version >= 11;
    if (context->counted) {
        net_devices_use();
    }
    say_hello(context);
    *out_context = context;
    return GEMMAR_NCCL_SUCCESS;
}

int gemmar_net_init_again(void *ctx)
{
    const struct net_context *context = ctx;

    return net_result(net_devices_probe(&context->log));
}

int gemmar_net_finalize(void *ctx)
{
    struct net_context *context = ctx;

    if (context == NULL) {
        return GEMMAR_NCCL_SUCCESS;
    }
    net_connect_abandon(context);
    if (context->counted) {
        net_devices_leave();
    }
    free(context);
    return GEMMAR_NCCL_SUCCESS;
}

int gemmar_net_devices(int *out_count)
{
    *out_count = net_device_count_anew();
    return GEMMAR_NCCL_SUCCESS;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int gemmar_net_properties(int dev, struct gemmar_net_props_v12 *out)
{
    struct net_device d;
    struct gemmar_net_props_v12 p;
    char module[64];
    bool peer_memory = gemmar_ib_peer_memory("", module, sizeof(module));

    if (net_device_get(dev, &d) != 0) {
        return GEMMAR_NCCL_INVALID_ARGUMENT;
    }
    memset(&p, 0, sizeof(p));
    (void)net_device_texts(dev, &p.name, &p.pci_path); /* it exists */
    p.guid = d.guid;
    p.ptr_support = GEMMAR_NET_PTR_HOST | (peer_memory ? GEMMAR_NET_PTR_CUDA : 0) |
                    (d.dmabuf ? GEMMAR_NET_PTR_DMABUF : 0);
    p.reg_is_global = 1;
    p.speed = (int)d.speed_mbps;
    p.port = d.port;
    p.max_comms = d.max_queue_pairs;
    p.max_recvs = NET_PARTS;
    p.device_type = GEMMAR_NET_DEVICE_HOST;
    p.device_version = GEMMAR_NET_DEVICE_NO_VERSION;
    p.vprops.ndevs = d.members;
    memcpy(p.vprops.devs, d.member, sizeof(p.vprops.devs));
    p.max_p2p_bytes = smaller(GEMMAR_NET_MAX_SIZE, d.longest * NET_PIECES);
    p.max_coll_bytes = p.max_p2p_bytes;
    p.max_multi_request_size = 1;
    p.rail_id = GEMMAR_NET_ID_UNDEFINED;
    p.plane_id = GEMMAR_NET_ID_UNDEFINED;
    *out = p;
    return GEMMAR_NCCL_SUCCESS;
}

int gemmar_net_make_vdevice(int *out_dev, const struct gemmar_net_vprops_v12 *members)
{
    struct gemmar_logger log = net_logger(NULL); /* NCCL gives no context here */

    return net_result(net_device_make(members, &log, out_dev));
}
