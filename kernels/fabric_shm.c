// SPDX-License-Identifier: Apache-2.0
// Shared memory between the ranks of a node.
#include "kernels/fabric_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "transport/advice.h"
#include "transport/signals.h"
#include "transport/wait.h"

#define NAME_TRIES 16

static int say(int rc, char *why, size_t why_bytes, const char *what, const char *name,
               uint64_t bytes)
{
    char advice[GEMMAR_ADVICE_BYTES] = "";

    if (rc != -ENOMEM) { /* nothing is locked here */
        (void)gemmar_advice_limit(-rc, bytes, advice, sizeof(advice));
    }
    (void)snprintf(why, why_bytes, "shared memory %s of %" PRIu64 " bytes: %s: %s%s", name, bytes,
                   what, strerror(-rc), advice);
    return rc;
}

static int open_new(char *name)
{
    for (int i = 0; i < NAME_TRIES; i++) {
        uint64_t number;
        int fd;

        if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number)) {
            number = gemmar_now_ns(); /* a name that is taken is tried again */
        }
        (void)snprintf(name, GEMMAR_SEGMENT_NAME_BYTES, "/gemmar-%d-%016" PRIx64, (int)getpid(),
                       number);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST) {
            return fd >= 0 ? fd : -errno;
        }
    }
    return -EEXIST;
}

/* Without signals: one of them makes Linux give back all that was allocated so far, so that a
 * profiler's timer would keep this from ever ending; and a file over the limit of sizes (ulimit -f)
 * brings SIGXFSZ, which kills, beside the error. */
static int reserve(int fd, uint64_t bytes)
{
    const struct timespec now = {0};
    sigset_t old, pending, oversize;
    int rc;

    gemmar_signals_block(&old);
    (void)sigpending(&pending);
    do {
        rc = posix_fallocate(fd, 0, (off_t)bytes);
    } while (rc == EINTR); /* stopped and continued */
    if (rc == EFBIG && sigismember(&pending, SIGXFSZ) == 0) {
        (void)sigemptyset(&oversize);
        (void)sigaddset(&oversize, SIGXFSZ);
        (void)sigtimedwait(&oversize, NULL, &now); /* none: no limit of sizes, or ignored */
    }
    gemmar_signals_restore(&old);
    return -rc;
}

int gemmar_segment_create(uint64_t bytes, struct gemmar_segment *out, char *why, size_t why_bytes)
{
    struct gemmar_segment segment = {.bytes = bytes};
    void *base;
    int rc, fd = open_new(segment.name);

    if (fd < 0) {
        return say(fd, why, why_bytes, "cannot be made", segment.name, bytes);
    }
    segment.named = true;
    rc = reserve(fd, bytes);
    if (rc != 0) {
        (void)say(rc, why, why_bytes,
                  rc == -EFBIG ? "no file may be so large" : "/dev/shm has no room", segment.name,
                  bytes);
        goto undo_open;
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        rc = say(-errno, why, why_bytes, "cannot be mapped", segment.name, bytes);
        goto undo_open;
    }
    (void)close(fd); /* the mapping keeps the memory */
    segment.base = base;
    *out = segment;
    return 0;
undo_open:
    (void)close(fd);
    (void)shm_unlink(segment.name);
    return rc;
}

int gemmar_segment_map(const char *name, uint64_t bytes, struct gemmar_segment *out, char *why,
                       size_t why_bytes)
{
    struct gemmar_segment segment = {.bytes = bytes};
    struct stat st;
    void *base;
    int rc = 0, fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);

    if (fd < 0) {
        return say(-errno, why, why_bytes,
                   "a rank with the same node text has it, this one cannot open it", name, bytes);
    }
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != bytes) {
        rc = say(-EPROTO, why, why_bytes, "has another size", name, bytes);
        goto close_fd;
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        rc = say(-errno, why, why_bytes, "cannot be mapped", name, bytes);
        goto close_fd;
    }
    (void)snprintf(segment.name, sizeof(segment.name), "%s", name);
    segment.base = base;
    *out = segment;
close_fd:
    (void)close(fd);
    return rc;
}

void gemmar_segment_unlink(struct gemmar_segment *segment)
{
    if (segment->named) {
        (void)shm_unlink(segment->name); /* gone already is as good */
        segment->named = false;
    }
}

void gemmar_segment_close(struct gemmar_segment *segment)
{
    gemmar_segment_unlink(segment);
    if (segment->base != NULL) {
        (void)munmap(segment->base, segment->bytes); /* its own mapping: cannot fail */
        segment->base = NULL;
    }
}
