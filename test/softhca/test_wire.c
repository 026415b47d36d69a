// SPDX-License-Identifier: Apache-2.0
// Data between two processes: every kind of message, sizes around packet borders, many queue
// pairs, stamps behind data. The test that sanitizer builds run.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/softhca/harness.h"

#define QPS   5
#define BYTES (2u << 20)
#define ROUND 40

static const uint32_t sizes[] = {0,    1,     7,     8,     63,     64,     65,      4095,
                                 4096, 32767, 32768, 32769, 100003, 524288, 1048575, 1048576};
#define SIZES (sizeof sizes / sizeof *sizes)

static void fill(uint8_t *p, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(seed + i * 7 + i / 251);
    }
}

static void expect_filled(const uint8_t *p, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        if (p[i] != (uint8_t)(seed + i * 7 + i / 251)) {
            ck_abort_msg("byte %u of %u is wrong", i, n);
        }
    }
}

// Layout of both buffers: data at 0, a stamp at BYTES, what was read back from BYTES + 64.
static const struct side_options big = {.bytes = 2 * BYTES + 4096, .inline_data = 64};

static uint64_t stamp_load(const struct side *s)
{
    return __atomic_load_n((const uint64_t *)(const void *)(s->buf + BYTES), __ATOMIC_ACQUIRE);
}

static void stamp_wait(const struct side *s, uint64_t value)
{
    uint64_t end = harness_ms() + DEADLINE_MS;
    while (stamp_load(s) < value) {
        ck_assert_msg(harness_ms() < end, "stamp %llu never came", (unsigned long long)value);
        (void)usleep(10);
    }
}

static void stamp_send(struct side *s, const struct address *to, uint64_t value)
{
    struct ibv_sge sge = {.addr = (uintptr_t)&value, .length = 8};
    struct ibv_send_wr wr = {.wr_id = value,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
    struct ibv_send_wr *bad;
    wr.wr.rdma.remote_addr = to->addr + BYTES;
    wr.wr.rdma.rkey = to->rkey;
    ck_assert_int_eq(ibv_post_send(s->qp, &wr, &bad), 0);
}

static void open_two(struct side *s, int sock, struct address *to)
{
    harness_side_open(s, harness_open(), &big);
    *to = harness_meet(s, sock, NULL);
}

static void close_two(struct side *s)
{
    struct ibv_context *ctx = s->ctx;
    harness_side_close(s);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}

static void echo_stamps(int sock)
{
    struct side s;
    struct address to;
    open_two(&s, sock, &to);
    for (uint32_t i = 0; i < SIZES; i++) {
        stamp_wait(&s, 2 * i + 1);
        expect_filled(s.buf, sizes[i], i);
        stamp_send(&s, &to, 2 * i + 2);
        (void)harness_expect(&s, IBV_WC_SUCCESS, 2 * i + 2);
    }
    char c;
    (void)!read(sock, &c, 1);
    close_two(&s);
}

START_TEST(stamp_is_seen_after_the_data_before_it)
{
    struct peer p = harness_peer_start("far", echo_stamps);
    struct side s;
    struct address to;
    open_two(&s, p.sock, &to);
    for (uint32_t i = 0; i < SIZES; i++) {
        fill(s.buf, sizes[i], i);
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_WRITE, 1000, 0, sizes[i], &to, 0), 0);
        stamp_send(&s, &to, 2 * i + 1);
        (void)harness_expect(&s, IBV_WC_SUCCESS, 1000);
        (void)harness_expect(&s, IBV_WC_SUCCESS, 2 * i + 1);
        stamp_wait(&s, 2 * i + 2);
    }
    close_two(&s);
    ck_assert_int_eq(harness_peer_wait(&p), 0);
}
END_TEST

static void echo_messages(int sock)
{
    struct side s;
    struct address to;
    open_two(&s, sock, &to);
    for (uint32_t i = 0; i < SIZES; i++) {
        ck_assert_int_eq(harness_post_recv(&s, 1, 0, BYTES), 0);
        char c = 1;
        harness_say(sock, &c, 1);
        struct ibv_wc wc = harness_expect(&s, IBV_WC_SUCCESS, 1);
        ck_assert_uint_eq(wc.byte_len, sizes[i]);
        expect_filled(s.buf, sizes[i], i);
    }
    char c;
    (void)!read(sock, &c, 1);
    close_two(&s);
}

