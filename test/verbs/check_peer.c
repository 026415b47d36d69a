// SPDX-License-Identifier: Apache-2.0
// Checks: two processes, each with a device of its own.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// This process is side 0, a forked one is side 1. Both fork before they open a device.
struct peer {
    pid_t pid; // 0 in the forked process
    int socket;
    struct side side;
    struct address other;
};

static void talk(struct peer *p, const void *out, void *in, size_t n)
{
    MUST(send(p->socket, out, n, MSG_NOSIGNAL) == (ssize_t)n, "the other process listens");
    MUST(recv(p->socket, in, n, MSG_WAITALL) == (ssize_t)n, "the other process answers");
}

static void meet(struct peer *p)
{
    char out = 1, in = 0;
    talk(p, &out, &in, 1);
}

// Forks; a process may not fork again once it has opened a device.
static void peer_fork(struct peer *p)
{
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    p->pid = fork();
    MUST(p->pid >= 0, "fork");
    int mine = p->pid == 0;
    if (mine) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // the check's deadline covers a failure
    }
    p->socket = pair[mine];
    MUST(close(pair[!mine]) == 0, "close");
}

static void peer_open(struct peer *p, const struct setup *setup)
{
    side_open(&p->side, p->pid ? 0 : 1, setup);
    struct address here = side_address(&p->side);
    talk(p, &here, &p->other, sizeof(here));
    qp_connect(&p->side, p->side.qp, &p->other);
    meet(p);
}

static void peer_start(struct peer *p, const struct setup *setup)
{
    peer_fork(p);
    peer_open(p, setup);
}

// The forked process ends here; the other one takes over its status.
static void peer_end(struct peer *p)
{
    int status = 0;
    meet(p);
    side_close(&p->side);
    MUST(close(p->socket) == 0, "close");
    if (p->pid == 0) {
        exit(0);
    }
    MUST(waitpid(p->pid, &status, 0) == p->pid && status == 0, "the other process succeeds");
}

static struct job *remote(struct job *j, enum ibv_wr_opcode opcode, uint64_t id, struct peer *p,
                          size_t from, size_t to, size_t length)
{
    job_fill(j, opcode, id, &p->side, from, NULL, 0, length);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        j->wr.wr.atomic.remote_addr = p->other.addr + to;
        j->wr.wr.atomic.rkey = p->other.rkey;
        j->wr.wr.atomic.compare_add = 1;
    } else {
        j->wr.wr.rdma.remote_addr = p->other.addr + to;
        j->wr.wr.rdma.rkey = p->other.rkey;
    }
    return j;
}

// The forked process only watches its memory: stamps that follow their data.
static void stamps(void)
{
    enum { N = 60, BYTES = 40000, STAMP = N * BYTES };
    struct peer p;
    peer_start(&p, &(struct setup){.size = STAMP + 8, .inline_data = 8});
    for (uint64_t epoch = 1; epoch <= N; epoch++) {
        if (p.pid) {
            struct job data, stamp;
            size_t at = (epoch - 1) * BYTES;
            memset(p.side.buf + at, (int)epoch, BYTES);
            remote(&data, IBV_WR_RDMA_WRITE, epoch, &p, at, at, BYTES);
            data.wr.send_flags = 0;
            remote(&stamp, IBV_WR_RDMA_WRITE, epoch, &p, 0, STAMP, 8);
            stamp.wr.send_flags |= IBV_SEND_INLINE;
            stamp.sge.addr = (uintptr_t)&epoch;
            data.wr.next = &stamp.wr;
            job_post(p.side.qp, &data);
            wc_expect(p.side.send_cq, epoch, IBV_WC_SUCCESS);
        } else {
            double end = now() + WAIT_MS / 1e3;
            while (word_acquire(p.side.buf + STAMP) < epoch) {
                MUST(now() < end, "the stamp of epoch %llu", (unsigned long long)epoch);
                (void)sched_yield();
            }
            MUST(bytes_are(p.side.buf + (epoch - 1) * BYTES, BYTES, (uint8_t)epoch),
                 "all data before its stamp");
        }
        meet(&p);
    }
    peer_end(&p);
}

static void every_operation(void)
{
    struct peer p;
    struct job j;
    peer_start(&p, NULL);
    pattern_fill(p.side.buf, 50000, p.pid ? 1 : 2);
    if (p.pid == 0) {
        recv_post(&p.side, 9, 600000, 5000);
        meet(&p);
        struct ibv_wc wc = wc_expect(p.side.recv_cq, 9, IBV_WC_SUCCESS);
        MUST(wc.byte_len == 5000 && pattern_is(p.side.buf + 600000, 5000, 1), "the message");
        MUST(pattern_is(p.side.buf + 300000, 50000, 1), "the write before it");
        MUST(word_acquire(p.side.buf + 800000) == 1, "the addition");
    } else {
        meet(&p);
        job_post(p.side.qp, remote(&j, IBV_WR_RDMA_WRITE, 1, &p, 0, 300000, 50000));
        job_post(p.side.qp, remote(&j, IBV_WR_RDMA_READ, 2, &p, 300000, 0, 50000));
        job_post(p.side.qp, remote(&j, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, &p, 400000, 800000, 8));
        job_post(p.side.qp, remote(&j, IBV_WR_SEND, 4, &p, 0, 0, 5000));
        for (uint64_t id = 1; id <= 4; id++) {
            wc_expect(p.side.send_cq, id, IBV_WC_SUCCESS);
        }
        MUST(pattern_is(p.side.buf + 300000, 50000, 2), "the READ");
    }
    peer_end(&p);
}

