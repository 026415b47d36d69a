// SPDX-License-Identifier: Apache-2.0
// The processes of this job. Nothing here is about gemmar: an MPI program uses MPI_Bcast instead.
#include "job.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_SECONDS 60
#define HELLO        0x6d6c7031u /* so that a stray connection is not taken for a rank */
#define MAX_RANKS    1024

static int own_rank = -1;

void job_name_rank(int rank)
{
    own_rank = rank;
}

void say(const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (own_rank >= 0) {
        (void)fprintf(stderr, "rank %d: %s\n", own_rank, line);
    } else {
        (void)fprintf(stderr, "%s\n", line);
    }
}

/* --- who am I --- */

static bool number(const char *name, int *out)
{
    const char *text = getenv(name);
    char *end;
    long value;

    if (text == NULL || *text == '\0') {
        return false;
    }
    value = strtol(text, &end, 10);
    *out = (int)value;
    return *end == '\0' && value >= 0 && value <= MAX_RANKS;
}

/* torchrun itself listens at MASTER_PORT, so rank 0 takes the port after it. */
static void address_from_environment(struct job *job)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");

    if (host != NULL && port != NULL) {
        (void)snprintf(job->meet, sizeof(job->meet), "%s:%d", host, atoi(port) + 1);
    }
}

int job_from_environment(struct job *job, const char *meet)
{
    static const char *const launchers[][3] = {
        {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, /* torchrun */
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    };

    *job = (struct job){.ranks = 1, .listener = -1, .wait_seconds = WAIT_SECONDS};
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const char *const *name = launchers[i];

        /* a shell inside an allocation of one task was not started as a rank */
        if (!number(name[0], &job->rank) || !number(name[1], &job->ranks) || job->ranks < 2) {
            continue;
        }
        if (job->rank >= job->ranks || !number(name[2], &job->local)) {
            say("%s, %s and %s do not make sense together", name[0], name[1], name[2]);
            return -1;
        }
        if (meet != NULL) {
            (void)snprintf(job->meet, sizeof(job->meet), "%s", meet);
        } else {
            address_from_environment(job);
        }
        if (job->meet[0] == '\0') {
            say("rank 0 has no address: give --meet HOST:PORT, or set MASTER_ADDR and MASTER_PORT");
            return -1;
        }
        return 1;
    }
    return 0;
}

/* --- a process for every GPU --- */

static int listen_here(struct job *job)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0 || listen(fd, MAX_RANKS) != 0) {
        say("cannot listen on this host: %s", strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return -1;
    }
    job->listener = fd;
    (void)snprintf(job->meet, sizeof(job->meet), "127.0.0.1:%d", ntohs(address.sin_port));
    return 0;
}

static void begin_child(struct job *job, int rank, int nodes, pid_t parent)
{
    char name[32];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever stops the parent stops all */
    if (getppid() != parent) {
        _exit(1);
    }
    job->rank = job->local = rank;
    if (nodes > 1) {
        (void)snprintf(name, sizeof(name), "example-node-%d", rank / (job->ranks / nodes));
        (void)setenv("NCCL_HOSTID", name, 1);
    }
    if (rank != 0) {
        (void)close(job->listener);
        job->listener = -1;
    }
}

/* A rank that failed leaves the others waiting for it inside NCCL: they are ended. */
static int wait_for_children(const pid_t *child, int started, bool all_started)
{
    int status, failed = !all_started, left = started;
    bool ended[MAX_RANKS] = {false};

    while (left > 0) {
        for (int i = 0; failed && i < started; i++) {
            if (!ended[i]) {
                (void)kill(child[i], SIGKILL);
            }
        }
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno != EINTR) {
            return 1;
        }
        for (int i = 0; i < started; i++) {
            if (child[i] == pid) {
                ended[i] = true;
                left--;
                if (WIFSIGNALED(status) && !failed) {
                    say("rank %d was ended by signal %d", i, WTERMSIG(status));
                }
                failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
            }
        }
    }
    return failed;
}

int job_fork(struct job *job, int ranks, int nodes)
{
    pid_t child[MAX_RANKS], parent = getpid();
    int started = 0;

    *job = (struct job){.ranks = ranks, .listener = -1, .wait_seconds = WAIT_SECONDS};
    if (ranks < 1 || ranks > MAX_RANKS || nodes < 1 || ranks % nodes != 0) {
        say("%d ranks cannot be spread over %d nodes", ranks, nodes);
        return 1;
    }
    if (listen_here(job) != 0) {
        return 1;
    }
    while (started < ranks) {
        child[started] = fork();
        if (child[started] == 0) {
            begin_child(job, started, nodes, parent);
            return -1;
        }
        if (child[started] < 0) {
            say("cannot start rank %d: %s", started, strerror(errno));
            break;
        }
        started++;
    }
    (void)close(job->listener);
    return wait_for_children(child, started, started == ranks);
}

