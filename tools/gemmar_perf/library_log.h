// SPDX-License-Identifier: Apache-2.0
// The library's own lines: shown with --verbose, else kept until it is clear that they matter.
#ifndef GEMMAR_PERF_LIBRARY_LOG_H
#define GEMMAR_PERF_LIBRARY_LOG_H

#include <stdbool.h>

/* For gemmarConfig_t.log. Any thread. */
void gemmar_perf_library_log(void *user, int level, const char *text);

/* Show every line at once. */
void gemmar_perf_library_log_verbose(bool verbose);

/* Show the warnings kept so far: after a success they are news, before a sentence without a text
 * they are the explanation. After an error with a sentence of its own they would repeat it. */
void gemmar_perf_library_log_flush(void);

/* How many warnings are kept, and: forget those kept since then, which a refusal that was asked for
 * has caused. */
unsigned gemmar_perf_library_log_mark(void);
void gemmar_perf_library_log_forget(unsigned mark);

#endif
