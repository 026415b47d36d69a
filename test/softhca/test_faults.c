// SPDX-License-Identifier: Apache-2.0
// Peers that die, stop or fall silent, ports that flap, scripted faults.
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/softhca/harness.h"
#include "tools/softhca/softhca.h"

// Modelled times are so far apart that a process may get no processor for half a second in between.
// About 8 x 67 ms until retries are used up.
static const struct link_options quick = {.timeout = 14, .retry_cnt = 7};
// About 8 x 0.54 s: survives a short outage.
static const struct link_options patient = {.timeout = 17, .retry_cnt = 7};

static void far_memory(int sock) // offers memory until the other side hangs up
{
    struct side s;
    struct ibv_context *ctx = harness_open();
    harness_side_open(&s, ctx, NULL);
    (void)harness_meet(&s, sock, &patient);
    char c;
    (void)!read(sock, &c, 1);
    harness_side_close(&s);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}

static struct peer p;
static struct side s;
static struct address far;

static void start(const struct link_options *o)
{
    p = harness_peer_start("far", far_memory);
    struct ibv_context *ctx = harness_open();
    harness_side_open(&s, ctx, NULL);
    far = harness_meet(&s, p.sock, o);
    ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, 1, 0, 4096, &far, 0), 0);
    (void)harness_expect(&s, IBV_WC_SUCCESS, 1);
}

static void finish(int expected)
{
    struct ibv_context *ctx = s.ctx;
    harness_side_close(&s);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
    ck_assert_int_eq(harness_peer_wait(&p), expected);
}

static void stop_peer(void)
{
    int status;
    ck_assert_int_eq(kill(p.pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(p.pid, &status, WUNTRACED), p.pid); // it takes effect later
    ck_assert(WIFSTOPPED(status));
}

static void expect_retry_exceeded(void)
{
    for (uint64_t i = 0; i < 3; i++) {
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, 10 + i, 0, 65536, &far, 0), 0);
    }
    (void)harness_expect(&s, IBV_WC_RETRY_EXC_ERR, 10);
    (void)harness_expect(&s, IBV_WC_WR_FLUSH_ERR, 11);
    (void)harness_expect(&s, IBV_WC_WR_FLUSH_ERR, 12);
}

START_TEST(killed_peer_is_noticed_by_the_timeout)
{
    start(&quick);
    ck_assert_int_eq(kill(p.pid, SIGKILL), 0);
    expect_retry_exceeded();
    finish(128 + SIGKILL);
}
END_TEST

static void far_memory_later(int sock)
{
    char c;
    harness_hear(sock, &c, 1);
    far_memory(sock);
}

START_TEST(killed_peer_does_not_keep_the_next_process_out)
{
    struct peer next[3]; // forked before this process has threads
    for (int i = 0; i < 3; i++) {
        next[i] = harness_peer_start("far", far_memory_later);
    }
    start(&quick);
    ck_assert_int_eq(kill(p.pid, SIGKILL), 0);
    expect_retry_exceeded();
    ck_assert_int_eq(harness_peer_wait(&p), 128 + SIGKILL);
    struct ibv_context *ctx = s.ctx;
    harness_side_close(&s);
    for (int i = 0; i < 3; i++) { // each takes the slot of the one before
        char c = 1;
        harness_say(next[i].sock, &c, 1);
        harness_side_open(&s, ctx, NULL);
        far = harness_meet(&s, next[i].sock, &quick);
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, 1, 0, 65536, &far, 0), 0);
        (void)harness_expect(&s, IBV_WC_SUCCESS, 1);
        ck_assert_int_eq(kill(next[i].pid, SIGKILL), 0);
        ck_assert_int_eq(harness_peer_wait(&next[i]), 128 + SIGKILL);
        harness_side_close(&s);
    }
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

START_TEST(stopped_peer_is_noticed_by_the_timeout)
{
    start(&quick);
    stop_peer();
    expect_retry_exceeded();
    ck_assert_int_eq(kill(p.pid, SIGCONT), 0);
    finish(0);
}
END_TEST

