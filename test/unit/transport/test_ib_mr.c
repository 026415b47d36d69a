// SPDX-License-Identifier: Apache-2.0
// The registration cache.
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "test/unit/transport/fake_verbs.h"
#include "transport/ib_mr.h"

static struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
static struct gemmar_ib_verbs verbs; /* a table that a test may thin out */
static char *page;
static size_t page_bytes;

static void open_with(struct gemmar_knobs *knobs)
{
    uint32_t count;

    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    page = aligned_alloc(page_bytes, 4 * page_bytes);
    ck_assert_ptr_nonnull(page);
    ck_assert_int_eq(gemmar_ib_devices_open(&verbs, knobs, fake_logger(), devices, &count), 0);
    fake.registrations = 0;
    fake_log_clear();
}

static void setup(void)
{
    fake_reset();
    verbs = *fake_table();
}

static void close_it(void)
{
    ck_assert_ptr_null(devices[0].mrs);
    gemmar_ib_devices_close(devices, 1);
    ck_assert_int_eq(fake.live, 0);
    free(page);
}

static struct gemmar_ib_mr *get(void *address, uint64_t length, enum gemmar_mr_kind kind)
{
    struct gemmar_memory memory = {.address = address, .length = length, .dmabuf_fd = -1};
    struct gemmar_ib_mr *mr = NULL;

    ck_assert_int_eq(gemmar_ib_mr_get(&devices[0], &memory, kind, &mr), 0);
    return mr;
}

static bool covers(const struct gemmar_ib_mr *mr, const char *at, uint64_t length)
{
    const char *start = mr->mr->addr;

    return start <= at && at + length <= start + mr->mr->length;
}

/* M-03: small buffers in one page. */
START_TEST(small_buffers_of_one_page_share_a_registration)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const size_t offsets[3] = {0, 512, 4000};

    open_with(fake_knobs());
    for (int o = 0; o < 6; o++) {
        struct gemmar_ib_mr *mr[3];

        fake.registrations = 0;
        for (int i = 0; i < 3; i++) {
            mr[i] = get(page + offsets[i], 64, GEMMAR_MR_DATA);
            ck_assert(covers(mr[i], page + offsets[i], 64));
        }
        ck_assert_int_eq(fake.registrations, 1);
        for (int i = 0; i < 3; i++) {
            gemmar_ib_mr_put(&devices[0], mr[orders[o][i]]);
            for (int left = i + 1; left < 3; left++) {
                ck_assert(covers(mr[orders[o][left]], page + offsets[orders[o][left]], 64));
            }
        }
        ck_assert_ptr_null(devices[0].mrs);
    }
    close_it();
}
END_TEST

START_TEST(registered_ranges_are_whole_pages)
{
    static const size_t offsets[] = {0, 1, 256, 4095}, lengths[] = {1, 4095, 4096, 4097, 8000};

    open_with(fake_knobs());
    for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            struct gemmar_ib_mr *mr = get(page + offsets[o], lengths[l], GEMMAR_MR_DATA);

            ck_assert_uint_eq((uintptr_t)mr->mr->addr % page_bytes, 0);
            ck_assert_uint_eq(mr->mr->length % page_bytes, 0);
            ck_assert(covers(mr, page + offsets[o], lengths[l]));
            gemmar_ib_mr_put(&devices[0], mr);
        }
    }
    close_it();
}
END_TEST

START_TEST(m02_dmabuf_is_registered_in_whole_pages)
{
    struct gemmar_memory memory = {
        .length = 300, .dmabuf_fd = 9, .is_gpu = 1, .dmabuf_offset = 3 * 4096 + 256};
    struct gemmar_ib_mr *mr;

    setup();
    open_with(fake_knobs());
    memory.address = page + 4096 + 256;
    ck_assert_int_eq(gemmar_ib_mr_get(&devices[0], &memory, GEMMAR_MR_DATA, &mr), 0);
    ck_assert_uint_eq(fake.dmabuf_offset, 3 * 4096);
    ck_assert_ptr_eq(mr->mr->addr, page + 4096);
    ck_assert_uint_eq(mr->mr->length, 4096);
    gemmar_ib_mr_put(&devices[0], mr);
    memory.dmabuf_offset++;
    ck_assert_int_eq(gemmar_ib_mr_get(&devices[0], &memory, GEMMAR_MR_DATA, &mr), -EINVAL);
    close_it();
}
END_TEST

