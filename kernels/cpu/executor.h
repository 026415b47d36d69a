// SPDX-License-Identifier: Apache-2.0
// The CPU executor: threads as CTAs.
#ifndef GEMMAR_KERNELS_CPU_EXECUTOR_H
#define GEMMAR_KERNELS_CPU_EXECUTOR_H

#include "kernels/call.h"

struct gemmar_cpu_executor;

/* A pool without threads; they are started by the first call that needs them and sleep between
 * calls. -ENOMEM. */
int gemmar_cpu_executor_open(struct gemmar_cpu_executor **out);

/* Stops the threads. No call may run. NULL is legal. */
void gemmar_cpu_executor_close(struct gemmar_cpu_executor *executor);

/*
 * Run one call, on the calling thread and plan.ctas - 1 threads of the pool; returns when all of
 * them have left it. One call at a time. 0; -ENOMEM, -EAGAIN when threads or panels cannot be had
 * (nothing was started); -EIO when the call was left before its end: call->watch.trouble says why
 * if a wait of this rank was the first to give up.
 */
int gemmar_cpu_run(struct gemmar_cpu_executor *executor, const struct gemmar_call *call);

#endif
