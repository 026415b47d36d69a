// SPDX-License-Identifier: Apache-2.0
// Device and port discovery, and the event thread.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "test/unit/transport/fake_verbs.h"
#include "transport/order.h"

static struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
static uint32_t count;

static int open_all(void)
{
    count = 0;
    return gemmar_ib_devices_open(fake_table(), fake_knobs(), fake_logger(), devices, &count);
}

static int open_filtered(const char *filter)
{
    struct gemmar_knobs *knobs = fake_knobs();

    (void)strcpy(knobs->ib_hca, filter);
    count = 0;
    return gemmar_ib_devices_open(fake_table(), knobs, fake_logger(), devices, &count);
}

static void close_all(void)
{
    gemmar_ib_devices_close(devices, count);
    ck_assert_int_eq(fake.live, 0);
}

START_TEST(one_port)
{
    fake_reset();
    ck_assert_int_eq(open_all(), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(devices[0].name, "fake0");
    ck_assert_uint_eq(devices[0].speed_mbps, 400000);
    ck_assert_int_eq(devices[0].gid_index, -1);
    ck_assert_str_eq(devices[0].pci_path, "");
    ck_assert_int_eq(devices[0].numa_node, -1);
    ck_assert(devices[0].dmabuf);
    ck_assert_int_eq(fake_warnings(), 0);
    close_all();
}
END_TEST

START_TEST(ports_of_a_device_have_different_guids)
{
    fake_reset();
    (void)fake_add_device("fake1", 2, false);
    ck_assert_int_eq(open_all(), 0);
    ck_assert_uint_eq(count, 3);
    ck_assert_uint_ne(devices[1].guid, devices[2].guid);
    ck_assert_uint_eq(devices[2].port, 2);
    close_all();
}
END_TEST

START_TEST(inactive_port_is_left_out_with_a_sentence)
{
    fake_reset();
    (void)fake_add_device("fake1", 2, false);
    fake.device[1].port[0].attr.state = IBV_PORT_DOWN;
    ck_assert_int_eq(open_all(), 0);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(devices[1].port, 2);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "device fake1 port 1 is not active"));
    ck_assert_int_eq(fake_warnings(), 0);
    close_all();
}
END_TEST

START_TEST(filter_chooses_devices_and_ports)
{
    char name[16];

    fake_reset();
    for (int i = 1; i <= 17; i++) {
        (void)snprintf(name, sizeof(name), "fake%d", i);
        (void)fake_add_device(name, i == 2 ? 2 : 1, false);
    }
    ck_assert_int_eq(open_filtered("fake1"), 0);
    ck_assert_uint_eq(count, 9); /* 1 and 10 to 17: a prefix, as in NCCL */
    close_all();
    ck_assert_int_eq(open_filtered("=fake1"), 0);
    ck_assert_uint_eq(count, 1);
    close_all();
    ck_assert_int_eq(open_filtered("=fake2:2"), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(devices[0].port, 2);
    close_all();
    ck_assert_int_eq(open_filtered("^=fake2,fake0"), 0);
    ck_assert_uint_eq(count, 16);
    close_all();
    fake_log_clear();
    ck_assert_int_eq(open_filtered("=mlx5_0"), -ENODEV);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "NCCL_IB_HCA '=mlx5_0'): device fake0 is not "
                                                  "selected; device fake1 is not selected"));
    ck_assert_int_eq(fake.live, 0);
    fake_log_clear();
    ck_assert_int_eq(open_filtered("=fake2:3"), -ENODEV);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "device fake2 port 1 is not selected; device "
                                                  "fake2 port 2 is not selected"));
    ck_assert_int_eq(fake.live, 0);
}
END_TEST

