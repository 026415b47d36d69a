// SPDX-License-Identifier: Apache-2.0
// Memory registration: a reference-counted, page-granular cache per device.
#ifndef GEMMAR_IB_MR_H
#define GEMMAR_IB_MR_H

#include "transport/ib_device.h"

/* Who may write in what order. */
enum gemmar_mr_kind {
    GEMMAR_MR_DATA = 0,   /* bulk data: relaxed ordering where the knob allows it */
    GEMMAR_MR_STRICT = 1, /* stamps and flags: a later write never passes an earlier one */
};

/* One registration, kept by the cache. */
struct gemmar_ib_mr {
    struct gemmar_ib_mr *next;
    struct ibv_mr *mr;
    uint64_t start, end; /* whole pages */
    enum gemmar_mr_kind kind;
    uint32_t users;
    bool gpu;
};

/*
 * Register `memory`, or take one more hold on a registration that covers it. Host memory is cached
 * by pages; GPU memory, in whole pages too, goes through its dma-buf first, peer memory second, and
 * is refused third with both reasons. Any thread. Errors are logged with the limit or the module
 * that is missing.
 */
int gemmar_ib_mr_get(struct gemmar_ib_device *device, const struct gemmar_memory *memory,
                     enum gemmar_mr_kind kind, struct gemmar_ib_mr **out);

/* Give a hold back; the last one deregisters. NULL is legal. */
void gemmar_ib_mr_put(struct gemmar_ib_device *device, struct gemmar_ib_mr *mr);

#endif
