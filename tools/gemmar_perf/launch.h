// SPDX-License-Identifier: Apache-2.0
// Start all ranks on this host, forward what they print, end them together.
#ifndef GEMMAR_PERF_LAUNCH_H
#define GEMMAR_PERF_LAUNCH_H

#include "tools/gemmar_perf/options.h"

/* Run every rank of `argv` once (options->runs times in turn, comparing their checksums). Returns
 * the exit status of the whole: 0, 1 after a failure, 130 after an interrupt. */
int gemmar_perf_launch(const struct gemmar_perf_options *options, char **argv);

#endif
