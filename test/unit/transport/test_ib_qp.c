// SPDX-License-Identifier: Apache-2.0
// Queue pairs: what reaches ibv_modify_qp.
#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "test/unit/transport/fake_verbs.h"
#include "transport/ib_qp.h"

static struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
static uint32_t count;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct gemmar_wire_qp own, peer;

static void open_over(const struct gemmar_ib_verbs *verbs, struct gemmar_knobs *knobs)
{
    static const struct gemmar_ib_qp_options options = {
        .send_depth = 16, .recv_depth = 1, .inline_bytes = 16, .inline_least = 16};

    ck_assert_int_eq(gemmar_ib_devices_open(verbs, knobs, fake_logger(), devices, &count), 0);
    cq = fake_table()->create_cq(devices[0].context, 16, NULL, NULL, 0);
    ck_assert_int_eq(gemmar_ib_qp_create(&devices[0], cq, &options, &qp, NULL), 0);
    gemmar_ib_qp_describe(&devices[0], qp, 77, &own);
    peer = own;
    peer.qp_number = 0x1234;
    peer.lid = 9;
    peer.packet_number = 88;
}

static void open_with(struct gemmar_knobs *knobs)
{
    open_over(fake_table(), knobs);
}

static void close_all(void)
{
    (void)fake_table()->destroy_qp(qp);
    (void)fake_table()->destroy_cq(cq);
    gemmar_ib_devices_close(devices, count);
    ck_assert_int_eq(fake.live, 0);
}

/* The attributes of the move to ready-to-receive. */
static const struct ibv_qp_attr *rtr(void)
{
    for (int i = fake.modifications; i-- > 0;) {
        if (fake.modified[i].attr.qp_state == IBV_QPS_RTR) {
            return &fake.modified[i].attr;
        }
    }
    ck_abort_msg("no move to RTR");
}

static const struct ibv_qp_attr *connected(void)
{
    ck_assert_int_eq(gemmar_ib_qp_connect(&devices[0], qp, &own, &peer, -1), 0);
    return rtr();
}

/* unequal MTUs. */
START_TEST(path_mtu_is_the_smaller_and_is_not_kept)
{
    static const enum ibv_mtu theirs[] = {IBV_MTU_1024, IBV_MTU_4096, IBV_MTU_256};

    fake_reset();
    open_with(fake_knobs());
    for (int i = 0; i < 3; i++) {
        peer.mtu = (uint8_t)theirs[i];
        ck_assert_int_eq(connected()->path_mtu, theirs[i]);
        ck_assert_int_eq(devices[0].port_attr.active_mtu, IBV_MTU_4096);
    }
    devices[0].port_attr.active_mtu = IBV_MTU_512;
    peer.mtu = IBV_MTU_4096;
    ck_assert_int_eq(connected()->path_mtu, IBV_MTU_512);
    close_all();
}
END_TEST

START_TEST(device_with_little_inline_room_gives_what_the_caller_can_do_with)
{
    struct gemmar_ib_qp_options options = {
        .send_depth = 16, .recv_depth = 1, .inline_bytes = FAKE_INLINE + 1, .inline_least = 16};
    struct ibv_qp *other;
    uint32_t inline_bytes = 0;

    fake_reset();
    open_with(fake_knobs());
    ck_assert_int_eq(gemmar_ib_qp_create(&devices[0], cq, &options, &other, &inline_bytes), 0);
    ck_assert_uint_eq(inline_bytes, 16);
    (void)fake_table()->destroy_qp(other);
    options.inline_least = options.inline_bytes;
    ck_assert_int_ne(gemmar_ib_qp_create(&devices[0], cq, &options, &other, NULL), 0);
    close_all();
}
END_TEST

START_TEST(traffic_class_of_the_connection_goes_before_the_knob)
{
    struct gemmar_knobs *knobs = fake_knobs();

    fake_reset();
    fake.device[0].port[0].attr.flags = IBV_QPF_GRH_REQUIRED;
    knobs->ib_tc = 7;
    open_with(knobs);
    ck_assert_int_eq(gemmar_ib_qp_connect(&devices[0], qp, &own, &peer, 106), 0);
    ck_assert_int_eq(rtr()->ah_attr.grh.traffic_class, 106);
    ck_assert_int_eq(connected()->ah_attr.grh.traffic_class, 7);
    close_all();
}
END_TEST

