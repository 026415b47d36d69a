// SPDX-License-Identifier: Apache-2.0
// What a user is told when a work request fails: once, with all that a bug report needs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/net_abi.h"
#include "test/plugin/field.h"
#include "test/plugin/line.h"
#include "test/plugin/probe.h"

#define BYTES    512u
#define LIMIT_MS 20000u

struct fault {
    int status;
    unsigned side;
    int gpu;
    int result;
    const char *kind, *name, *hint, *not_hint;
};

// The newest kept line that has it.
static const char *warning(const char *text)
{
    static char line[NET_LINE_BYTES];
    for (unsigned age = 0; net_line(age, line); age++) {
        if (strstr(line, text)) {
            return line;
        }
    }
    fail("no line has '%s'", text);
}

static unsigned count_of(const char *line, const char *text)
{
    unsigned n = 0;
    for (const char *at = strstr(line, text); at; at = strstr(at + 1, text)) {
        n++;
    }
    return n;
}

static void check_text(struct world *w, const struct fault *f, uint32_t qp)
{
    struct net_props props;
    char status[32], number[32], device[300];
    must(net_properties(&w->net, w->o->dev, &props), "getProperties");
    (void)snprintf(status, sizeof status, "status %d", f->status);
    (void)snprintf(number, sizeof number, "qp 0x%x", qp);
    (void)snprintf(device, sizeof device, "device %s ", props.name); // with its port
    const char *line = warning(status);
    const char *const words[] = {
        f->kind, f->name, "vendor error 0x", " peer 127.0.0.1", device, "peer's device",
        number,  f->hint};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        CHECK(strstr(line, words[i]), "no '%s' in: %s", words[i], line);
    }
    CHECK(count_of(line, "gid ") == 2 && count_of(line, "qp 0x") == 2, "not both ends in: %s",
          line);
    CHECK(!strstr(line, "opcode") && !strstr(line, "length") && !strstr(line, " bytes"),
          "what is undefined in: %s", line);
    CHECK(!f->not_hint || !strstr(line, f->not_hint), "'%s' in: %s", f->not_hint, line);
}

static unsigned pending_sends(const struct line *l)
{
    unsigned n = 0;
    for (unsigned i = 0; i < LINE_MESSAGES; i++) {
        n += l->sent[i] != NULL;
    }
    return n;
}

static int one_error(struct world *w, const void *arg)
{
    const struct fault *f = arg;
    struct line l;
    (void)setenv("GEMMAR_DEBUG", "info", 1);
    (void)setenv("SOFTHCA_DMABUF", "2", 1);
    world_open(w);
    must(line_open(w, &l, BYTES, f->gpu), "the set-up");
    must(line_run(w, &l, 2), "transfers before the fault");
    uint32_t qp = f->side == SENDER ? l.send_qp : l.recv_qp;
    field_rule(w, "complete nth=1 qp=%x status=%d", qp, f->status);
    int rc = line_run_out(w, &l, LIMIT_MS);
    CHECK(l.failed == f->side, "status %d is an error of the other end", f->status);
    line_linger(w, &l, 100);
    CHECK(rc == f->result, "status %d is the result %d, not %d", f->status, rc, f->result);
    CHECK(net_warnings() == 1, "status %d: %u warnings", f->status, net_warnings());
    check_text(w, f, qp);
    field_clear(w);
    unsigned flushed = pending_sends(&l) - 1; // behind the one that failed
    must(line_close(w, &l), "the close");
    if (f->side == SENDER && flushed) {
        char text[64];
        (void)snprintf(text, sizeof text, ": %u work requests were flushed", flushed);
        CHECK(net_logged(text), "no line has '%s'", text);
    }
    world_close(w);
    return 0;
}

