// SPDX-License-Identifier: Apache-2.0
// A port while the doctor looks at it. One thread.
#ifndef GEMMAR_INFO_DEVICES_H
#define GEMMAR_INFO_DEVICES_H

#include "tools/gemmar_info/doctor.h"

struct gemmar_info_open_port {
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr attr;
    const char *name;
    uint8_t port;
    int gid;            /* index that would be chosen; -1: none is needed; other negative: failed */
    char gid_why[160];  /* the reason of the choice or of the failure */
    char not_used[256]; /* "" when the transport would use the port */
};

/* Would the port's table be searched for a GID? Not on InfiniBand. */
bool gemmar_info_gid_needed(const struct ibv_port_attr *attr);
/* Choose as the transport does, into `gid` and `gid_why`. */
void gemmar_info_gid_choose(const struct gemmar_info *d, struct gemmar_info_open_port *p);
/* Rows of the table for the section that is open. */
void gemmar_info_gid_rows(struct gemmar_info *d, const struct gemmar_info_open_port *p);

#endif
