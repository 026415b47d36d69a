// SPDX-License-Identifier: Apache-2.0
// Signals belong to the application's threads.
#include "transport/signals.h"

void gemmar_signals_block(sigset_t *out_old)
{
    sigset_t all;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, out_old); /* cannot fail with a valid first argument */
}

void gemmar_signals_restore(const sigset_t *old)
{
    (void)pthread_sigmask(SIG_SETMASK, old, NULL);
}

int gemmar_thread_start(pthread_t *out_thread, void *(*body)(void *argument), void *argument)
{
    sigset_t old;
    int rc;

    gemmar_signals_block(&old); /* the new thread begins with its maker's mask */
    rc = pthread_create(out_thread, NULL, body, argument);
    gemmar_signals_restore(&old);
    return -rc;
}
