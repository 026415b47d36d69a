// SPDX-License-Identifier: Apache-2.0
// Devices of this node: list, open, close, and what they say about themselves.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

#undef ibv_query_port

// libmlx5 and its kin look behind the ibv_device for their own table; zeroes there say "not mine".
#define DEVICE_BYTES 4096u
#define GID_TABLE    8
#define VENDOR_ID    0x02c9u // a vendor whose defaults perftest knows; the part is nobody's
#define VENDOR_PART  0x5f5fu

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_device *devices[SOFTHCA_MAX_DEVICES]; // made once, never freed

static struct softhca_context *to_context(struct ibv_context *c)
{
    return (struct softhca_context *)(void *)((char *)c - offsetof(struct softhca_context, v) -
                                              offsetof(struct verbs_context, context));
}

static struct ibv_device *make_device(uint32_t index)
{
    struct ibv_device *d = calloc(1, DEVICE_BYTES);
    if (!d) {
        return NULL;
    }
    d->node_type = IBV_NODE_CA;
    d->transport_type = IBV_TRANSPORT_IB;
    (void)snprintf(d->name, sizeof d->name, "soft%u", index); // fits, as do all below
    (void)snprintf(d->dev_name, sizeof d->dev_name, "uverbs%u", index);
    (void)snprintf(d->dev_path, sizeof d->dev_path, "/sys/class/infiniband_verbs/uverbs%u", index);
    (void)snprintf(d->ibdev_path, sizeof d->ibdev_path, "/sys/class/infiniband/soft%u", index);
    return d;
}

SOFTHCA_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
    if (num_devices) {
        *num_devices = 0;
    }
    int err = softhca_attach();
    if (err) {
        errno = -err;
        return NULL;
    }
    uint32_t n = (uint32_t)softhca_hca->config.devices;
    struct ibv_device **list = calloc(n + 1, sizeof *list);
    if (!list) {
        errno = ENOMEM;
        return NULL;
    }
    (void)pthread_mutex_lock(&open_lock);
    for (uint32_t i = 0; i < n; i++) {
        devices[i] = devices[i] ? devices[i] : make_device(i);
        list[i] = devices[i];
    }
    (void)pthread_mutex_unlock(&open_lock);
    if (!list[n - 1]) {
        free(list);
        errno = ENOMEM;
        return NULL;
    }
    if (num_devices) {
        *num_devices = (int)n;
    }
    return list;
}

SOFTHCA_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

SOFTHCA_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

static uint32_t device_index(const struct ibv_device *device)
{
    return (uint32_t)strtoul(device->name + strlen("soft"), NULL, 10);
}

SOFTHCA_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    return (int)device_index(device);
}

// A locally administered GUID; the low bytes name the port (0: the device).
static uint64_t guid_of(uint32_t device, uint32_t port)
{
    uint32_t lid = softhca_lid(softhca_hca->member.node, device, 0);
    return 0x0273680300000000ull | (uint64_t)lid << 8 | port;
}

static __be64 to_be64(uint64_t v)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++) {
        b[i] = (uint8_t)(v >> (56 - 8 * i));
    }
    __be64 out;
    memcpy(&out, b, 8);
    return out;
}

SOFTHCA_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
    return to_be64(guid_of(device_index(device), 0));
}

static void query_device(const struct softhca_context *ctx, struct ibv_device_attr *a)
{
    const struct softhca_config *c = &softhca_hca->config;
    memset(a, 0, sizeof *a);
    strcpy(a->fw_ver, "1.0.0");
    a->node_guid = to_be64(guid_of(ctx->device, 0));
    a->sys_image_guid = a->node_guid;
    a->max_mr_size = UINT64_MAX;
    a->page_size_cap = 0xfffff000;
    a->vendor_id = VENDOR_ID;
    a->vendor_part_id = VENDOR_PART;
    a->max_qp = SOFTHCA_MAX_QPS - 1;
    a->max_qp_wr = (int)c->max_qp_wr;
    a->device_cap_flags =
        IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID;
    a->max_sge = a->max_sge_rd = (int)SOFTHCA_MAX_SGE;
    a->max_cq = 65536;
    a->max_cqe = (int)c->max_cqe;
    a->max_mr = (int)c->max_mr;
    a->max_pd = 65536;
    a->max_qp_rd_atom = a->max_qp_init_rd_atom = (int)SOFTHCA_MAX_RD_ATOM;
    a->max_res_rd_atom = (int)(SOFTHCA_MAX_RD_ATOM * SOFTHCA_MAX_QPS);
    a->atomic_cap = IBV_ATOMIC_HCA;
    a->max_srq = 65536;
    a->max_srq_wr = (int)c->max_qp_wr;
    a->max_srq_sge = (int)SOFTHCA_MAX_SGE;
    a->max_pkeys = 1;
    a->local_ca_ack_delay = 15;
    a->phys_port_cnt = (uint8_t)c->ports;
}

