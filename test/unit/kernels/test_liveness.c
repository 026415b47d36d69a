// SPDX-License-Identifier: Apache-2.0
// A process is gone when it has ended, also before its parent collects it.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <check.h>

#include "kernels/liveness.h"

START_TEST(own_process_is_there)
{
    struct gemmar_process self = gemmar_process_self();

    ck_assert_uint_eq(self.pid, (uint64_t)getpid());
    ck_assert(gemmar_process_visible(&self));
    ck_assert(!gemmar_process_gone(&self));
}
END_TEST

START_TEST(another_process_of_the_same_id)
{
    struct gemmar_process other = gemmar_process_self();

    other.start++;
    ck_assert(!gemmar_process_visible(&other));
    ck_assert(gemmar_process_gone(&other));
}
END_TEST

START_TEST(killed_and_not_collected)
{
    int pipes[2];
    struct gemmar_process process;
    pid_t pid;

    ck_assert_int_eq(pipe(pipes), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        process = gemmar_process_self();
        _exit(write(pipes[1], &process, sizeof(process)) == sizeof(process) ? pause() : 1);
    }
    ck_assert_int_eq((int)read(pipes[0], &process, sizeof(process)), (int)sizeof(process));
    ck_assert(gemmar_process_visible(&process));
    ck_assert(!gemmar_process_gone(&process));
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    ck_assert(!gemmar_process_gone(&process)); /* a stopped one may go on */
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    while (!gemmar_process_gone(&process)) { /* the test's timeout ends it */
        struct timespec nap = {.tv_nsec = 1000000};

        (void)nanosleep(&nap, NULL);
    }
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert(gemmar_process_gone(&process));
}
END_TEST

/* Only the system's "no such process" says that a process is gone. */
START_TEST(no_descriptor_left)
{
    struct gemmar_process self = gemmar_process_self();
    struct rlimit old, none;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max}; /* open ones stay */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert_int_eq(open("/proc/self/stat", O_RDONLY | O_CLOEXEC), -1);
    ck_assert_int_eq(errno, EMFILE);
    ck_assert(!gemmar_process_gone(&self));
    ck_assert(!gemmar_process_visible(&self));
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    ck_assert(gemmar_process_visible(&self));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("liveness");
    TCase *all = tcase_create("liveness");
    SRunner *runner;
    int failed;

    tcase_add_test(all, own_process_is_there);
    tcase_add_test(all, another_process_of_the_same_id);
    tcase_add_test(all, killed_and_not_collected);
    tcase_add_test(all, no_descriptor_left);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