/* Q-03, this one and the next three: the address handle is filled from zero. */
START_TEST(same_subnet_needs_no_global_header)
{
    const struct ibv_qp_attr *a;
    struct ibv_ah_attr zero;

    fake_reset();
    open_with(fake_knobs());
    a = connected();
    memset(&zero, 0, sizeof(zero));
    zero.dlid = 9;
    zero.port_num = 1;
    ck_assert_int_eq(memcmp(&a->ah_attr, &zero, sizeof(zero)), 0);
    ck_assert_uint_eq(a->dest_qp_num, 0x1234);
    ck_assert_uint_eq(a->rq_psn, 88);
    close_all();
}
END_TEST

START_TEST(another_subnet_needs_a_global_header)
{
    const struct ibv_qp_attr *a;

    fake_reset();
    open_with(fake_knobs());
    peer.gid[7] = 5;
    a = connected();
    ck_assert_int_eq(a->ah_attr.is_global, 1);
    ck_assert_int_eq(memcmp(a->ah_attr.grh.dgid.raw, peer.gid, 16), 0);
    ck_assert_int_eq(a->ah_attr.grh.sgid_index, 0);
    ck_assert_int_gt(a->ah_attr.grh.hop_limit, 1);
    close_all();
}
END_TEST

START_TEST(port_that_demands_a_global_header_gets_one)
{
    fake_reset();
    fake.device[0].port[0].attr.flags = IBV_QPF_GRH_REQUIRED;
    open_with(fake_knobs());
    ck_assert_int_eq(own.grh, 1);
    ck_assert_int_eq(connected()->ah_attr.is_global, 1);
    close_all();
}
END_TEST

START_TEST(roce_has_a_global_header_and_the_traffic_class)
{
    struct gemmar_knobs *knobs = fake_knobs();
    const struct ibv_qp_attr *a;

    fake_reset();
    fake.devices = 0;
    (void)fake_add_device("roce0", 1, true);
    knobs->ib_tc = 106;
    knobs->ib_sl = 3;
    open_with(knobs);
    a = connected();
    ck_assert_int_eq(a->ah_attr.is_global, 1);
    ck_assert_int_eq(a->ah_attr.dlid, 0);
    ck_assert_int_eq(a->ah_attr.sl, 3);
    ck_assert_int_eq(a->ah_attr.grh.traffic_class, 106);
    close_all();
}
END_TEST

START_TEST(knobs_reach_the_queue_pair)
{
    struct gemmar_knobs *knobs = fake_knobs();
    const struct ibv_qp_attr *rts;

    fake_reset();
    knobs->ib_timeout = 14;
    knobs->ib_retry_count = 3;
    knobs->ib_pkey = 2;
    open_with(knobs);
    ck_assert_int_eq(fake.modified[0].attr.pkey_index, 2);
    (void)connected();
    rts = &fake.modified[fake.modifications - 1].attr;
    ck_assert_int_eq(rts->qp_state, IBV_QPS_RTS);
    ck_assert_int_eq(rts->timeout, 14);
    ck_assert_int_eq(rts->retry_cnt, 3);
    ck_assert_uint_eq(rts->sq_psn, 77);
    close_all();
}
END_TEST

START_TEST(infiniband_does_not_meet_roce)
{
    fake_reset();
    open_with(fake_knobs());
    peer.link_layer = GEMMAR_LINK_ETHERNET;
    ck_assert_int_eq(gemmar_ib_qp_connect(&devices[0], qp, &own, &peer, -1), -EPROTO);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "InfiniBand with RoCE"));
    close_all();
}
END_TEST

START_TEST(q03_peer_without_a_lid_is_refused)
{
    fake_reset();
    open_with(fake_knobs());
    peer.lid = 0;
    ck_assert_int_lt(gemmar_ib_qp_connect(&devices[0], qp, &own, &peer, -1), 0);
    ck_assert_int_eq(fake_warnings(), 1);
    close_all();
}
END_TEST

START_TEST(failed_move_names_both_ends)
{
    fake_reset();
    open_with(fake_knobs());
    fake_knobs()->ib_mqp_retries = 0;
    for (int step = 1; step <= 2; step++) {
        fake_log_clear();
        fake.calls = 0;
        fake.fail_call = step;
        fake.fail_errno = ETIMEDOUT;
        ck_assert_int_eq(gemmar_ib_qp_connect(&devices[0], qp, &own, &peer, -1), -ETIMEDOUT);
        ck_assert_int_eq(fake_warnings(), 1);
        ck_assert_ptr_nonnull(strstr(fake_log_text(), step == 1 ? "RTR failed" : "RTS failed"));
        ck_assert_ptr_nonnull(strstr(fake_log_text(), "qp 0x1234 gid fe80::"));
    }
    fake.fail_call = 0;
    close_all();
}
END_TEST

