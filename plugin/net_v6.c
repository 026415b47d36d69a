// SPDX-License-Identifier: Apache-2.0
// NCCL's network API 6 (NCCL 2.13): no device offload.
#include "plugin/net_compat.h"

#include <string.h>

GEMMAR_NET_SHARED_CONTEXT(6)

static int shared_init(gemmar_nccl_logger logger)
{
    return gemmar_net_shared_init(&shared, logger, NULL);
}

static int shared_connect(int dev, void *handle, void **out_send_comm)
{
    return gemmar_net_compat_connect(shared.ctx, dev, handle, out_send_comm, NULL);
}

static int get_properties(int dev, struct gemmar_net_props_v6 *out)
{
    struct gemmar_net_props_v7 props;
    int result = gemmar_net_compat_props_v7(dev, &props);

    static_assert(offsetof(struct gemmar_net_props_v7, device_type) == sizeof(*out),
                  "v6 is the head of v7");
    if (result == GEMMAR_NCCL_SUCCESS) {
        memcpy(out, &props, sizeof(*out));
    }
    return result;
}

GEMMAR_NET_EXPORT const struct gemmar_net_table_v6 ncclNetPlugin_v6 = {
    GEMMAR_NET_TABLE_ALWAYS,     GEMMAR_NET_TABLE_INT_TRANSFERS,
    .init = shared_init,         .get_properties = get_properties,
    .listen = shared_listen,     .connect = shared_connect,
    .accept = gemmar_net_accept, .reg_mr = gemmar_net_compat_reg_mr_int,
};
