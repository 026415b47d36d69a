// SPDX-License-Identifier: Apache-2.0
// The instance of a process: made once, left alone by a forked child, stopped at exit.
#include "tools/softhca/hca.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/softhca/sync.h"

struct softhca_hca *softhca_hca;

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static int atfork_done;

// A child owns none of its parent's threads, slots or rings; it starts afresh when it calls us.
static void forget_parent(void)
{
    softhca_hca = NULL;
    attach_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

int softhca_attach(void)
{
    int err = 0;
    (void)pthread_mutex_lock(&attach_lock);
    if (softhca_hca) {
        goto unlock;
    }
    if (!atfork_done) {
        (void)pthread_atfork(NULL, NULL, forget_parent); // without it only fork is unsupported
        atfork_done = 1;
    }
    struct softhca_hca *h = calloc(1, sizeof *h);
    if (!h) {
        err = -ENOMEM;
        goto unlock;
    }
    err = softhca_config_read(&h->config);
    if (!err) {
        err = softhca_fault_init(&h->faults, &h->config);
    }
    if (!err) {
        err = softhca_fabric_open(&h->member, h->config.fabric, h->config.node, 1);
    }
    if (err) {
        free(h);
        goto unlock;
    }
    (void)pthread_mutex_init(&h->lock, NULL); // cannot fail without attributes
    h->mr_next = 1;
    h->epoch = SOFTHCA_LOAD_ACQUIRE(&h->member.fabric->epoch) - 1; // read everything at first
    softhca_fault_reload(&h->faults, h->member.fabric, h->config.node);
    softhca_hca = h;
unlock:
    (void)pthread_mutex_unlock(&attach_lock);
    return err;
}

void softhca_lock(void)
{
    struct softhca_hca *h = softhca_hca;
    (void)SOFTHCA_ADD(&h->waiting, 1);
    (void)pthread_mutex_lock(&h->lock);
    (void)SOFTHCA_SUB(&h->waiting, 1);
}

void softhca_unlock(void)
{
    (void)pthread_mutex_unlock(&softhca_hca->lock);
}

// At exit with open devices the thread must stop before the memory it writes to goes away.
__attribute__((destructor)) static void leave(void)
{
    struct softhca_hca *h = softhca_hca;
    if (!h) {
        return;
    }
    SOFTHCA_STORE_RELEASE(&h->left, 1);
    softhca_export_stop(h);
    if (h->running) {
        struct timespec t;
        SOFTHCA_STORE_RELEASE(&h->stop, 1);
        softhca_fabric_wake(&h->member.fabric->procs[h->member.slot]);
        (void)clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += 2;
        if (pthread_timedjoin_np(h->thread, NULL, &t)) {
            return; // it hangs in a lock that exit interrupted; the kernel cleans up
        }
    }
    softhca_fabric_close(&h->member);
}
