// SPDX-License-Identifier: Apache-2.0
// CUDA memory behind registrations: the order in which data, stamps and completions are seen while
// copies are under way.
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "test/softhca/device_ends.h"

// Data to the device, then a stamp to host memory: who sees the stamp finds the data.
START_TEST(a_stamp_comes_after_its_data)
{
    loop_open();
    if (cu.delay) {
        cu.delay(3000);
    }
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    uint64_t *stamp = (uint64_t *)(void *)(b.host + 4096);
    for (uint64_t round = 1; round <= 10; round++) {
        uint32_t n = round % 2 ? 200000 : 512;
        fill(data, n, (unsigned)round);
        both_set(&a, (int)(round & 1), 0, data, n);
        both_set(&a, 0, BYTES - 8, (const uint8_t *)&round, 8);
        use(&a, (int)(round & 1));
        use(&b, 1);
        struct address to = harness_address(&b.side);
        ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, 1, 0, n, &to, 64), 0);
        use(&a, 0);
        use(&b, 0);
        to = harness_address(&b.side);
        ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, 2, BYTES - 8, 8, &to, 4096),
                         0);
        uint64_t end = harness_ms() + DEADLINE_MS;
        while (__atomic_load_n(stamp, __ATOMIC_ACQUIRE) != round) {
            ck_assert_uint_lt(harness_ms(), end);
            (void)sched_yield();
        }
        both_expect(&b, 1, 64, data, n);
        (void)harness_expect(&a.side, IBV_WC_SUCCESS, 1);
        (void)harness_expect(&a.side, IBV_WC_SUCCESS, 2);
    }
    free(data);
    loop_close();
}
END_TEST

// Messages to one place of the device, posted together: the last one stays.
START_TEST(later_messages_overwrite_earlier_ones)
{
    loop_open();
    uint64_t words[8];
    use(&b, 1);
    struct address to = harness_address(&b.side);
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < 8; i++) {
            words[i] = round * 8 + i;
        }
        both_set(&a, 0, 0, (const uint8_t *)words, sizeof words);
        both_set(&a, 1, 0, (const uint8_t *)words, sizeof words);
        for (unsigned i = 0; i < 8; i++) {
            use(&a, (int)(i & 1));
            ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, i, i * sizeof *words,
                                               sizeof *words, &to, 64),
                             0);
        }
        for (unsigned i = 0; i < 8; i++) {
            (void)harness_expect(&a.side, IBV_WC_SUCCESS, i);
        }
        both_expect(&b, 1, 64, (const uint8_t *)&words[7], sizeof *words);
    }
    loop_close();
}
END_TEST

START_TEST(an_immediate_comes_after_its_data)
{
    loop_open();
    if (cu.delay) {
        cu.delay(3000);
    }
    uint8_t data[5000];
    for (unsigned round = 0; round < 10; round++) {
        fill(data, sizeof data, round);
        both_set(&a, (int)(round & 1), 0, data, sizeof data);
        use(&a, (int)(round & 1));
        use(&b, 1);
        struct address to = harness_address(&b.side);
        ck_assert_int_eq(harness_post_recv(&b.side, 5, 0, 0), 0);
        ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE_WITH_IMM, 6, 0, sizeof data,
                                           &to, 256 * round),
                         0);
        ck_assert_uint_eq(harness_expect(&b.side, IBV_WC_SUCCESS, 5).imm_data, 6);
        both_expect(&b, 1, 256 * round, data, sizeof data);
        (void)harness_expect(&a.side, IBV_WC_SUCCESS, 6);
    }
    loop_close();
}
END_TEST

START_TEST(a_read_finds_what_was_written_before)
{
    loop_open();
    if (cu.delay) {
        cu.delay(3000);
    }
    uint8_t data[9000];
    for (unsigned round = 0; round < 5; round++) {
        fill(data, sizeof data, round);
        both_set(&a, 1, 0, data, sizeof data);
        use(&b, 1);
        struct address to = harness_address(&b.side);
        use(&a, 1);
        for (unsigned i = 0; i < 4; i++) { // the last one ends well after it was begun
            ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, 1, 0, sizeof data, &to,
                                               i * sizeof data),
                             0);
        }
        use(&a, 0);
        ck_assert_int_eq(
            harness_post_send(&a.side, IBV_WR_RDMA_READ, 2, 0, sizeof data, &to, 3 * sizeof data),
            0);
        for (unsigned i = 0; i < 4; i++) {
            (void)harness_expect(&a.side, IBV_WC_SUCCESS, 1);
        }
        (void)harness_expect(&a.side, IBV_WC_SUCCESS, 2);
        both_expect(&a, 0, 0, data, sizeof data);
    }
    loop_close();
}
END_TEST

