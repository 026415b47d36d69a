// SPDX-License-Identifier: Apache-2.0
// How the ranks of a node reach each other on the CPU: one POSIX shared-memory segment per rank and
// workspace generation, mapped by all of them.
#ifndef GEMMAR_KERNELS_FABRIC_SHM_H
#define GEMMAR_KERNELS_FABRIC_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/liveness.h"

#define GEMMAR_SEGMENT_NAME_BYTES 64
#define GEMMAR_PAGE               4096u
#define GEMMAR_LINE               64u

struct gemmar_segment {
    char *base; /* NULL: not mapped */
    uint64_t bytes;
    char name[GEMMAR_SEGMENT_NAME_BYTES];
    bool named; /* by me, and not unlinked yet */
};

/*
 * The first page of a segment: what a rank tells its local peers about itself. `process` is written
 * before the peers map it. `broken`: writer: the rank (release), once, after `text`. Reader: every
 * local rank that waits (acquire). Shared memory.
 */
struct gemmar_control {
    struct gemmar_process process;
    uint64_t rank;
    char pad[GEMMAR_LINE - sizeof(struct gemmar_process) - sizeof(uint64_t)];
    uint64_t broken;
    char text[1024];
};

/* Make a zeroed segment of `bytes` bytes under a new name. Its memory is reserved at once: too
 * little is -ENOSPC here and never a SIGBUS later. `why` gets the sentence. */
int gemmar_segment_create(uint64_t bytes, struct gemmar_segment *out, char *why, size_t why_bytes);

/* Map a local peer's segment. -ENOENT, -EPROTO for another size. */
int gemmar_segment_map(const char *name, uint64_t bytes, struct gemmar_segment *out, char *why,
                       size_t why_bytes);

/* Take the name away; mappings stay. A nameless segment goes with its last process, however that
 * ends. */
void gemmar_segment_unlink(struct gemmar_segment *segment);

/* Unmap, and unlink if that has not been done. A zeroed segment is legal. */
void gemmar_segment_close(struct gemmar_segment *segment);

#endif
