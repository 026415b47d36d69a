// SPDX-License-Identifier: Apache-2.0
// libibverbs found at run time: which library, and what is said when it or a part of it is missing.
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "test/unit/transport/fake_verbs.h"
#include "transport/ib_verbs.h"

static struct gemmar_ib_verbs table, before;

static void setup(void)
{
    fake_log_clear();
    memset(&table, 0x5a, sizeof(table));
    before = table;
}

static int load(const char *ours, const char *nccls)
{
    struct gemmar_knobs *knobs = fake_knobs();

    (void)strcpy(knobs->ibverbs, ours);
    (void)strcpy(knobs->ibverbs_lib, nccls);
    return gemmar_ib_verbs_load(knobs, fake_logger(), &table);
}

static void expect_untouched(void)
{
    ck_assert_int_eq(memcmp(&table, &before, sizeof(table)), 0);
}

START_TEST(missing_library_is_one_sentence)
{
    ck_assert_int_eq(load("/nowhere/libibverbs.so.1", ""), -ENOENT);
    ck_assert_int_eq(fake_warnings(), 1);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "/nowhere/libibverbs.so.1"));
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "rdma-core"));
    expect_untouched();
}
END_TEST

START_TEST(l07_every_missing_symbol_is_named)
{
    ck_assert_int_eq(load(EMPTY_LIBRARY, ""), -ENOENT);
    ck_assert_int_eq(fake_warnings(), 22);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "ibv_get_device_list@IBVERBS_1.1"));
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "ibv_query_port@IBVERBS_1.1"));
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "ibv_modify_qp@IBVERBS_1.1"));
    expect_untouched();
}
END_TEST

/* An older library is enough; each gap is one line that is no warning. */
START_TEST(l07_old_library_is_used_and_its_gaps_are_named)
{
    static const char *const gaps[] = {"ibv_reg_mr_iova2", "ibv_reg_dmabuf_mr", "ibv_query_ece",
                                       "ibv_set_ece", "_ibv_query_gid_ex"};

    ck_assert_int_eq(load(OLD_LIBRARY, ""), 0);
    ck_assert_int_eq(fake_warnings(), 0);
    for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
        char line[64];
        const char *at;

        (void)snprintf(line, sizeof(line), "has no %s, going on without it", gaps[i]);
        at = strstr(fake_log_text(), line);
        ck_assert_msg(at != NULL, "%s", gaps[i]);
        ck_assert_ptr_null(strstr(at + 1, line));
    }
    ck_assert(table.get_device_list != NULL);
    ck_assert(table.reg_mr_iova2 == NULL);
    ck_assert(table.reg_dmabuf_mr == NULL);
    ck_assert(table.query_ece == NULL);
    ck_assert(table.query_gid_ex == NULL);
}
END_TEST

START_TEST(our_knob_goes_before_that_of_nccl)
{
    ck_assert_int_eq(load("/nowhere/ours.so", "/nowhere/nccls.so"), -ENOENT);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "/nowhere/ours.so"));
    fake_log_clear();
    ck_assert_int_eq(load("", "/nowhere/nccls.so"), -ENOENT);
    ck_assert_ptr_nonnull(strstr(fake_log_text(), "/nowhere/nccls.so"));
}
END_TEST

START_TEST(installed_library_is_complete)
{
    ck_assert_int_eq(load("", ""), 0);
    ck_assert_int_eq(fake_warnings(), 0);
    ck_assert(table.get_device_list != NULL);
    ck_assert(table.wc_status_str != NULL);
    ck_assert_str_eq(table.wc_status_str(IBV_WC_SUCCESS), "success");
    ck_assert_ptr_nonnull(table.event_type_str(IBV_EVENT_PORT_ERR));
}
END_TEST

/* What lies behind the default symbol decides: the table must hold the newest versions, not the
 * compatibility entries of 1.0, which work on other structures. */
START_TEST(versions_are_those_a_linked_program_gets)
{
    ck_assert_int_eq(load("", ""), 0);
    ck_assert(table.alloc_pd == ibv_alloc_pd);
    ck_assert(table.create_qp == ibv_create_qp);
    ck_assert(table.dealloc_pd == ibv_dealloc_pd);
    ck_assert(table.get_device_list == ibv_get_device_list);
    ck_assert(table.reg_mr_iova2 == ibv_reg_mr_iova2);
    ck_assert(table.reg_dmabuf_mr == ibv_reg_dmabuf_mr);
    ck_assert(table.query_ece == ibv_query_ece);
    ck_assert(table.query_gid_ex != NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ib_verbs");
    TCase *tcase = tcase_create("core");
    SRunner *runner = srunner_create(suite);

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, missing_library_is_one_sentence);
    tcase_add_test(tcase, l07_every_missing_symbol_is_named);
    tcase_add_test(tcase, l07_old_library_is_used_and_its_gaps_are_named);
    tcase_add_test(tcase, our_knob_goes_before_that_of_nccl);
    tcase_add_test(tcase, installed_library_is_complete);
    tcase_add_test(tcase, versions_are_those_a_linked_program_gets);
    suite_add_tcase(suite, tcase);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
