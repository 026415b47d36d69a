// SPDX-License-Identifier: Apache-2.0
// The grammar of NCCL_IB_HCA and NCCL_SOCKET_IFNAME: `[^][=]name[:port][,name[:port]...]`.
#ifndef GEMMAR_HCA_FILTER_H
#define GEMMAR_HCA_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#define GEMMAR_HCA_FILTER_ENTRIES 64
#define GEMMAR_HCA_NAME_BYTES     64

struct gemmar_hca_filter {
    bool exclude; /* ^ in front: the listed ones are not used */
    bool exact;   /* = in front: names, not prefixes */
    int count;    /* 0: everything matches */
    struct {
        char name[GEMMAR_HCA_NAME_BYTES];
        int port; /* -1: any */
    } entry[GEMMAR_HCA_FILTER_ENTRIES];
};

/*
 * Parse `text`. Without ^ or = in front a name is a prefix, as in NCCL. An empty text matches
 * everything. Rail and plane numbers behind the port (`:port:rail:plane`) are accepted and unused.
 * -EINVAL with the reason in `why` for anything else: a filter that is not understood must never
 * turn into "all devices".
 */
int gemmar_hca_filter_parse(const char *text, struct gemmar_hca_filter *out, char *why,
                            size_t why_bytes);

/* Is (name, port) to be used? */
bool gemmar_hca_filter_match(const struct gemmar_hca_filter *filter, const char *name, int port);

#endif