SOFTHCA_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    int err = softhca_fault_call(SOFTHCA_CALL_QUERY_DEVICE);
    if (err) {
        return err;
    }
    query_device(to_context(context), attr);
    return 0;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    if ((input && input->comp_mask) || size < sizeof attr->orig_attr) {
        return EINVAL;
    }
    memset(attr, 0, size);
    int err = ibv_query_device(context, &attr->orig_attr);
    if (!err && size > offsetof(struct ibv_device_attr_ex, hca_core_clock)) {
        attr->completion_timestamp_mask = UINT64_MAX;
    }
    if (!err && size >= offsetof(struct ibv_device_attr_ex, device_cap_flags_ex)) {
        attr->hca_core_clock = 1000000; // kHz: time stamps are in ns
    }
    if (!err && size >= sizeof *attr) {
        attr->device_cap_flags_ex = attr->orig_attr.device_cap_flags;
        attr->phys_port_cnt_ex = attr->orig_attr.phys_port_cnt;
    }
    return err;
}

static uint8_t speed_code(uint64_t gbps) // of one of four lanes
{
    static const struct {
        uint64_t gbps;
        uint8_t code;
    } codes[] = {{10, 1}, {20, 2}, {40, 4}, {56, 16}, {100, 32}, {200, 64}, {400, 128}};
    uint8_t code = 1;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        code = gbps >= codes[i].gbps ? codes[i].code : code;
    }
    return code;
}

int softhca_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                       size_t size)
{
    struct softhca_hca *h = softhca_hca;
    struct softhca_context *ctx = to_context(context);
    int err = softhca_fault_call(SOFTHCA_CALL_QUERY_PORT);
    if (err) {
        return err;
    }
    if (port < 1 || port > h->config.ports) {
        return EINVAL;
    }
    struct ibv_port_attr a;
    memset(&a, 0, sizeof a);
    uint32_t lid = softhca_lid(h->member.node, ctx->device, port - 1u);
    int down = SOFTHCA_LOAD_ACQUIRE(&softhca_fabric_port(h->member.fabric, lid)->down) != 0;
    a.state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    a.max_mtu = a.active_mtu = IBV_MTU_4096;
    a.gid_tbl_len = GID_TABLE;
    a.port_cap_flags = h->config.roce ? IBV_PORT_IP_BASED_GIDS | IBV_PORT_CM_SUP : IBV_PORT_CM_SUP;
    a.max_msg_sz = SOFTHCA_MAX_MSG;
    a.pkey_tbl_len = 1;
    a.lid = h->config.roce ? 0 : (uint16_t)lid;
    a.sm_lid = h->config.roce ? 0 : 1;
    a.max_vl_num = 1;
    a.active_width = 2; // four lanes
    a.active_speed = speed_code(h->config.device_gbps[ctx->device]);
    a.phys_state = down ? 3 : 5; // disabled, link up
    a.link_layer = h->config.roce ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    memset(attr, 0, size);
    memcpy(attr, &a, size < sizeof a ? size : sizeof a);
    return 0;
}

// The symbol is for old programs, whose struct ends before port_cap_flags2.
SOFTHCA_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
                                  struct _compat_ibv_port_attr *port_attr)
{
    return softhca_query_port(context, port_num, (struct ibv_port_attr *)(void *)port_attr,
                              offsetof(struct ibv_port_attr, flags));
}

