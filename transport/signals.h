// SPDX-License-Identifier: Apache-2.0
// Signals belong to the application's threads: those of ours take none, and a call that a signal
// would undo runs with all of them blocked.
#ifndef GEMMAR_SIGNALS_H
#define GEMMAR_SIGNALS_H

#include <pthread.h>
#include <signal.h>

/* Block all signals of the calling thread, and give it its own mask back. */
void gemmar_signals_block(sigset_t *out_old);
void gemmar_signals_restore(const sigset_t *old);

/* A joinable thread with all signals blocked: 0 or a negative errno. Any thread. */
int gemmar_thread_start(pthread_t *out_thread, void *(*body)(void *argument), void *argument);

#endif