/* O-02: what orders data must not be reordered. */
START_TEST(stamps_are_never_relaxed)
{
    for (int knob = 0; knob <= 2; knob++) {
        for (int able = 0; able <= 1; able++) {
            struct gemmar_knobs *knobs = fake_knobs();
            struct gemmar_ib_mr *data, *strict;
            bool relaxed = knob != 0 && able;

            setup();
            knobs->ib_relaxed_ordering = knob;
            if (!able) {
                verbs.reg_mr_iova2 = NULL;
            }
            open_with(knobs);
            data = get(page, 64, GEMMAR_MR_DATA);
            strict = get(page, 64, GEMMAR_MR_STRICT);
            ck_assert_int_eq(fake.registrations, 2);
            ck_assert_int_eq((fake.registered[0].access & IBV_ACCESS_RELAXED_ORDERING) != 0,
                             relaxed);
            ck_assert_int_eq(fake.registered[1].access & IBV_ACCESS_RELAXED_ORDERING, 0);
            gemmar_ib_mr_put(&devices[0], data);
            gemmar_ib_mr_put(&devices[0], strict);
            close_it();
        }
    }
}
END_TEST

/* M-01: either route works when the other one does not. */
/* dma-buf first, peer memory second, refused third with both reasons. */
START_TEST(gpu_memory_takes_the_second_route_when_the_first_fails)
{
    static const int dmabuf[] = {0, EOPNOTSUPP, EINVAL, EFAULT}, peer[] = {0, EFAULT};

    open_with(fake_knobs());
    for (int d = 0; d < 4; d++) {
        for (int p = 0; p < 2; p++) {
            struct gemmar_memory memory = {
                .address = page, .length = 8192, .dmabuf_fd = 9, .is_gpu = 1};
            struct gemmar_ib_mr *mr = NULL;
            int rc;

            fake.dmabuf_errno = dmabuf[d];
            fake.host_errno = peer[p];
            fake.registrations = 0;
            fake_log_clear();
            rc = gemmar_ib_mr_get(&devices[0], &memory, GEMMAR_MR_DATA, &mr);
            if (dmabuf[d] != 0 && peer[p] != 0) {
                ck_assert_int_eq(rc, -EFAULT);
                ck_assert_ptr_null(mr);
                ck_assert_int_eq(fake_warnings(), 1);
                ck_assert_ptr_nonnull(strstr(fake_log_text(), strerror(dmabuf[d])));
                ck_assert_ptr_nonnull(strstr(fake_log_text(), "peer memory: Bad address"));
            } else {
                ck_assert_int_eq(rc, 0);
                ck_assert_int_eq(fake.registered[0].fd, dmabuf[d] == 0 ? 9 : -1);
                ck_assert_int_eq(fake_warnings(), 0);
            }
            gemmar_ib_mr_put(&devices[0], mr);
        }
    }
    fake.dmabuf_errno = fake.host_errno = 0;
    close_it();
}
END_TEST

/* With an rdma-core that knows neither, a dma-buf is passed over and nothing is relaxed. */
START_TEST(l07_gpu_memory_without_dmabuf_in_the_library)
{
    struct gemmar_memory memory = {.length = 8192, .dmabuf_fd = 9, .is_gpu = 1};
    struct gemmar_ib_mr *mr = NULL;

    verbs.reg_dmabuf_mr = NULL;
    verbs.reg_mr_iova2 = NULL;
    open_with(fake_knobs());
    ck_assert(!devices[0].dmabuf);
    memory.address = page;
    ck_assert_int_eq(gemmar_ib_mr_get(&devices[0], &memory, GEMMAR_MR_DATA, &mr), 0);
    ck_assert_int_eq(fake.registrations, 1);
    ck_assert_int_eq(fake.registered[0].fd, -1);
    ck_assert_int_eq(fake.registered[0].access & IBV_ACCESS_RELAXED_ORDERING, 0);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "through peer memory"));
    ck_assert_int_eq(fake_warnings(), 0);
    gemmar_ib_mr_put(&devices[0], mr);
    close_it();
}
END_TEST

