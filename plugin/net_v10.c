// SPDX-License-Identifier: Apache-2.0
// NCCL's network API 10 (NCCL 2.26): no contexts; settings come with each connect.
#include "plugin/net_compat.h"

GEMMAR_NET_SHARED_CONTEXT(10)

static int shared_init(gemmar_nccl_logger logger, gemmar_nccl_profiler profiler)
{
    return gemmar_net_shared_init(&shared, logger, profiler);
}

static int shared_connect(int dev, const struct gemmar_net_config *config, void *handle,
                          void **out_send_comm, struct gemmar_net_device_handle **out_device_comm)
{
    int traffic_class = config ? config->traffic_class : GEMMAR_NET_TRAFFIC_CLASS_UNDEFINED;

    return gemmar_net_compat_connect_class(shared.ctx, dev, traffic_class, handle, out_send_comm,
                                           out_device_comm);
}

GEMMAR_NET_EXPORT const struct gemmar_net_table_v10 ncclNetPlugin_v10 = {
    GEMMAR_NET_TABLE_ALWAYS,
    .init = shared_init,
    .get_properties = gemmar_net_compat_props_v9,
    .listen = shared_listen,
    .connect = shared_connect,
    .accept = gemmar_net_compat_accept,
    .reg_mr = gemmar_net_reg_mr,
    .isend = gemmar_net_isend,
    .irecv = gemmar_net_irecv,
    .make_vdevice = gemmar_net_compat_make_vdevice,
};
