// SPDX-License-Identifier: Apache-2.0
// Checks: what a device says about itself, its ports and its GIDs.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <string.h>

static void device_list(void)
{
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    MUST(list && count > 0, "at least one device");
    MUST(list[count] == NULL, "the list ends with NULL");
    for (int i = 0; i < count; i++) {
        const char *name = ibv_get_device_name(list[i]);
        MUST(name && name[0] && strlen(name) < IBV_SYSFS_NAME_MAX, "a name");
        for (int k = 0; k < i; k++) {
            MUST(strcmp(name, ibv_get_device_name(list[k])) != 0, "names are unique");
        }
        MUST(list[i]->transport_type == IBV_TRANSPORT_IB, "InfiniBand transport");
        MUST(list[i]->node_type == IBV_NODE_CA, "a channel adapter");
    }
    ibv_free_device_list(list);
}

static void device_attributes(void)
{
    struct ibv_context *ctx = device_open(0);
    struct ibv_device_attr attr;
    memset(&attr, 0, sizeof(attr));
    MUST(ibv_query_device(ctx, &attr) == 0, "ibv_query_device");
    MUST(attr.phys_port_cnt >= options.port, "the port in use");
    MUST(attr.max_qp > 0 && attr.max_qp_wr > 0 && attr.max_sge > 0, "queue pair limits");
    MUST(attr.max_cq > 0 && attr.max_cqe > 0 && attr.max_mr > 0 && attr.max_pd > 0, "limits");
    MUST(attr.max_mr_size > 0, "max_mr_size");
    MUST(attr.max_qp_rd_atom > 0 && attr.max_qp_init_rd_atom > 0, "READs in flight");
    MUST(attr.node_guid == ibv_get_device_guid(ctx->device), "one node GUID");
    MUST(attr.node_guid != 0, "a node GUID");

    struct ibv_device_attr_ex ex;
    memset(&ex, 0, sizeof(ex));
    MUST(ibv_query_device_ex(ctx, NULL, &ex) == 0, "ibv_query_device_ex");
    MUST(ex.orig_attr.max_qp_wr == attr.max_qp_wr && ex.orig_attr.node_guid == attr.node_guid,
         "the same attributes");
    MUST(ibv_close_device(ctx) == 0, "ibv_close_device");
}

static void port_attributes(void)
{
    struct ibv_context *ctx = device_open(0);
    struct ibv_port_attr attr;
    memset(&attr, 0, sizeof(attr));
    MUST(ibv_query_port(ctx, (uint8_t)options.port, &attr) == 0, "ibv_query_port");
    MUST(attr.state == IBV_PORT_ACTIVE, "the port is active");
    MUST(attr.active_mtu >= IBV_MTU_256 && attr.active_mtu <= attr.max_mtu, "the MTU");
    MUST(attr.gid_tbl_len > 0 && attr.pkey_tbl_len > 0, "a GID and a partition key");
    MUST(attr.max_msg_sz >= 8 << 20, "messages of 8 MiB");
    MUST(attr.link_layer == IBV_LINK_LAYER_ETHERNET ||
             (attr.link_layer == IBV_LINK_LAYER_INFINIBAND && attr.lid != 0),
         "a LID on InfiniBand");
    MUST(ibv_close_device(ctx) == 0, "ibv_close_device");
}

static void port_unknown(void)
{
    struct ibv_context *ctx = device_open(0);
    struct ibv_device_attr device;
    struct ibv_port_attr attr;
    MUST(ibv_query_device(ctx, &device) == 0, "ibv_query_device");
    MUST(ibv_query_port(ctx, (uint8_t)(device.phys_port_cnt + 1), &attr) != 0,
         "a port above the last one is refused");
    MUST(ibv_query_port(ctx, 0, &attr) != 0, "port 0 of a channel adapter is refused");
    MUST(ibv_close_device(ctx) == 0, "ibv_close_device");
}

static void gid_table(void)
{
    struct side s;
    side_open(&s, 0, NULL);
    union ibv_gid gid;
    MUST(!bytes_are(s.gid.raw, sizeof(s.gid.raw), 0), "the GID in use is not zero");
    MUST(ibv_query_gid(s.ctx, (uint8_t)options.port, s.port.gid_tbl_len, &gid) != 0,
         "an index past the table is refused");

    struct ibv_gid_entry entry;
    memset(&entry, 0, sizeof(entry));
    MUST(ibv_query_gid_ex(s.ctx, (uint32_t)options.port, (uint32_t)s.gid_index, &entry, 0) == 0,
         "ibv_query_gid_ex");
    MUST(memcmp(&entry.gid, &s.gid, sizeof(s.gid)) == 0, "the same GID both ways");
    bool ethernet = s.port.link_layer == IBV_LINK_LAYER_ETHERNET;
    MUST(ethernet == (entry.gid_type != IBV_GID_TYPE_IB), "a GID type that fits the link layer");
    MUST(entry.gid_index == (uint32_t)s.gid_index && entry.port_num == (uint32_t)options.port,
         "index and port");
    side_close(&s);
}

static void gids_differ(void)
{
    struct side a, b;
    side_open(&a, 0, NULL);
    side_open(&b, 1, NULL);
    bool same = strcmp(ibv_get_device_name(a.ctx->device), ibv_get_device_name(b.ctx->device)) == 0;
    MUST(same || memcmp(&a.gid, &b.gid, sizeof(a.gid)) != 0, "two devices have two GIDs");
    side_close(&a);
    side_close(&b);
}

static void partition_key(void)
{
    struct ibv_context *ctx = device_open(0);
    __be16 pkey = 0;
    MUST(ibv_query_pkey(ctx, (uint8_t)options.port, 0, &pkey) == 0, "ibv_query_pkey");
    MUST((pkey & 0xff7f) == 0xff7f, "the default partition");
    MUST(ibv_close_device(ctx) == 0, "ibv_close_device");
}

const struct check query_checks[] = {
    {"query.device_list", device_list, 0},
    {"query.device_attributes", device_attributes, 0},
    {"query.port_attributes", port_attributes, 0},
    {"query.port_unknown_is_refused", port_unknown, 0},
    {"query.gid_table", gid_table, 0},
    {"query.gids_of_two_devices_differ", gids_differ, 0},
    {"query.partition_key", partition_key, 0},
    {0},
};
