// SPDX-License-Identifier: Apache-2.0
// The consumer's side of the device-to-host FIFO (step 3), and a producer for CPU threads.
#ifndef GEMMAR_TRANSPORT_FIFO_H
#define GEMMAR_TRANSPORT_FIFO_H

#include <stdbool.h>
#include <stdint.h>

#include <gemmar/fifo.h>

/* The ring with its consumer's position. One consumer thread. */
struct gemmar_fifo {
    struct gemmar_fifo_ring ring;
    uint64_t *tail;    /* the words that ring.tail and ring.retired point to, to write them */
    uint64_t *retired; /* own cache line each */
    uint64_t head;     /* position of the next command to take; consumer only */
};

/* `entries` is a power of two, 1 included. -EINVAL otherwise, -ENOMEM. The ring begins empty. */
int gemmar_fifo_open(uint32_t entries, struct gemmar_fifo *out);
void gemmar_fifo_close(struct gemmar_fifo *fifo);

/* Is the command `ahead` places behind the next one there? Then *out is what it says. `ahead` is
 * less than the ring's entries. Consumer only. */
bool gemmar_fifo_peek(const struct gemmar_fifo *fifo, uint32_t ahead,
                      struct gemmar_fifo_request *out);

/* Give `count` places back to the producers. What was peeked must have been copied out. */
void gemmar_fifo_advance(struct gemmar_fifo *fifo, uint32_t count);

/* Everything before `position` has left for good. Consumer only; never moves back. */
void gemmar_fifo_retire(struct gemmar_fifo *fifo, uint64_t position);

/* A CPU producer: take a position from *ticket, wait for room, store. `known_tail` is the
 * producer's own copy of the tail, which spares it the consumer's cache line. False when
 * `abort_word` (may be NULL) was set while the ring was full. Any number of threads, each with its
 * own known_tail. */
bool gemmar_fifo_produce(const struct gemmar_fifo_ring *ring, uint64_t *ticket,
                         uint64_t *known_tail, const struct gemmar_fifo_request *request,
                         const uint64_t *abort_word);

#endif