/* The last sentence is often the only one that a user sees. */
START_TEST(reasons_stand_in_the_sentence_that_there_is_no_device)
{
    /* Calls: the list of devices, open and query for the number of ports, open and query. */
    static const struct {
        int found, call, error;
        const char *want;
    } row[] = {
        {1, 0, 0, ": device fake0 port 1 is not active (state 1)"},
        {1, 0, 99, ": device fake0 port 1 has no GID to use: NCCL_IB_GID_INDEX"},
        {1, 5, EIO, ": device fake0 port 1 cannot be queried: Input/output error"},
        {1, 2, EACCES, "port 1 cannot be opened: Permission denied; /dev/infiniband/uverbs* must"},
        {1, 2, ENOENT, "No such file or directory; /dev/infiniband/uverbs* is missing"},
        {1, 2, EMFILE, "cannot be opened: Too many open files; RLIMIT_NOFILE is "},
        {0, 1, ENOSYS, ": ibv_get_device_list: Function not implemented; no RDMA driver"},
    };
    struct gemmar_knobs *knobs = fake_knobs();
    char begin[64];

    fake_reset();
    if (row[_i].call != 0) {
        fake.fail_call = row[_i].call;
        fake.fail_last = 100;
        fake.fail_errno = row[_i].error;
    } else if (row[_i].error != 0) {
        fake.devices = 0;
        (void)fake_add_device("fake0", 1, true);
        knobs->ib_gid_index = row[_i].error;
    } else {
        fake.device[0].port[0].attr.state = IBV_PORT_DOWN;
    }
    count = 0;
    ck_assert_int_eq(gemmar_ib_devices_open(fake_table(), knobs, fake_logger(), devices, &count),
                     -ENODEV);
    ck_assert_int_eq(fake_warnings(), 1);
    (void)snprintf(begin, sizeof(begin), "no usable verbs device (%d found", row[_i].found);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), begin));
    ck_assert_msg(strstr(fake_log_text(), row[_i].want) != NULL, "'%s' is not in: %s", row[_i].want,
                  fake_log_text());
    ck_assert_int_eq(fake.live, 0);
}
END_TEST

/* The event thread is refused: by the limit on processes, which does not bind root. */
START_TEST(d05_limit_on_processes_is_named)
{
    struct rlimit limit, none;

    fake_reset();
    ck_assert_int_eq(getrlimit(RLIMIT_NPROC, &limit), 0);
    none = (struct rlimit){0, limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NPROC, &none), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(setresgid(65534, 65534, 65534), 0);
        ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
        ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0); /* a leak checker looks in from outside */
    }
    ck_assert_int_eq(open_all(), -ENODEV);
    ck_assert_int_eq(setrlimit(RLIMIT_NPROC, &limit), 0);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "ib_event: cannot start a thread: Resource "
                                                  "temporarily unavailable; RLIMIT_NPROC is 0"));
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "): device fake0 port 1 has no event thread: "));
    ck_assert_int_eq(fake.live, 0);
}
END_TEST

/* The last descriptors go to the device's two; the event thread's is one too many. */
START_TEST(d05_limit_on_descriptors_is_named)
{
    int next = dup(STDERR_FILENO);
    struct rlimit limit = {(rlim_t)next + 2, (rlim_t)next + 2};

    fake_reset();
    ck_assert_int_ge(next, 0);
    ck_assert_int_eq(close(next), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(open_all(), -ENODEV);
    ck_assert_ptr_nonnull(
        strstr(fake_log_text(), "ib_event: eventfd: Too many open files; RLIMIT_NOFILE is "));
    ck_assert_int_eq(fake.live, 0);
}
END_TEST

START_TEST(gid_index_is_for_roce_alone)
{
    struct gemmar_knobs *knobs = fake_knobs();

    fake_reset();
    knobs->ib_gid_index = 3;
    count = 0;
    ck_assert_int_eq(gemmar_ib_devices_open(fake_table(), knobs, fake_logger(), devices, &count),
                     0);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(devices[0].gid_index, -1);
    ck_assert_int_eq(fake_warnings(), 0);
    close_all();
}
END_TEST

START_TEST(reasons_of_many_ports_fit_one_line)
{
    char name[16];

    fake_reset();
    for (int i = 1; i < 18; i++) {
        (void)snprintf(name, sizeof(name), "fake%d", i);
        (void)fake_add_device(name, 2, false);
    }
    for (int i = 0; i < 18; i++) {
        fake.device[i].port[0].attr.state = fake.device[i].port[1].attr.state = IBV_PORT_DOWN;
    }
    ck_assert_int_eq(open_all(), -ENODEV);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "device fake3 port 2 is not active"));
}
END_TEST

