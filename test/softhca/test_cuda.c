// SPDX-License-Identifier: Apache-2.0
// CUDA memory behind registrations: what may be registered, exact transfers, failures, two
// processes.
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/softhca/device_ends.h"
#include "tools/softhca/softhca.h"

START_TEST(device_memory_is_registered_and_not_charged)
{
    loop_open();
    struct softhca_mr_info info;
    int (*query)(const struct ibv_mr *, struct softhca_mr_info *);
    find(RTLD_DEFAULT, "softhca_query_mr", &query, 1);
    ck_assert_int_eq(query(b.device_mr, &info), 0);
    ck_assert_uint_eq(info.charged_bytes, 0);
    ck_assert_ptr_null(ibv_reg_mr(a.side.pd, a.device + BYTES - 8, 1ull << 40, ALL_ACCESS));
    ck_assert_int_eq(errno, EFAULT);
    ck_assert_int_ne(
        ibv_rereg_mr(a.host_mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, a.device, 64, ALL_ACCESS),
        0);
    loop_close();
}
END_TEST

START_TEST(without_peer_memory_only_a_dmabuf_is_registered)
{
    (void)setenv("SOFTHCA_PEERMEM", "0", 1);
    (void)setenv("SOFTHCA_DMABUF", "2", 1); // the fake's descriptors are no dma-bufs
    cuda_start();
    if (!cu.descriptor) {
        return;
    }
    struct ibv_context *ctx = harness_open();
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    uint8_t *device = device_alloc(BYTES);
    ck_assert_ptr_null(ibv_reg_mr(pd, device, BYTES, ALL_ACCESS));
    ck_assert_int_eq(errno, EFAULT);
    int fd = cu.descriptor((uintptr_t)device);
    ck_assert_int_ge(fd, 0);
    ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 4096, (uintptr_t)device + 64, fd, ALL_ACCESS));
    ck_assert_int_eq(errno, EINVAL); // another place in the page
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, BYTES, (uintptr_t)device, fd, ALL_ACCESS);
    ck_assert_ptr_nonnull(mr);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
    device_free(device);
}
END_TEST

START_TEST(a_dmabuf_is_written_after_its_descriptor_was_closed)
{
    (void)setenv("SOFTHCA_DMABUF", "2", 1);
    loop_open();
    if (cu.descriptor) {
        uint8_t data[8192];
        int fd = cu.descriptor((uintptr_t)b.device);
        struct ibv_mr *mr =
            ibv_reg_dmabuf_mr(b.side.pd, 4096, 8192, (uintptr_t)b.device + 4096, fd, ALL_ACCESS);
        ck_assert_ptr_nonnull(mr);
        ck_assert_int_eq(close(fd), 0);
        fill(data, sizeof data, 1);
        both_set(&a, 0, 0, data, sizeof data);
        struct address to = {.rkey = mr->rkey, .addr = (uintptr_t)b.device + 4096};
        ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, 1, 0, sizeof data, &to, 0),
                         0);
        (void)harness_expect(&a.side, IBV_WC_SUCCESS, 1);
        both_expect(&b, 1, 4096, data, sizeof data);
        ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    }
    loop_close();
}
END_TEST

static const uint32_t sizes[] = {1, 7, 8, 64, 65, 4095, 65536, 65543, 300001, 1000000};
#define SIZES (sizeof sizes / sizeof *sizes)

