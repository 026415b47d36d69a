// SPDX-License-Identifier: Apache-2.0
// Communicators of one node, whose ranks are threads: what they do to the process around them, and
// what they say of a user's mistakes.
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <check.h>
#include <gemmar/gemmar.h>

#define RANKS 2
#define EDGE  64

static struct {
    pthread_barrier_t barrier;
    char record[RANKS][1 << 16];
} meeting;

struct rank {
    int index, ranks;
    gemmarConfig_t config;
    void (*meanwhile)(struct rank *rank); /* done in the next all-gather */
    gemmarComm_t comm;
    gemmarResult_t result;
    char text[1024];
};

/* An all-gather between threads. */
static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    struct rank *rank = context;
    void (*meanwhile)(struct rank *) = rank->meanwhile;

    rank->meanwhile = NULL;
    if (meanwhile != NULL) {
        meanwhile(rank);
    }
    if (bytes > sizeof(meeting.record[0])) {
        return 1;
    }
    memcpy(meeting.record[rank->index], mine, bytes);
    if (rank->ranks > 1) {
        (void)pthread_barrier_wait(&meeting.barrier);
    }
    for (int r = 0; r < rank->ranks; r++) {
        memcpy((char *)all + (size_t)r * bytes, meeting.record[r], bytes);
    }
    if (rank->ranks > 1) {
        (void)pthread_barrier_wait(&meeting.barrier);
    }
    return 0;
}

static gemmarResult_t create(struct rank *rank)
{
    gemmarHostBootstrap_t bootstrap = {.size = sizeof(bootstrap),
                                       .rank = rank->index,
                                       .nranks = rank->ranks,
                                       .allGather = gather,
                                       .context = rank,
                                       .node = "a"};

    return gemmarCommCreateHost(&rank->comm, &bootstrap, &rank->config);
}

static struct rank alone(void)
{
    return (struct rank){.ranks = 1, .config = GEMMAR_CONFIG_INITIALIZER};
}

static gemmarResult_t call(gemmarComm_t comm, int64_t m, gemmarDataType_t datatype)
{
    static const float a[EDGE * EDGE], b[EDGE * EDGE];
    float *c = malloc(sizeof(*c) * EDGE * EDGE);
    gemmarResult_t result;

    ck_assert_ptr_nonnull(c);
    result = gemmar_fused(a, b, c, m, EDGE, EDGE, datatype, comm, NULL);
    free(c);
    return result;
}

/* The signals that a thread of this process blocks. */
static uint64_t blocked_by(const char *thread)
{
    char path[300], line[256];
    unsigned long long mask = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL && sscanf(line, "SigBlk: %llx", &mask) != 1) {
    }
    (void)fclose(file);
    return (uint64_t)mask;
}

/* Those that can be blocked, without the C library's own two and SIGSYS, which a sanitizer's thread
 * takes. */
static uint64_t all_signals(void)
{
    uint64_t mask = 0;

    for (int s = 1; s <= SIGRTMAX; s++) {
        if (s != SIGKILL && s != SIGSTOP && (s < SIGSYS || s >= SIGRTMIN)) {
            mask |= UINT64_C(1) << (s - 1);
        }
    }
    return mask;
}

/* A handler of the application's would run on a thread that it does not know. */
START_TEST(threads_of_ours_take_no_signals)
{
    struct rank rank = alone();
    const struct dirent *entry;
    char own[32];
    int others = 0;
    DIR *tasks;

    (void)snprintf(own, sizeof(own), "%ld", syscall(SYS_gettid));
    rank.config.ctas = 4;
    ck_assert_int_eq(create(&rank), gemmarSuccess);
    ck_assert_int_eq(call(rank.comm, EDGE, gemmarFloat32), gemmarSuccess);
    tasks = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(tasks);
    while ((entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, own) != 0) {
            ck_assert_uint_eq(blocked_by(entry->d_name) & all_signals(), all_signals());
            others++;
        }
    }
    (void)closedir(tasks);
    ck_assert_int_ge(others, 3);
    ck_assert_uint_eq(blocked_by(own) & all_signals(), 0);
    ck_assert_int_eq(gemmarCommDestroy(rank.comm), gemmarSuccess);
}
END_TEST

static int segments_of_ours(void)
{
    char mine[32];
    const struct dirent *entry;
    DIR *folder = opendir("/dev/shm");
    int n = 0;

    ck_assert_ptr_nonnull(folder);
    (void)snprintf(mine, sizeof(mine), "gemmar-%d-", (int)getpid());
    while ((entry = readdir(folder)) != NULL) {
        n += strncmp(entry->d_name, mine, strlen(mine)) == 0;
    }
    (void)closedir(folder);
    return n;
}

START_TEST(a_limit_of_file_sizes_is_named)
{
    struct rank rank = alone();
    struct rlimit old, low;

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    ck_assert_int_eq(create(&rank), gemmarSystemError);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_ptr_nonnull(strstr(gemmarGetLastError(NULL), "ulimit -f"));
    ck_assert_int_eq(segments_of_ours(), 0);
}
END_TEST

static gemmarResult_t small_call(gemmarComm_t comm)
{
    return call(comm, EDGE, gemmarFloat32);
}

static gemmarResult_t large_reserve(gemmarComm_t comm)
{
    return gemmarCommReserve(comm, 512, 512, EDGE, gemmarFloat32);
}

static gemmarResult_t info(gemmarComm_t comm)
{
    gemmarCommInfo_t i = {.size = sizeof(i)};

    return gemmarCommGetInfo(comm, &i);
}