static void both_at_once(void)
{
    enum { N = 64, BYTES = 8000 };
    struct peer p;
    struct job j;
    peer_start(&p, &(struct setup){.size = 2 * N * BYTES});
    pattern_fill(p.side.buf, N * BYTES, p.pid ? 1 : 2);
    recv_post(&p.side, 1000, 0, 0);
    meet(&p);
    for (unsigned i = 0; i < N; i++) {
        size_t at = i * BYTES;
        job_post(p.side.qp, remote(&j, IBV_WR_RDMA_WRITE, i, &p, at, N * BYTES + at, BYTES));
    }
    job_post(p.side.qp, remote(&j, IBV_WR_SEND, N, &p, 0, 0, 0));
    for (unsigned i = 0; i <= N; i++) {
        wc_expect(p.side.send_cq, i, IBV_WC_SUCCESS);
    }
    wc_expect(p.side.recv_cq, 1000, IBV_WC_SUCCESS);
    MUST(pattern_is(p.side.buf + N * BYTES, N * BYTES, p.pid ? 2 : 1), "the other one's bytes");
    peer_end(&p);
}

// Keeps eight writes in flight, kills the peer in between, and polls all that was posted.
static void write_until_killed(struct peer *p)
{
    struct job j;
    unsigned posted = 0, done = 0;
    enum ibv_wc_status first = IBV_WC_SUCCESS;
    double start = now();
    bool alive = true;
    while (done < posted || first == IBV_WC_SUCCESS) {
        struct ibv_wc wc;
        if (first == IBV_WC_SUCCESS && posted - done < 8) {
            job_post(p->side.qp, remote(&j, IBV_WR_RDMA_WRITE, posted++, p, 0, 0, 20000));
            continue;
        }
        MUST(wc_poll(p->side.send_cq, &wc, WAIT_MS), "every request completes");
        MUST(wc.wr_id == done++, "in order");
        if (first == IBV_WC_SUCCESS) {
            first = wc.status;
        } else {
            MUST(wc.status == IBV_WC_WR_FLUSH_ERR, "flushed, not '%s'",
                 ibv_wc_status_str(wc.status));
        }
        if (alive && now() - start > 0.2) {
            MUST(kill(p->pid, SIGKILL) == 0 && waitpid(p->pid, NULL, 0) == p->pid, "SIGKILL");
            alive = false;
        }
    }
    MUST(!alive && first == IBV_WC_RETRY_EXC_ERR, "the retries end, not '%s'",
         ibv_wc_status_str(first));
}

// SIGKILL in the middle of traffic: the survivor's requests end in errors, and it goes on with a
// new peer.
static void killed(void)
{
    struct peer p, next;
    struct job j;
    peer_fork(&next);
    if (next.pid) {
        peer_fork(&p);
        peer_open(&p, &(struct setup){.retry_cnt = 2});
        while (p.pid == 0) {
            nap(1);
        }
        write_until_killed(&p);
        side_close(&p.side);
        MUST(close(p.socket) == 0, "close");
    }
    peer_open(&next, NULL);
    if (next.pid) {
        job_post(next.side.qp, remote(&j, IBV_WR_RDMA_WRITE, 1, &next, 0, 0, 20000));
        wc_expect(next.side.send_cq, 1, IBV_WC_SUCCESS);
    }
    peer_end(&next);
}

// A stopped process: its device goes on, so writes into its memory still succeed.
static void stopped(void)
{
    struct peer p;
    struct job j;
    peer_start(&p, &(struct setup){.timeout = 16});
    if (p.pid) {
        MUST(kill(p.pid, SIGSTOP) == 0, "SIGSTOP");
        pattern_fill(p.side.buf, 20000, 3);
        memset(p.side.buf + 20000, 1, 8);
        job_post(p.side.qp, remote(&j, IBV_WR_RDMA_WRITE, 1, &p, 0, 0, 20008));
        struct ibv_wc wc = {0};
        bool done = wc_poll(p.side.send_cq, &wc, 200);
        MUST(kill(p.pid, SIGCONT) == 0, "SIGCONT");
        MUST(done || allowed(DIFF_STOPPED_OWNER_STOPS_WRITES), "the write ends meanwhile");
        MUST(done || wc_poll(p.side.send_cq, &wc, WAIT_MS), "the write ends");
        MUST(wc.status == IBV_WC_SUCCESS, "with success, not '%s'", ibv_wc_status_str(wc.status));
    }
    meet(&p);
    MUST(p.pid || (word_acquire(p.side.buf + 20000) && pattern_is(p.side.buf, 20000, 3)),
         "the write arrived");
    peer_end(&p);
}

const struct check peer_checks[] = {
    {"peer.stamps_after_data", stamps, 0},  {"peer.every_operation", every_operation, 0},
    {"peer.both_at_once", both_at_once, 0}, {"peer.killed", killed, 0},
    {"peer.stopped", stopped, 0},           {0},
};