// From and to each kind of memory; what lies around the bytes must not change.
static void transfers(enum ibv_wr_opcode op)
{
    uint8_t *data = malloc(BYTES), *before = malloc(BYTES);
    ck_assert(data && before);
    loop_open();
    if (cu.delay) {
        cu.delay(50);
    }
    for (unsigned kinds = 0; kinds < 4; kinds++) {
        int from = kinds & 1, to = kinds >> 1;
        for (unsigned i = 0; i < SIZES; i++) {
            uint32_t n = sizes[i], src = i % 3 * 5, dst = 16 + i % 5 * 3;
            fill(data, n, i + kinds);
            fill(before, BYTES, 99 + i);
            both_set(&a, op == IBV_WR_RDMA_READ ? to : from, 0, before, BYTES);
            both_set(&b, op == IBV_WR_RDMA_READ ? from : to, 0, before, BYTES);
            use(&a, op == IBV_WR_RDMA_READ ? to : from);
            use(&b, op == IBV_WR_RDMA_READ ? from : to);
            struct address to_b = harness_address(&b.side);
            struct both *taker = op == IBV_WR_RDMA_READ ? &a : &b;
            size_t at = op == IBV_WR_RDMA_READ ? src : dst;
            both_set(op == IBV_WR_RDMA_READ ? &b : &a, from, op == IBV_WR_RDMA_READ ? dst : src,
                     data, n);
            if (op == IBV_WR_SEND) {
                ck_assert_int_eq(harness_post_recv(&b.side, 8, dst, n), 0);
            }
            ck_assert_int_eq(
                harness_post_send(&a.side, op, 7, src, n, op == IBV_WR_SEND ? NULL : &to_b, dst),
                0);
            if (op == IBV_WR_SEND) { // the receive's completion says that the data is there
                ck_assert_uint_eq(harness_expect(&b.side, IBV_WC_SUCCESS, 8).byte_len, n);
                both_expect(taker, to, at, data, n);
            }
            (void)harness_expect(&a.side, IBV_WC_SUCCESS, 7);
            both_expect(taker, to, at, data, n);
            both_expect(taker, to, 0, before, at);
            both_expect(taker, to, at + n, before + at + n, 16);
        }
    }
    loop_close();
    free(data);
    free(before);
}

START_TEST(writes_are_exact)
{
    transfers(IBV_WR_RDMA_WRITE);
}
END_TEST

START_TEST(reads_are_exact)
{
    transfers(IBV_WR_RDMA_READ);
}
END_TEST

START_TEST(sends_are_exact)
{
    transfers(IBV_WR_SEND);
}
END_TEST

START_TEST(atomics_change_device_memory)
{
    loop_open();
    uint64_t word = 40;
    both_set(&b, 1, 64, (const uint8_t *)&word, sizeof word);
    for (int device = 0; device < 2; device++) { // the result comes to host and device memory
        use(&a, device);
        use(&b, 1);
        struct address to = harness_address(&b.side);
        ck_assert_int_eq(
            harness_post_send(&a.side, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 128, 8, &to, 64), 0);
        (void)harness_expect(&a.side, IBV_WC_SUCCESS, 1);
        word = 40 + (unsigned)device;
        both_expect(&a, device, 128, (const uint8_t *)&word, sizeof word);
    }
    word = 42;
    both_expect(&b, 1, 64, (const uint8_t *)&word, sizeof word);
    loop_close();
}
END_TEST

// More host bytes under way than the staging memory holds, in messages and in one message.
START_TEST(much_host_data_reaches_the_device)
{
    enum { TIMES = 16 };
    loop_open();
    if (cu.delay) {
        cu.delay(200);
    }
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    use(&a, 0);
    use(&b, 1);
    struct address to = harness_address(&b.side);
    for (unsigned i = 0; i < TIMES; i++) {
        uint32_t each = _i ? BYTES : BYTES / 16;
        fill(data, BYTES, i);
        both_set(&a, 0, 0, data, BYTES);
        for (unsigned k = 0; k < BYTES / each; k++) {
            ck_assert_int_eq(
                harness_post_send(&a.side, IBV_WR_RDMA_WRITE, k, k * each, each, &to, k * each), 0);
        }
        for (unsigned k = 0; k < BYTES / each; k++) {
            (void)harness_expect(&a.side, IBV_WC_SUCCESS, k);
        }
        both_expect(&b, 1, 0, data, BYTES);
    }
    free(data);
    loop_close();
}
END_TEST

START_TEST(objects_go_away_with_copies_under_way)
{
    loop_open();
    if (cu.delay) {
        cu.delay(20000);
    }
    use(&a, 1);
    use(&b, 1);
    struct address to = harness_address(&b.side);
    for (unsigned i = 0; i < 20; i++) {
        ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, i, 0, 100000, &to, 0), 0);
    }
    harness_sleep_ms(30);
    loop_close();
}
END_TEST