START_TEST(move_that_timed_out_is_tried_again)
{
    struct gemmar_knobs *knobs = fake_knobs();
    const struct {
        int failures, error, retries, result, calls, all;
    } row[] = {
        {2, ETIMEDOUT, 2, 0, 4, 0}, /* two failures, then RTR and RTS */
        {3, ETIMEDOUT, 2, -ETIMEDOUT, 3, 0},
        {1, ETIMEDOUT, 0, -ETIMEDOUT, 1, 0},
        {1, EINVAL, 34, -EINVAL, 1, 0}, /* would fail for ever */
        {1, EINVAL, 34, 0, 3, 1},       /* NCCL_IB_MQP_RETRY_ALL */
    };

    fake_reset();
    open_with(knobs);
    knobs->ib_mqp_sleep_ms = 1;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        fake_log_clear();
        knobs->ib_mqp_retries = row[i].retries;
        knobs->ib_mqp_retry_all = row[i].all;
        fake.calls = 0;
        fake.fail_call = 1;
        fake.fail_last = row[i].failures;
        fake.fail_errno = row[i].error;
        ck_assert_int_eq(gemmar_ib_qp_connect(&devices[0], qp, &own, &peer, -1), row[i].result);
        ck_assert_int_eq(fake.calls, row[i].calls);
        ck_assert_int_eq(fake_warnings(), row[i].result != 0);
    }
    fake.fail_call = 0;
    fake.fail_last = 0;
    close_all();
}
END_TEST

/* A queue pair's rings are locked too. */
START_TEST(d05_locked_memory_limit_is_named)
{
    static const struct gemmar_ib_qp_options options = {.send_depth = 16, .recv_depth = 1};
    struct rlimit limit = {65536, 65536};
    struct ibv_qp *second = NULL;

    fake_reset();
    open_with(fake_knobs());
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    fake.calls = 0;
    fake.fail_call = 1;
    fake.fail_errno = ENOMEM;
    ck_assert_int_eq(gemmar_ib_qp_create(&devices[0], cq, &options, &second, NULL), -ENOMEM);
    ck_assert_ptr_null(second);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "cannot create a queue pair: Cannot allocate "
                                                  "memory; RLIMIT_MEMLOCK is 65536 bytes"));
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "CAP_IPC_LOCK"));
    fake.fail_call = 0;
    close_all();
}
END_TEST

/* The thread that revives a path serves the others meanwhile: it does not nap. */
START_TEST(reconnecting_tries_once)
{
    struct gemmar_knobs *knobs = fake_knobs();

    fake_reset();
    open_with(knobs);
    knobs->ib_mqp_sleep_ms = 1;
    knobs->ib_mqp_retries = 34;
    fake.calls = 0;
    fake.fail_call = 1;
    fake.fail_errno = ETIMEDOUT;
    ck_assert_int_eq(gemmar_ib_qp_reconnect(&devices[0], qp, &own, &peer, -1), -ETIMEDOUT);
    ck_assert_int_eq(fake.calls, 1);
    fake.fail_call = 0;
    ck_assert_int_eq(gemmar_ib_qp_reconnect(&devices[0], qp, &own, &peer, -1), 0);
    close_all();
}
END_TEST

START_TEST(retries_end_at_the_timeout)
{
    struct gemmar_knobs *knobs = fake_knobs();

    fake_reset();
    open_with(knobs);
    knobs->ib_mqp_sleep_ms = 60000;
    knobs->timeout = 1000000;
    fake.calls = 0;
    fake.fail_call = 1;
    fake.fail_last = 1000;
    fake.fail_errno = ETIMEDOUT;
    ck_assert_int_eq(gemmar_ib_qp_connect(&devices[0], qp, &own, &peer, -1), -ETIMEDOUT);
    ck_assert_int_eq(fake.calls, 1);
    fake.fail_call = 0;
    fake.fail_last = 0;
    close_all();
}
END_TEST

static struct {
    int queries, sets;
    int query_error, set_error;
    int moves_before; /* of the queue pair, when it was set */
    struct ibv_ece set;
} ece;

