// SPDX-License-Identifier: Apache-2.0
// Checks: what may be seen before what on one queue pair.
#include "test/verbs/conformance.h"

#include <sched.h>
#include <string.h>

// The transport's own hand-over: data, then an 8-byte stamp behind it, watched in memory and not
// through completions. Whoever sees the stamp must see all of the data.
static void stamp_after_data(size_t bytes, unsigned flags)
{
    enum { SLOTS = 8, EPOCHS = 40 };
    struct pair p;
    size_t stamps = SLOTS * bytes; // behind the slots
    pair_open(&p, &(struct setup){.size = stamps + SLOTS * 8, .inline_data = 8});

    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        memset(p.a.buf, (int)epoch, stamps);
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            struct job data, stamp;
            size_t at = slot * bytes, stamp_at = stamps + slot * 8;
            memcpy(p.a.buf + stamp_at, &epoch, 8);
            job_fill(&data, IBV_WR_RDMA_WRITE, slot, &p.a, at, &p.b, at, bytes);
            job_fill(&stamp, IBV_WR_RDMA_WRITE, slot, &p.a, stamp_at, &p.b, stamp_at, 8);
            data.wr.send_flags = 0;
            stamp.wr.send_flags |= flags;
            data.wr.next = &stamp.wr;
            job_post(p.a.qp, &data);
        }
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            double end = now() + WAIT_MS / 1e3;
            while (word_acquire(p.b.buf + stamps + slot * 8) < epoch) {
                MUST(now() < end, "the stamp of epoch %llu; the queue pair is in state %d",
                     (unsigned long long)epoch, qp_state(p.a.qp));
                (void)sched_yield();
            }
            MUST(bytes_are(p.b.buf + slot * bytes, bytes, (uint8_t)epoch),
                 "all data of epoch %llu before its stamp", (unsigned long long)epoch);
        }
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            wc_expect(p.a.send_cq, slot, IBV_WC_SUCCESS);
        }
    }
    pair_close(&p);
}

static void stamp_small(void)
{
    stamp_after_data(512, IBV_SEND_INLINE);
}

static void stamp_large(void)
{
    stamp_after_data(20000, IBV_SEND_INLINE);
}

static void stamp_gathered(void)
{
    stamp_after_data(5000, 0);
}

static void completions(void)
{
    enum { N = 60 };
    static const enum ibv_wr_opcode mix[] = {
        IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_RDMA_WRITE, IBV_WR_SEND,      IBV_WR_ATOMIC_CMP_AND_SWP};
    static const enum ibv_wc_opcode done[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
                                              IBV_WC_FETCH_ADD,  IBV_WC_RDMA_WRITE,
                                              IBV_WC_SEND,       IBV_WC_COMP_SWAP};
    enum { KINDS = sizeof(mix) / sizeof(mix[0]) };
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    for (unsigned i = 0; i < N / KINDS; i++) {
        recv_post(&p.b, 500 + i, 400000, 10000);
    }
    for (unsigned i = 0; i < N; i++) {
        size_t n = mix[i % KINDS] >= IBV_WR_ATOMIC_CMP_AND_SWP ? 8 : i % 2 ? 9000 : 16;
        job_fill(&j, mix[i % KINDS], i, &p.a, i * 10000, &p.b, 0, n);
        job_post(p.a.qp, &j);
    }
    for (unsigned i = 0; i < N; i++) {
        struct ibv_wc wc = wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
        MUST(wc.opcode == done[i % KINDS], "request %u completes with its own opcode", i);
        MUST(wc.qp_num == p.a.qp->qp_num, "its queue pair");
    }
    for (unsigned i = 0; i < N / KINDS; i++) {
        wc_expect(p.b.recv_cq, 500 + i, IBV_WC_SUCCESS);
    }
    pair_close(&p);
}

static void messages(void)
{
    enum { N = 100, BYTES = 700 };
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    for (unsigned i = 0; i < N; i++) {
        recv_post(&p.b, i, i * BYTES, BYTES);
    }
    for (unsigned i = 0; i < N; i++) {
        pattern_fill(p.a.buf + i * BYTES, BYTES, i);
        job_fill(&j, IBV_WR_SEND_WITH_IMM, i, &p.a, i * BYTES, NULL, 0, BYTES);
        j.wr.imm_data = i;
        job_post(p.a.qp, &j);
    }
    for (unsigned i = 0; i < N; i++) {
        struct ibv_wc wc = wc_expect(p.b.recv_cq, i, IBV_WC_SUCCESS);
        MUST(wc.imm_data == i, "message %u in its turn", i);
        MUST(pattern_is(p.b.buf + i * BYTES, BYTES, i), "its bytes");
    }
    for (unsigned i = 0; i < N; i++) {
        wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
    }
    pair_close(&p);
}