START_TEST(locked_memory_limit_is_named)
{
    struct rlimit limit = {65536, 65536};
    struct gemmar_memory memory = {.length = 1 << 20, .dmabuf_fd = -1};
    struct gemmar_ib_mr *mr = NULL;

    open_with(fake_knobs());
    memory.address = page;
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    fake.host_errno = ENOMEM;
    ck_assert_int_eq(gemmar_ib_mr_get(&devices[0], &memory, GEMMAR_MR_DATA, &mr), -ENOMEM);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "RLIMIT_MEMLOCK is 65536 bytes"));
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "ulimit -l unlimited"));
    close_it();
}
END_TEST

/* Advice that does not fit sends the user the wrong way. */
START_TEST(locked_memory_limit_is_named_only_when_it_is_near)
{
    static const struct {
        rlim_t limit;
        uint64_t bytes;
        int error;
        bool named;
    } row[] = {
        {65536, 65536, ENOMEM, true},
        {65536, 40960, ENOMEM, true},
        {65536, 4096, ENOMEM, false},
        {65536, 1 << 20, EINVAL, false},
        {65536, 1 << 20, EFAULT, false},
        {(rlim_t)1 << 40, 1 << 20, ENOMEM, false},
        {RLIM_INFINITY, 1 << 20, ENOMEM, false},
    };
    struct gemmar_memory memory = {.dmabuf_fd = -1};
    struct rlimit limit;
    struct gemmar_ib_mr *mr = NULL;

    open_with(fake_knobs());
    memory.address = page;
    memory.length = row[_i].bytes;
    ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    limit.rlim_cur = row[_i].limit < limit.rlim_max ? row[_i].limit : limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    fake.host_errno = row[_i].error;
    ck_assert_int_eq(gemmar_ib_mr_get(&devices[0], &memory, GEMMAR_MR_DATA, &mr), -row[_i].error);
    ck_assert_int_eq(fake_warnings(), 1);
    if (row[_i].named || limit.rlim_cur >= row[_i].limit) { /* else this machine allows less */
        ck_assert_int_eq(strstr(fake_log_text(), "RLIMIT_MEMLOCK") != NULL, row[_i].named);
        ck_assert_int_eq(strstr(fake_log_text(), "CAP_IPC_LOCK") != NULL, row[_i].named);
    }
    close_it();
}
END_TEST

START_TEST(impossible_ranges_are_refused)
{
    struct gemmar_memory memory = {.address = (void *)UINTPTR_MAX, .length = 64, .dmabuf_fd = -1};
    struct gemmar_ib_mr *mr = NULL;

    open_with(fake_knobs());
    ck_assert_int_eq(gemmar_ib_mr_get(&devices[0], &memory, GEMMAR_MR_DATA, &mr), -EINVAL);
    memory.address = page;
    memory.length = 0;
    ck_assert_int_eq(gemmar_ib_mr_get(&devices[0], &memory, GEMMAR_MR_DATA, &mr), -EINVAL);
    ck_assert_ptr_null(mr);
    gemmar_ib_mr_put(&devices[0], NULL);
    close_it();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ib_mr");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, small_buffers_of_one_page_share_a_registration);
    tcase_add_test(tcase, registered_ranges_are_whole_pages);
    tcase_add_test(tcase, stamps_are_never_relaxed);
    tcase_add_test(tcase, gpu_memory_takes_the_second_route_when_the_first_fails);
    tcase_add_test(tcase, m02_dmabuf_is_registered_in_whole_pages);
    tcase_add_test(tcase, l07_gpu_memory_without_dmabuf_in_the_library);
    tcase_add_test(tcase, locked_memory_limit_is_named);
    tcase_add_loop_test(tcase, locked_memory_limit_is_named_only_when_it_is_near, 0, 7);
    tcase_add_test(tcase, impossible_ranges_are_refused);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
