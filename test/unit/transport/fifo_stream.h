// SPDX-License-Identifier: Apache-2.0
// A stream of commands from one producer thread to the consumer, each one checked.
#ifndef FIFO_STREAM_H
#define FIFO_STREAM_H

#include <stdint.h>

struct fifo_stream {
    uint64_t commands; /* taken by the consumer, each compared with what was sent */
    uint64_t wrong;    /* differed, in content or in order */
    uint64_t ns;       /* from the producer's first command to the last one taken */
};

/* The command that the stream sends as number `i`; every field takes every kind of value. */
struct gemmar_fifo_request;
void fifo_stream_command(uint64_t i, struct gemmar_fifo_request *out);

/* Send `commands` commands through a ring of `entries` from a second thread and take them in
 * batches in this one. 0, -EINVAL, -ENOMEM, -EAGAIN (no thread), or -ETIMEDOUT when none came for
 * ten seconds. */
int fifo_stream_run(uint64_t commands, uint32_t entries, struct fifo_stream *out);

#endif