START_TEST(sends_and_reads_are_exact)
{
    struct peer p = harness_peer_start("far", echo_messages);
    struct side s;
    struct address to;
    open_two(&s, p.sock, &to);
    for (uint32_t i = 0; i < SIZES; i++) {
        char c;
        harness_hear(p.sock, &c, 1);
        fill(s.buf, sizes[i], i);
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_SEND, 7, 0, sizes[i], NULL, 0), 0);
        ck_assert_int_eq(harness_post_send(&s, IBV_WR_RDMA_READ, 8, BYTES + 64, sizes[i], &to, 0),
                         0);
        (void)harness_expect(&s, IBV_WC_SUCCESS, 7);
        (void)harness_expect(&s, IBV_WC_SUCCESS, 8);
        expect_filled(s.buf + BYTES + 64, sizes[i], i);
    }
    close_two(&s);
    ck_assert_int_eq(harness_peer_wait(&p), 0);
}
END_TEST

static void open_many(struct side *s, struct address *to, int sock)
{
    static const struct side_options small = {.bytes = 262144, .send_wr = ROUND};
    struct ibv_context *ctx = harness_open();
    for (int q = 0; q < QPS; q++) {
        harness_side_open(&s[q], ctx, &small);
        to[q] = harness_meet(&s[q], sock, NULL);
    }
}

static void close_many(struct side *s)
{
    struct ibv_context *ctx = s[0].ctx;
    for (int q = 0; q < QPS; q++) {
        harness_side_close(&s[q]);
    }
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}

// Both directions at once, full queues, the peer adds to our counters too.
static void both_ways(int sock)
{
    struct side s[QPS];
    struct address to[QPS];
    open_many(s, to, sock);
    for (int round = 0; round < 4; round++) {
        for (uint64_t i = 0; i < ROUND; i++) {
            for (int q = 0; q < QPS; q++) {
                enum ibv_wr_opcode op = i % 4 == 0   ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                        : i % 4 == 1 ? IBV_WR_RDMA_READ
                                                     : IBV_WR_RDMA_WRITE;
                uint32_t n = i % 4 ? 1u + (uint32_t)(i * 997 % 60000) : 8;
                size_t at = i % 4 ? 131072 : 65536;
                ck_assert_int_eq(harness_post_send(&s[q], op, i, 1024, n, &to[q], i % 4 ? at : 0),
                                 0);
            }
        }
        for (uint64_t i = 0; i < ROUND; i++) {
            for (int q = 0; q < QPS; q++) {
                (void)harness_expect(&s[q], IBV_WC_SUCCESS, i);
            }
        }
    }
    char c = 1; // both are done with the other's memory
    harness_say(sock, &c, 1);
    harness_hear(sock, &c, 1);
    for (int q = 0; q < QPS; q++) {
        uint64_t n = __atomic_load_n((uint64_t *)(void *)s[q].buf, __ATOMIC_ACQUIRE);
        ck_assert_uint_eq(n, 4 * ROUND / 4);
    }
    close_many(s);
}

START_TEST(many_queue_pairs_both_ways)
{
    struct peer p = harness_peer_start("far", both_ways);
    both_ways(p.sock);
    ck_assert_int_eq(harness_peer_wait(&p), 0);
}
END_TEST

START_TEST(modelled_latency_and_bandwidth_slow_it_down)
{
    ck_assert_int_eq(setenv("SOFTHCA_MBPS", "800", 1), 0); // 100 MB/s
    ck_assert_int_eq(setenv("SOFTHCA_LATENCY_NS", "20000000", 1), 0);
    struct side a, b;
    static const struct side_options o = {.bytes = 1 << 20};
    harness_loop_open(&a, &b, &o, NULL);
    struct address to = harness_address(&b);
    uint64_t t0 = harness_ms();
    ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &to, 0), 0);
    (void)harness_expect(&a, IBV_WC_SUCCESS, 1);
    ck_assert_uint_ge(harness_ms() - t0, 39); // there and back
    t0 = harness_ms();
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(harness_post_send(&a, IBV_WR_RDMA_WRITE, 2, 0, 1 << 20, &to, 0), 0);
    }
    for (int i = 0; i < 10; i++) {
        (void)harness_expect(&a, IBV_WC_SUCCESS, 2);
    }
    ck_assert_uint_ge(harness_ms() - t0, 100);
    struct ibv_context *ctx = a.ctx;
    harness_side_close(&a);
    harness_side_close(&b);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softhca-wire");
    TCase *t = tcase_create("wire");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, harness_setup, harness_teardown);
    tcase_add_test(t, stamp_is_seen_after_the_data_before_it);
    tcase_add_test(t, sends_and_reads_are_exact);
    tcase_add_test(t, many_queue_pairs_both_ways);
    tcase_add_test(t, modelled_latency_and_bandwidth_slow_it_down);
    suite_add_tcase(suite, t);
    return harness_main(suite);
}
