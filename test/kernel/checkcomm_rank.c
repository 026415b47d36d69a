// SPDX-License-Identifier: Apache-2.0
// One rank of checkcomm: its checks, its communicator.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test/kernel/checkcomm.h"

void check(struct rank *r, bool ok, const char *format, ...)
{
    char text[1024];
    va_list args;

    __atomic_fetch_add(&r->all->checks, 1, __ATOMIC_RELAXED);
    if (ok) {
        return;
    }
    __atomic_fetch_add(&r->all->failures, 1, __ATOMIC_RELAXED);
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    printf("FAILED %s: rank %d: %s\n", r->test, r->rank, text);
    fflush(stdout);
}

void cuda(struct rank *r, cudaError_t rc, const char *what)
{
    check(r, rc == cudaSuccess, "%s: %s", what, cudaGetErrorString(rc));
}

void expect(struct rank *r, gemmarResult_t got, gemmarResult_t want, const char *sentence,
            const char *what)
{
    const char *text = gemmarGetLastError(r->comm);

    check(r, got == want && (sentence == NULL || strstr(text, sentence) != NULL),
          "%s: result %d, not %d, or not \"%s\" in: %s", what, got, want,
          sentence != NULL ? sentence : "", text);
}

void barrier(struct rank *r)
{
    const char *step = r->step;

    r->step = "barrier";
    (void)pthread_barrier_wait(&r->all->barrier);
    r->step = step;
}

double now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

void create(struct rank *r, unsigned timeout_ms, unsigned compare_calls)
{
    gemmarConfig_t config = GEMMAR_CONFIG_INITIALIZER;

    r->step = "create";
    config.timeoutMs = timeout_ms;
    config.check = compare_calls;
    r->comm = NULL;
    expect(r, gemmarCommCreate(&r->comm, r->nccl, &config), gemmarSuccess, NULL, "create");
}

void destroy(struct rank *r)
{
    gemmarResult_t rc;

    r->step = "destroy";
    rc = gemmarCommDestroy(r->comm);
    r->comm = NULL;
    check(r, rc == gemmarSuccess, "destroy: %s", gemmarGetLastError(NULL));
}
