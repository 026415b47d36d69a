// SPDX-License-Identifier: Apache-2.0
// A queue of events, earliest first; of equal ones the one that was put in first.
#ifndef GEMMAR_PERF_SIMULATE_EVENTS_H
#define GEMMAR_PERF_SIMULATE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gemmar_sim_event {
    double at; /* us */
    uint64_t order;
    uint32_t kind, rank, index;
};

/* Zeroed: empty. */
struct gemmar_sim_events {
    struct gemmar_sim_event *heap;
    size_t count, room;
    uint64_t next;
};

/* 0, or -ENOMEM. */
int gemmar_sim_events_put(struct gemmar_sim_events *events, double at, uint32_t kind, uint32_t rank,
                          uint32_t index);
/* False: empty. */
bool gemmar_sim_events_take(struct gemmar_sim_events *events, struct gemmar_sim_event *out_event);
void gemmar_sim_events_release(struct gemmar_sim_events *events);

#endif