// A message behind writes says that they have arrived.
static void writes_before_message(void)
{
    enum { N = 30, BYTES = 30000 };
    struct pair p;
    struct job write, send;
    pair_open(&p, NULL);
    for (unsigned i = 0; i < N; i++) {
        recv_post(&p.b, i, 500000, 0);
        memset(p.a.buf, (int)i + 1, BYTES);
        job_fill(&write, IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, 0, BYTES);
        write.wr.send_flags = 0;
        job_fill(&send, IBV_WR_SEND, i, &p.a, 0, NULL, 0, 0);
        write.wr.next = &send.wr;
        job_post(p.a.qp, &write);
        wc_expect(p.b.recv_cq, i, IBV_WC_SUCCESS);
        MUST(bytes_are(p.b.buf, BYTES, (uint8_t)(i + 1)), "the write of round %u", i);
        wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
    }
    pair_close(&p);
}

// A READ that follows a write on the same queue pair reads what was written.
static void read_after_write(void)
{
    enum { N = 30, BYTES = 9000 };
    struct pair p;
    struct job write, read;
    pair_open(&p, NULL);
    for (unsigned i = 0; i < N; i++) {
        memset(p.a.buf, (int)i + 1, BYTES);
        job_fill(&write, IBV_WR_RDMA_WRITE, 2 * i, &p.a, 0, &p.b, 0, BYTES);
        job_fill(&read, IBV_WR_RDMA_READ, 2 * i + 1, &p.a, 100000, &p.b, 0, BYTES);
        write.wr.next = &read.wr;
        job_post(p.a.qp, &write);
        wc_expect(p.a.send_cq, 2 * i, IBV_WC_SUCCESS);
        wc_expect(p.a.send_cq, 2 * i + 1, IBV_WC_SUCCESS);
        MUST(bytes_are(p.a.buf + 100000, BYTES, (uint8_t)(i + 1)), "round %u", i);
    }
    pair_close(&p);
}

// With a fence, a write that sends on what a READ brought waits for the READ.
static void fence(void)
{
    enum { N = 30, BYTES = 20000 };
    struct pair p;
    struct job read, write;
    pair_open(&p, NULL);
    for (unsigned i = 0; i < N; i++) {
        memset(p.b.buf, (int)i + 1, BYTES);
        job_fill(&read, IBV_WR_RDMA_READ, 2 * i, &p.a, 0, &p.b, 0, BYTES);
        job_fill(&write, IBV_WR_RDMA_WRITE, 2 * i + 1, &p.a, 0, &p.b, 100000, BYTES);
        write.wr.send_flags |= IBV_SEND_FENCE;
        read.wr.next = &write.wr;
        job_post(p.a.qp, &read);
        wc_expect(p.a.send_cq, 2 * i, IBV_WC_SUCCESS);
        wc_expect(p.a.send_cq, 2 * i + 1, IBV_WC_SUCCESS);
        MUST(bytes_are(p.b.buf + 100000, BYTES, (uint8_t)(i + 1)), "round %u", i);
    }
    pair_close(&p);
}

// Both directions of one queue pair at once.
static void both_directions(void)
{
    enum { N = 50, BYTES = 8000 };
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    memset(p.a.buf, 1, BYTES);
    memset(p.b.buf, 2, BYTES);
    for (unsigned i = 0; i < N; i++) {
        job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, 100000, BYTES));
        job_post(p.b.qp, job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.b, 0, &p.a, 100000, BYTES));
    }
    for (unsigned i = 0; i < N; i++) {
        wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
        wc_expect(p.b.send_cq, i, IBV_WC_SUCCESS);
    }
    MUST(bytes_are(p.a.buf + 100000, BYTES, 2) && bytes_are(p.b.buf + 100000, BYTES, 1), "bytes");
    pair_close(&p);
}

const struct check order_checks[] = {
    {"order.stamp_after_small_data", stamp_small, 0},
    {"order.stamp_after_large_data", stamp_large, 0},
    {"order.stamp_not_inline", stamp_gathered, 0},
    {"order.completions_of_mixed_requests", completions, 0},
    {"order.messages", messages, 0},
    {"order.writes_before_a_message", writes_before_message, 0},
    {"order.read_after_write", read_after_write, 0},
    {"order.fence_waits_for_reads", fence, 0},
    {"order.both_directions_at_once", both_directions, 0},
    {0},
};
