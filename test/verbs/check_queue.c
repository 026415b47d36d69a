// SPDX-License-Identifier: Apache-2.0
// Checks: limits and accounting of the send, receive and completion queues.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The receiver has no receive posted and the sender retries for ever: nothing leaves the queue.
static const struct setup stuck = {.send_wr = 20, .rnr_retry = 7, .rnr_timer = 20};

static void send_queue_full(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &stuck);
    unsigned posted = 0;
    job_fill(&j, IBV_WR_SEND, 0, &p.a, 0, NULL, 0, 8);
    while (posted < 100000 && job_try(p.a.qp, &j) == 0) {
        j.wr.wr_id = ++posted;
    }
    MUST(posted >= 20 && posted >= p.a.cap.max_send_wr, "room for max_send_wr, not %u", posted);
    MUST(posted < 100000, "the queue ends");
    struct ibv_send_wr *bad = NULL;
    MUST(ibv_post_send(p.a.qp, &j.wr, &bad) == ENOMEM, "full is ENOMEM");
    MUST(bad == &j.wr, "bad_wr is the request that did not fit");
    qp_move(p.a.qp, IBV_QPS_ERR);
    for (unsigned i = 0; i < posted; i++) {
        wc_expect(p.a.send_cq, i, IBV_WC_WR_FLUSH_ERR);
    }
    wc_none(p.a.send_cq, 20);
    pair_close(&p);
}

// A list that does not fit is cut: those before bad_wr are posted, the others are not.
static void list_is_cut(void)
{
    enum { N = 300 };
    struct pair p;
    struct job *list = calloc(N, sizeof(*list));
    MUST(list, "memory");
    pair_open(&p, &stuck);
    MUST(p.a.cap.max_send_wr < N, "a queue shorter than the list");
    for (unsigned i = 0; i < N; i++) {
        job_fill(&list[i], IBV_WR_SEND, i, &p.a, 0, NULL, 0, 8);
        list[i].wr.next = i + 1 < N ? &list[i + 1].wr : NULL;
    }
    struct ibv_send_wr *bad = NULL;
    MUST(ibv_post_send(p.a.qp, &list[0].wr, &bad) == ENOMEM, "full is ENOMEM");
    MUST(bad, "bad_wr is set");
    uint64_t cut = bad->wr_id;
    MUST(bad == &list[cut].wr && cut >= p.a.cap.max_send_wr && cut < N, "bad_wr is in the list");
    qp_move(p.a.qp, IBV_QPS_ERR);
    for (uint64_t i = 0; i < cut; i++) {
        wc_expect(p.a.send_cq, i, IBV_WC_WR_FLUSH_ERR);
    }
    wc_none(p.a.send_cq, 20);
    pair_close(&p);
    free(list);
}

static void receive_queue_full(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.recv_wr = 20});
    struct ibv_sge sge = {.addr = (uintptr_t)p.b.buf, .length = 8, .lkey = p.b.mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad = NULL;
    unsigned posted = 0;
    while (posted < 100000 && ibv_post_recv(p.b.qp, &wr, &bad) == 0) {
        wr.wr_id = ++posted;
    }
    MUST(posted >= p.b.cap.max_recv_wr && posted >= 20, "room for max_recv_wr, not %u", posted);
    bad = NULL;
    MUST(ibv_post_recv(p.b.qp, &wr, &bad) == ENOMEM && bad == &wr, "full is ENOMEM with bad_wr");
    struct job j;
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 1, &p.a, 0, NULL, 0, 8));
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    wc_expect(p.b.recv_cq, 0, IBV_WC_SUCCESS);
    MUST(ibv_post_recv(p.b.qp, &wr, &bad) == 0, "a polled completion makes room");
    pair_close(&p);
}

// Unsignaled requests keep their place until a later completion of the queue is polled.
static void unsignaled_keep_their_place(void)
{
    enum { LIMIT = 1000 };
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.send_wr = 16});
    MUST(p.a.cap.max_send_wr < LIMIT, "a modest queue");
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 8);
    j.wr.send_flags = 0;
    unsigned posted = 0;
    while (posted < LIMIT && job_try(p.a.qp, &j) == 0) {
        posted++;
        nap(100e-6); // long enough for the write to be over
    }
    MUST(posted >= p.a.cap.max_send_wr, "room for max_send_wr, not %u", posted);
    MUST(posted < LIMIT || allowed(DIFF_UNSIGNALED_GIVE_WAY), "the queue fills up");
    wc_none(p.a.send_cq, 20);
    pair_close(&p);
}

