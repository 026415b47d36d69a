// SPDX-License-Identifier: Apache-2.0
// libibverbs, found at run time: every entry that the transport calls, as a table.
//
// Nothing links to libibverbs, so a process without it can load this library and is told what is
// missing. Polling and posting go through ibv_context.ops as everywhere. Tests put their own table
// in.
#ifndef GEMMAR_IB_VERBS_H
#define GEMMAR_IB_VERBS_H

#include <infiniband/verbs.h>

#include "transport/env.h"
#include "transport/log.h"

struct gemmar_ib_verbs {
    struct ibv_device **(*get_device_list)(int *count);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *device);
    struct ibv_context *(*open_device)(struct ibv_device *device);
    int (*close_device)(struct ibv_context *context);
    int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr);
    /* The exported function fills only the fields before `flags2`; the caller zeroes the rest. */
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
    int (*query_gid)(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *address, size_t length, int access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *user,
                                struct ibv_comp_channel *channel, int vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*get_async_event)(struct ibv_context *context, struct ibv_async_event *event);
    void (*ack_async_event)(struct ibv_async_event *event);
    int (*fork_init)(void);
    const char *(*event_type_str)(enum ibv_event_type event);
    const char *(*wc_status_str)(enum ibv_wc_status status);

    /* NULL where the installed library is too old for them. */
    struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                   unsigned int access);
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t length,
                                    uint64_t iova, int fd, int access);
    int (*query_gid_ex)(struct ibv_context *context, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
    int (*query_ece)(struct ibv_qp *qp, struct ibv_ece *ece);
    int (*set_ece)(struct ibv_qp *qp, struct ibv_ece *ece);
};

/* Load the library named by GEMMAR_IBVERBS or NCCL_IBVERBS_LIB, else libibverbs.so.1, and fill the
 * table. -ENOENT, with one logged sentence for the library or for each symbol that is missing. The
 * library stays loaded: providers do not survive being unloaded. */
int gemmar_ib_verbs_load(const struct gemmar_knobs *knobs, const struct gemmar_logger *log,
                         struct gemmar_ib_verbs *out);

#endif
