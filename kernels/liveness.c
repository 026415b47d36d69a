// SPDX-License-Identifier: Apache-2.0
// Is a process of this machine still there?
#include "kernels/liveness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct stat_line {
    char state;
    int threads;
    uint64_t start;
};

/* proc(5): the name in parentheses may hold anything, so fields are counted from the last ')'. 0,
 * -ESRCH when there is no such process, or another error, which says nothing about it: the caller
 * may have no descriptor or no memory left. */
static int read_stat(uint64_t pid, struct stat_line *out)
{
    char path[64], text[1024];
    const char *after;
    ssize_t n;
    int rc, fd;

    (void)snprintf(path, sizeof(path), "/proc/%" PRIu64 "/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? -ESRCH : -errno;
    }
    n = read(fd, text, sizeof(text) - 1);
    rc = n < 0 ? -errno : 0; /* ESRCH: it ended after open */
    (void)close(fd);         /* it was only read */
    if (rc != 0) {
        return rc;
    }
    text[n] = '\0';
    after = strrchr(text, ')');
    if (after == NULL ||
        sscanf(after + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d "
               "%" SCNu64,
               &out->state, &out->threads, &out->start) != 3) {
        return -EIO;
    }
    return 0;
}

struct gemmar_process gemmar_process_self(void)
{
    struct gemmar_process self = {.pid = (uint64_t)getpid()};
    struct stat_line line;

    if (read_stat(self.pid, &line) == 0) {
        self.start = line.start;
    }
    return self;
}

bool gemmar_process_visible(const struct gemmar_process *process)
{
    struct stat_line line;

    return process->start != 0 && read_stat(process->pid, &line) == 0 &&
           line.start == process->start;
}

bool gemmar_process_gone(const struct gemmar_process *process)
{
    struct stat_line line;
    int rc = read_stat(process->pid, &line);

    if (rc != 0) {
        return rc == -ESRCH;
    }
    if (line.start != process->start) {
        return true;
    }
    /* A leader that left by pthread_exit is a zombie too, but its threads still count. */
    return line.state == 'X' || (line.state == 'Z' && line.threads <= 1);
}