// Many messages under way at a time: the completions of each end (0 receiver, 1 sender) come with
// their own data in place.
START_TEST(completions_keep_up_with_copies_under_way)
{
    enum { DEPTH = 60, EACH = 16384 };
    loop_open();
    if (cu.delay) {
        cu.delay(300);
    }
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    fill(data, BYTES, 3);
    both_set(&a, 1, 0, data, BYTES);
    use(&a, 1);
    use(&b, 1);
    struct address to = harness_address(&b.side);
    for (unsigned i = 0; i < DEPTH; i++) {
        ck_assert_int_eq(harness_post_recv(&b.side, 100 + i, 0, 0), 0);
    }
    for (unsigned i = 0; i < DEPTH; i++) {
        ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE_WITH_IMM, i, EACH * i,
                                           i % 7 ? EACH : 0, &to, EACH * i),
                         0);
    }
    for (unsigned i = 0; i < DEPTH; i++) {
        struct ibv_wc wc = harness_expect(_i ? &a.side : &b.side, IBV_WC_SUCCESS, _i ? i : 100 + i);
        ck_assert_uint_eq(_i ? i : wc.imm_data, i);
        both_expect(&b, 1, EACH * i, data + EACH * i, i % 7 ? EACH : 0);
    }
    for (unsigned i = 0; i < DEPTH; i++) {
        (void)harness_expect(_i ? &b.side : &a.side, IBV_WC_SUCCESS, _i ? 100 + i : i);
    }
    free(data);
    loop_close();
}
END_TEST

// A word from the host to the device's offset `at`, or data from device to device.
static void post_word(uint64_t value, size_t at)
{
    size_t from = BYTES - 4096 + at % 4096;
    both_set(&a, 0, from, (const uint8_t *)&value, sizeof value);
    use(&a, 0);
    use(&b, 1);
    struct address to = harness_address(&b.side);
    ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, value, from, 8, &to, at), 0);
}

static void post_data(size_t from, uint32_t bytes, size_t at)
{
    use(&a, 1);
    use(&b, 1);
    struct address to = harness_address(&b.side);
    ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, 0, from, bytes, &to, at), 0);
}

static uint64_t word_at(size_t at)
{
    uint64_t value;
    device_copy(&value, b.device + at, sizeof value);
    return value;
}

static void wait_for_word(size_t at, uint64_t value)
{
    uint64_t end = harness_ms() + DEADLINE_MS;
    while (word_at(at) != value) {
        ck_assert_uint_lt(harness_ms(), end);
        (void)sched_yield();
    }
}

static void finish(unsigned messages)
{
    while (messages-- > 0) {
        ck_assert_int_eq(harness_wait(&a.side, DEADLINE_MS).status, IBV_WC_SUCCESS);
    }
}

// Data and its stamp, both to the device, many of them: who sees a stamp finds its data and all
// stamps before it.
START_TEST(a_device_stamp_comes_after_its_data)
{
    enum { CHUNK = 4096, CHUNKS = 16, STAMPS = BYTES / 2 };
    (void)setenv("SOFTHCA_LATENCY_NS", _i & 1 ? "3000000" : "0", 1);
    is_far = _i >> 1;
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    loop_open();
    if (cu.delay) {
        cu.delay(500);
    }
    for (unsigned round = 1; round <= 5; round++) {
        fill(data, (size_t)2 * CHUNK * CHUNKS, round);
        both_set(&a, 1, 0, data, (size_t)2 * CHUNK * CHUNKS);
        for (unsigned i = 0; i < CHUNKS; i++) { // every second piece: nothing to merge
            post_data((size_t)2 * i * CHUNK, CHUNK, (size_t)2 * i * CHUNK);
            post_word(round, STAMPS + 8 * i);
        }
        for (unsigned i = CHUNKS; i-- > 0;) { // the last one first
            wait_for_word(STAMPS + 8 * i, round);
            for (unsigned k = 0; k <= i; k++) {
                ck_assert_uint_eq(word_at(STAMPS + 8 * k), round);
                both_expect(&b, 1, (size_t)2 * k * CHUNK, data + (size_t)2 * k * CHUNK, CHUNK);
            }
        }
        finish(2 * CHUNKS);
    }
    free(data);
    loop_close();
}
END_TEST

