// SPDX-License-Identifier: Apache-2.0
// Log lines. A logger belongs to a context (a communicator, a user of the transport), never to a
// global: two NCCL copies in one process may have one each.
#ifndef GEMMAR_LOG_H
#define GEMMAR_LOG_H

#include <stdarg.h>

#include <gemmar/transport.h>

struct gemmar_logger {
    gemmar_log_fn sink; /* NULL: standard error, one write per line */
    void *user;
    enum gemmar_log_level level; /* lines above it are dropped before they are formatted */
};

/* Any thread. The line is cut at 1023 characters. */
void gemmar_log(const struct gemmar_logger *logger, enum gemmar_log_level level, const char *format,
                ...) __attribute__((format(printf, 3, 4)));

#define gemmar_warn(logger, ...) gemmar_log((logger), GEMMAR_LOG_WARN, __VA_ARGS__)
#define gemmar_info(logger, ...) gemmar_log((logger), GEMMAR_LOG_INFO, __VA_ARGS__)

#endif