/* --- NCCL's identifier, from rank 0 to all --- */

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct addrinfo *resolve(const struct job *job, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
    const char *colon = strrchr(job->meet, ':');
    char host[256];
    int rc;

    if (colon == NULL || colon - job->meet >= (long)sizeof(host)) {
        say("'%s' is not HOST:PORT", job->meet);
        return NULL;
    }
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - job->meet), job->meet);
    rc = getaddrinfo((flags & AI_PASSIVE) != 0 ? NULL : host, colon + 1, &hints, &list);
    if (rc != 0) {
        say("cannot look up %s: %s", job->meet, gai_strerror(rc));
        return NULL;
    }
    return list;
}

/* On every interface, since the name of this host may stand for any of them. IPv6 first: its socket
 * takes IPv4 too. */
static int listen_everywhere(const struct job *job)
{
    struct addrinfo *list = resolve(job, AI_PASSIVE);
    int fd = -1, one = 1, error = 0;

    for (int family = 1; family >= 0 && fd < 0; family--) {
        for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
            if ((a->ai_family == AF_INET6) != (family == 1)) {
                continue;
            }
            fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (fd >= 0 &&
                (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
                 bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, MAX_RANKS) != 0)) {
                error = errno;
                (void)close(fd);
                fd = -1;
            }
        }
    }
    if (fd < 0 && list != NULL) {
        say("cannot listen at %s: %s", job->meet, strerror(error));
    }
    if (list != NULL) {
        freeaddrinfo(list);
    }
    return fd;
}

/* All bytes or failure; the time limit is that of the socket. */
static bool whole(int fd, void *data, size_t bytes, bool out)
{
    char *at = data;

    while (bytes > 0) {
        ssize_t n = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);

        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return false;
        }
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static void limit_time(int fd, int seconds)
{
    struct timeval limit = {.tv_sec = seconds};

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int give(struct job *job, void *data, size_t bytes)
{
    int64_t deadline = now_ms() + job->wait_seconds * INT64_C(1000);
    bool seen[MAX_RANKS] = {true};
    int served = 1;

    if (job->ranks > 1 && job->listener < 0) {
        job->listener = listen_everywhere(job);
        if (job->listener < 0) {
            return 1;
        }
    }
    while (served < job->ranks) {
        struct pollfd waiting = {.fd = job->listener, .events = POLLIN};
        int64_t left = deadline - now_ms();
        uint32_t hello[2] = {0, 0};
        int fd;

        if (left <= 0 || (poll(&waiting, 1, (int)left) <= 0 && errno != EINTR)) {
            say("only %d of %d ranks came to %s in %d s", served, job->ranks, job->meet,
                job->wait_seconds);
            break;
        }
        fd = accept(job->listener, NULL, NULL);
        if (fd < 0) {
            continue;
        }
        limit_time(fd, 5);
        if (whole(fd, hello, sizeof(hello), false) && hello[0] == HELLO &&
            hello[1] < (uint32_t)job->ranks && !seen[hello[1]] && whole(fd, data, bytes, true)) {
            seen[hello[1]] = true;
            served++;
        }
        (void)close(fd);
    }
    if (job->listener >= 0) {
        (void)close(job->listener);
        job->listener = -1;
    }
    return served < job->ranks;
}

static int ask_once(const struct job *job, const struct addrinfo *a, void *data, size_t bytes)
{
    uint32_t hello[2] = {HELLO, (uint32_t)job->rank};
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool got = false;

    if (fd >= 0) {
        limit_time(fd, job->wait_seconds);
        got = connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
              whole(fd, hello, sizeof(hello), true) && whole(fd, data, bytes, false);
        (void)close(fd);
    }
    return got ? 0 : 1;
}

/* Rank 0 may not be there yet. */
static int ask(const struct job *job, void *data, size_t bytes)
{
    int64_t deadline = now_ms() + job->wait_seconds * INT64_C(1000);
    struct addrinfo *list = resolve(job, 0);
    int missing = 1;

    while (list != NULL && missing && now_ms() < deadline) {
        for (struct addrinfo *a = list; a != NULL && missing; a = a->ai_next) {
            missing = ask_once(job, a, data, bytes);
        }
        if (missing) {
            (void)poll(NULL, 0, 100);
        }
    }
    if (list != NULL) {
        freeaddrinfo(list);
        if (missing) {
            say("rank 0 does not answer at %s", job->meet);
        }
    }
    return missing;
}

int job_share(struct job *job, void *data, size_t bytes)
{
    return job->rank == 0 ? give(job, data, bytes) : ask(job, data, bytes);
}
