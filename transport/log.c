// SPDX-License-Identifier: Apache-2.0
// Log lines: formatting, level filter, the default sink.
#include "transport/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 1024

static const char *level_name(enum gemmar_log_level level)
{
    return level == GEMMAR_LOG_WARN ? "warn" : level == GEMMAR_LOG_INFO ? "info" : "trace";
}

/* One write per line, so that lines of several processes do not mix. */
static void log_to_stderr(enum gemmar_log_level level, const char *text)
{
    char line[LINE_BYTES + 64];
    int n =
        snprintf(line, sizeof(line), "gemmar %d %s %s\n", (int)getpid(), level_name(level), text);

    if (n > 0) {
        size_t bytes = (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1;

        (void)!write(STDERR_FILENO, line, bytes); /* nowhere is left to report a failure */
    }
}

void gemmar_log(const struct gemmar_logger *logger, enum gemmar_log_level level, const char *format,
                ...)
{
    char text[LINE_BYTES];
    va_list args;

    if (level > logger->level) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (logger->sink != NULL) {
        logger->sink(logger->user, level, text);
    } else {
        log_to_stderr(level, text);
    }
}
