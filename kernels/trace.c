// SPDX-License-Identifier: Apache-2.0
// Stage trace of the tensor-core kernel: its file.
#include "kernels/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/call.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void gemmar_trace_name(uint32_t algo, uint32_t strategy, uint32_t locals,
                       char out_way[GEMMAR_TRACE_WAY_BYTES])
{
    static const char *const between[] = {"", "direct", "two-shot"}, *const inside[] = {"push",
                                                                                        "pull",
                                                                                        "exchange"};
    const char *first = algo < COUNT(between) ? between[algo] : "other";
    const char *then = locals == 1 ? "" : strategy < COUNT(inside) ? inside[strategy] : "other";

    if (*first == '\0' && *then == '\0') {
        then = "gemm alone";
    }
    (void)snprintf(out_way, GEMMAR_TRACE_WAY_BYTES, "%s%s%s", first,
                   *first != '\0' && *then != '\0' ? " " : "", then);
}

int gemmar_trace_path(const char *pattern, uint32_t rank, char *out_path, size_t bytes)
{
    char digits[16];
    size_t n = 0;

    (void)snprintf(digits, sizeof(digits), "%u", rank);
    for (const char *p = pattern; *p != '\0'; p++) {
        const char one[2] = {*p, '\0'}, *more = one;

        if (p[0] == '%' && p[1] == 'r') {
            more = digits;
            p++;
        }
        for (; *more != '\0'; more++) {
            if (n + 1 >= bytes) {
                return -ENAMETOOLONG;
            }
            out_path[n++] = *more;
        }
    }
    out_path[n] = '\0';
    return 0;
}

void gemmar_trace_print(FILE *file, const struct gemmar_traced *of, const uint64_t *events,
                        uint32_t ctas, uint32_t items)
{
    for (uint64_t at = 0; at < (uint64_t)ctas * items; at++) {
        const uint64_t *item = &events[at * GEMMAR_TRACE_EVENTS];

        if (item[GEMMAR_TRACE_KIND] == 0) {
            continue;
        }
        (void)fprintf(file, "%" PRId64 "x%" PRId64 "x%" PRId64 " %u %s %" PRIu64 " %" PRIu64, of->m,
                      of->n, of->k, of->rank, of->way, at / items, at % items);
        for (int e = 0; e < GEMMAR_TRACE_EVENTS; e++) {
            (void)fprintf(file, " %" PRIu64, item[e]);
        }
        (void)fputc('\n', file); /* whoever closes the file learns of errors */
    }
}

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        text += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int gemmar_trace_append(int fd, const struct gemmar_traced *of, const uint64_t *events,
                        uint32_t ctas, uint32_t items)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    int rc = -ENOMEM;

    if (file == NULL) {
        return rc;
    }
    gemmar_trace_print(file, of, events, ctas, items);
    if (fclose(file) == 0) {
        rc = write_all(fd, text, bytes);
    }
    free(text);
    return rc;
}