// 0, -EINVAL for an index outside of the table, -ENODATA for an empty entry.
static int gid_at(const struct softhca_context *ctx, uint32_t port, uint32_t index,
                  union ibv_gid *gid, uint32_t *type)
{
    const struct softhca_hca *h = softhca_hca;
    if (port < 1 || port > h->config.ports || index >= GID_TABLE) {
        return -EINVAL;
    }
    memset(gid, 0, sizeof *gid);
    *type = h->config.roce ? (index & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1)
                           : IBV_GID_TYPE_IB;
    if (index >= (h->config.roce ? 4u : 1u)) {
        return -ENODATA;
    }
    if (index < 2) { // link-local, on InfiniBand the only one
        gid->raw[0] = 0xfe;
        gid->raw[1] = 0x80;
        gid->global.interface_id = to_be64(guid_of(ctx->device, port));
    } else { // IPv4: one network for each rail, one host for each node
        uint32_t host = h->member.node + 1;
        gid->raw[10] = gid->raw[11] = 0xff;
        gid->raw[12] = 10;
        gid->raw[13] = (uint8_t)(ctx->device * SOFTHCA_MAX_PORTS + port - 1);
        gid->raw[14] = (uint8_t)(host >> 8);
        gid->raw[15] = (uint8_t)host;
    }
    return 0;
}

uint32_t softhca_gid_lid(const union ibv_gid *gid)
{
    const uint8_t *g = gid->raw;
    uint32_t lid = 0;
    if (g[0] == 0xfe && g[1] == 0x80 && g[8] == 0x02 && g[9] == 0x73) {
        lid = ((uint32_t)g[13] << 8 | g[14]) + g[15] - 1u;
        lid = g[15] >= 1 && g[15] <= SOFTHCA_MAX_PORTS ? lid : 0;
    } else if (g[10] == 0xff && g[11] == 0xff && g[12] == 10 && g[13] < SOFTHCA_PORTS_PER_NODE) {
        uint32_t host = (uint32_t)g[14] << 8 | g[15];
        lid = host ? softhca_lid(host - 1, 0, 0) + g[13] : 0;
    }
    return lid <= SOFTHCA_MAX_LID ? lid : 0;
}

SOFTHCA_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
                                 union ibv_gid *gid)
{
    uint32_t type;
    int err = softhca_fault_call(SOFTHCA_CALL_QUERY_GID);
    if (!err) {
        int r = gid_at(to_context(context), port_num, (uint32_t)index, gid, &type);
        err = r == -ENODATA ? 0 : -r; // an empty entry reads as zero
    }
    if (err) {
        errno = err;
        return -1;
    }
    return 0;
}

SOFTHCA_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
                                      unsigned int index, unsigned int *type)
{
    union ibv_gid gid;
    uint32_t t;
    int err = gid_at(to_context(context), port_num, index, &gid, &t);
    if (err) {
        errno = -err;
        return -1;
    }
    *type = t == IBV_GID_TYPE_ROCE_V2; // this old call knows "IB or v1" and "v2"
    return 0;
}

SOFTHCA_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
                                     uint32_t gid_index, struct ibv_gid_entry *entry,
                                     uint32_t flags, size_t entry_size)
{
    struct ibv_gid_entry e = {.gid_index = gid_index, .port_num = port_num};
    if (flags || entry_size < sizeof e) {
        return EINVAL;
    }
    int err = softhca_fault_call(SOFTHCA_CALL_QUERY_GID);
    if (!err) {
        err = -gid_at(to_context(context), port_num, gid_index, &e.gid, &e.gid_type);
    }
    if (!err) {
        *entry = e;
    }
    return err;
}

SOFTHCA_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
                                            struct ibv_gid_entry *entries, size_t max_entries,
                                            uint32_t flags, size_t entry_size)
{
    size_t n = 0;
    if (flags || entry_size < sizeof *entries) {
        return -EINVAL;
    }
    for (uint32_t p = 1; p <= softhca_hca->config.ports; p++) {
        for (uint32_t i = 0; i < GID_TABLE && n < max_entries; i++) {
            struct ibv_gid_entry *e = (void *)((char *)entries + n * entry_size);
            n += _ibv_query_gid_ex(context, p, i, e, 0, entry_size) == 0;
        }
    }
    return (ssize_t)n;
}