START_TEST(shortly_stopped_peer_is_waited_for)
{
    start(&patient);
    stop_peer();
    for (uint64_t i = 0; i < 40; i++) { // more than the ring holds
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, i, 0, 65536, &far, 0), 0);
    }
    harness_sleep_ms(600);
    ck_assert_int_eq(kill(p.pid, SIGCONT), 0);
    for (uint64_t i = 0; i < 40; i++) {
        (void)harness_expect(&s, IBV_WC_SUCCESS, i);
    }
    finish(0);
}
END_TEST

START_TEST(silenced_node_is_noticed_and_heals)
{
    start(&patient);
    harness_ctl("silence far");
    ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_READ, 2, 0, 4096, &far, 0), 0);
    harness_sleep_ms(700); // it is asked for again
    struct ibv_wc wc;
    ck_assert_int_eq(ibv_poll_cq(s.cq, 1, &wc), 0);
    harness_ctl("wake far");
    (void)harness_expect(&s, IBV_WC_SUCCESS, 2);
    finish(0);
}
END_TEST

static void expect_port_event(enum ibv_event_type type)
{
    struct ibv_async_event e;
    ck_assert_int_eq(ibv_get_async_event(s.ctx, &e), 0);
    ck_assert_str_eq(ibv_event_type_str(e.event_type), ibv_event_type_str(type));
    ck_assert_int_eq(e.element.port_num, 1);
    ibv_ack_async_event(&e);
}

START_TEST(flapped_port_has_events_and_traffic_goes_on)
{
    start(&patient);
    uint64_t posted = 0, done = 0;
    for (int i = 0; i < 20; i++, posted++) {
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, posted, 0, 65536, &far, 0), 0);
    }
    harness_ctl("port near 0 1 down");
    expect_port_event(IBV_EVENT_PORT_ERR);
    struct ibv_port_attr port;
    ck_assert_int_eq(ibv_query_port(s.ctx, 1, &port), 0);
    ck_assert_int_eq(port.state, IBV_PORT_DOWN);
    for (int i = 0; i < 20; i++, posted++) {
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, posted, 0, 65536, &far, 0), 0);
    }
    harness_sleep_ms(100);
    harness_ctl("port near 0 1 up");
    expect_port_event(IBV_EVENT_PORT_ACTIVE);
    ck_assert_int_eq(ibv_query_port(s.ctx, 1, &port), 0);
    ck_assert_int_eq(port.state, IBV_PORT_ACTIVE);
    for (; done < posted; done++) {
        (void)harness_expect(&s, IBV_WC_SUCCESS, done);
    }
    finish(0);
}
END_TEST

START_TEST(port_that_stays_down_ends_in_retry_exceeded)
{
    start(&quick);
    harness_ctl("port far 0 1 down");
    expect_retry_exceeded();
    finish(0);
}
END_TEST

START_TEST(lost_messages_are_repeated_and_executed_once)
{
    ck_assert_int_eq(setenv("SOFTHCA_FAULTS", "drop every=7; drop every=5 qp=1", 1), 0);
    start(&quick);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 80; i++) {
        ck_assert_int_eq(
            harness_post_send(&s, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 8, 8, &far, 8 * (i % 4)), 0);
        (void)harness_expect(&s, IBV_WC_SUCCESS, i);
        sum += *(uint64_t *)(void *)(s.buf + 8) == i / 4;
        uint64_t *w = (uint64_t *)(void *)(s.buf + 1024);
        w[0] = w[2] = w[5000] = i;
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, 1, 1024, 50000, &far, 1024), 0);
        (void)harness_expect(&s, IBV_WC_SUCCESS, 1);
        w[0] = w[2] = w[5000] = 0;
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_READ, 2, 1024, 50000, &far, 1024), 0);
        (void)harness_expect(&s, IBV_WC_SUCCESS, 2);
        ck_assert_uint_eq(w[0] & w[2] & w[5000], i);
    }
    ck_assert_uint_eq(sum, 80);
    finish(0);
}
END_TEST

// Packets that a queue pair has sent. The call waits for the pass that the progress thread is in.
static uint64_t sent(const struct side *x)
{
    struct softhca_qp_info info;
    (void)softhca_query_qp(x->qp, &info); // cannot fail
    return info.sent_messages;
}

