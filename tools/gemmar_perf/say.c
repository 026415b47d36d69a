// SPDX-License-Identifier: Apache-2.0
// Sentences for people on standard error.
#include "tools/gemmar_perf/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_S 5.0

static uint32_t own_rank = UINT32_MAX;
static double last_progress;

void gemmar_perf_say_rank(uint32_t rank)
{
    own_rank = rank;
}

double gemmar_perf_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void write_line(const char *head, const char *format, va_list arguments)
{
    char line[2048];
    size_t n;

    (void)snprintf(line, sizeof(line), "%s", head);
    n = strlen(line);
    (void)vsnprintf(line + n, sizeof(line) - n - 1, format, arguments);
    n = strlen(line);
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0) {
        return; /* nobody listens */
    }
}

void gemmar_perf_say(const char *format, ...)
{
    char head[64] = "gemmar_perf: ";
    va_list arguments;

    if (own_rank != UINT32_MAX) {
        (void)snprintf(head, sizeof(head), "gemmar_perf: rank %u: ", own_rank);
    }
    va_start(arguments, format);
    write_line(head, format, arguments);
    va_end(arguments);
}

void gemmar_perf_progress(const char *format, ...)
{
    double now = gemmar_perf_seconds();
    va_list arguments;

    if (last_progress == 0) {
        last_progress = now;
    }
    if (own_rank != 0 || now - last_progress < PROGRESS_S) {
        return;
    }
    last_progress = now;
    va_start(arguments, format);
    write_line("# ", format, arguments);
    va_end(arguments);
}