SOFTHCA_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
                                  __be16 *pkey)
{
    (void)context; // every port has the default key only
    if (port_num < 1 || port_num > softhca_hca->config.ports || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = 0xffff;
    return 0;
}

SOFTHCA_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
    __be16 only;
    if (ibv_query_pkey(context, port_num, 0, &only)) {
        return -1;
    }
    if (only != pkey) {
        errno = ENOENT;
        return -1;
    }
    return 0;
}

static void fill_context(struct softhca_context *ctx, struct ibv_device *device)
{
    ctx->device = device_index(device);
    ctx->v.sz = sizeof ctx->v;
    ctx->v.query_port = softhca_query_port;
    ctx->v.query_device_ex = query_device_ex;
    ctx->v.create_qp_ex = softhca_create_qp_ex;
    ctx->v.create_cq_ex = softhca_create_cq_ex;
    struct ibv_context *c = &ctx->v.context;
    c->device = device;
    c->abi_compat = __VERBS_ABI_IS_EXTENDED;
    c->cmd_fd = -1;
    c->num_comp_vectors = 1;
    c->ops.poll_cq = softhca_poll_cq;
    c->ops.req_notify_cq = softhca_req_notify_cq;
    c->ops.post_send = softhca_post_send;
    c->ops.post_recv = softhca_post_recv;
    c->ops.post_srq_recv = softhca_post_srq_recv;
    (void)pthread_mutex_init(&c->mutex, NULL); // cannot fail without attributes
    (void)pthread_mutex_init(&ctx->lock, NULL);
    struct softhca_fabric *f = softhca_hca->member.fabric;
    for (uint32_t p = 0; p < SOFTHCA_MAX_PORTS; p++) {
        uint32_t lid = softhca_lid(softhca_hca->member.node, ctx->device, p);
        ctx->port_seq[p] = SOFTHCA_LOAD_ACQUIRE(&softhca_fabric_port(f, lid)->seq);
    }
}

SOFTHCA_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    int err = softhca_fault_call(SOFTHCA_CALL_OPEN_DEVICE);
    if (!err) {
        err = -softhca_attach(); // a forked child may come here first
    }
    struct softhca_context *ctx = err ? NULL : calloc(1, sizeof *ctx);
    if (!ctx) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    fill_context(ctx, device);
    ctx->v.context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (ctx->v.context.async_fd < 0) {
        err = errno;
        goto undo_context;
    }
    (void)pthread_mutex_lock(&open_lock);
    softhca_lock();
    err = -softhca_progress_start();
    if (!err) {
        ctx->next = softhca_hca->contexts;
        softhca_hca->contexts = ctx;
    }
    softhca_unlock();
    (void)pthread_mutex_unlock(&open_lock);
    if (err) {
        goto undo_fd;
    }
    return &ctx->v.context;
undo_fd:
    (void)close(ctx->v.context.async_fd);
undo_context:
    free(ctx);
    errno = err;
    return NULL;
}

// Objects that the program left are taken from the progress thread and then leak, as documented.
static void abandon_objects(struct softhca_context *ctx)
{
    struct softhca_hca *h = softhca_hca;
    for (uint32_t i = 0; i < SOFTHCA_MAX_QPS; i++) {
        if (h->qps[i] && h->qps[i]->ctx == ctx) {
            softhca_qp_abandon(h->qps[i]);
        }
    }
}

SOFTHCA_EXPORT int ibv_close_device(struct ibv_context *context)
{
    struct softhca_context *ctx = to_context(context);
    struct softhca_hca *h = softhca_hca;
    (void)pthread_mutex_lock(&open_lock);
    softhca_lock();
    abandon_objects(ctx);
    struct softhca_context **link = &h->contexts;
    while (*link && *link != ctx) {
        link = &(*link)->next;
    }
    if (*link) {
        *link = ctx->next;
    }
    if (!h->contexts && h->running) {
        softhca_progress_stop();
    }
    softhca_unlock();
    (void)pthread_mutex_unlock(&open_lock);
    softhca_event_forget(ctx, NULL);
    (void)close(context->async_fd);
    free(ctx);
    return 0;
}