// The model's latency is for what a program may see; copies begin before, and neighbours are one,
// also when what lies between two comes last.
START_TEST(copies_begin_before_the_message_arrives)
{
    enum { CHUNK = 8192, CHUNKS = 8, STAMPS = BYTES / 2, LATENCY_MS = 400 };
    (void)setenv("SOFTHCA_LATENCY_NS", "400000000", 1);
    (void)setenv("SOFTHCA_COPY_NS", "400000000", 1);
    is_far = 1;
    (void)setenv("SOFTHCA_FAULTS", "delay every=1 count=1 us=20000", 1); // all leave together
    loop_open();
    uint64_t start = harness_ms(), before = cu.copies ? cu.copies() : 0, copied = start;
    for (unsigned i = 0; i < CHUNKS; i++) {
        unsigned chunk = _i ? 2 * i % CHUNKS + 2 * i / CHUNKS : i;
        post_data((size_t)chunk * CHUNK, CHUNK, (size_t)chunk * CHUNK);
        post_word(7, STAMPS + 8 * i);
    }
    while (cu.copies && cu.copies() == before && copied < start + LATENCY_MS) {
        harness_sleep_ms(1);
        copied = harness_ms();
    }
    wait_for_word(STAMPS + 8 * (CHUNKS - 1), 7);
    uint64_t seen = harness_ms() - start;
    ck_assert_uint_ge(seen, LATENCY_MS);
    ck_assert_uint_lt(copied - start, LATENCY_MS);
    if (cu.copies) {
        ck_assert_uint_lt(cu.copies() - before, CHUNKS / 2);
    }
    finish(2 * CHUNKS);
    loop_close();
}
END_TEST

// Later bytes stay, whatever way they and the earlier ones took.
START_TEST(later_bytes_stay_on_the_device)
{
    enum { PIECE = 4096, FAR = 8 * PIECE };
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    (void)setenv("SOFTHCA_LATENCY_NS", _i & 1 ? "2000000" : "0", 1);
    is_far = _i >> 1;
    loop_open();
    if (cu.delay) {
        cu.delay(200);
    }
    for (unsigned round = 1; round <= 8; round++) {
        fill(data, FAR, round);
        both_set(&a, 1, 0, data, FAR);
        post_word(round, 64);                   // overwritten by data
        post_data(0, PIECE, 0);                 // half overwritten by more
        post_data(2 * PIECE, PIECE, PIECE / 2); // a word goes into it
        post_word(round, PIECE);
        post_data(4 * PIECE, 64, PIECE / 2 + 64); // the small ones
        post_data(5 * PIECE, 64, PIECE / 2 + 64);
        finish(6);
        both_expect(&b, 1, 0, data, PIECE / 2);
        both_expect(&b, 1, PIECE / 2, data + 2 * PIECE, 64);
        both_expect(&b, 1, PIECE / 2 + 64, data + 5 * PIECE, 64);
        ck_assert_uint_eq(word_at(PIECE), round);
        both_expect(&b, 1, PIECE + 8, data + 2 * PIECE + PIECE / 2 + 8, 64);
    }
    free(data);
    loop_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda order");
    TCase *t = tcase_create("cuda order");
    tcase_add_checked_fixture(t, harness_setup, harness_teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_stamp_comes_after_its_data);
    tcase_add_test(t, later_messages_overwrite_earlier_ones);
    tcase_add_loop_test(t, a_device_stamp_comes_after_its_data, 0, 4);
    tcase_add_loop_test(t, copies_begin_before_the_message_arrives, 0, 2);
    tcase_add_loop_test(t, later_bytes_stay_on_the_device, 0, 4);
    tcase_add_test(t, an_immediate_comes_after_its_data);
    tcase_add_test(t, a_read_finds_what_was_written_before);
    tcase_add_loop_test(t, completions_keep_up_with_copies_under_way, 0, 2);
    suite_add_tcase(suite, t);
    return harness_main(suite);
}
