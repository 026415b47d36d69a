// SPDX-License-Identifier: Apache-2.0
// Registrations: one per port of the device, valid on every communicator of the device.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugin/net_comm.h"

static void release(struct net_mr *m)
{
    if (gemmar_core_is_ours(&m->hold)) {
        for (uint32_t i = 0; i < m->rails; i++) {
            gemmar_ib_mr_put(m->device[i], m->mr[i]);
        }
    }
    gemmar_core_release(&m->hold);
    net_devices_leave();
    free(m);
}

static int reg(const struct net_comm *c, const struct gemmar_memory *memory, int type,
               void **out_mhandle)
{
    struct net_mr *m;
    int rc;

    *out_mhandle = NULL;
    if (type != GEMMAR_NET_PTR_HOST && type != GEMMAR_NET_PTR_CUDA) {
        gemmar_warn(&c->hold.log, "net: memory of type %d cannot be registered", type);
        return GEMMAR_NCCL_INVALID_ARGUMENT;
    }
    m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return GEMMAR_NCCL_SYSTEM_ERROR;
    }
    m->hold.log = c->hold.log;
    net_devices_use();
    rc = gemmar_core_hold(&m->hold);
    m->dev = c->dev;
    m->type = type;
    for (uint32_t i = 0; rc == 0 && i < c->rails; i++) {
        m->device[i] = c->rail[i].device;
        rc = gemmar_ib_mr_get(m->device[i], memory, GEMMAR_MR_DATA, &m->mr[i]);
        if (rc == 0) {
            m->lkey[i] = m->mr[i]->mr->lkey;
            m->rkey[i] = m->mr[i]->mr->rkey;
            m->rails = i + 1;
        }
    }
    if (rc != 0) {
        release(m);
        return net_result(rc);
    }
    *out_mhandle = m;
    return GEMMAR_NCCL_SUCCESS;
}

int gemmar_net_reg_mr(void *comm, void *data, size_t size, int type, void **out_mhandle)
{
    const struct gemmar_memory memory = {
        .address = data, .length = size, .dmabuf_fd = -1, .is_gpu = type == GEMMAR_NET_PTR_CUDA};

    return reg(comm, &memory, type, out_mhandle);
}

int gemmar_net_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                             void **out_mhandle)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct gemmar_memory memory = {.address = data,
                                   .length = size,
                                   .dmabuf_fd = fd,
                                   .is_gpu = type == GEMMAR_NET_PTR_CUDA,
                                   .dmabuf_offset = offset};

    /* NCCL may name the page that the address lies in */
    if (offset % page != (uintptr_t)data % page) {
        memory.dmabuf_offset = offset / page * page + (uintptr_t)data % page;
    }
    return reg(comm, &memory, type, out_mhandle);
}

int gemmar_net_dereg_mr(void *comm, void *mhandle)
{
    (void)comm; /* any communicator of the device, or one that is closed by now */
    if (mhandle != NULL) {
        release(mhandle);
    }
    return GEMMAR_NCCL_SUCCESS;
}
