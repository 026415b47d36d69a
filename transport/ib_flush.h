// SPDX-License-Identifier: Apache-2.0
// Flush of a NIC's writes into GPU memory: a loopback RDMA READ through the same device.
//
// That a write's completion was polled says nothing about when its bytes reach the GPU: the
// completion goes to host memory, the bytes to another PCIe target. A read that the same device
// makes of that GPU's memory pushes all its earlier writes there ahead of itself, so when the READ
// has completed they are visible to whoever is told next, also through host memory. Which byte is
// read does not matter as long as it lies in the same GPU's memory.
//
// One object per device and completion queue, used by one thread at a time. READs of one object
// complete in the order of their posts.
#ifndef GEMMAR_IB_FLUSH_H
#define GEMMAR_IB_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/ib_device.h"

struct gemmar_ib_flush;

/* A queue pair connected to itself, with at most `depth` READs on the way, and a host buffer for
 * what they read. It completes on `cq`, which has room for `depth` more entries and outlives the
 * object; NULL: on a queue of its own. 0 or a negative errno, logged. */
int gemmar_ib_flush_open(struct gemmar_ib_device *device, struct ibv_cq *cq, uint32_t depth,
                         struct gemmar_ib_flush **out);
/* NULL is legal. READs on the way are dropped; a completion that is in a caller's queue already may
 * still be polled from it. */
void gemmar_ib_flush_close(struct gemmar_ib_flush *flush);

/* Read one byte at `address`, registered on the device as `rkey`. -EAGAIN when there is no room;
 * another negative errno when the queue pair refused it: not logged, as the caller knows whom it
 * concerns. */
int gemmar_ib_flush_post(struct gemmar_ib_flush *flush, uint64_t wr_id, uint64_t address,
                         uint32_t rkey);
/* READs posted whose completion has not been seen. */
uint32_t gemmar_ib_flush_pending(const struct gemmar_ib_flush *flush);
/* For messages, and to tell its completions from others of a caller's queue. */
uint32_t gemmar_ib_flush_qp(const struct gemmar_ib_flush *flush);

/* Its own queue: 1 and the wr_id of the oldest READ that has completed, 0 when none has; -EIO,
 * logged with device, queue pair and status, from the first that failed on. */
int gemmar_ib_flush_poll(struct gemmar_ib_flush *flush, uint64_t *out_wr_id);

/* A caller's queue: hand in each completion of its queue pair. 0, or -EIO when the READ failed: not
 * logged either; gemmar_ib_flush_fault makes the sentence. */
int gemmar_ib_flush_done(struct gemmar_ib_flush *flush, const struct ibv_wc *wc);
/* "flush failed: device ... qp ... status ...". At most `bytes` with the end. */
void gemmar_ib_flush_fault(const struct gemmar_ib_flush *flush, const struct ibv_wc *wc, char *out,
                           size_t bytes);

#endif
