// SPDX-License-Identifier: Apache-2.0
// A connection within one process whose calls may fail.
#include "test/plugin/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

#define LIMIT_MS 30000u
#define TAG      5

struct seen { // queue pairs
    unsigned count;
    uint32_t numbers[1024];
    uint32_t fresh; // one that was not there, when looking again
    int again;
};

static void look_at_qp(void *user, const struct ibv_qp *qp, const struct ibv_qp_attr *attr)
{
    struct seen *s = user;
    (void)attr;
    for (unsigned i = 0; i < s->count; i++) {
        if (s->numbers[i] == qp->qp_num) {
            return;
        }
    }
    s->fresh = qp->qp_num;
    if (!s->again && s->count < sizeof s->numbers / sizeof *s->numbers) {
        s->numbers[s->count++] = qp->qp_num;
    }
}

static uint32_t fresh_qp(struct seen *s)
{
    s->fresh = 0;
    (void)probe_visit_qps(look_at_qp, s);
    return s->fresh;
}

static int meet(struct world *w, struct line *l, char *handle)
{
    struct seen *s = calloc(1, sizeof *s);
    uint64_t end = now_ms() + LIMIT_MS;
    int rc = 0;
    CHECK(s, "no memory");
    (void)fresh_qp(s);
    while (!rc && (!l->p.send || !l->p.recv)) {
        if (!l->p.send) {
            rc = net_connect(&w->net, w->ctx, w->o->dev, NET_NO_TC, handle, &l->p.send);
        }
        l->send_qp = l->send_qp ? l->send_qp : fresh_qp(s); // the connecting end's come first
        if (!rc && !l->p.recv) {
            rc = net_accept(&w->net, l->p.listener, &l->p.recv);
        }
        CHECK(rc || now_ms() < end, "neither connected nor refused");
        breathe();
    }
    if (s->count < sizeof s->numbers / sizeof *s->numbers) {
        s->numbers[s->count++] = l->send_qp;
    }
    l->recv_qp = fresh_qp(s);
    free(s);
    return rc;
}

