// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs that act as several nodes of this host: what softhca and NCCL need to know before a
// rank's program starts.
#ifndef GEMMAR_PERF_NODES_H
#define GEMMAR_PERF_NODES_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/gemmar_perf/options.h"

/* Do the options ask for GPUs of several nodes over softhca? */
bool gemmar_perf_nodes_wanted(const struct gemmar_perf_options *o);

/* Set the variables of NCCL and softhca, those of the standard model of a NIC among them, that are
 * not set; put softhca and the plugin of the build folder in front of LD_LIBRARY_PATH. Not
 * thread-safe. 0, or 1 after a sentence. */
int gemmar_perf_nodes_environment(void);

/* Keep this process to its part of the processors that it may use: a NIC of softhca is a thread of
 * its process, and threads of two ranks on one core are what differs from run to run. Without a
 * handful of processors for each rank nothing is done. */
void gemmar_perf_nodes_pin(uint32_t rank, uint32_t ranks);

#endif
