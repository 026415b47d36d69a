// SPDX-License-Identifier: Apache-2.0
// The CPU executor: a pool of parked threads, each of which is one CTA of a call; the wait of a
// CTA.
#include "kernels/cpu/executor.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/gemm_tile_cpu.h"
#include "kernels/roles.cuh"
#include "transport/signals.h"
#include "transport/wait.h"

#define LOOK_EVERY 64 /* turns of a wait between two looks at the local peers */

struct worker {
    struct gemmar_cpu_executor *executor;
    pthread_t thread;
    uint32_t index; /* CTA; the caller of gemmar_cpu_run is CTA 0 */
    uint64_t seen;  /* the last posted call when it was made: ended calls are not joined */
};

struct gemmar_cpu_executor {
    pthread_mutex_t lock;
    pthread_cond_t begin;           /* a call was posted, or stop */
    pthread_cond_t end;             /* the last worker left the call */
    const struct gemmar_call *call; /* gone when the call has ended: read by its CTAs only */
    uint32_t ctas;                  /* of the last posted call */
    uint64_t generation;            /* counts posted calls */
    uint32_t running;               /* workers in the call */
    uint32_t workers;
    bool stop;
    bool failed; /* some CTA left the call early */
    struct worker **worker;
    uint32_t panels; /* entries of scratch */
    struct gemmar_gemm_scratch **scratch;
    uint32_t tile_m, tile_n; /* that scratch was made for */
};

int gemmar_cpu_executor_open(struct gemmar_cpu_executor **out)
{
    struct gemmar_cpu_executor *e = calloc(1, sizeof(*e));

    if (e == NULL) {
        return -ENOMEM;
    }
    (void)pthread_mutex_init(&e->lock, NULL); /* default attributes: cannot fail on Linux */
    (void)pthread_cond_init(&e->begin, NULL);
    (void)pthread_cond_init(&e->end, NULL);
    *out = e;
    return 0;
}

static void drop_panels(struct gemmar_cpu_executor *e)
{
    for (uint32_t i = 0; i < e->panels; i++) {
        gemmar_gemm_scratch_close(e->scratch[i]);
    }
    free(e->scratch);
    e->scratch = NULL;
    e->panels = 0;
}

void gemmar_cpu_executor_close(struct gemmar_cpu_executor *e)
{
    if (e == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&e->lock);
    e->stop = true;
    (void)pthread_cond_broadcast(&e->begin);
    (void)pthread_mutex_unlock(&e->lock);
    for (uint32_t i = 0; i < e->workers; i++) {
        (void)pthread_join(e->worker[i]->thread, NULL);
        free(e->worker[i]);
    }
    free(e->worker);
    drop_panels(e);
    (void)pthread_cond_destroy(&e->begin);
    (void)pthread_cond_destroy(&e->end);
    (void)pthread_mutex_destroy(&e->lock);
    free(e);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    struct gemmar_cpu_executor *e = w->executor;
    uint64_t seen = w->seen;

    (void)pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->stop && (e->generation == seen || w->index >= e->ctas)) {
            seen = e->generation;
            (void)pthread_cond_wait(&e->begin, &e->lock);
        }
        if (e->stop) {
            break;
        }
        seen = e->generation;
        const struct gemmar_call *call = e->call;
        struct gemmar_gemm_scratch *scratch = e->scratch[w->index];
        (void)pthread_mutex_unlock(&e->lock);
        bool ok = gemmar_roles_run(call, w->index, 0, 1, scratch);
        (void)pthread_mutex_lock(&e->lock);
        e->failed |= !ok;
        if (--e->running == 0) {
            (void)pthread_cond_signal(&e->end);
        }
    }
    (void)pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* Room and threads for `ctas` CTAs. Called without the lock: no call runs, so nobody reads the
 * arrays but parked workers under the lock, which look at their own index only. */