/* Beside a device that works, one that does not is told on its own: a warning unless idle. */
START_TEST(failed_port_beside_a_good_one_is_one_warning)
{
    struct gemmar_knobs *knobs = fake_knobs();

    fake_reset();
    (void)fake_add_device("fake1", 1, true);
    (void)strcpy(knobs->ib_addr_range, "203.0.113.0/24");
    count = 0;
    ck_assert_int_eq(gemmar_ib_devices_open(fake_table(), knobs, fake_logger(), devices, &count),
                     0);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "device fake1 port 1 has no GID to use"));
    ck_assert_ptr_null(strstr(fake_log_text(), "no usable verbs device"));
    close_all();
}
END_TEST

START_TEST(no_device_is_one_sentence)
{
    fake_reset();
    fake.devices = 0;
    ck_assert_int_eq(open_all(), -ENODEV);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "no usable verbs device"));
}
END_TEST

START_TEST(roce_takes_a_routable_gid)
{
    int d;

    fake_reset();
    d = fake_add_device("roce0", 1, true);
    fake.device[d].port[0].gid[1] = fake.device[d].port[0].gid[0];
    fake.device[d].port[0].gid[0].gid.raw[12] = 169;
    fake.device[d].port[0].gid[0].gid.raw[13] = 254;
    ck_assert_int_eq(open_filtered("=roce0"), 0);
    ck_assert_int_eq(devices[0].gid_index, 1);
    close_all();
}
END_TEST

START_TEST(no_step_that_fails_leaves_anything)
{
    int steps;

    fake_reset();
    (void)fake_add_device("fake1", 2, true);
    ck_assert_int_eq(open_all(), 0);
    steps = fake.calls;
    close_all();
    ck_assert_int_gt(steps, 10);
    for (int step = 1; step <= steps; step++) {
        fake_reset();
        (void)fake_add_device("fake1", 2, true);
        fake.fail_call = step;
        if (open_all() == 0) {
            close_all();
        }
        ck_assert_msg(fake.live == 0, "%d objects after a failure of step %d", fake.live, step);
        ck_assert_msg(fake_log_text()[0] != '\0', "step %d failed without a word", step);
    }
}
END_TEST

static void wait_for(const uint64_t *word, uint64_t value)
{
    struct timespec nap = {.tv_nsec = 1000000};

    for (int i = 0; i < 10000 && gemmar_load_acquire(word) != value; i++) {
        (void)nanosleep(&nap, NULL);
    }
    ck_assert_uint_eq(gemmar_load_acquire(word), value);
}

START_TEST(events_reach_the_device)
{
    fake_reset();
    ck_assert_int_eq(open_all(), 0);
    fake_event(IBV_EVENT_PORT_ERR, 1);
    wait_for(&devices[0].port_down, 1);
    fake_event(IBV_EVENT_PORT_ERR, 2); /* of another port */
    fake_event(IBV_EVENT_PORT_ACTIVE, 1);
    wait_for(&devices[0].port_down, 0);
    fake_event(IBV_EVENT_LID_CHANGE, 1);
    fake_event(IBV_EVENT_DEVICE_FATAL, 0);
    wait_for(&devices[0].fatal, (uint64_t)IBV_EVENT_DEVICE_FATAL + 1);
    close_all();
}
END_TEST

struct told {
    uint64_t calls;
    struct ibv_qp *qp;
    enum ibv_event_type type;
};

static void tell(void *user, struct ibv_qp *qp, enum ibv_event_type type)
{
    struct told *t = user;

    t->qp = qp;
    t->type = type;
    gemmar_store_release(&t->calls, t->calls + 1);
}

/* An owner is told and says what it means; without one the line is written here. */
static uint64_t cpu_ms(void)
{
    struct timespec used;

    ck_assert_int_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    return (uint64_t)used.tv_sec * 1000u + (uint64_t)used.tv_nsec / 1000000u;
}

