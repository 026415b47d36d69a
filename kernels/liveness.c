// SPDX-License-Identifier: Apache-2.0
// Is a process of this machine still there?
#include "kernels/liveness.h"

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

/* proc(5): the name in parentheses may hold anything, so fields are counted from the last ')'. */
static bool read_stat(uint64_t pid, struct stat_line *out)
{
    char path[64], text[1024];
    const char *after;
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%" PRIu64 "/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    n = read(fd, text, sizeof(text) - 1);
    (void)close(fd); /* it was only read */
    if (n <= 0) {
        return false;
    }
    text[n] = '\0';
    after = strrchr(text, ')');
    return after != NULL &&
           sscanf(after + 1,
                  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d "
                  "%" SCNu64,
                  &out->state, &out->threads, &out->start) == 3;
}

struct gemmar_process gemmar_process_self(void)
{
    struct gemmar_process self = {.pid = (uint64_t)getpid()};
    struct stat_line line;

    if (read_stat(self.pid, &line)) {
        self.start = line.start;
    }
    return self;
}

bool gemmar_process_visible(const struct gemmar_process *process)
{
    struct stat_line line;

    return process->start != 0 && read_stat(process->pid, &line) && line.start == process->start;
}

bool gemmar_process_gone(const struct gemmar_process *process)
{
    struct stat_line line;

    if (!read_stat(process->pid, &line) || line.start != process->start) {
        return true;
    }
    /* A leader that left by pthread_exit is a zombie too, but its threads still count. */
    return line.state == 'X' || (line.state == 'Z' && line.threads <= 1);
}
