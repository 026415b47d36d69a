// SPDX-License-Identifier: Apache-2.0
// Check and time one shape.
#ifndef GEMMAR_PERF_MEASURE_H
#define GEMMAR_PERF_MEASURE_H

#include "tools/gemmar_perf/report.h"
#include "tools/gemmar_perf/session.h"

/* Collective. 0, or the exit status after a sentence; wrong elements are in the result and in the
 * session, not in the status. */
int gemmar_perf_measure(struct gemmar_perf_session *s, const struct gemmar_perf_shape *shape,
                        struct gemmar_perf_result *out_result);

#endif
