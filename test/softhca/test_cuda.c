// SPDX-License-Identifier: Apache-2.0
// CUDA memory behind registrations. Runs with the real driver and a GPU, or with fake_cuda.c, which
// also delays and fails copies.
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/softhca/harness.h"
#include "tools/softhca/softhca.h"

#define BYTES (1u << 20)

static struct {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*set)(void *);
    int (*alloc)(uint64_t *, size_t);
    int (*free)(uint64_t);
    int (*copy)(uint64_t, uint64_t, size_t);
    int (*create)(uint64_t *, size_t, const void *, unsigned long long);
    int (*release)(uint64_t);
    int (*reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
    int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
    int (*access)(uint64_t, size_t, const void *, size_t);
    int (*unmap)(uint64_t, size_t);
    void (*delay)(unsigned); // of the fake, like all below
    void (*break_copy)(unsigned);
    uint64_t (*copies)(void);
    int (*descriptor)(uint64_t);
    void (*far)(int);
} cu;
static int is_far; // the memory is said to be of other GPUs

static void find(void *lib, const char *name, void *out, int needed)
{
    void *at = dlsym(lib, name);
    ck_assert_msg(at || !needed, "no %s", name);
    memcpy(out, &at, sizeof at);
}

// In the process that uses it: CUDA does not survive a fork.
static void cuda_start(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    ck_assert_msg(lib != NULL, "%s", dlerror());
    find(lib, "cuInit", &cu.init, 1);
    find(lib, "cuDevicePrimaryCtxRetain", &cu.retain, 1);
    find(lib, "cuCtxSetCurrent", &cu.set, 1);
    find(lib, "cuMemAlloc_v2", &cu.alloc, 1);
    find(lib, "cuMemFree_v2", &cu.free, 1);
    find(lib, "cuMemcpy", &cu.copy, 1);
    find(lib, "cuMemCreate", &cu.create, 1);
    find(lib, "cuMemRelease", &cu.release, 1);
    find(lib, "cuMemAddressReserve", &cu.reserve, 1);
    find(lib, "cuMemMap", &cu.map, 1);
    find(lib, "cuMemSetAccess", &cu.access, 1);
    find(lib, "cuMemUnmap", &cu.unmap, 1);
    find(lib, "fake_cuda_delay", &cu.delay, 0);
    find(lib, "fake_cuda_fail", &cu.break_copy, 0);
    find(lib, "fake_cuda_copies", &cu.copies, 0);
    find(lib, "fake_cuda_descriptor", &cu.descriptor, 0);
    find(lib, "fake_cuda_far", &cu.far, 0);
    if (cu.far) {
        cu.far(is_far);
    }
    ck_assert_int_eq(cu.init(0), 0);
    ck_assert_int_eq(cu.retain(&context, 0), 0);
    ck_assert_int_eq(cu.set(context), 0);
}

static int use_vmm; // device memory comes from cuMemCreate

// As NCCL makes it: shown by a descriptor; a granule of 2 MiB is right for every GPU.
#define VMM_BYTES (2u << 20)
static uint64_t vmm_alloc(void)
{
    struct {
        int kind, handles, location, device;
        void *security;
        uint8_t flags[8];
    } properties = {.kind = 1, .handles = 1, .location = 1};
    struct {
        int location, device, flags;
    } access = {1, 0, 3};
    uint64_t allocation = 0, addr = 0;
    ck_assert_int_eq(cu.create(&allocation, VMM_BYTES, &properties, 0), 0);
    ck_assert_int_eq(cu.reserve(&addr, VMM_BYTES, 0, 0, 0), 0);
    ck_assert_int_eq(cu.map(addr, VMM_BYTES, 0, allocation, 0), 0);
    ck_assert_int_eq(cu.access(addr, VMM_BYTES, &access, 1), 0);
    ck_assert_int_eq(cu.release(allocation), 0);
    return addr;
}

static uint8_t *device_alloc(size_t bytes)
{
    uint64_t addr = 0;
    if (use_vmm) {
        return (uint8_t *)(uintptr_t)vmm_alloc();
    }
    ck_assert_int_eq(cu.alloc(&addr, bytes), 0);
    return (uint8_t *)(uintptr_t)addr;
}