static void await_sent(const struct side *x, uint64_t messages)
{
    uint64_t end = harness_ms() + DEADLINE_MS;
    while (sent(x) < messages) {
        ck_assert_msg(harness_ms() < end, "%llu messages never went out",
                      (unsigned long long)messages);
        harness_sleep_ms(1);
    }
}

#define LONG_BYTES 45056u // one packet; a port of a quarter of the speed needs 1440 ms for it

// A far side whose answers are 800 ms on the way and whose port one long answer keeps busy: far
// longer than the reader's timeout of 270 ms, and shorter than its eight tries. It tells when the
// first four are sent, and when asked whether no other was sent since.
static void far_slow_answers(int sock)
{
    struct side x, y;
    ck_assert_int_eq(setenv("SOFTHCA_LATENCY_NS", "800000000", 1), 0);
    ck_assert_int_eq(setenv("SOFTHCA_MBPS", "1", 1), 0);
    ck_assert_int_eq(setenv("SOFTHCA_DEVICE_GBPS", "100", 1), 0);
    ck_assert_int_eq(setenv("SOFTHCA_CHUNK", "45056", 1), 0);
    struct ibv_context *ctx = harness_open();
    harness_side_open(&x, ctx, NULL);
    harness_side_open(&y, ctx, NULL);
    for (size_t i = 0; i < 64; i++) {
        x.buf[i] = (uint8_t)(i + 1);
    }
    (void)harness_meet(&x, sock, &patient);
    (void)harness_meet(&y, sock, &patient);
    await_sent(&x, 4);
    char c = 1;
    harness_say(sock, &c, 1);
    if (read(sock, &c, 1) == 1) {
        c = sent(&x) == 4;
        harness_say(sock, &c, 1);
        (void)!read(sock, &c, 1);
    }
    harness_side_close(&x);
    harness_side_close(&y);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}

// 0: its tries were over before the far side got a processor.
static int read_is_done(struct side *x, uint64_t wr_id)
{
    struct ibv_wc wc = harness_wait(x, DEADLINE_MS);
    ck_assert_uint_eq(wc.wr_id, wr_id);
    ck_assert_msg(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR, "read %llu: %s",
                  (unsigned long long)wr_id, ibv_wc_status_str(wc.status));
    return wc.status == IBV_WC_SUCCESS;
}

// 0: on this busy machine things came in another order, which says nothing.
static int read_past_repeats(struct side *long_one, const struct address *far_long, int sock)
{
    char c;
    struct ibv_wc wc;
    for (uint64_t i = 0; i < 8; i++) {
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_READ, i, 8 * i, 8, &far, 8 * i), 0);
    }
    harness_hear(sock, &c, 1); // the first four are answered
    ck_assert_int_eq(harness_post_send(long_one, IBV_WR_RDMA_READ, 100, 0, LONG_BYTES, far_long, 0),
                     0);
    await_sent(&s, 8);
    if (ibv_poll_cq(s.cq, 1, &wc) != 0) {
        return 0; // these were the last four: the first were not asked for again
    }
    for (uint64_t i = 0; i < 4; i++) {
        if (!read_is_done(&s, i)) {
            return 0;
        }
    }
    (void)sent(&s); // the last four are with the far side now
    harness_say(sock, &c, 1);
    harness_hear(sock, &c, 1); // 0: the repeated answers may have left before these came
    for (uint64_t i = 4; i < 8; i++) {
        if (!read_is_done(&s, i)) {
            return 0;
        }
    }
    for (size_t i = 0; i < 64; i++) {
        ck_assert_uint_eq(s.buf[i], i + 1);
    }
    return read_is_done(long_one, 100) && c;
}

// The reader asks again for its first four, gets the first answers nevertheless, goes on, and its
// new requests meet repeated answers that the far side still owes behind the long one.
START_TEST(repeated_reads_do_not_use_up_the_readers_window)
{
    static const struct link_options reader = {.timeout = 16, .retry_cnt = 7, .rd_atomic = 4};
    static const struct link_options for_ever = {.timeout = 255}; // its repeat would take the port
    int came_about = 0;
    for (int tries = 0; tries < 5 && !came_about; tries++) {
        struct peer slow = harness_peer_start("far", far_slow_answers);
        struct ibv_context *ctx = harness_open();
        struct side long_one;
        harness_side_open(&s, ctx, NULL);
        harness_side_open(&long_one, ctx, NULL);
        far = harness_meet(&s, slow.sock, &reader);
        struct address far_long = harness_meet(&long_one, slow.sock, &for_ever);
        came_about = read_past_repeats(&long_one, &far_long, slow.sock);
        harness_side_close(&s);
        harness_side_close(&long_one);
        ck_assert_int_eq(ibv_close_device(ctx), 0);
        ck_assert_int_eq(harness_peer_wait(&slow), 0);
    }
    ck_assert_msg(came_about, "new requests never met repeated answers");
}
END_TEST