/* Its descriptor stays ready for ever: the thread must not poll it for ever. */
START_TEST(device_that_is_taken_away_is_fatal_and_costs_nothing)
{
    struct timespec nap = {.tv_nsec = 200000000};
    uint64_t before;

    fake_reset();
    ck_assert_int_eq(open_all(), 0);
    fake_event(IBV_EVENT_PORT_ERR, 1); /* is read first */
    fake_take_away();
    wait_for(&devices[0].fatal, (uint64_t)IBV_EVENT_DEVICE_FATAL + 1);
    ck_assert_uint_eq(gemmar_load_acquire(&devices[0].port_down), 1);
    before = cpu_ms();
    (void)nanosleep(&nap, NULL);
    ck_assert_uint_lt(cpu_ms() - before, 100);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "device fake0 has been taken away"));
    close_all();
}
END_TEST

START_TEST(queue_pairs_event_reaches_its_owner)
{
    struct ibv_cq *cq;
    struct ibv_qp *qp[2];
    struct told told[2] = {{0}};
    struct gemmar_ib_qp_watch watch[2];

    fake_reset();
    ck_assert_int_eq(open_all(), 0);
    fake_log_clear();
    cq = fake_table()->create_cq(devices[0].context, 16, NULL, NULL, 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap.max_send_wr = 1};

        qp[i] = fake_table()->create_qp(devices[0].pd, &init);
        watch[i] = (struct gemmar_ib_qp_watch){.qp = qp[i], .fn = tell, .user = &told[i]};
        gemmar_ib_qp_watch(&devices[0], &watch[i]);
    }
    fake_qp_event(IBV_EVENT_QP_ACCESS_ERR, qp[0]->qp_num);
    wait_for(&told[0].calls, 1);
    ck_assert_ptr_eq(told[0].qp, qp[0]);
    ck_assert_int_eq(told[0].type, IBV_EVENT_QP_ACCESS_ERR);
    gemmar_ib_qp_unwatch(&devices[0], &watch[0]);
    gemmar_ib_qp_unwatch(&devices[0], &watch[0]); /* harmless */
    fake_qp_event(IBV_EVENT_QP_FATAL, qp[0]->qp_num);
    fake_qp_event(IBV_EVENT_QP_FATAL, qp[1]->qp_num); /* comes behind it */
    wait_for(&told[1].calls, 1);
    ck_assert_uint_eq(told[0].calls, 1);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "local work queue catastrophic error"));
    gemmar_ib_qp_unwatch(&devices[0], &watch[1]);
    (void)fake_table()->destroy_qp(qp[0]);
    (void)fake_table()->destroy_qp(qp[1]);
    (void)fake_table()->destroy_cq(cq);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ib_device");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, one_port);
    tcase_add_test(tcase, ports_of_a_device_have_different_guids);
    tcase_add_test(tcase, inactive_port_is_left_out_with_a_sentence);
    tcase_add_test(tcase, filter_chooses_devices_and_ports);
    tcase_add_loop_test(tcase, reasons_stand_in_the_sentence_that_there_is_no_device, 0, 7);
    tcase_add_test(tcase, d05_limit_on_processes_is_named);
    tcase_add_test(tcase, d05_limit_on_descriptors_is_named);
    tcase_add_test(tcase, gid_index_is_for_roce_alone);
    tcase_add_test(tcase, reasons_of_many_ports_fit_one_line);
    tcase_add_test(tcase, failed_port_beside_a_good_one_is_one_warning);
    tcase_add_test(tcase, no_device_is_one_sentence);
    tcase_add_test(tcase, roce_takes_a_routable_gid);
    tcase_add_test(tcase, no_step_that_fails_leaves_anything);
    tcase_add_test(tcase, events_reach_the_device);
    tcase_add_test(tcase, device_that_is_taken_away_is_fatal_and_costs_nothing);
    tcase_add_test(tcase, queue_pairs_event_reaches_its_owner);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
