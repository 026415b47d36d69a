// SPDX-License-Identifier: Apache-2.0
// Advice about limits of the system.
#include "transport/advice.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>

/* A queue pair or completion queue locks about as much as this in the kernel and the provider. */
#define UNKNOWN_BYTES (UINT64_C(1) << 20)

/* Bytes that devices pin for this process, as the kernel compares them with the limit. */
static uint64_t pinned_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    unsigned long long kib = 0;
    char line[256];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmPin: %llu", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file); /* it was only read */
    }
    return (uint64_t)kib << 10;
}

/* Others may lock memory at the same time: half of the limit is near. */
static bool is_near(uint64_t limit, uint64_t pinned, uint64_t bytes)
{
    return pinned > limit / 2 || bytes > limit / 2 - pinned;
}

const char *gemmar_advice_limit(int error, uint64_t bytes, char *text, size_t room)
{
    struct rlimit limit;
    uint64_t pinned;

    text[0] = '\0';
    if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
        pinned = pinned_bytes();
        if (is_near(limit.rlim_cur, pinned, bytes != 0 ? bytes : UNKNOWN_BYTES)) {
            (void)snprintf(text, room,
                           "; RLIMIT_MEMLOCK is %llu bytes, %llu are pinned: raise it (ulimit -l "
                           "unlimited) or grant CAP_IPC_LOCK",
                           (unsigned long long)limit.rlim_cur, (unsigned long long)pinned);
        }
    } else if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        (void)snprintf(text, room, "; RLIMIT_NOFILE is %llu: raise it (ulimit -n)",
                       (unsigned long long)limit.rlim_cur);
    } else if (error == EAGAIN && getrlimit(RLIMIT_NPROC, &limit) == 0 &&
               limit.rlim_cur != RLIM_INFINITY) {
        (void)snprintf(text, room,
                       "; RLIMIT_NPROC is %llu: raise it (ulimit -u), or the container's limit on "
                       "processes",
                       (unsigned long long)limit.rlim_cur);
    } else if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
        (void)snprintf(text, room, "; RLIMIT_FSIZE is %llu bytes: raise it (ulimit -f)",
                       (unsigned long long)limit.rlim_cur);
    }
    return text;
}
