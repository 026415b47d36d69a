// SPDX-License-Identifier: Apache-2.0
// Sentences for people: "gemmar_perf: [rank N: ]text" on standard error, one write per line.
#ifndef GEMMAR_PERF_SAY_H
#define GEMMAR_PERF_SAY_H

#include <stdint.h>

/* From now on lines name this rank. */
void gemmar_perf_say_rank(uint32_t rank);

void gemmar_perf_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line of progress, at most one every few seconds. */
void gemmar_perf_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* CLOCK_MONOTONIC in seconds. */
double gemmar_perf_seconds(void);

#endif
