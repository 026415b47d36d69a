// SPDX-License-Identifier: Apache-2.0
// Planned messages over one connection. Both ends know the plan, each checks what it sees: sizes,
// every byte, and that nothing else of the receive buffers was written.
#ifndef GEMMAR_TEST_PLUGIN_TRAFFIC_H
#define GEMMAR_TEST_PLUGIN_TRAFFIC_H

#include "test/plugin/world.h"

struct part {     // one receive of a group and the send that it gets
    size_t bytes; // sent
    size_t room;  // of the receive, at least bytes
    int tag;
    int null; // 1: no data pointer and no mhandle on either side; bytes and room are 0
};

struct group { // one irecv
    int n;
    struct part part[NET_MAX_RECVS];
    uint8_t order[NET_MAX_RECVS]; // in which the parts are sent; equal tags: rising
    int flush;
    int optional; // the receive's completion sentinel
};

struct plan {
    struct group *groups;
    unsigned count;
    unsigned window; // groups in flight
    uint64_t seed;   // of the data
    int lazy;        // tests are late and out of order
};

void plan_init(struct plan *plan, unsigned count, unsigned window, uint64_t seed);
void plan_release(struct plan *plan);
// A group of n equal messages, tags 100 and up, sent in order.
void group_fill(struct group *g, int n, size_t bytes, size_t room);
// Any order of sending, but sends of equal tags in the order of their receives.
void plan_permute(struct group *g, uint64_t *state);
// Runs the plan over the pair's ends that this process has. Registers its own memory.
void plan_run(struct world *w, const struct pair *p, const struct plan *plan);

// One end, for cases that interleave several.
struct flow;
struct flow *flow_open(struct world *w, void *comm, int sending, const struct plan *plan);
// 1 when everything is done.
int flow_turn(struct flow *f);
void flow_close(struct flow *f);

void pattern_fill(void *to, size_t bytes, uint64_t key);
// The offset of the first wrong byte, or bytes.
size_t pattern_check(const void *at, size_t bytes, uint64_t key);

#endif
