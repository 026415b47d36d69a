// SPDX-License-Identifier: Apache-2.0
// How a CPU thread waits: spin briefly, then yield, then sleep, always with a deadline.
#ifndef GEMMAR_WAIT_H
#define GEMMAR_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* Caller's storage; zero it (or gemmar_wait_init) before the first step. One thread only. */
struct gemmar_wait {
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    uint64_t steps;
    uint64_t nap_ns; /* longest sleep at first; 0: 100 us */
};

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t gemmar_now_ns(void);

/* Begin to wait for at most timeout_ns (0: for ever), with sleeps of the usual length. */
void gemmar_wait_init(struct gemmar_wait *wait, uint64_t timeout_ns);

/* One turn of a polling loop: a few pauses first, then sched_yield, then sleeps that grow to nap_ns
 * and, after 10,000 of them, to ten times that. False once the deadline has passed (the clock is
 * looked at every few turns only). */
bool gemmar_wait_step(struct gemmar_wait *wait);

/* Was the last turn a sleep? */
bool gemmar_wait_sleeps(const struct gemmar_wait *wait);

#endif
