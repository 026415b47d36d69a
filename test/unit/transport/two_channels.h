// SPDX-License-Identifier: Apache-2.0
// Two channels in one process over fake verbs, a sends to b: what the tests of the channel share.
// The test decides when a work request is executed.
#ifndef GEMMAR_TEST_TWO_CHANNELS_H
#define GEMMAR_TEST_TWO_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "test/unit/transport/fake_verbs.h"
#include "transport/channel.h"
#include "transport/fifo.h"
#include "transport/order.h"

#define SLOTS  512u
#define BYTES  128u /* of a slot */
#define WINDOW (SLOTS * BYTES)

/* One rank. data: source[2], sink[2]. */
struct side {
    struct gemmar_channel *channel;
    char *data;
    uint64_t *stamps;
    uint64_t ticket, tail;
    uint64_t abort_word, posted_word;
};

struct setup {
    uint32_t queue_pairs, ring_entries, signal;
    uint64_t first_epoch, timeout_ns;
    bool gpu; /* the data claims to be GPU memory */
    bool gpu_stamps;
    bool no_flush; /* NCCL_GDR_FLUSH_DISABLE */
};

extern struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
extern uint32_t device_count;
extern struct side a, b;

/* Fixture of each test: memory and fresh verbs. */
void setup(void);
void teardown(void);

/* Open the devices and both sides and join them; the first error. */
int open_all(const struct setup *o);
void close_both(void);

/* Write a's slot and push its command. */
void push(uint32_t slot, uint64_t epoch);
/* A command without data. */
void push_empty(uint32_t slot, uint64_t epoch);
/* What b has of it. */
uint64_t stamp_of(uint32_t slot, uint64_t epoch);
bool data_of(uint32_t slot, uint64_t epoch);
/* Number of the queue pair that a uses for a slot. */
uint32_t qp(uint32_t slot);
uint64_t retired(void);
/* Turns of a's proxy. */
void turns(int n);

#endif