static void device_free(void *p)
{
    if (use_vmm) {
        ck_assert_int_eq(cu.unmap((uintptr_t)p, VMM_BYTES), 0);
        return;
    }
    ck_assert_int_eq(cu.free((uintptr_t)p), 0);
}

// To or from the device; either may be host memory.
static void device_copy(void *to, const void *from, size_t bytes)
{
    ck_assert_int_eq(cu.copy((uintptr_t)to, (uintptr_t)from, bytes), 0);
}

static void fill(uint8_t *p, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        p[i] = (uint8_t)(seed * 131u + i * 7u + (i >> 8));
    }
}

// One end with a region in host memory and one on the device; use chooses which one the harness's
// posts name.
struct both {
    struct side side;
    uint8_t *host, *device;
    struct ibv_mr *host_mr, *device_mr;
};

static void both_open(struct both *b, struct ibv_context *ctx)
{
    struct side_options o = {.bytes = BYTES};
    harness_side_open(&b->side, ctx, &o);
    b->host = b->side.buf;
    b->host_mr = b->side.mr;
    b->device = device_alloc(BYTES);
    b->device_mr = ibv_reg_mr(b->side.pd, b->device, BYTES, ALL_ACCESS);
    ck_assert_ptr_nonnull(b->device_mr);
}

static void use(struct both *b, int device)
{
    b->side.buf = device ? b->device : b->host;
    b->side.mr = device ? b->device_mr : b->host_mr;
}

static void both_close(struct both *b)
{
    use(b, 0);
    ck_assert_int_eq(ibv_dereg_mr(b->device_mr), 0);
    harness_side_close(&b->side);
    device_free(b->device);
}

static void both_set(struct both *b, int device, size_t offset, const uint8_t *data, size_t bytes)
{
    if (device) {
        device_copy(b->device + offset, data, bytes);
    } else {
        memcpy(b->host + offset, data, bytes);
    }
}

static void both_expect(struct both *b, int device, size_t offset, const uint8_t *data,
                        size_t bytes)
{
    uint8_t *seen = malloc(bytes + 1);
    ck_assert_ptr_nonnull(seen);
    if (device) {
        device_copy(seen, b->device + offset, bytes);
    } else {
        memcpy(seen, b->host + offset, bytes);
    }
    ck_assert_mem_eq(seen, data, bytes);
    free(seen);
}

static struct both a, b;

static void loop_open(void)
{
    cuda_start();
    struct ibv_context *ctx = harness_open();
    both_open(&a, ctx);
    both_open(&b, ctx);
    struct address to_a = harness_address(&a.side), to_b = harness_address(&b.side);
    harness_connect(&a.side, &to_b, NULL);
    harness_connect(&b.side, &to_a, NULL);
}

static void loop_close(void)
{
    struct ibv_context *ctx = a.side.ctx;
    both_close(&a);
    both_close(&b);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}

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

// The model's latency is for what a program may see; copies begin before and neighbours are one.
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
        post_data(i * CHUNK, CHUNK, i * CHUNK);
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
        ck_assert_uint_lt(cu.copies() - before, CHUNKS);
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
    tcase_add_test(t, a_stamp_comes_after_its_data);
    tcase_add_test(t, later_messages_overwrite_earlier_ones);
    tcase_add_loop_test(t, a_device_stamp_comes_after_its_data, 0, 4);
    tcase_add_test(t, copies_begin_before_the_message_arrives);
    tcase_add_loop_test(t, later_bytes_stay_on_the_device, 0, 4);
    tcase_add_loop_test(t, much_host_data_reaches_the_device, 0, 2);
    tcase_add_test(t, an_immediate_comes_after_its_data);
    tcase_add_test(t, a_read_finds_what_was_written_before);
    tcase_add_loop_test(t, completions_keep_up_with_copies_under_way, 0, 2);
    tcase_add_test(t, objects_go_away_with_copies_under_way);
    tcase_add_loop_test(t, a_failed_copy_breaks_the_connection, 0, 2);
    tcase_add_loop_test(t, another_process_copies_by_itself, 0, 4);
    suite_add_tcase(suite, t);
    return harness_main(suite);
}
