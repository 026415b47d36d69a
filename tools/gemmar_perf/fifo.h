// SPDX-License-Identifier: Apache-2.0
// The command ring alone: one producer thread, one consumer that looks at every command.
#ifndef GEMMAR_PERF_FIFO_H
#define GEMMAR_PERF_FIFO_H

#include "tools/gemmar_perf/options.h"

/* Print the rate and append a JSON object when asked to. Returns the exit status. */
int gemmar_perf_fifo(const struct gemmar_perf_options *o, char **argv);

/* From a GPU's push to the posted work request and to the stamp at another GPU (gpu/fifo.c). */
int gemmar_perf_gpu_fifo(const struct gemmar_perf_options *o, char **argv);

#endif