// A rule for this process. Every pass that begins after it knows it.
static void set_rule(const struct side *x, const char *what, unsigned ms)
{
    char rule[80];
    (void)snprintf(rule, sizeof rule, "rule '%s us=%u000 count=1 qp=%x'", what, ms, x->qp->qp_num);
    harness_ctl(rule);
    (void)sent(x); // the pass before it is over
}

START_TEST(delayed_queue_pair_is_passed_by_others)
{
    struct side x, y;
    harness_loop_open(&x, &y, NULL, NULL);
    struct address to_x = harness_address(&x), to_y = harness_address(&y);
    set_rule(&x, "delay", 1500);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 1, 0, 8, &to_y, 0), 0);
    ck_assert_int_eq(harness_post_send(&y, IBV_WR_RDMA_WRITE, 2, 0, 8, &to_x, 0), 0);
    (void)harness_expect(&y, IBV_WC_SUCCESS, 2);
    struct ibv_wc wc;
    ck_assert_int_eq(ibv_poll_cq(x.cq, 1, &wc), 0);
    (void)harness_expect(&x, IBV_WC_SUCCESS, 1);
    struct ibv_context *ctx = x.ctx;
    harness_side_close(&x);
    harness_side_close(&y);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

#define LATE_MS 2000u // far longer than a quick one tries, and shorter than a patient one

// Two queue pairs, and x's first request to y is held back.
static void open_with_late_request(struct side *x, struct side *y, struct address *to_y,
                                   const struct link_options *o)
{
    harness_loop_open(x, y, NULL, o);
    *to_y = harness_address(y);
    set_rule(y, "late", LATE_MS);
    x->buf[0] = 7;
    x->buf[1] = 8;
}

static void close_both(struct side *x, struct side *y)
{
    struct ibv_context *ctx = x->ctx;
    harness_side_close(x);
    harness_side_close(y);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}

START_TEST(late_request_comes_after_its_sender_gave_up)
{
    struct side x, y;
    struct address to_y;
    open_with_late_request(&x, &y, &to_y, &quick);
    uint64_t begin = harness_ms();
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 1, 0, 8, &to_y, 0), 0);
    (void)harness_expect(&x, IBV_WC_RETRY_EXC_ERR, 1);
    ck_assert_uint_eq(__atomic_load_n(y.buf, __ATOMIC_ACQUIRE), 0);
    while (__atomic_load_n(y.buf, __ATOMIC_ACQUIRE) != 7) {
        ck_assert_msg(harness_ms() - begin < DEADLINE_MS, "it never came");
        harness_sleep_ms(1);
    }
    ck_assert_msg(harness_ms() - begin >= LATE_MS - 50, "it came too early");
    close_both(&x, &y);
}
END_TEST

START_TEST(late_request_to_a_stopped_queue_pair_is_lost)
{
    struct side x, y;
    struct address to_y;
    struct ibv_qp_attr stop = {.qp_state = IBV_QPS_ERR};
    open_with_late_request(&x, &y, &to_y, &quick);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 1, 0, 8, &to_y, 0), 0);
    (void)harness_expect(&x, IBV_WC_RETRY_EXC_ERR, 1);
    ck_assert_int_eq(ibv_modify_qp(y.qp, &stop, IBV_QP_STATE), 0);
    harness_sleep_ms(LATE_MS + 100);
    ck_assert_uint_eq(__atomic_load_n(y.buf, __ATOMIC_ACQUIRE), 0);
    close_both(&x, &y);
}
END_TEST

