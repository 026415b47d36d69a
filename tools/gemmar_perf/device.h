// SPDX-License-Identifier: Apache-2.0
// Which verbs device calls between nodes use: softhca, hardware, or none.
#ifndef GEMMAR_PERF_DEVICE_H
#define GEMMAR_PERF_DEVICE_H

#include <stddef.h>

#include "tools/gemmar_perf/options.h"

/* Before the communicator: point the library at softhca when asked to, choose the signal mode, and
 * find the transport in a build folder. 0, or the exit status after a sentence. */
int gemmar_perf_device_prepare(const struct gemmar_perf_options *o, uint32_t rank);

/* After it: refuse softhca when hardware was asked for. */
int gemmar_perf_device_accept(const struct gemmar_perf_options *o, uint32_t ranks);

/* "soft0 port 1, softhca: software emulation (PATH)", "mlx5_0 port 1, 400 Gb/s (PATH)", "none". */
void gemmar_perf_device_describe(char *text, size_t bytes);

#endif
