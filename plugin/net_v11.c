// SPDX-License-Identifier: Apache-2.0
// NCCL's network API 11 (NCCL 2.28): four devices per virtual NIC, no rail and plane.
#include "plugin/net_compat.h"

GEMMAR_NET_INIT_SINCE_V11(11)

GEMMAR_NET_EXPORT const struct gemmar_net_table_v11 ncclNetPlugin_v11 = {
    GEMMAR_NET_TABLE_SINCE_V11,
    .init = init,
    .get_properties = gemmar_net_compat_props_v11,
    .make_vdevice = gemmar_net_compat_make_vdevice,
};
