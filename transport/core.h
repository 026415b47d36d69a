// SPDX-License-Identifier: Apache-2.0
// What all users of the transport in one process share: knobs, libibverbs and the open devices.
//
// The first hold reads the knobs, loads libibverbs and opens the devices; the last one closes them
// again, so that threads and descriptors exist only while somebody uses them. A forked child has
// none of the threads: it gets -EPERM from a new hold, and giving back an inherited one does
// nothing.
#ifndef GEMMAR_CORE_H
#define GEMMAR_CORE_H

#include <sys/types.h>

#include "transport/env.h"
#include "transport/ib_device.h"
#include "transport/ib_verbs.h"
#include "transport/log.h"

/* One user's hold. The lines of the shared parts go to the logger of a hold that still exists. */
struct gemmar_hold {
    struct gemmar_core *core;
    struct gemmar_logger log;
    struct gemmar_hold *next; /* under the core's lock */
};

struct gemmar_core {
    struct gemmar_hold *holds; /* under the core's lock */
    pid_t process;             /* that made it */
    struct gemmar_logger log;  /* forwards to the first hold */
    struct gemmar_knobs knobs;
    struct gemmar_ib_verbs verbs;
    uint32_t device_count;
    struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
};

/* Take a hold; `hold` is the caller's storage, its `log` is filled in; the knob may raise
 * its level. 0 or
 * a negative errno, logged. Any thread. */
int gemmar_core_hold(struct gemmar_hold *hold);
/* Give it back; a hold that was never taken (core NULL) is legal. Any thread. */
void gemmar_core_release(struct gemmar_hold *hold);

/* Was it taken by this process, and not by a parent? */
bool gemmar_core_is_ours(const struct gemmar_hold *hold);

#endif