START_TEST(a_failed_copy_breaks_the_connection)
{
    loop_open();
    if (cu.break_copy) {
        use(&a, _i);
        use(&b, 1);
        struct address to = harness_address(&b.side);
        cu.break_copy(_i ? 1 : 2); // one of the receiver alone, or one of several of staged data
        ck_assert_int_eq(harness_post_send(&a.side, IBV_WR_RDMA_WRITE, 1, 0, 200000, &to, 0), 0);
        (void)harness_expect(&a.side, IBV_WC_REM_OP_ERR, 1);
    }
    loop_close();
}
END_TEST

#define ROUNDS 40

// The receiver of two processes: tells in how many copies each message came.
static void receiver(int sock)
{
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    cuda_start();
    if (cu.delay) {
        cu.delay(500);
    }
    struct ibv_context *ctx = harness_open();
    both_open(&b, ctx);
    use(&b, 1);
    (void)harness_meet(&b.side, sock, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        ck_assert_int_eq(harness_post_recv(&b.side, round, 0, 0), 0);
        harness_say(sock, &round, sizeof round);
        uint64_t copies = cu.copies ? cu.copies() : 0;
        (void)harness_expect(&b.side, IBV_WC_SUCCESS, round);
        copies = cu.copies ? cu.copies() - copies : 1;
        fill(data, BYTES - 64, round);
        both_expect(&b, 1, 64, data, BYTES - 64);
        harness_say(sock, &copies, sizeof copies);
    }
    harness_hear(sock, data, 1); // the acknowledge has arrived
    both_close(&b);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
    free(data);
}

// With memory of cuMemAlloc, and with memory of cuMemCreate; on one GPU and on two.
START_TEST(another_process_copies_by_itself)
{
    use_vmm = _i & 1;
    is_far = _i >> 1;
    uint8_t *data = malloc(BYTES);
    ck_assert_ptr_nonnull(data);
    struct peer peer = harness_peer_start("other", receiver);
    cuda_start();
    struct ibv_context *ctx = harness_open();
    both_open(&a, ctx);
    use(&a, 1);
    struct address to = harness_meet(&a.side, peer.sock, NULL);
    unsigned single = 0;
    for (unsigned round = 0, ready; round < ROUNDS; round++) {
        uint64_t copies;
        fill(data, BYTES - 64, round);
        both_set(&a, 1, 0, data, BYTES - 64);
        harness_hear(peer.sock, &ready, sizeof ready);
        ck_assert_int_eq(
            harness_post_send(&a.side, IBV_WR_RDMA_WRITE_WITH_IMM, round, 0, BYTES - 64, &to, 64),
            0);
        (void)harness_expect(&a.side, IBV_WC_SUCCESS, round);
        harness_hear(peer.sock, &copies, sizeof copies);
        single += copies == (is_far ? 1 : 2); // within a GPU: through host memory
    }
    ck_assert_uint_ge(single, ROUNDS / 4); // staged until the other one has mapped it
    harness_say(peer.sock, data, 1);
    ck_assert_int_eq(harness_peer_wait(&peer), 0);
    both_close(&a);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
    free(data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda");
    TCase *t = tcase_create("cuda");
    tcase_add_checked_fixture(t, harness_setup, harness_teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, device_memory_is_registered_and_not_charged);
    tcase_add_test(t, without_peer_memory_only_a_dmabuf_is_registered);
    tcase_add_test(t, a_dmabuf_is_written_after_its_descriptor_was_closed);
    tcase_add_test(t, writes_are_exact);
    tcase_add_test(t, reads_are_exact);
    tcase_add_test(t, sends_are_exact);
    tcase_add_test(t, atomics_change_device_memory);
    tcase_add_loop_test(t, much_host_data_reaches_the_device, 0, 2);
    tcase_add_test(t, objects_go_away_with_copies_under_way);
    tcase_add_loop_test(t, a_failed_copy_breaks_the_connection, 0, 2);
    tcase_add_loop_test(t, another_process_copies_by_itself, 0, 4);
    suite_add_tcase(suite, t);
    return harness_main(suite);
}
