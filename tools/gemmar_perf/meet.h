// SPDX-License-Identifier: Apache-2.0
// How the ranks of one run find each other: a star of TCP connections around rank 0.
#ifndef GEMMAR_PERF_MEET_H
#define GEMMAR_PERF_MEET_H

#include <stddef.h>
#include <stdint.h>

struct gemmar_perf_meet;

/* Meet at `address` (host:port of rank 0), waiting timeout_s at most for every rank to come.
 * Collective. 0, or a negative errno with a sentence. */
int gemmar_perf_meet_open(const char *address, uint32_t rank, uint32_t ranks, double timeout_s,
                          struct gemmar_perf_meet **out_meet, char *why, size_t why_bytes);

/* Gather `bytes` bytes of every rank into all [ranks * bytes]. Collective. 0, or a negative errno
 * when a rank is gone, or silent for timeout_s; every later call fails too. */
int gemmar_perf_meet_gather(struct gemmar_perf_meet *meet, const void *mine, void *all,
                            size_t bytes, double timeout_s);

/* Whom the gather that failed was waiting for. */
uint32_t gemmar_perf_meet_lost(const struct gemmar_perf_meet *meet);

/* NULL is legal. */
void gemmar_perf_meet_close(struct gemmar_perf_meet *meet);

#endif
