// SPDX-License-Identifier: Apache-2.0
// Segments: shared, sized, refused with a sentence, never left behind.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <check.h>

#include "kernels/fabric_shm.h"

static char why[256];

static int exists(const char *name)
{
    int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);

    if (fd >= 0) {
        (void)close(fd);
    }
    return fd >= 0;
}

START_TEST(two_mappings_share_memory)
{
    struct gemmar_segment a, b;

    ck_assert_int_eq(gemmar_segment_create(8192, &a, why, sizeof(why)), 0);
    ck_assert_int_eq(gemmar_segment_map(a.name, 8192, &b, why, sizeof(why)), 0);
    ck_assert_int_eq(b.base[8191], 0);
    a.base[8191] = 7;
    ck_assert_int_eq(b.base[8191], 7);
    gemmar_segment_unlink(&a);
    ck_assert(!exists(a.name));
    gemmar_segment_close(&a);
    b.base[0] = 1; /* lives on */
    gemmar_segment_close(&b);
    gemmar_segment_close(&b);
}
END_TEST

START_TEST(closing_takes_the_name_away)
{
    struct gemmar_segment a;

    ck_assert_int_eq(gemmar_segment_create(4096, &a, why, sizeof(why)), 0);
    ck_assert(exists(a.name));
    gemmar_segment_close(&a);
    ck_assert(!exists(a.name));
}
END_TEST

START_TEST(another_size_or_name_is_refused)
{
    struct gemmar_segment a, b = {.bytes = 5};

    ck_assert_int_eq(gemmar_segment_create(8192, &a, why, sizeof(why)), 0);
    ck_assert_int_eq(gemmar_segment_map(a.name, 4096, &b, why, sizeof(why)), -EPROTO);
    ck_assert_ptr_nonnull(strstr(why, "another size"));
    gemmar_segment_close(&a);
    ck_assert_int_eq(gemmar_segment_map(a.name, 8192, &b, why, sizeof(why)), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, a.name));
    ck_assert_uint_eq(b.bytes, 5);
}
END_TEST

/* Without the reservation the first store to a full /dev/shm would be a SIGBUS. */
START_TEST(more_than_there_is)
{
    struct gemmar_segment a;
    struct statvfs fs;
    int rc;

    if (statvfs("/dev/shm", &fs) != 0 || fs.f_blocks == 0) {
        return; /* no limit, nothing to run into */
    }
    rc = gemmar_segment_create((uint64_t)fs.f_blocks * fs.f_frsize + (1 << 20), &a, why,
                               sizeof(why));
    ck_assert_int_ne(rc, 0);
    ck_assert_ptr_nonnull(strstr(why, "no room"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_shm");
    TCase *all = tcase_create("fabric_shm");
    SRunner *runner;
    int failed;

    tcase_add_test(all, two_mappings_share_memory);
    tcase_add_test(all, closing_takes_the_name_away);
    tcase_add_test(all, another_size_or_name_is_refused);
    tcase_add_test(all, more_than_there_is);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
