// SPDX-License-Identifier: Apache-2.0
// Is a process of this machine still there? Told by its id and start time, which a later process of
// the same id does not share.
#ifndef GEMMAR_KERNELS_LIVENESS_H
#define GEMMAR_KERNELS_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

struct gemmar_process {
    uint64_t pid;
    uint64_t start; /* clock ticks since boot */
};

/* Of the calling process; start 0 when /proc cannot be read. */
struct gemmar_process gemmar_process_self(void);

/* Whether this process is seen here as that process (false in another PID namespace): only then
 * does gemmar_process_gone say anything. */
bool gemmar_process_visible(const struct gemmar_process *process);

/* True when it has ended, also while it waits for its parent to collect it. False when it cannot be
 * looked at, for want of a descriptor or of memory: the next look may tell. */
bool gemmar_process_gone(const struct gemmar_process *process);

#endif