// Every k-th request is signaled, as the transport does it: the queue never jams.
static void signal_every_kth(void)
{
    enum { DEPTH = 16, EVERY = 8, N = 400 };
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.send_wr = DEPTH});
    unsigned credit = DEPTH;
    for (unsigned i = 1; i <= N; i++) {
        if (credit == 0) {
            struct ibv_wc wc = {0};
            MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS, "a completion");
            MUST(wc.wr_id % EVERY == 0, "of a signaled request");
            credit += EVERY;
        }
        memcpy(p.a.buf + i * 8, &(uint64_t){i}, 8);
        job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.a, i * 8, &p.b, i * 8, 8);
        j.wr.send_flags = i % EVERY ? 0 : IBV_SEND_SIGNALED;
        job_post(p.a.qp, &j);
        credit--;
    }
    struct ibv_wc wc = {0};
    while (wc.wr_id != N) {
        MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS, "a completion");
        MUST(wc.wr_id % EVERY == 0, "of a signaled request");
    }
    MUST(memcmp(p.a.buf, p.b.buf, (N + 1) * 8) == 0, "every write arrived");
    wc_none(p.a.send_cq, 20);
    pair_close(&p);
}

static void sig_all(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.sig_all = 1});
    for (unsigned i = 0; i < 10; i++) {
        job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, 0, 8);
        j.wr.send_flags = 0;
        job_post(p.a.qp, &j);
    }
    for (unsigned i = 0; i < 10; i++) {
        wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
    }
    pair_close(&p);
}

// The second request of a list cannot be right: the first one is carried out, the third is not.
static void bad_request_in_a_list(void)
{
    struct pair p;
    struct job j[3];
    pair_open(&p, NULL);
    for (unsigned i = 0; i < 3; i++) {
        job_fill(&j[i], IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, i * 8, 8);
        j[i].wr.next = i < 2 ? &j[i + 1].wr : NULL;
    }
    memset(p.a.buf, 6, 8);
    j[1].wr.num_sge = (int)p.a.cap.max_send_sge + 1;
    struct ibv_send_wr *bad = NULL;
    MUST(ibv_post_send(p.a.qp, &j[0].wr, &bad) != 0, "the list is refused");
    MUST(bad == &j[1].wr, "at its second request");
    wc_expect(p.a.send_cq, 0, IBV_WC_SUCCESS);
    wc_none(p.a.send_cq, 20);
    MUST(bytes_are(p.b.buf, 8, 6) && bytes_are(p.b.buf + 8, 16, 0), "only the first one");
    pair_close(&p);
}

static void long_lists(void)
{
    enum { N = 64, ROUNDS = 10 };
    struct pair p;
    struct job list[N];
    pair_open(&p, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pattern_fill(p.a.buf, N * 100, round);
        for (unsigned i = 0; i < N; i++) {
            job_fill(&list[i], IBV_WR_RDMA_WRITE, i, &p.a, i * 100, &p.b, i * 100, 100);
            list[i].wr.next = i + 1 < N ? &list[i + 1].wr : NULL;
        }
        job_post(p.a.qp, &list[0]);
        for (unsigned i = 0; i < N; i++) {
            wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
        }
        MUST(pattern_is(p.b.buf, N * 100, round), "round %u", round);
    }
    pair_close(&p);
}

// ibv_poll_cq hands out up to as many as asked for, in order.
static void poll_several(void)
{
    enum { N = 40 };
    struct pair p;
    struct job j;
    struct ibv_wc wc[N];
    pair_open(&p, NULL);
    MUST(ibv_poll_cq(p.a.send_cq, N, wc) == 0, "nothing yet");
    for (unsigned i = 0; i < N; i++) {
        job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, 0, 8));
    }
    unsigned seen = 0;
    double end = now() + WAIT_MS / 1e3;
    while (seen < N && now() < end) {
        int n = ibv_poll_cq(p.a.send_cq, 7, wc);
        MUST(n >= 0 && n <= 7, "up to 7");
        for (int i = 0; i < n; i++) {
            MUST(wc[i].wr_id == seen && wc[i].status == IBV_WC_SUCCESS, "request %u", seen);
            seen++;
        }
        nap(50e-6);
    }
    MUST(seen == N, "all of them");
    pair_close(&p);
}

// Both queues of a queue pair may share one completion queue.
static void one_completion_queue(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    MUST(ibv_destroy_qp(p.a.qp) == 0, "ibv_destroy_qp");
    struct ibv_cq *other = p.a.recv_cq;
    p.a.recv_cq = p.a.send_cq;
    p.a.qp = side_create_qp(&p.a);
    struct address self = side_address(&p.a);
    qp_connect(&p.a, p.a.qp, &self);
    recv_post(&p.a, 1, 100, 8);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 2, &p.a, 0, NULL, 0, 8));
    uint64_t sum = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct ibv_wc wc;
        MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS, "a completion");
        MUST((wc.wr_id == 1) == (wc.opcode == IBV_WC_RECV), "opcode");
        sum += wc.wr_id;
    }
    MUST(sum == 3, "the send and the receive");
    MUST(ibv_destroy_qp(p.a.qp) == 0, "ibv_destroy_qp");
    p.a.recv_cq = other;
    p.a.qp = side_create_qp(&p.a);
    pair_close(&p);
}

