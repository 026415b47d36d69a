// SPDX-License-Identifier: Apache-2.0
// Which network API a release of NCCL takes.
#include "test/unit/tools/tap.h"
#include "tools/gemmar_info/nccl.h"

START_TEST(newest_api_by_release)
{
    static const struct {
        int version, net;
    } cases[] = {{2804, 0},   {21212, 0},  {21304, 6},  {21806, 6},  {21903, 7},  {22003, 8},
                 {22304, 8},  {22403, 9},  {22501, 9},  {22602, 10}, {22707, 10}, {22803, 11},
                 {22809, 11}, {22907, 11}, {23003, 12}, {23007, 12}, {23101, 12}, {0, 0}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_msg(gemmar_info_nccl_newest_net(cases[i].version) == cases[i].net, "%d gives v%d",
                      cases[i].version, gemmar_info_nccl_newest_net(cases[i].version));
    }
}
END_TEST

START_TEST(releases_that_forget_the_name)
{
    ck_assert(!gemmar_info_nccl_forgets(22605));
    ck_assert(gemmar_info_nccl_forgets(22703));
    ck_assert(gemmar_info_nccl_forgets(22809));
    ck_assert(gemmar_info_nccl_forgets(22907));
    ck_assert(!gemmar_info_nccl_forgets(23003));
    ck_assert_int_eq(gemmar_info_nccl_ref_count(22707), 1);
    ck_assert_int_eq(gemmar_info_nccl_ref_count(22803), 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {newest_api_by_release, releases_that_forget_the_name, NULL};

    return tap_run("nccl", tests);
}
