// SPDX-License-Identifier: Apache-2.0
// Events for NCCL's profiler plugin: one per work request that carries data, as NCCL's own
// InfiniBand transport reports them (its NET_IB version 1), so that a profiler that knows NCCL's
// events shows ours.
//
// Start an event beside the post of each data work request: on the sender per QP and request, on
// the receiver per QP and receive of the group. Stop it when the completion of that QP has been
// polled, at the latest before test reports the request as done: the handle's owner in NCCL is
// used again then. NCCL gives a handle to every isend and irecv from v10 on, whether or not a
// profiler is loaded, and decides itself whether somebody listens.
//
// The thread that calls isend, irecv or test. Nothing here fails: a profiler that does not want
// an event leaves it NULL.
#ifndef GEMMAR_NET_PROFILER_H
#define GEMMAR_NET_PROFILER_H

#include "plugin/net_abi.h"

/* What the descriptor of a callback points to: src/include/plugin/nccl_profiler.h has the kind of
 * network above bit 16, src/include/plugin/profiler/net_ib_v1.h the version below. */
#define GEMMAR_NET_PROFILER_ID (INT64_C(1) << 16 | 1)

/* The only type of event of that version: a work request on a QP. */
#define GEMMAR_NET_PROFILER_QP 0x1

/* net_ib_v1.h: ncclProfilerNetIbDescr_v1_t; its union has this one member. */
struct gemmar_net_profiler_event {
    uint8_t type;
    struct {
        int device; /* index within the devices of the connection */
        uint64_t wr_id;
        int opcode; /* enum ibv_wr_opcode; 0 on the receiver */
        int qp_number;
        size_t length; /* bytes of this work request; 0 on the receiver */
    } qp;
};
GEMMAR_NET_SIZE_IS(gemmar_net_profiler_event, 40, "net_ib_v1.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_profiler_event, qp.device, 8, "net_ib_v1.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_profiler_event, qp.wr_id, 16, "net_ib_v1.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_profiler_event, qp.opcode, 24, "net_ib_v1.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_profiler_event, qp.qp_number, 28, "net_ib_v1.h");
GEMMAR_NET_OFFSET_IS(gemmar_net_profiler_event, qp.length, 32, "net_ib_v1.h");

/* Nothing but *out_event = NULL where profiler or phandle is NULL. */
void gemmar_net_profile_start(gemmar_nccl_profiler profiler, void *phandle, int device,
                              uint32_t qp_number, size_t length, uint64_t wr_id, int opcode,
                              void **out_event);

/* Ends *event and sets it to NULL; nothing where it is NULL already. */
void gemmar_net_profile_stop(gemmar_nccl_profiler profiler, void **event);

#endif