// Two threads post on one queue pair; the program's only duty is its own accounting.
enum { THREAD_POSTS = 300 };
struct poster {
    struct pair *pair;
    uint64_t first;
    int error;
};

static void *post_many(void *arg)
{
    struct poster *poster = arg;
    struct pair *p = poster->pair;
    for (unsigned i = 0; i < THREAD_POSTS && !poster->error; i++) {
        struct job j;
        size_t at = (poster->first + i) * 8;
        job_fill(&j, IBV_WR_RDMA_WRITE, poster->first + i, &p->a, at, &p->b, at, 8);
        poster->error = job_try(p->a.qp, &j);
    }
    return NULL;
}

static void two_threads(void)
{
    struct pair p;
    bool seen[2 * THREAD_POSTS] = {false};
    pair_open(&p, &(struct setup){.send_wr = 2 * THREAD_POSTS, .cqe = 2 * THREAD_POSTS});
    pattern_fill(p.a.buf, sizeof(seen) * 8, 3);
    struct poster poster[2] = {{.pair = &p}, {.pair = &p, .first = THREAD_POSTS}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        MUST(pthread_create(&thread[i], NULL, post_many, &poster[i]) == 0, "pthread_create");
    }
    uint64_t last[2] = {0, THREAD_POSTS};
    for (unsigned i = 0; i < 2 * THREAD_POSTS; i++) {
        struct ibv_wc wc;
        MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS, "a completion");
        MUST(wc.wr_id < 2 * THREAD_POSTS && !seen[wc.wr_id], "each request once");
        seen[wc.wr_id] = true;
        uint64_t *of = &last[wc.wr_id >= THREAD_POSTS];
        MUST(wc.wr_id >= *of, "each thread's requests in order");
        *of = wc.wr_id;
    }
    for (int i = 0; i < 2; i++) {
        MUST(pthread_join(thread[i], NULL) == 0 && poster[i].error == 0, "the posting thread");
    }
    MUST(pattern_is(p.b.buf, sizeof(seen) * 8, 3), "every byte");
    pair_close(&p);
}

static void request_ids(void)
{
    struct pair p;
    struct job j;
    uint64_t id = UINT64_C(0xfedcba9876543210);
    pair_open(&p, NULL);
    recv_post(&p.b, ~id, 0, 8);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, id, &p.a, 0, NULL, 0, 8));
    wc_expect(p.a.send_cq, id, IBV_WC_SUCCESS);
    wc_expect(p.b.recv_cq, ~id, IBV_WC_SUCCESS);
    pair_close(&p);
}

// A queue pair goes with its requests under way; the others on the device do not notice.
static void destroyed_under_way(void)
{
    struct pair p;
    struct job j;
    for (int i = 0; i < 5; i++) {
        pair_open(&p, NULL);
        for (unsigned n = 0; n < 32; n++) {
            job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, n, &p.a, 0, &p.b, 0, 100000));
            job_post(p.b.qp, job_fill(&j, IBV_WR_RDMA_READ, n, &p.b, 200000, &p.a, 0, 100000));
        }
        MUST(ibv_destroy_qp(p.a.qp) == 0 && ibv_destroy_qp(p.b.qp) == 0, "ibv_destroy_qp");
        p.a.qp = side_create_qp(&p.a);
        p.b.qp = side_create_qp(&p.b);
        struct address a = side_address(&p.a), b = side_address(&p.b);
        qp_connect(&p.a, p.a.qp, &b);
        qp_connect(&p.b, p.b.qp, &a);
        memset(p.a.buf, 4, 8);
        job_post(p.a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 99, &p.a, 0, &p.b, 0, 8));
        struct ibv_wc wc = {0};
        while (wc.wr_id != 99) { // completions of the old one may still lie in the queue
            MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS), "a completion of the new one");
        }
        MUST(wc.status == IBV_WC_SUCCESS && bytes_are(p.b.buf, 8, 4), "it works");
        pair_close(&p);
    }
}

const struct check queue_checks[] = {
    {"queue.send_queue_full", send_queue_full, 0},
    {"queue.list_is_cut_at_the_end_of_the_queue", list_is_cut, 0},
    {"queue.receive_queue_full", receive_queue_full, 0},
    {"queue.unsignaled_requests_keep_their_place", unsignaled_keep_their_place, 0},
    {"queue.signal_every_kth", signal_every_kth, 0},
    {"queue.sig_all", sig_all, 0},
    {"queue.bad_request_in_a_list", bad_request_in_a_list, 0},
    {"queue.long_lists", long_lists, 0},
    {"queue.poll_several", poll_several, 0},
    {"queue.one_completion_queue_for_both", one_completion_queue, 0},
    {"queue.request_ids_have_64_bits", request_ids, 0},
    {"queue.pair_destroyed_under_way", destroyed_under_way, 0},
    {"queue.two_threads_post", two_threads, 0},
    {0},
};
