// SPDX-License-Identifier: Apache-2.0
// NCCL's network API 7 (NCCL 2.19): registrations below 2 GiB, one communicator each.
#include "plugin/net_compat.h"

GEMMAR_NET_SHARED_CONTEXT_V7(7)

GEMMAR_NET_EXPORT const struct gemmar_net_table_v7 ncclNetPlugin_v7 = {
    GEMMAR_NET_TABLE_SHARED_V7,
    GEMMAR_NET_TABLE_INT_TRANSFERS,
    .get_properties = gemmar_net_compat_props_v7,
    .reg_mr = gemmar_net_compat_reg_mr_int,
};