START_TEST(what_follows_a_late_request_waits_behind_it)
{
    struct side x, y;
    struct address to_y;
    open_with_late_request(&x, &y, &to_y, &patient);
    struct address to_x = harness_address(&x);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 1, 0, 1, &to_y, 0), 0);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 2, 1, 1, &to_y, 0), 0);
    ck_assert_int_eq(harness_post_send(&y, IBV_WR_RDMA_WRITE, 3, 8, 8, &to_x, 16), 0);
    (void)harness_expect(&y, IBV_WC_SUCCESS, 3);
    ck_assert_uint_eq(__atomic_load_n(y.buf, __ATOMIC_ACQUIRE), 0);
    (void)harness_expect(&x, IBV_WC_SUCCESS, 1);
    (void)harness_expect(&x, IBV_WC_SUCCESS, 2);
    ck_assert_uint_eq(__atomic_load_n(y.buf, __ATOMIC_ACQUIRE), 8);
    close_both(&x, &y);
}
END_TEST

START_TEST(third_completion_fails_as_told)
{
    ck_assert_int_eq(setenv("SOFTHCA_FAULTS", "complete nth=3 status=12 node=near", 1), 0);
    start(&patient); // the first one
    for (uint64_t i = 0; i < 3; i++) {
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, i, 0, 8, &far, 0), 0);
    }
    (void)harness_expect(&s, IBV_WC_SUCCESS, 0);
    (void)harness_expect(&s, IBV_WC_RETRY_EXC_ERR, 1);
    (void)harness_expect(&s, IBV_WC_WR_FLUSH_ERR, 2);
    finish(0);
}
END_TEST

START_TEST(third_key_is_wrong)
{
    ck_assert_int_eq(
        setenv("SOFTHCA_FAULTS", "key nth=3 node=near;drop every=3 count=1 node=near", 1), 0);
    start(&patient);                   // the first one
    for (uint64_t i = 0; i < 3; i++) { // the second of these is lost, and wrong when sent again
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, i, 0, 8, &far, 0), 0);
    }
    (void)harness_expect(&s, IBV_WC_SUCCESS, 0);
    (void)harness_expect(&s, IBV_WC_REM_ACCESS_ERR, 1);
    (void)harness_expect(&s, IBV_WC_WR_FLUSH_ERR, 2);
    finish(0);
}
END_TEST

START_TEST(nth_call_fails_as_told)
{
    ck_assert_int_eq(setenv("SOFTHCA_FAULTS",
                            "call name=post_send nth=2 errno=12;call name=alloc_pd nth=3 errno=1;"
                            "call name=reg_mr nth=3 errno=14",
                            1),
                     0);
    struct side x, y;
    harness_loop_open(&x, &y, NULL, NULL);
    struct address to_y = harness_address(&y);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 1, 0, 8, &to_y, 0), 0);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 2, 0, 8, &to_y, 0), ENOMEM);
    ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 3, 0, 8, &to_y, 0), 0);
    (void)harness_expect(&x, IBV_WC_SUCCESS, 1);
    (void)harness_expect(&x, IBV_WC_SUCCESS, 3);
    ck_assert_ptr_null(ibv_alloc_pd(x.ctx));
    ck_assert_int_eq(errno, EPERM);
    ck_assert_ptr_null(ibv_reg_mr(x.pd, x.buf, 4096, 0));
    ck_assert_int_eq(errno, EFAULT);
    struct ibv_context *ctx = x.ctx;
    harness_side_close(&x);
    harness_side_close(&y);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

static void leave_in_traffic(int sock)
{
    struct side mine;
    harness_side_open(&mine, harness_open(), NULL);
    struct address to = harness_meet(&mine, sock, &patient);
    for (uint64_t i = 0; i < 60; i++) {
        (void)harness_post_send(&mine, IBV_WR_RDMA_WRITE, i, 0, 65536, &to, 0);
    }
    exit(0); // with everything open
}

START_TEST(exit_in_the_middle_of_traffic_is_clean)
{
    p = harness_peer_start("far", leave_in_traffic);
    struct ibv_context *ctx = harness_open();
    harness_side_open(&s, ctx, NULL);
    far = harness_meet(&s, p.sock, &quick);
    for (uint64_t i = 0; i < 60; i++) {
        (void)harness_post_send(&s, IBV_WR_RDMA_READ, i, 0, 65536, &far, 0);
    }
    struct ibv_wc wc;
    do { // some arrive; the others end, too
        wc = harness_wait(&s, DEADLINE_MS);
        ck_assert(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR ||
                  wc.status == IBV_WC_WR_FLUSH_ERR);
    } while (wc.wr_id != 59);
    finish(0);
}
END_TEST

