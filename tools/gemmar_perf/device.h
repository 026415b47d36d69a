// SPDX-License-Identifier: Apache-2.0
// Which verbs device calls between nodes use: softhca, hardware, or none.
#ifndef GEMMAR_PERF_DEVICE_H
#define GEMMAR_PERF_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/gemmar_perf/options.h"

#define GEMMAR_PERF_SOFTHCA "../softhca/lib/libibverbs.so.1" /* from this program's folder */
#define GEMMAR_PERF_NO_SOFTHCA                                                                     \
    "--hca soft: no softhca in ../softhca/lib beside this program: run it from the build folder, " \
    "built with -Dsofthca=true (softhca is not installed)"

/* The file at `relative` to this program's folder, as a plain path; false: there is none. */
bool gemmar_perf_beside(const char *relative, char *path, size_t bytes);

/* Before the communicator: point the library at softhca when asked to, choose the signal mode, and
 * find the transport in a build folder. 0, or the exit status after a sentence. */
int gemmar_perf_device_prepare(const struct gemmar_perf_options *o, uint32_t rank);

/* After it: refuse softhca when hardware was asked for. */
int gemmar_perf_device_accept(const struct gemmar_perf_options *o, uint32_t ranks);

/* "soft0 port 1, softhca: software emulation (PATH)", "mlx5_0 port 1, 400 Gb/s (PATH)", "none". */
void gemmar_perf_device_describe(char *text, size_t bytes);

/* What a rank can send to other nodes, in GB/s: of softhca its share of the model's ports, which
 * all ranks of a node use together; of hardware the line rate of the first device, as each GPU has
 * its own. NaN: not known, or a model without a limit. */
double gemmar_perf_device_rate(uint32_t ranks_per_node);

#endif