static int query_ece(struct ibv_qp *at, struct ibv_ece *out)
{
    ck_assert_ptr_nonnull(at);
    ece.queries++;
    if (ece.query_error == 0) {
        *out = (struct ibv_ece){.vendor_id = 0x15b3, .options = 0x30000002, .comp_mask = 0};
    }
    return ece.query_error;
}

static int set_ece(struct ibv_qp *at, struct ibv_ece *in)
{
    ck_assert_ptr_eq(at, qp);
    ece.sets++;
    ece.set = *in;
    ece.moves_before = fake.modifications;
    return ece.set_error;
}

/* Enhanced connection establishment: only when the knob is on, the library has both calls, the
 * device answers, and the peer has told its own. */
START_TEST(ece_is_exchanged_only_when_both_ends_have_it)
{
    static const struct {
        int64_t knob;
        bool query, set, theirs;
        int query_error, set_error;
        int told, taken; /* expected */
    } row[] = {
        {1, true, true, true, 0, 0, 1, 1},
        {1, true, true, true, 0, EINVAL, 1, 1}, /* refused: the defaults hold */
        {1, true, true, false, 0, 0, 1, 0},     /* the peer has none */
        {1, true, true, true, EOPNOTSUPP, 0, 0, 0},
        {1, false, true, true, 0, 0, 0, 0},
        {1, true, false, true, 0, 0, 0, 0},
        {1, false, false, true, 0, 0, 0, 0},
        {0, true, true, true, 0, 0, 0, 0}, /* NCCL_IB_ECE_ENABLE */
    };
    struct gemmar_ib_verbs verbs = *fake_table();
    struct gemmar_knobs *knobs = fake_knobs();

    fake_reset();
    memset(&ece, 0, sizeof(ece));
    ece.query_error = row[_i].query_error;
    ece.set_error = row[_i].set_error;
    verbs.query_ece = row[_i].query ? query_ece : NULL;
    verbs.set_ece = row[_i].set ? set_ece : NULL;
    knobs->ib_ece = row[_i].knob;
    open_over(&verbs, knobs);
    ck_assert_int_eq(own.ece_valid, row[_i].told);
    ck_assert_uint_eq(own.ece_vendor, row[_i].told ? 0x15b3 : 0);
    ck_assert_uint_eq(own.ece_options, row[_i].told ? 0x30000002 : 0);
    peer.ece_valid = row[_i].theirs;
    peer.ece_vendor = row[_i].theirs ? 0x15b3 : 0;
    peer.ece_options = row[_i].theirs ? 0x30000001 : 0;
    (void)connected();
    ck_assert_int_eq(ece.sets, row[_i].taken);
    if (row[_i].taken) {
        ck_assert_uint_eq(ece.set.vendor_id, 0x15b3);
        ck_assert_uint_eq(ece.set.options, 0x30000001);
        ck_assert_int_eq(ece.moves_before, 1); /* in INIT, before the move to RTR */
    }
    if (row[_i].knob == 0) {
        ck_assert_int_eq(ece.queries, 0);
    }
    ck_assert_int_eq(fake_warnings(), 0);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ib_qp");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, path_mtu_is_the_smaller_and_is_not_kept);
    tcase_add_test(tcase, same_subnet_needs_no_global_header);
    tcase_add_test(tcase, device_with_little_inline_room_gives_what_the_caller_can_do_with);
    tcase_add_test(tcase, traffic_class_of_the_connection_goes_before_the_knob);
    tcase_add_test(tcase, another_subnet_needs_a_global_header);
    tcase_add_test(tcase, port_that_demands_a_global_header_gets_one);
    tcase_add_test(tcase, roce_has_a_global_header_and_the_traffic_class);
    tcase_add_test(tcase, knobs_reach_the_queue_pair);
    tcase_add_loop_test(tcase, ece_is_exchanged_only_when_both_ends_have_it, 0, 8);
    tcase_add_test(tcase, infiniband_does_not_meet_roce);
    tcase_add_test(tcase, q03_peer_without_a_lid_is_refused);
    tcase_add_test(tcase, failed_move_names_both_ends);
    tcase_add_test(tcase, move_that_timed_out_is_tried_again);
    tcase_add_test(tcase, d05_locked_memory_limit_is_named);
    tcase_add_test(tcase, reconnecting_tries_once);
    tcase_add_test(tcase, retries_end_at_the_timeout);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
