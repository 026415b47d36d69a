// SPDX-License-Identifier: Apache-2.0
// NCCL's network API 9 (NCCL 2.24): no settings, no profiler.
#include "plugin/net_compat.h"

GEMMAR_NET_SHARED_CONTEXT_V7(9)

static int isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
                 void **out_request)
{
    return gemmar_net_isend(send_comm, data, size, tag, mhandle, NULL, out_request);
}

static int irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                 void **request)
{
    return gemmar_net_irecv(recv_comm, n, data, sizes, tags, mhandles, NULL, request);
}

GEMMAR_NET_EXPORT const struct gemmar_net_table_v9 ncclNetPlugin_v9 = {
    GEMMAR_NET_TABLE_SHARED_V7,
    .get_properties = gemmar_net_compat_props_v9,
    .reg_mr = gemmar_net_reg_mr,
    .isend = isend,
    .irecv = irecv,
    .make_vdevice = gemmar_net_compat_make_vdevice,
};