void case_e01_first_error(struct world *w)
{
    static const struct fault faults[] = {
        {12, SENDER, 0, GEMMAR_NCCL_REMOTE_ERROR, "send failed", "transport retry counter exceeded",
         "NCCL_IB_TIMEOUT", NULL},
        {13, SENDER, 0, GEMMAR_NCCL_REMOTE_ERROR, "send failed", "RNR retry counter exceeded",
         "no receives", NULL},
        {11, SENDER, 0, GEMMAR_NCCL_REMOTE_ERROR, "send failed", "remote operation error",
         "peer's device", NULL},
        {9, SENDER, 0, GEMMAR_NCCL_REMOTE_ERROR, "send failed", "remote invalid request",
         "same version", NULL},
        {2, SENDER, 0, GEMMAR_NCCL_SYSTEM_ERROR, "send failed", "local QP operation", "port", NULL},
        {12, RECEIVER, 0, GEMMAR_NCCL_REMOTE_ERROR, "clear to send failed",
         "transport retry counter exceeded", "NCCL_IB_TIMEOUT", NULL},
    };
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
        (void)field_child(w, one_error, &faults[i]);
    }
}

void case_e02_hints(struct world *w)
{
    static const struct fault faults[] = {
        {4, SENDER, 1, GEMMAR_NCCL_SYSTEM_ERROR, "send failed", "local protection", "ACS", "bug"},
        {4, SENDER, 1, GEMMAR_NCCL_SYSTEM_ERROR, "send failed", "local protection",
         "NCCL_NET_GDR_LEVEL", NULL},
        {4, SENDER, 0, GEMMAR_NCCL_SYSTEM_ERROR, "send failed", "local protection", "bug", "ACS"},
        {10, SENDER, 0, GEMMAR_NCCL_REMOTE_ERROR, "send failed", "remote access", "registered",
         NULL},
    };
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
        (void)field_child(w, one_error, &faults[i]);
    }
}

struct others {
    uint32_t known[2], other;
};

static void find_other(void *user, const struct ibv_qp *qp, const struct ibv_qp_attr *attr)
{
    struct others *o = user;
    (void)attr;
    if (qp->qp_num != o->known[0] && qp->qp_num != o->known[1]) {
        o->other = qp->qp_num;
    }
}

void case_o01_failed_flush(struct world *w)
{
    struct line l;
    (void)setenv("SOFTHCA_DMABUF", "2", 1);
    world_open(w);
    must(line_open(w, &l, BYTES, 1), "the set-up");
    must(line_run(w, &l, 1), "transfers before the fault");
    struct others o = {.known = {l.send_qp, l.recv_qp}};
    (void)probe_visit_qps(find_other, &o);
    CHECK(o.other, "a flush of GPU memory has no queue pair");
    field_rule(w, "complete nth=3 qp=%x status=10", o.other);
    int rc = line_run_out(w, &l, LIMIT_MS);
    CHECK(l.failed == RECEIVER && rc == GEMMAR_NCCL_SYSTEM_ERROR, "a failed flush is result %d",
          rc);
    CHECK(net_warnings() == 1, "%u warnings", net_warnings());
    (void)warning("flush");
    w->warnings = 1;
    field_clear(w);
    must(line_close(w, &l), "the close");
    world_close(w);
}

// The set-up goes over TCP and is well; RDMA goes nowhere.
void case_c04_black_hole(struct world *w)
{
    struct line lost, good;
    (void)setenv("NCCL_IB_TIMEOUT", "14", 1);
    (void)setenv("NCCL_IB_RETRY_CNT", "3", 1);
    world_open(w);
    must(line_open(w, &good, BYTES, 0), "the set-up");
    must(line_open(w, &lost, BYTES, 0), "the set-up");
    must(line_run(w, &lost, 1), "transfers before the fault");
    field_rule(w, "drop qp=%x", lost.send_qp);
    uint64_t start = now_ms();
    int rc = line_run_out(w, &lost, LIMIT_MS);
    note("error %d after %llu ms", rc, (unsigned long long)(now_ms() - start));
    CHECK(rc == GEMMAR_NCCL_REMOTE_ERROR, "error %d, not %d", rc, GEMMAR_NCCL_REMOTE_ERROR);
    CHECK(net_warnings() == 1, "%u warnings", net_warnings());
    const char *line = warning("cannot be reached");
    CHECK(count_of(line, "gid ") == 2 && strstr(line, "peer's device"), "not both ends in: %s",
          line);
    must(line_run(w, &good, 3), "transfers on another connection");
    w->warnings = 1;
    field_clear(w);
    must(line_close(w, &lost), "the close");
    must(line_close(w, &good), "the close");
    world_close(w);
}
