// SPDX-License-Identifier: Apache-2.0
// How the ranks of one run find each other: a star of TCP connections around rank 0.
//
// No wait is longer than its timeout without a sign of life: a rank that is busy for long (with a
// check) says so, and rank 0 says to the others that it still waits, and for whom in vain.
#ifndef GEMMAR_PERF_MEET_H
#define GEMMAR_PERF_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gemmar_perf_meet;

/* Meet at `address` (host:port of rank 0, [host]:port for IPv6), waiting timeout_s at most for
 * every rank to come. Rank 0 listens at a numeric address as it is; at a name on the interface that
 * NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY choose, without them on all: a name often means the
 * loopback on its own host. Collective. 0, or a negative errno with a sentence. */
int gemmar_perf_meet_open(const char *address, uint32_t rank, uint32_t ranks, double timeout_s,
                          struct gemmar_perf_meet **out_meet, char *why, size_t why_bytes);

/* Gather `bytes` bytes of every rank into all [ranks * bytes]. Collective. 0, or a negative errno
 * when a rank is gone, or silent for timeout_s; every later call fails too. */
int gemmar_perf_meet_gather(struct gemmar_perf_meet *meet, const void *mine, void *all,
                            size_t bytes, double timeout_s);

/* From here on (true) until false this rank is busy, and does not gather: the others wait. */
void gemmar_perf_meet_busy(struct gemmar_perf_meet *meet, bool busy);

/* Whom the gather that failed was waiting for. */
uint32_t gemmar_perf_meet_lost(const struct gemmar_perf_meet *meet);

/* NULL is legal. */
void gemmar_perf_meet_close(struct gemmar_perf_meet *meet);

#endif
