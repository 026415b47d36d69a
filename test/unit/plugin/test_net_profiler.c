// SPDX-License-Identifier: Apache-2.0
// Events for NCCL's profiler: what the callback gets, and that nothing is called without a handle.
#include "plugin/net_profiler.h"

#include <string.h>

#include "test/unit/transport/run_suite.h"

static struct {
    int calls;
    int action;
    void *phandle;
    int64_t plugin_id;
    void *event_in;
    struct gemmar_net_profiler_event event;
} seen;
static void *answer; /* what the next start leaves in *event; NULL: nobody listens */
static int result;

static int profiler(void **event, int action, void *phandle, int64_t plugin_id, void *descriptor)
{
    seen.calls++;
    seen.action = action;
    seen.phandle = phandle;
    seen.plugin_id = plugin_id;
    seen.event_in = *event;
    if (descriptor) {
        memcpy(&seen.event, descriptor, sizeof(seen.event));
    }
    if (action == GEMMAR_NCCL_PROFILER_START && answer) {
        *event = answer;
    }
    return result;
}

static void reset(void)
{
    static const int listener;

    memset(&seen, 0, sizeof(seen));
    answer = (void *)&listener;
    result = GEMMAR_NCCL_SUCCESS;
}

START_TEST(start_describes_the_work_request)
{
    int phandle = 0;
    void *event = &phandle;

    gemmar_net_profile_start(profiler, &phandle, 3, 0xabcdef, (size_t)5 << 32, UINT64_MAX - 6, 1,
                             &event);
    ck_assert_int_eq(seen.calls, 1);
    ck_assert_int_eq(seen.action, GEMMAR_NCCL_PROFILER_START);
    ck_assert_ptr_eq(seen.phandle, &phandle);
    ck_assert_int_eq(seen.plugin_id, 0x10001);
    ck_assert_ptr_null(seen.event_in);
    ck_assert_uint_eq(seen.event.type, 1);
    ck_assert_int_eq(seen.event.qp.device, 3);
    ck_assert_int_eq(seen.event.qp.qp_number, 0xabcdef);
    ck_assert_uint_eq(seen.event.qp.length, (size_t)5 << 32);
    ck_assert_uint_eq(seen.event.qp.wr_id, UINT64_MAX - 6);
    ck_assert_int_eq(seen.event.qp.opcode, 1);
    ck_assert_ptr_eq(event, answer);
}
END_TEST

START_TEST(stop_hands_the_event_back_once)
{
    void *event = answer;

    gemmar_net_profile_stop(profiler, &event);
    gemmar_net_profile_stop(profiler, &event);
    ck_assert_int_eq(seen.calls, 1);
    ck_assert_int_eq(seen.action, GEMMAR_NCCL_PROFILER_STOP);
    ck_assert_ptr_eq(seen.event_in, answer);
    ck_assert_ptr_null(seen.phandle);
    ck_assert_ptr_null(event);
}
END_TEST

START_TEST(nothing_is_called_without_a_handle)
{
    int stale = 0;
    void *event = &stale;

    gemmar_net_profile_start(profiler, NULL, 0, 1, 2, 3, 4, &event);
    ck_assert_ptr_null(event);
    event = &stale;
    gemmar_net_profile_start(NULL, &stale, 0, 1, 2, 3, 4, &event);
    ck_assert_ptr_null(event);
    gemmar_net_profile_stop(profiler, &event);
    ck_assert_int_eq(seen.calls, 0);
}
END_TEST

/* NCCL's callback leaves the word alone then, and its stop takes what is in it for an event. */
START_TEST(nobody_listening_is_not_stopped)
{
    int phandle = 0;
    void *event = &phandle;

    answer = NULL;
    gemmar_net_profile_start(profiler, &phandle, 0, 1, 2, 3, 4, &event);
    gemmar_net_profile_stop(profiler, &event);
    ck_assert_int_eq(seen.calls, 1);
    ck_assert_int_eq(seen.action, GEMMAR_NCCL_PROFILER_START);
}
END_TEST

START_TEST(failed_start_is_no_event)
{
    int phandle = 0;
    void *event = NULL;

    result = GEMMAR_NCCL_INTERNAL_ERROR;
    gemmar_net_profile_start(profiler, &phandle, 0, 1, 2, 3, 4, &event);
    ck_assert_ptr_null(event);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("net_profiler");

    tcase_add_checked_fixture(tests, reset, NULL);
    tcase_add_test(tests, start_describes_the_work_request);
    tcase_add_test(tests, stop_hands_the_event_back_once);
    tcase_add_test(tests, nothing_is_called_without_a_handle);
    tcase_add_test(tests, nobody_listening_is_not_stopped);
    tcase_add_test(tests, failed_start_is_no_event);
    return run_suite("net_profiler", tests, 20);
}