static int grow_threads(struct gemmar_cpu_executor *e, uint32_t ctas)
{
    struct worker **grown = realloc(e->worker, sizeof(*grown) * ctas);

    if (grown == NULL) {
        return -ENOMEM;
    }
    e->worker = grown;
    while (e->workers + 1 < ctas) {
        struct worker *w = malloc(sizeof(*w));
        int rc;

        if (w == NULL) {
            return -ENOMEM;
        }
        w->executor = e;
        w->index = e->workers + 1;
        w->seen = e->generation;
        rc = gemmar_thread_start(&w->thread, work, w);
        if (rc != 0) {
            free(w);
            return rc;
        }
        e->worker[e->workers++] = w;
    }
    return 0;
}

static int grow_panels(struct gemmar_cpu_executor *e, const struct gemmar_call *call)
{
    uint32_t ctas = call->plan.ctas, m = call->map.tile_m, n = call->map.tile_n;

    if (e->panels < ctas || e->tile_m != m || e->tile_n != n) {
        drop_panels(e);
        e->scratch = calloc(ctas, sizeof(struct gemmar_gemm_scratch *));
        if (e->scratch == NULL) {
            return -ENOMEM;
        }
        e->panels = ctas;
        e->tile_m = m;
        e->tile_n = n;
    }
    for (uint32_t i = 0; i < ctas; i++) {
        int rc = e->scratch[i] == NULL && gemmar_range_has(&call->plan.compute, i)
                     ? gemmar_gemm_scratch_open(m, n, &e->scratch[i])
                     : 0;

        if (rc != 0) {
            drop_panels(e);
            return rc;
        }
    }
    return 0;
}

int gemmar_cpu_run(struct gemmar_cpu_executor *e, const struct gemmar_call *call)
{
    int rc;
    bool ok;

    rc = grow_panels(e, call);
    if (rc == 0 && e->workers + 1 < call->plan.ctas) {
        rc = grow_threads(e, call->plan.ctas);
    }
    if (rc != 0) {
        return rc;
    }
    (void)pthread_mutex_lock(&e->lock);
    e->call = call;
    e->ctas = call->plan.ctas;
    e->failed = false;
    e->running = call->plan.ctas - 1;
    e->generation++;
    (void)pthread_cond_broadcast(&e->begin);
    (void)pthread_mutex_unlock(&e->lock);
    ok = gemmar_roles_run(call, 0, 0, 1, e->scratch[0]);
    (void)pthread_mutex_lock(&e->lock);
    while (e->running != 0) {
        (void)pthread_cond_wait(&e->end, &e->lock);
    }
    ok = ok && !e->failed;
    (void)pthread_mutex_unlock(&e->lock);
    return ok ? 0 : -EIO;
}

/* The first wait that gives up leaves the record and makes all the others leave. */
static void give_up(const struct gemmar_call *call, const uint64_t *word, uint64_t target,
                    const struct gemmar_wait_for *whom, uint64_t waited_ns)
{
    struct gemmar_trouble *trouble = call->watch.trouble;

    if (gemmar_claim(&trouble->claimed, 0, 1)) {
        trouble->stage = whom->stage;
        trouble->rank = whom->rank;
        trouble->slot = whom->slot;
        trouble->expected = target;
        trouble->seen = gemmar_load_acquire(word);
        trouble->waited_ns = waited_ns;
        gemmar_store_release(&trouble->complete, 1);
    }
    gemmar_store_release(call->watch.abort_word, 1);
}

bool gemmar_cpu_wait(const struct gemmar_call *call, const uint64_t *word, uint64_t target,
                     const struct gemmar_wait_for *whom)
{
    uint64_t began = gemmar_now_ns();
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, gemmar_wait_patience(call, whom));
    for (uint64_t turn = 1; gemmar_load_acquire(word) < target; turn++) {
        bool in_time = gemmar_wait_step(&wait);

        if (gemmar_exec_left(call)) {
            return false;
        }
        if (!in_time || (turn % LOOK_EVERY == 0 && call->watch.look != NULL &&
                         call->watch.look(call->watch.look_context, whom->local) != 0)) {
            give_up(call, word, target, whom, gemmar_now_ns() - began);
            return false;
        }
    }
    return true;
}
