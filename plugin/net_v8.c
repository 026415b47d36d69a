// SPDX-License-Identifier: Apache-2.0
// NCCL's network API 8 (NCCL 2.20): no virtual NICs; transfers below 2 GiB.
#include "plugin/net_compat.h"

GEMMAR_NET_SHARED_CONTEXT_V7(8)

GEMMAR_NET_EXPORT const struct gemmar_net_table_v8 ncclNetPlugin_v8 = {
    GEMMAR_NET_TABLE_SHARED_V7,
    GEMMAR_NET_TABLE_INT_TRANSFERS,
    .get_properties = gemmar_net_compat_props_v8,
    .reg_mr = gemmar_net_reg_mr,
};
