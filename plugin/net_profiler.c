// SPDX-License-Identifier: Apache-2.0
#include "plugin/net_profiler.h"

void gemmar_net_profile_start(gemmar_nccl_profiler profiler, void *phandle, int device,
                              uint32_t qp_number, size_t length, uint64_t wr_id, int opcode,
                              void **out_event)
{
    struct gemmar_net_profiler_event event = {
        .type = GEMMAR_NET_PROFILER_QP,
        .qp.device = device,
        .qp.wr_id = wr_id,
        .qp.opcode = opcode,
        .qp.qp_number = (int)qp_number,
        .qp.length = length,
    };

    /* NCCL leaves the word as it is when nobody listens. */
    *out_event = NULL;
    if (profiler && phandle &&
        profiler(out_event, GEMMAR_NCCL_PROFILER_START, phandle, GEMMAR_NET_PROFILER_ID, &event)) {
        *out_event = NULL; /* a profiler's trouble is not the transfer's */
    }
}

void gemmar_net_profile_stop(gemmar_nccl_profiler profiler, void **event)
{
    if (profiler && *event) {
        (void)profiler(event, GEMMAR_NCCL_PROFILER_STOP, NULL, 0, NULL); /* as above */
    }
    *event = NULL;
}