static gemmarResult_t (*const serial[])(gemmarComm_t) = {small_call, large_reserve, info};
static gemmarResult_t (*intrusion)(gemmarComm_t);

static void *intrude(void *argument)
{
    struct rank *rank = argument;

    rank->result = intrusion(rank->comm);
    return NULL;
}

static void second_thread(struct rank *rank)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, intrude, rank), 0);
    (void)pthread_join(thread, NULL);
}

/* It must be noticed before the workspace is looked at: the first call may be replacing it. */
START_TEST(a_second_thread_breaks_the_communicator)
{
    static const char sentence[] = "rank 0: two calls ran on one communicator at once";
    struct rank rank = alone();

    intrusion = serial[_i % 3];
    rank.config.check = 1; /* calls gather, too */
    ck_assert_int_eq(create(&rank), gemmarSuccess);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(serial[i](rank.comm), gemmarSuccess);
    }
    rank.meanwhile = second_thread;
    (void)(_i / 3 == 0 ? small_call(rank.comm)
                       : gemmarCommReserve(rank.comm, 1024, 1024, EDGE, gemmarFloat32));
    ck_assert(rank.meanwhile == NULL);
    ck_assert_int_eq(rank.result, gemmarInvalidUsage);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(serial[i](rank.comm), gemmarInvalidUsage);
        ck_assert_str_eq(gemmarGetLastError(rank.comm), sentence);
    }
    (void)gemmarCommDestroy(rank.comm);
}
END_TEST

/* Not the sentence of another error, nor none. */
START_TEST(a_bad_knob_is_named)
{
    static const char *const names[] = {"GEMMAR_TILE_N", "GEMMAR_TILE_M"};
    gemmarHostBootstrap_t bootstrap = {.size = sizeof(bootstrap), .nranks = 0};
    gemmarComm_t comm;
    size_t bytes;

    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(setenv(names[i], "yyy", 1), 0);
        ck_assert_int_eq(gemmarWorkspaceBytes(64, 64, 64, gemmarFloat32, 1, 1, NULL, &bytes),
                         gemmarInvalidArgument);
        ck_assert_ptr_nonnull(strstr(gemmarGetLastError(NULL), names[i]));
        ck_assert_ptr_nonnull(strstr(gemmarGetLastError(NULL), "yyy"));
        ck_assert_int_eq(unsetenv(names[i]), 0);
        ck_assert_int_eq(gemmarCommCreateHost(&comm, &bootstrap, NULL), gemmarInvalidArgument);
        ck_assert_ptr_null(strstr(gemmarGetLastError(NULL), "yyy"));
    }
}
END_TEST

/* What a failed creation leaves can be destroyed. */
START_TEST(a_failed_creation_gives_null)
{
    struct rank rank = alone();
    gemmarComm_t none = (gemmarComm_t)&rank;

    ck_assert_int_eq(gemmarCommCreateHost(&none, NULL, NULL), gemmarInvalidArgument);
    ck_assert_ptr_null(none);
    none = (gemmarComm_t)&rank;
    ck_assert_int_ne(gemmarCommCreate(&none, NULL, NULL), gemmarSuccess);
    ck_assert_ptr_null(none);
    rank.comm = (gemmarComm_t)&rank;
    rank.config.algo = (gemmarAlgo_t)99;
    ck_assert_int_eq(create(&rank), gemmarInvalidArgument);
    ck_assert_ptr_null(rank.comm);
    ck_assert_int_eq(gemmarCommDestroy(rank.comm), gemmarSuccess);
}
END_TEST

static void *call_with_another_type(void *argument)
{
    struct rank *rank = argument;

    rank->result = create(rank);
    if (rank->result == gemmarSuccess) {
        rank->result = call(rank->comm, EDGE, rank->index == 0 ? gemmarBfloat16 : gemmarFloat32);
        (void)snprintf(rank->text, sizeof(rank->text), "%s", gemmarGetLastError(rank->comm));
        (void)gemmarCommDestroy(rank->comm);
    }
    return NULL;
}

START_TEST(types_that_differ_are_named)
{
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];

    ck_assert_int_eq(pthread_barrier_init(&meeting.barrier, NULL, RANKS), 0);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.index = r, .ranks = RANKS, .config = GEMMAR_CONFIG_INITIALIZER};
        ranks[r].config.check = 1;
        ck_assert_int_eq(pthread_create(&threads[r], NULL, call_with_another_type, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        (void)pthread_join(threads[r], NULL);
        ck_assert_int_eq(ranks[r].result, gemmarInvalidUsage);
        ck_assert_str_eq(ranks[r].text,
                         "rank 1 calls with another datatype than rank 0: M 64 N 64 K 64 float32 "
                         "and M 64 N 64 K 64 bfloat16");
    }
    (void)pthread_barrier_destroy(&meeting.barrier);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("communicator");
    TCase *all = tcase_create("communicator");
    SRunner *runner;
    int failed;

    tcase_set_timeout(all, 30);
    tcase_add_test(all, threads_of_ours_take_no_signals);
    tcase_add_test(all, a_limit_of_file_sizes_is_named);
    tcase_add_loop_test(all, a_second_thread_breaks_the_communicator, 0, 6);
    tcase_add_test(all, a_bad_knob_is_named);
    tcase_add_test(all, a_failed_creation_gives_null);
    tcase_add_test(all, types_that_differ_are_named);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
