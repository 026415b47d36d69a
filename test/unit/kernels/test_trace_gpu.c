// SPDX-License-Identifier: Apache-2.0
// The trace of a communicator's last call, over a CUDA whose device memory is the host's and whose
// streams run at once.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "kernels/gpu.h"

static char path[64];
static char warning[300];
static int live; /* allocations */
static cudaError_t malloc_error, memset_error;

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (malloc_error != cudaSuccess) {
        return malloc_error;
    }
    *out = malloc(bytes);
    live++;
    return *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    live -= memory != NULL;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    if (memset_error == cudaSuccess) {
        memset(memory, value, bytes);
    }
    return memset_error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "no memory" : "an error";
}

int gemmar_gpu_enter(int device)
{
    return device;
}

void gemmar_gpu_leave(int device, int before)
{
    ck_assert_int_eq(device, before);
}

cudaError_t gemmar_gpu_wait_stream(cudaStream_t stream, uint64_t timeout_ns)
{
    (void)stream;
    (void)timeout_ns;
    return cudaSuccess;
}

static void keep(void *user, enum gemmar_log_level level, const char *text)
{
    (void)user;
    ck_assert_int_eq((int)level, GEMMAR_LOG_WARN);
    (void)snprintf(warning, sizeof(warning), "%s", text);
}

static struct gemmarComm comm;
static struct gemmar_gpu gpu;

static void begin(const char *pattern)
{
    comm = (struct gemmarComm){.log = {.sink = keep, .level = GEMMAR_LOG_WARN}, .gpu = &gpu};
    gpu = (struct gemmar_gpu){.most_ctas = 4};
    comm.place.rank = 5;
    (void)snprintf(comm.settings.trace, sizeof(comm.settings.trace), "%s", pattern);
    warning[0] = '\0';
    gemmar_gpu_trace_open(&comm);
}

/* A call, or one in the capture of this number; gives the buffer that its launch gets. */
static uint64_t *call(int64_t k, unsigned long long capture)
{
    struct gemmar_call call = {.map = {.m = 8, .n = 16}, .operands = {.k = k}};

    call.plan.ctas = 2;
    call.place.locals = 2;
    call.place.rank = 5;
    gpu.order.now = capture;
    return gemmar_gpu_trace_call(&gpu, &call, NULL);
}

/* What a kernel would write. */
static void record(uint64_t *events, uint64_t cta, uint64_t item)
{
    ck_assert_ptr_nonnull(events);
    ck_assert_ptr_eq(events, gpu.trace.events);
    events[(cta * GEMMAR_GPU_TRACE_ITEMS + item) * GEMMAR_TRACE_EVENTS] = 1;
}

