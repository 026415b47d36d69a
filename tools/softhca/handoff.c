// SPDX-License-Identifier: Apache-2.0
// Descriptors of exported device memory: who wants to map an export asks its owner for one over an
// abstract Unix socket, whose name the export carries.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/softhca/hca.h"

#define ANSWER_S 2 // how long the other end may take

struct request {
    uint32_t e, gen;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct offer {
    uint32_t gen; // 0: none
    int fd;
} offers[SOFTHCA_MAX_EXPORTS]; // under lock
static int listener = -1;      // under lock; the thread has a copy
static pid_t owner;            // under lock: a forked child makes its own
static pthread_t server;       // under lock
static char name[40];          // under lock

static socklen_t address_of(const char *text, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX}; // an abstract name begins with 0
    (void)snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "%s", text);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text));
}

static void limit_waits(int fd)
{
    struct timeval t = {.tv_sec = ANSWER_S};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t); // else a dead peer holds us longer
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

// Sends one byte, with the descriptor when there is one.
static void send_descriptor(int to, int fd)
{
    char byte = 0;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    (void)sendmsg(to, &m, MSG_NOSIGNAL); // who asked may have gone
}

static int same_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

static void answer(int fd)
{
    struct request r;
    limit_waits(fd);
    if (!same_user(fd) || recv(fd, &r, sizeof r, MSG_WAITALL) != sizeof r ||
        r.e >= SOFTHCA_MAX_EXPORTS) {
        return;
    }
    (void)pthread_mutex_lock(&lock); // the descriptor stays open until it is sent
    send_descriptor(fd, r.gen && offers[r.e].gen == r.gen ? offers[r.e].fd : -1);
    (void)pthread_mutex_unlock(&lock);
}

static void *serve(void *arg)
{
    int from = (int)(intptr_t)arg, fd;
    while ((fd = accept4(from, NULL, NULL, SOCK_CLOEXEC)) >= 0 || errno == EINTR ||
           errno == ECONNABORTED) {
        if (fd >= 0) {
            answer(fd);
            (void)close(fd); // answered, or not worth an answer
        }
    }
    return NULL; // shut down
}

// Under lock.
static int start(void)
{
    struct sockaddr_un at;
    uint64_t random = 0;
    sigset_t all, old; // signals belong to the program's threads
    if (listener >= 0 && owner == getpid()) {
        return 0;
    }
    if (getrandom(&random, sizeof random, 0) != sizeof random) {
        return -errno;
    }
    (void)snprintf(name, sizeof name, "softhca-%d-%016llx", (int)getpid(),
                   (unsigned long long)random);
    socklen_t n = address_of(name, &at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int err = fd < 0 || bind(fd, (struct sockaddr *)&at, n) || listen(fd, 64) ? -errno : 0;
    if (!err) {
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        err = -pthread_create(&server, NULL, serve, (void *)(intptr_t)fd);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    if (err) {
        softhca_log("softhca: handoff: cannot listen: %s; data is staged", strerror(-err));
        if (fd >= 0) {
            (void)close(fd); // nobody knows it
        }
        return err;
    }
    (void)pthread_setname_np(server, "softhca-fd");
    listener = fd;
    owner = getpid();
    return 0;
}

int softhca_handoff_name(struct softhca_export *out)
{
    (void)pthread_mutex_lock(&lock);
    int err = start();
    if (!err) {
        memset(out->handle, 0, sizeof out->handle);
        memcpy(out->handle, name, sizeof name);
    }
    (void)pthread_mutex_unlock(&lock);
    return err;
}

void softhca_handoff_offer(uint32_t e, uint32_t gen, int fd)
{
    (void)pthread_mutex_lock(&lock);
    offers[e] = (struct offer){.gen = gen, .fd = fd};
    (void)pthread_mutex_unlock(&lock);
}

void softhca_handoff_end(uint32_t e)
{
    (void)pthread_mutex_lock(&lock);
    if (offers[e].gen) {
        (void)close(offers[e].fd); // the allocation stays until it is freed
        offers[e].gen = 0;
    }
    (void)pthread_mutex_unlock(&lock);
}

static int receive_descriptor(int from)
{
    char byte;
    int fd = -1;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control.bytes};
    if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) == 1) {
        const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            memcpy(&fd, CMSG_DATA(c), sizeof fd);
        }
    }
    return fd;
}

int softhca_handoff_fetch(const struct softhca_export *x, uint32_t e, uint32_t gen)
{
    struct sockaddr_un at;
    struct request r = {e, gen};
    char text[sizeof name];
    memcpy(text, x->handle, sizeof text);
    text[sizeof text - 1] = 0;
    socklen_t n = address_of(text, &at);
    int result = -1, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    limit_waits(fd);
    if (connect(fd, (struct sockaddr *)&at, n) == 0 && same_user(fd) &&
        send(fd, &r, sizeof r, MSG_NOSIGNAL) == sizeof r) {
        result = receive_descriptor(fd);
    }
    (void)close(fd); // asked once
    return result;
}

void softhca_handoff_stop(void)
{
    (void)pthread_mutex_lock(&lock);
    int fd = owner == getpid() ? listener : -1;
    pthread_t thread = server;
    listener = -1;
    (void)pthread_mutex_unlock(&lock);
    if (fd >= 0) {
        (void)shutdown(fd, SHUT_RDWR); // accept returns
        (void)pthread_join(thread, NULL);
        (void)close(fd); // nobody listens any more
    }
}
