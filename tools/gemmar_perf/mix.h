// SPDX-License-Identifier: Apache-2.0
// Many calls of mixed shapes in one communicator, each with new inputs, all checked.
#ifndef GEMMAR_PERF_MIX_H
#define GEMMAR_PERF_MIX_H

#include "tools/gemmar_perf/session.h"

/* Collective. 0, or the exit status after a sentence; wrong elements are counted in the session. */
int gemmar_perf_mixed_calls(struct gemmar_perf_session *s);

#endif
