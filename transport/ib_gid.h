// SPDX-License-Identifier: Apache-2.0
// Which entry of a port's GID table to use.
#ifndef GEMMAR_IB_GID_H
#define GEMMAR_IB_GID_H

#include <infiniband/verbs.h>
#include <stddef.h>

#include "transport/env.h"

enum gemmar_gid_type {
    GEMMAR_GID_IB = 0,
    GEMMAR_GID_ROCE_V1 = 1,
    GEMMAR_GID_ROCE_V2 = 2,
};

struct gemmar_gid_entry {
    union ibv_gid gid;
    enum gemmar_gid_type type;
};

/*
 * Choose among `count` entries of a RoCE port; an all-zero GID is an empty slot.
 *
 * A forced index (NCCL_IB_GID_INDEX) must be in the table and in use. Otherwise entries outside
 * NCCL_IB_ADDR_RANGE drop out, and of the rest: a routable address before a link-local one, then
 * the wanted RoCE version, then the wanted family, then the lower index. Returns the index, or
 * -EINVAL / -ENOENT; `why` holds the reason in every case.
 */
int gemmar_ib_gid_choose(const struct gemmar_gid_entry *entries, int count,
                         const struct gemmar_knobs *knobs, char *why, size_t why_bytes);

/* Text of a GID; IPv4-mapped ones as IPv4. `text` has room for INET6_ADDRSTRLEN. */
void gemmar_ib_gid_text(const union ibv_gid *gid, char *text);

#endif