static int reg(struct world *w, const struct line *l, void *comm, char **out_at, void **out_mh)
{
    size_t bytes = l->bytes * LINE_MESSAGES;
    int fd = l->gpu ? memfd_create("net-field", MFD_CLOEXEC) : -1;
    CHECK(!l->gpu || (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0), "no shared memory");
    *out_at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   l->gpu ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    CHECK(*out_at != MAP_FAILED, "no memory");
    int rc = l->gpu ? net_reg_dmabuf(&w->net, comm, *out_at, bytes, 0, fd, out_mh)
                    : net_reg(&w->net, comm, *out_at, bytes, out_mh);
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

int line_open(struct world *w, struct line *l, size_t bytes, int gpu)
{
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    *l = (struct line){.bytes = bytes, .gpu = gpu};
    int rc = net_listen(&w->net, w->ctx, w->o->dev, handle, &l->p.listener);
    rc = rc ? rc : meet(w, l, handle);
    rc = rc ? rc : reg(w, l, l->p.send, &l->from, &l->from_mh);
    rc = rc ? rc : reg(w, l, l->p.recv, &l->to, &l->to_mh);
    guard_free(handle, NET_HANDLE_BYTES);
    return rc;
}

static int post_receives(struct world *w, struct line *l)
{
    int tag = TAG, rc = 0;
    memset(l->to, NET_POISON, l->bytes * LINE_MESSAGES);
    for (unsigned i = 0; !rc && i < LINE_MESSAGES;) {
        void *data = l->to + i * l->bytes;
        rc = net_irecv(&w->net, l->p.recv, 1, &data, &l->bytes, &tag, &l->to_mh, &l->received[i]);
        i += l->received[i] != NULL;
        breathe();
    }
    l->failed = rc ? RECEIVER : 0;
    return rc;
}

static int wait_for(struct world *w, void *request)
{
    int rc = 0;
    for (int done = 0; request && !rc && !done;) {
        rc = net_test(&w->net, request, &done, 0, NULL);
        breathe();
    }
    return rc;
}

static int take(struct world *w, struct line *l, unsigned i, uint64_t key)
{
    void *data = l->to + i * l->bytes, *request = NULL;
    int size = (int)l->bytes;
    int rc = net_iflush(&w->net, l->p.recv, 1, &data, &size, &l->to_mh, &request);
    rc = rc ? rc : wait_for(w, request);
    CHECK(rc || pattern_check(data, l->bytes, key) == l->bytes, "wrong data in message %u", i);
    return rc;
}

// One look at all that is under way. Takes what is done off *left.
static int turn(struct world *w, struct line *l, uint64_t key, unsigned *left)
{
    int rc = 0, size, done;
    for (unsigned i = 0; !rc && i < LINE_MESSAGES; i++) {
        done = 0;
        if (l->sent[i]) {
            rc = net_test(&w->net, l->sent[i], &done, 1, &size);
            l->failed = rc ? SENDER : 0;
            l->sent[i] = done ? NULL : l->sent[i];
            *left -= done != 0;
        }
        done = 0;
        if (!rc && l->received[i]) {
            rc = net_test(&w->net, l->received[i], &done, 1, &size);
            CHECK(!done || size == (int)l->bytes, "message %u of %d bytes", i, size);
            l->received[i] = done ? NULL : l->received[i];
            *left -= done != 0;
            rc = done ? take(w, l, i, key + i) : rc;
            l->failed = rc ? RECEIVER : 0;
        }
    }
    return rc;
}

// Sends are tested only where there is nothing to send to, so that most are under way when one
// fails.
static int post_sends(struct world *w, struct line *l, uint64_t key, unsigned *left)
{
    uint64_t end = now_ms() + LIMIT_MS;
    int rc = 0;
    for (unsigned i = 0; !rc && i < LINE_MESSAGES;) {
        char *data = l->from + i * l->bytes;
        pattern_fill(data, l->bytes, key + i);
        rc = net_isend(&w->net, l->p.send, data, l->bytes, TAG, l->from_mh, &l->sent[i]);
        l->failed = rc ? SENDER : 0;
        if (l->sent[i]) {
            i++;
        } else if (!rc) {
            rc = turn(w, l, key, left);
        }
        CHECK(rc || now_ms() < end, "send %u finds no receive, and no error", i);
        breathe();
    }
    return rc;
}

int line_run(struct world *w, struct line *l, unsigned rounds)
{
    int rc = 0;
    for (uint64_t r = 0; !rc && r < rounds; r++) {
        uint64_t end = now_ms() + LIMIT_MS;
        unsigned left = 2 * LINE_MESSAGES;
        rc = post_receives(w, l);
        rc = rc ? rc : post_sends(w, l, r * 1000, &left);
        while (!rc && left) {
            rc = turn(w, l, r * 1000, &left);
            CHECK(rc || now_ms() < end, "messages neither arrive nor fail");
            breathe();
        }
    }
    return rc;
}

int line_run_out(struct world *w, struct line *l, unsigned limit_ms)
{
    uint64_t end = now_ms() + limit_ms;
    int rc = 0;
    while (!rc) {
        rc = line_run(w, l, 1);
        CHECK(rc || now_ms() < end, "no call has failed within %u ms", limit_ms);
    }
    return rc;
}

void line_linger(struct world *w, struct line *l, unsigned ms)
{
    uint64_t end = now_ms() + ms;
    while (now_ms() < end) {
        for (unsigned i = 0; i < LINE_MESSAGES; i++) {
            int done = 0, size;
            void **request = l->failed == SENDER ? &l->sent[i] : &l->received[i];
            if (*request) { // an error, or the end of one that had got through
                (void)net_test(&w->net, *request, &done, 1, &size);
                *request = done ? NULL : *request;
            }
        }
        breathe();
    }
}

int line_close(struct world *w, struct line *l)
{
    int rc = 0, more;
    void *const comm[2] = {l->p.send, l->p.recv}, *const mh[2] = {l->from_mh, l->to_mh};
    for (int i = 0; i < 2; i++) {
        more = comm[i] && mh[i] ? net_dereg(&w->net, comm[i], mh[i]) : 0;
        rc = rc ? rc : more;
    }
    more = l->p.send ? net_close_send(&w->net, l->p.send) : 0;
    rc = rc ? rc : more;
    more = l->p.recv ? net_close_recv(&w->net, l->p.recv) : 0;
    rc = rc ? rc : more;
    more = l->p.listener ? net_close_listen(&w->net, l->p.listener) : 0;
    rc = rc ? rc : more;
    for (int i = 0; i < 2; i++) {
        char *at = i ? l->to : l->from;
        if (at) {
            (void)munmap(at, l->bytes * LINE_MESSAGES); // our own mapping
        }
    }
    memset(l, 0, sizeof *l);
    return rc;
}

int field_child(struct world *w, int (*run)(struct world *w, const void *arg), const void *arg)
{
    int status;
    (void)fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        (void)alarm(w->o->seconds);
        exit(run(w, arg));
    }
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == SKIP) {
        _exit(SKIP); // the reason is shared
    }
    CHECK(WEXITSTATUS(status) != 1, "see above");
    return WEXITSTATUS(status);
}

static void control(struct world *w, const char *words)
{
    char line[512];
    const char *ctl = getenv("SOFTHCA_CTL");
    if (!ctl || !probe_visit_qps(look_at_qp, &(struct seen){.again = 1})) {
        skip(w, "needs softhca and SOFTHCA_CTL");
    }
    (void)snprintf(line, sizeof line, "%s %s", ctl, words);
    int status = system(line);
    CHECK(status == 0, "'%s' has status %d", line, status);
}

void field_rule(struct world *w, const char *format, ...)
{
    char rule[200], words[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(rule, sizeof rule, format, args);
    va_end(args);
    (void)snprintf(words, sizeof words, "rule '%s'", rule);
    control(w, words);
}

void field_clear(struct world *w)
{
    control(w, "clear");
}
