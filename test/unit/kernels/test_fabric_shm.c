// SPDX-License-Identifier: Apache-2.0
// Segments: shared, sized, refused with a sentence, never left behind.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <check.h>

#include "kernels/fabric_shm.h"

static char why[256];

static bool interrupts, interrupted;

static bool all_blocked(void)
{
    sigset_t now;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int s = 1; s <= SIGRTMAX; s++) {
        bool reserved = s == SIGKILL || s == SIGSTOP || (s > SIGSYS && s < SIGRTMIN);

        if (!reserved && sigismember(&now, s) != 1) {
            return false;
        }
    }
    return true;
}

/* In the place of the C library's: as a kernel that gives up at a signal, with one in every call
 * that can be interrupted, and in the first that cannot, as a stop and a continuation. */
int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    if (interrupts && !all_blocked()) {
        return ENOLCK; /* not EINTR, which would make a wrong caller try for ever */
    }
    if (interrupts && !interrupted) {
        interrupted = true;
        return EINTR;
    }
    return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

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

START_TEST(a_profilers_timer_does_not_keep_it_from_ending)
{
    struct gemmar_segment a;
    sigset_t before, after;

    interrupts = true;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &before);
    ck_assert_int_eq(gemmar_segment_create(8192, &a, why, sizeof(why)), 0);
    ck_assert(interrupted);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int s = 1; s < SIGRTMIN; s++) {
        ck_assert_int_eq(sigismember(&after, s), sigismember(&before, s));
    }
    gemmar_segment_close(&a);
}
END_TEST

/* The limit's signal would kill the process: its own is taken back, the caller's stays. */
START_TEST(larger_than_the_limit_of_file_sizes)
{
    struct rlimit old, low;
    struct gemmar_segment a;
    sigset_t oversize, pending;
    char *end;
    int rc;

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max};
    (void)sigemptyset(&oversize);
    (void)sigaddset(&oversize, SIGXFSZ);
    if (_i > 0) {
        ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &oversize, NULL), 0);
    }
    if (_i > 1) {
        ck_assert_int_eq(raise(SIGXFSZ), 0);
    }
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    rc = gemmar_segment_create(8192, &a, why, sizeof(why));
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(rc, -EFBIG);
    ck_assert_ptr_nonnull(strstr(why, "RLIMIT_FSIZE is 4096 bytes: raise it (ulimit -f)"));
    ck_assert_ptr_null(strstr(why, "no room"));
    ck_assert_int_eq(sigpending(&pending), 0);
    ck_assert_int_eq(sigismember(&pending, SIGXFSZ), _i > 1);
    end = strstr(why, " of 8192");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    ck_assert(!exists(strchr(why, '/')));
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
    tcase_add_test(all, a_profilers_timer_does_not_keep_it_from_ending);
    tcase_add_loop_test(all, larger_than_the_limit_of_file_sizes, 0, 3);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