static int count_entries(const char *path)
{
    DIR *d = opendir(path);
    ck_assert_ptr_nonnull(d);
    int n = 0;
    while (readdir(d)) {
        n++;
    }
    (void)closedir(d);
    return n;
}

// A joined thread stays in /proc for a moment.
static int count_threads(int most)
{
    uint64_t end = harness_ms() + DEADLINE_MS;
    int n;
    while ((n = count_entries("/proc/self/task")) > most && harness_ms() < end) {
        harness_sleep_ms(10);
    }
    return n;
}

START_TEST(opening_and_closing_leaves_nothing)
{
    struct side x, y;
    int fds = 0, threads = count_entries("/proc/self/task");
    for (int i = 0; i < 50; i++) {
        harness_loop_open(&x, &y, NULL, NULL);
        struct address to = harness_address(&y);
        ck_assert_int_eq(harness_post_send(&x, IBV_WR_RDMA_WRITE, 1, 0, 8, &to, 0), 0);
        (void)harness_expect(&x, IBV_WC_SUCCESS, 1);
        struct ibv_context *ctx = x.ctx;
        harness_side_close(&x);
        harness_side_close(&y);
        ck_assert_int_eq(ibv_close_device(ctx), 0);
        if (i == 2) {
            fds = count_entries("/proc/self/fd");
        }
    }
    ck_assert_int_eq(count_entries("/proc/self/fd"), fds);
    ck_assert_int_eq(count_threads(threads), threads);
}
END_TEST

START_TEST(bad_settings_are_refused)
{
    static const char *const bad[][2] = {{"SOFTHCA_FAULTS", "explode nth=1"},
                                         {"SOFTHCA_FAULTS", "drop every=x"},
                                         {"SOFTHCA_DEVICES", "9"},
                                         {"SOFTHCA_DEVICES", "two"},
                                         {"SOFTHCA_LINK", "ether"},
                                         {"SOFTHCA_FABRIC", "/nowhere/at/all"}};
    ck_assert_int_eq(setenv(bad[_i][0], bad[_i][1], 1), 0);
    int n = 7;
    errno = 0;
    ck_assert_ptr_null(ibv_get_device_list(&n));
    ck_assert_int_ne(errno, 0);
    ck_assert_int_eq(n, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softhca-faults");
    TCase *t = tcase_create("faults");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, harness_setup, harness_teardown);
    tcase_add_test(t, killed_peer_is_noticed_by_the_timeout);
    tcase_add_test(t, killed_peer_does_not_keep_the_next_process_out);
    tcase_add_test(t, stopped_peer_is_noticed_by_the_timeout);
    tcase_add_test(t, shortly_stopped_peer_is_waited_for);
    tcase_add_test(t, silenced_node_is_noticed_and_heals);
    tcase_add_test(t, flapped_port_has_events_and_traffic_goes_on);
    tcase_add_test(t, port_that_stays_down_ends_in_retry_exceeded);
    tcase_add_test(t, lost_messages_are_repeated_and_executed_once);
    tcase_add_test(t, repeated_reads_do_not_use_up_the_readers_window);
    tcase_add_test(t, delayed_queue_pair_is_passed_by_others);
    tcase_add_test(t, late_request_comes_after_its_sender_gave_up);
    tcase_add_test(t, late_request_to_a_stopped_queue_pair_is_lost);
    tcase_add_test(t, what_follows_a_late_request_waits_behind_it);
    tcase_add_test(t, third_completion_fails_as_told);
    tcase_add_test(t, third_key_is_wrong);
    tcase_add_test(t, nth_call_fails_as_told);
    tcase_add_test(t, exit_in_the_middle_of_traffic_is_clean);
    tcase_add_test(t, opening_and_closing_leaves_nothing);
    tcase_add_loop_test(t, bad_settings_are_refused, 0, 6);
    suite_add_tcase(suite, t);
    return harness_main(suite);
}
