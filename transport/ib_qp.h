// SPDX-License-Identifier: Apache-2.0
// Reliable-connection queue pairs: creation and the way to ready-to-send.
#ifndef GEMMAR_IB_QP_H
#define GEMMAR_IB_QP_H

#include "transport/ib_device.h"
#include "transport/wire.h"

/* Create a queue pair in INIT on `cq`; send work requests may be inline up to 16 bytes. 0 or a
 * negative errno, logged. */
int gemmar_ib_qp_create(struct gemmar_ib_device *device, struct ibv_cq *cq, uint32_t send_depth,
                        uint32_t recv_depth, struct ibv_qp **out);

/* What the peer must know of it, `rail` excepted. */
void gemmar_ib_qp_describe(const struct gemmar_ib_device *device, struct ibv_qp *qp,
                           uint32_t packet_number, struct gemmar_wire_qp *out);

/* INIT -> RTR -> RTS towards `peer`. The path MTU is the smaller one of both ports; `own` is what
 * this end described. 0 or a negative errno, logged with both ends named. */
int gemmar_ib_qp_connect(struct gemmar_ib_device *device, struct ibv_qp *qp,
                         const struct gemmar_wire_qp *own, const struct gemmar_wire_qp *peer);

#endif
