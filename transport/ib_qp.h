// SPDX-License-Identifier: Apache-2.0
// Reliable-connection queue pairs: creation and the way to ready-to-send.
#ifndef GEMMAR_IB_QP_H
#define GEMMAR_IB_QP_H

#include "transport/ib_device.h"
#include "transport/wire.h"

#define GEMMAR_QP_STAMP_INLINE 16 /* bytes; enough for a stamp */

struct gemmar_ib_qp_options {
    uint32_t send_depth, recv_depth; /* work requests */
    uint32_t inline_bytes;           /* of one send work request */
    uint32_t inline_least;           /* what the caller can do with, if the device refuses that */
};

/* Create a queue pair in INIT on `cq`. `out_inline` (may be NULL) gets the inline bytes that the
 * queue pair really takes. 0 or a negative errno, logged. */
int gemmar_ib_qp_create(struct gemmar_ib_device *device, struct ibv_cq *cq,
                        const struct gemmar_ib_qp_options *options, struct ibv_qp **out,
                        uint32_t *out_inline);

/* What the peer must know of it, `rail` excepted. */
void gemmar_ib_qp_describe(const struct gemmar_ib_device *device, struct ibv_qp *qp,
                           uint32_t packet_number, struct gemmar_wire_qp *out);

/* INIT -> RTR -> RTS towards `peer`. The path MTU is the smaller one of both ports; `own` is what
 * this end described; `traffic_class` is that of the global header, -1: NCCL_IB_TC. 0 or a negative
 * errno, logged with both ends named. */
int gemmar_ib_qp_connect(struct gemmar_ib_device *device, struct ibv_qp *qp,
                         const struct gemmar_wire_qp *own, const struct gemmar_wire_qp *peer,
                         int traffic_class);

/* The same without naps between attempts (NCCL_IB_MQP_RETRY_CNT): for a queue pair that other ones
 * carry on without, by the thread that serves them all. */
int gemmar_ib_qp_reconnect(struct gemmar_ib_device *device, struct ibv_qp *qp,
                           const struct gemmar_wire_qp *own, const struct gemmar_wire_qp *peer,
                           int traffic_class);

/* To ERR: what is posted completes with a flush error, and nothing arrives any more. 0 or a
 * negative errno, logged; so does the next. */
int gemmar_ib_qp_stop(struct gemmar_ib_device *device, struct ibv_qp *qp);
/* From any state to INIT, with empty queues, to be connected anew. */
int gemmar_ib_qp_restart(struct gemmar_ib_device *device, struct ibv_qp *qp);

#endif
