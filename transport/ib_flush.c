// SPDX-License-Identifier: Apache-2.0
// Flush of a NIC's writes into GPU memory by a loopback RDMA READ.
#include "transport/ib_flush.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/ib_qp.h"

#define FAULT_BYTES 256

struct gemmar_ib_flush {
    struct gemmar_ib_device *device;
    struct ibv_cq *cq;
    struct ibv_cq *own_cq; /* NULL: the caller's is used */
    struct ibv_qp *qp;
    void *sink; /* a page of its own: nothing else becomes visible to the device */
    struct ibv_mr *sink_mr;
    uint32_t depth, pending;
    bool failed;
};

static int make_sink(struct gemmar_ib_flush *f)
{
    struct gemmar_ib_device *d = f->device;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int rc;

    f->sink = aligned_alloc(page, page);
    if (f->sink == NULL) {
        return -ENOMEM;
    }
    memset(f->sink, 0, page);
    errno = 0;
    f->sink_mr = d->verbs->reg_mr(d->pd, f->sink, page, IBV_ACCESS_LOCAL_WRITE);
    if (f->sink_mr == NULL) {
        rc = errno != 0 ? -errno : -EIO;
        gemmar_warn(d->log, "ib_flush: device %s: cannot register %zu bytes: %s", d->name, page,
                    strerror(-rc));
        return rc;
    }
    return 0;
}

static int make_cq(struct gemmar_ib_flush *f)
{
    struct gemmar_ib_device *d = f->device;
    int rc;

    errno = 0;
    f->own_cq = d->verbs->create_cq(d->context, (int)f->depth, NULL, NULL, 0);
    if (f->own_cq == NULL) {
        rc = errno != 0 ? -errno : -EIO;
        gemmar_warn(d->log, "ib_flush: device %s: no completion queue of %u entries: %s", d->name,
                    f->depth, strerror(-rc));
        return rc;
    }
    f->cq = f->own_cq;
    return 0;
}

static int make_qp(struct gemmar_ib_flush *f)
{
    const struct gemmar_ib_qp_options options = {.send_depth = f->depth, .recv_depth = 1};
    struct gemmar_wire_qp own;
    int rc = gemmar_ib_qp_create(f->device, f->cq, &options, &f->qp, NULL);

    if (rc != 0) {
        return rc;
    }
    gemmar_ib_qp_describe(f->device, f->qp, f->qp->qp_num & 0xffffffu, &own);
    return gemmar_ib_qp_connect(f->device, f->qp, &own, &own, -1);
}

int gemmar_ib_flush_open(struct gemmar_ib_device *d, struct ibv_cq *cq, uint32_t depth,
                         struct gemmar_ib_flush **out)
{
    struct gemmar_ib_flush *f;
    int rc;

    if (depth == 0) {
        gemmar_warn(d->log, "ib_flush: device %s: a depth of 0 flushes nothing", d->name);
        return -EINVAL;
    }
    f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return -ENOMEM;
    }
    f->device = d;
    f->cq = cq;
    f->depth = depth;
    rc = make_sink(f);
    if (rc == 0 && cq == NULL) {
        rc = make_cq(f);
    }
    if (rc == 0) {
        rc = make_qp(f);
    }
    if (rc != 0) {
        gemmar_ib_flush_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

void gemmar_ib_flush_close(struct gemmar_ib_flush *f)
{
    const struct gemmar_ib_verbs *v;

    if (f == NULL) {
        return;
    }
    v = f->device->verbs;
    if (f->qp != NULL && v->destroy_qp(f->qp) != 0) {
        gemmar_warn(f->device->log, "ib_flush: device %s: queue pair not destroyed",
                    f->device->name);
    }
    if (f->own_cq != NULL && v->destroy_cq(f->own_cq) != 0) {
        gemmar_warn(f->device->log, "ib_flush: device %s: completion queue not destroyed",
                    f->device->name);
    }
    if (f->sink_mr != NULL && v->dereg_mr(f->sink_mr) != 0) {
        gemmar_warn(f->device->log, "ib_flush: device %s: deregistration failed", f->device->name);
    }
    free(f->sink);
    free(f);
}

int gemmar_ib_flush_post(struct gemmar_ib_flush *f, uint64_t wr_id, uint64_t address, uint32_t rkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)f->sink, .length = 1, .lkey = f->sink_mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = address, .rkey = rkey}};
    struct ibv_send_wr *bad = NULL;
    int rc;

    if (f->pending == f->depth) {
        return -EAGAIN;
    }
    rc = ibv_post_send(f->qp, &wr, &bad);
    if (rc == 0) {
        f->pending++;
        return 0;
    }
    rc = rc > 0 ? -rc : rc;
    return rc == -ENOMEM ? -EAGAIN : rc;
}

uint32_t gemmar_ib_flush_pending(const struct gemmar_ib_flush *f)
{
    return f->pending;
}

uint32_t gemmar_ib_flush_qp(const struct gemmar_ib_flush *f)
{
    return f->qp->qp_num;
}

int gemmar_ib_flush_done(struct gemmar_ib_flush *f, const struct ibv_wc *wc)
{
    f->pending -= f->pending > 0;
    return wc->status == IBV_WC_SUCCESS ? 0 : -EIO;
}

/* Opcode and length of a failed completion mean nothing. */
void gemmar_ib_flush_fault(const struct gemmar_ib_flush *f, const struct ibv_wc *wc, char *out,
                           size_t bytes)
{
    const struct gemmar_ib_device *d = f->device;

    (void)snprintf(out, bytes,
                   "flush failed: device %s port %d qp 0x%x status %d (%s) vendor 0x%x; PCI access "
                   "control (ACS) and an IOMMU may refuse reads of GPU memory by a device",
                   d->name, d->port, f->qp->qp_num, (int)wc->status,
                   d->verbs->wc_status_str(wc->status), wc->vendor_err);
}

int gemmar_ib_flush_poll(struct gemmar_ib_flush *f, uint64_t *out_wr_id)
{
    char fault[FAULT_BYTES];
    struct ibv_wc wc;
    int n;

    if (f->failed) {
        return -EIO;
    }
    n = ibv_poll_cq(f->own_cq, 1, &wc);
    if (n == 0) {
        return 0;
    }
    if (n > 0 && gemmar_ib_flush_done(f, &wc) == 0) {
        *out_wr_id = wc.wr_id;
        return 1;
    }
    f->failed = true;
    if (n > 0) {
        gemmar_ib_flush_fault(f, &wc, fault, sizeof(fault));
        gemmar_warn(f->device->log, "ib_flush: %s", fault);
    } else {
        gemmar_warn(f->device->log, "ib_flush: device %s: polling the completion queue failed",
                    f->device->name);
    }
    return -EIO;
}
