// SPDX-License-Identifier: Apache-2.0
// The library's own lines: shown with --verbose, else kept until it is clear that they matter.
#include "tools/gemmar_perf/library_log.h"

#include <pthread.h>
#include <stdio.h>

#include "tools/gemmar_perf/say.h"

#define LINES      16
#define LINE_BYTES 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kept[LINES][LINE_BYTES];
static unsigned count;
static bool show_all;

void gemmar_perf_library_log(void *user, int level, const char *text)
{
    (void)user;
    (void)pthread_mutex_lock(&lock);
    if (show_all) {
        gemmar_perf_say("%s", text);
    } else if (level <= 1 && count < LINES) {
        (void)snprintf(kept[count++], LINE_BYTES, "%s", text);
    }
    (void)pthread_mutex_unlock(&lock);
}

void gemmar_perf_library_log_verbose(bool verbose)
{
    (void)pthread_mutex_lock(&lock);
    show_all = verbose;
    (void)pthread_mutex_unlock(&lock);
}

void gemmar_perf_library_log_flush(void)
{
    (void)pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count; i++) {
        gemmar_perf_say("%s", kept[i]);
    }
    count = 0;
    (void)pthread_mutex_unlock(&lock);
}

unsigned gemmar_perf_library_log_mark(void)
{
    unsigned mark;

    (void)pthread_mutex_lock(&lock);
    mark = count;
    (void)pthread_mutex_unlock(&lock);
    return mark;
}

void gemmar_perf_library_log_forget(unsigned mark)
{
    (void)pthread_mutex_lock(&lock);
    count = mark < count ? mark : count;
    (void)pthread_mutex_unlock(&lock);
}
