// SPDX-License-Identifier: Apache-2.0
// NCCL's network API 12 (NCCL 2.30): the one that net.h has the shape of.
#include "plugin/net_compat.h"

GEMMAR_NET_INIT_SINCE_V11(12)

GEMMAR_NET_EXPORT const struct gemmar_net_table_v12 ncclNetPlugin_v12 = {
    GEMMAR_NET_TABLE_SINCE_V11,
    .init = init,
    .get_properties = gemmar_net_properties,
    .make_vdevice = gemmar_net_make_vdevice,
};