static const char *content(const char *name)
{
    static char text[400];
    FILE *file = fopen(name, "r");

    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

START_TEST(without_the_knob_there_is_none)
{
    begin("");
    ck_assert_ptr_null(call(32, 0));
    gemmar_gpu_trace_close(&comm);
    ck_assert_str_eq(warning, "");
}
END_TEST

START_TEST(last_call_is_appended)
{
    for (int64_t k = 32; k < 34; k++) {
        begin(path);
        record(call(9, 0), 0, 0);
        record(call(k, 0), 1, GEMMAR_GPU_TRACE_ITEMS - 1);
        gemmar_gpu_trace_close(&comm);
    }
    ck_assert_str_eq(content(path), "8x16x32 5 push 1 255 1 0 0 0 0 0 0 0\n"
                                    "8x16x33 5 push 1 255 1 0 0 0 0 0 0 0\n");
    ck_assert_int_eq(live, 0);
    ck_assert_str_eq(warning, "");
}
END_TEST

/* The graph of the first call is launched after the others were enqueued. */
START_TEST(replay_has_its_own_shape)
{
    uint64_t *events;

    begin(path);
    (void)call(32, 1);
    (void)call(33, 1);
    events = call(34, 0);
    memset((char *)events + (size_t)4 * GEMMAR_GPU_TRACE_ITEMS * GEMMAR_TRACE_EVENTS * 8, 1, 1);
    record(events, 0, 0);
    gemmar_gpu_trace_close(&comm);
    ck_assert_str_eq(content(path), "8x16x32 5 push 0 0 1 0 0 0 0 0 0 0\n");
}
END_TEST

START_TEST(captures_of_one_shape_share_a_number)
{
    begin(path);
    for (unsigned long long i = 1; i < 1000; i++) {
        ck_assert_ptr_nonnull(call(32, i));
    }
    for (int64_t k = 33; k < 32 + 255; k++) {
        ck_assert_ptr_nonnull(call(k, 1000));
    }
    ck_assert_ptr_null(call(32 + 255, 1000)); /* there is no number left */
    ck_assert_ptr_nonnull(call(32 + 254, 1001));
    record(gpu.trace.events, 0, 0);
    gemmar_gpu_trace_close(&comm);
    ck_assert_str_eq(content(path), "8x16x286 5 push 0 0 1 0 0 0 0 0 0 0\n");
}
END_TEST

START_TEST(failures_are_warnings)
{
    begin("/nowhere/trace");
    ck_assert_ptr_nonnull(strstr(warning, "GEMMAR_TRACE /nowhere/trace: No such file"));
    ck_assert_ptr_null(call(32, 0));
    gemmar_gpu_trace_close(&comm);

    malloc_error = cudaErrorMemoryAllocation;
    begin(path);
    malloc_error = cudaSuccess;
    ck_assert_ptr_nonnull(strstr(warning, "no memory"));
    ck_assert_ptr_null(call(32, 0));
    gemmar_gpu_trace_close(&comm);

    begin(path);
    memset_error = cudaErrorUnknown;
    ck_assert_ptr_null(call(32, 0));
    memset_error = cudaSuccess;
    gemmar_gpu_trace_close(&comm);
    ck_assert_str_eq(content(path), "");

    begin("/dev/full");
    record(call(32, 0), 0, 0);
    gemmar_gpu_trace_close(&comm);
    ck_assert_ptr_nonnull(strstr(warning, "/dev/full: No space left"));
    ck_assert_int_eq(live, 0);
}
END_TEST

START_TEST(grid_that_is_too_large_is_not_traced)
{
    begin(path);
    gpu.trace.ctas = 1;
    ck_assert_ptr_null(call(32, 0));
    gemmar_gpu_trace_close(&comm);
}
END_TEST

/* The kernel may still write to the buffer. */
START_TEST(what_was_left_behind_stays)
{
    uint64_t *events;

    begin(path);
    events = call(32, 0);
    record(events, 0, 0);
    gpu.left_behind = true;
    gemmar_gpu_trace_close(&comm);
    ck_assert_str_eq(content(path), "");
    ck_assert_int_eq(live, 1);
    free(events);
}
END_TEST

static void make_path(void)
{
    int fd;

    (void)snprintf(path, sizeof(path), "/tmp/test_trace_gpu_XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
}

static void remove_path(void)
{
    (void)unlink(path);
}

int main(void)
{
    Suite *s = suite_create("trace_gpu");
    TCase *t = tcase_create("trace_gpu");
    SRunner *r = srunner_create(s);
    int failed;

    suite_add_tcase(s, t);
    tcase_add_checked_fixture(t, make_path, remove_path);
    tcase_add_test(t, without_the_knob_there_is_none);
    tcase_add_test(t, last_call_is_appended);
    tcase_add_test(t, replay_has_its_own_shape);
    tcase_add_test(t, captures_of_one_shape_share_a_number);
    tcase_add_test(t, failures_are_warnings);
    tcase_add_test(t, grid_that_is_too_large_is_not_traced);
    tcase_add_test(t, what_was_left_behind_stays);
    srunner_set_tap(r, "-");
    srunner_run_all(r, CK_SILENT);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
