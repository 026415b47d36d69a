// SPDX-License-Identifier: Apache-2.0
// Section "gids": the GID table of each RoCE port, and the entry that the transport would choose.
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_info/devices.h"
#include "transport/ib_gid.h"
#include "transport/ib_query.h"

bool gemmar_info_gid_needed(const struct ibv_port_attr *attr)
{
    return attr->link_layer == IBV_LINK_LAYER_ETHERNET;
}

static struct gemmar_gid_entry *read_table(const struct gemmar_info *d,
                                           const struct gemmar_info_open_port *p)
{
    size_t count = p->attr.gid_tbl_len > 0 ? (size_t)p->attr.gid_tbl_len : 1;
    struct gemmar_gid_entry *entries = calloc(count, sizeof(*entries));

    for (int i = 0; entries != NULL && i < p->attr.gid_tbl_len; i++) {
        gemmar_ib_gid_read(&d->verbs, p->context, p->name, p->port, i, &entries[i]);
    }
    return entries;
}

void gemmar_info_gid_choose(const struct gemmar_info *d, struct gemmar_info_open_port *p)
{
    struct gemmar_gid_entry *entries;

    p->gid = -1;
    p->gid_why[0] = '\0';
    if (!gemmar_info_gid_needed(&p->attr)) {
        return;
    }
    entries = read_table(d, p);
    p->gid = -ENOMEM;
    if (entries != NULL) {
        p->gid = gemmar_ib_gid_choose(entries, p->attr.gid_tbl_len, &d->knobs, p->gid_why,
                                      sizeof(p->gid_why));
    }
    free(entries);
}

static const char *type_name(const struct ibv_port_attr *attr, enum gemmar_gid_type type)
{
    return attr->link_layer != IBV_LINK_LAYER_ETHERNET ? "IB"
           : type == GEMMAR_GID_ROCE_V2                ? "RoCE v2"
                                                       : "RoCE v1";
}

void gemmar_info_gid_rows(struct gemmar_info *d, const struct gemmar_info_open_port *p)
{
    static const union ibv_gid empty;
    struct gemmar_gid_entry *entries = read_table(d, p);
    struct gemmar_info_report *r = &d->report;

    for (int i = 0; entries != NULL && i < p->attr.gid_tbl_len; i++) {
        char text[INET6_ADDRSTRLEN], path[256], netdev[64];

        if (memcmp(&entries[i].gid, &empty, sizeof(empty)) == 0 && i != p->gid) {
            continue;
        }
        gemmar_ib_gid_text(&entries[i].gid, text);
        (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/gid_attrs/ndevs/%d",
                       p->name, p->port, i);
        gemmar_info_row(r);
        gemmar_info_text(r, "device", "%s", p->name);
        gemmar_info_number(r, "port", p->port);
        gemmar_info_number(r, "index", i);
        gemmar_info_text(r, "type", "%s", type_name(&p->attr, entries[i].type));
        gemmar_info_text(r, "address", "%s", text);
        if (gemmar_info_read_line(d, path, netdev, sizeof(netdev))) {
            gemmar_info_text(r, "interface", "%s", netdev);
        } else {
            gemmar_info_unknown(r, "interface");
        }
        gemmar_info_flag(r, "chosen", i == p->gid);
        gemmar_info_text(r, "why", "%s", i == p->gid ? p->gid_why : "");
    }
    free(entries);
}
