// SPDX-License-Identifier: Apache-2.0
// Checks: a responder that is not ready, and one that does not answer.
#include "test/verbs/conformance.h"

#include <string.h>

static void receiver_never_ready(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.rnr_retry = 1});
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 1, &p.a, 0, NULL, 0, 8));
    wc_expect(p.a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    MUST(qp_state(p.a.qp) == IBV_QPS_ERR, "the requester is in ERR");
    MUST(qp_state(p.b.qp) == IBV_QPS_RTS, "the responder is not");
    pair_close(&p);
}

static void no_rnr_retry(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.no_rnr_retry = true});
    job_fill(&j, IBV_WR_RDMA_WRITE_WITH_IMM, 1, &p.a, 0, &p.b, 0, 8);
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    pair_close(&p);
}

// Seven means for ever: a receive that comes late is served.
static void receiver_ready_late(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.rnr_retry = 7, .rnr_timer = 5});
    pattern_fill(p.a.buf, 5000, 2);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 1, &p.a, 0, NULL, 0, 5000));
    wc_none(p.a.send_cq, 300);
    recv_post(&p.b, 2, 0, 5000);
    wc_expect(p.b.recv_cq, 2, IBV_WC_SUCCESS);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    MUST(pattern_is(p.b.buf, 5000, 2), "the message");
    pair_close(&p);
}

// What is behind a message that waits for a receive waits as well.
static void order_while_not_ready(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.rnr_retry = 7, .rnr_timer = 5});
    memset(p.a.buf, 5, 8);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 1, &p.a, 0, NULL, 0, 8));
    job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 2, &p.a, 0, &p.b, 100, 8));
    wc_none(p.a.send_cq, 100);
    MUST(bytes_are(p.b.buf + 100, 8, 0), "the write waits for the message before it");
    recv_post(&p.b, 3, 0, 8);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);
    MUST(bytes_are(p.b.buf + 100, 8, 5), "then it arrives");
    wc_expect(p.b.recv_cq, 3, IBV_WC_SUCCESS);
    pair_close(&p);
}

// The receiver's timer (40.96 ms) is waited for before each of the three retries.
static void receiver_timer(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.rnr_retry = 3, .rnr_timer = 24});
    double start = now();
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 1, &p.a, 0, NULL, 0, 8));
    wc_expect(p.a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    MUST(now() - start > 0.1, "three times 40.96 ms, not %.3f s", now() - start);
    pair_close(&p);
}

// Timeout 14 is 67 ms; with two retries a request waits three times that.
static void timeouts(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.retry_cnt = 2, .timeout = 14});
    qp_move(p.b.qp, IBV_QPS_RESET);
    double start = now();
    job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 8));
    wc_expect(p.a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
    MUST(now() - start > 0.15, "three times 67 ms, not %.3f s", now() - start);
    pair_close(&p);
}

// Writes to a queue pair that is gone or does not listen end with the retries.
static void no_answer(struct pair *p)
{
    struct job j;
    for (unsigned i = 0; i < 3; i++) {
        job_post(p->a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, i, &p->a, 0, &p->b, 0, 8));
    }
    wc_expect(p->a.send_cq, 0, IBV_WC_RETRY_EXC_ERR);
    wc_expect(p->a.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
    wc_expect(p->a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    MUST(qp_state(p->a.qp) == IBV_QPS_ERR, "the requester is in ERR");
}

static void destroyed_peer(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.retry_cnt = 2});
    pair_works(&p);
    MUST(ibv_destroy_qp(p.b.qp) == 0, "ibv_destroy_qp");
    no_answer(&p);
    p.b.qp = side_create_qp(&p.b);
    pair_close(&p);
}

static void peer_in_error(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.retry_cnt = 2});
    qp_move(p.b.qp, IBV_QPS_ERR);
    no_answer(&p);
    MUST(bytes_are(p.b.buf, 8, 0), "nothing is written to a queue pair in ERR");
    pair_close(&p);
}

static void peer_in_reset(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.no_retry = true});
    qp_move(p.b.qp, IBV_QPS_RESET);
    no_answer(&p);
    MUST(bytes_are(p.b.buf, 8, 0), "nothing is written to a queue pair in RESET");
    pair_close(&p);
}

static void peer_in_init(void)
{
    struct pair p;
    side_open(&p.a, 0, &(struct setup){.retry_cnt = 1});
    side_open(&p.b, 1, NULL);
    struct address b = side_address(&p.b);
    qp_connect(&p.a, p.a.qp, &b);
    qp_init(&p.b, p.b.qp);
    no_answer(&p);
    MUST(bytes_are(p.b.buf, 8, 0), "nothing is written to a queue pair in INIT");
    pair_close(&p);
}

static void unknown_number(void)
{
    struct pair p;
    side_open(&p.a, 0, &(struct setup){.retry_cnt = 1});
    side_open(&p.b, 1, NULL);
    struct address b = side_address(&p.b);
    b.qp_num ^= 0x800000;
    qp_connect(&p.a, p.a.qp, &b);
    no_answer(&p);
    pair_close(&p);
}

// A peer that is connected to somebody else does not take our packets.
static void connected_elsewhere(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.retry_cnt = 1});
    struct ibv_qp *stranger = side_create_qp(&p.a);
    struct address b = side_address(&p.b);
    qp_connect(&p.a, stranger, &b);
    struct job j;
    memset(p.a.buf, 9, 8);
    job_post(stranger, job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 8));
    struct ibv_wc wc = {0};
    MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS), "a completion");
    MUST(wc.status == IBV_WC_RETRY_EXC_ERR, "no answer, not '%s'", ibv_wc_status_str(wc.status));
    if (bytes_are(p.b.buf, 8, 0)) {
        pair_works(&p);
    } else {
        MUST(allowed(DIFF_SENDER_NOT_CHECKED), "nothing is written");
    }
    MUST(ibv_destroy_qp(stranger) == 0, "ibv_destroy_qp");
    pair_close(&p);
}

static void peer_comes_late(void)
{
    struct pair p;
    struct job j;
    side_open(&p.a, 0, &(struct setup){.timeout = 16});
    side_open(&p.b, 1, NULL);
    struct address a = side_address(&p.a), b = side_address(&p.b);
    qp_connect(&p.a, p.a.qp, &b);
    pattern_fill(p.a.buf, 9000, 1);
    job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 9000));
    nap(0.1);
    qp_connect(&p.b, p.b.qp, &a);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    MUST(pattern_is(p.b.buf, 9000, 1), "retries carry the write over");
    pair_close(&p);
}

const struct check retry_checks[] = {
    {"retry.receiver_never_ready", receiver_never_ready, 0},
    {"retry.receiver_not_ready_without_retries", no_rnr_retry, 0},
    {"retry.receiver_ready_late", receiver_ready_late, 0},
    {"retry.order_while_not_ready", order_while_not_ready, 0},
    {"retry.receiver_timer_is_kept", receiver_timer, 0},
    {"retry.timeouts_are_kept", timeouts, 0},
    {"retry.destroyed_peer", destroyed_peer, 0},
    {"retry.peer_in_error", peer_in_error, 0},
    {"retry.peer_in_reset", peer_in_reset, 0},
    {"retry.peer_in_init", peer_in_init, 0},
    {"retry.unknown_queue_pair", unknown_number, 0},
    {"retry.peer_connected_elsewhere", connected_elsewhere, 0},
    {"retry.peer_comes_late", peer_comes_late, 0},
    {0},
};
