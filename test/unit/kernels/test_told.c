// SPDX-License-Identifier: Apache-2.0
// The word that local ranks compare: equal calls agree, and no two members hide each other.
#include <stdlib.h>

#include <check.h>

#include "kernels/told.h"

static const struct gemmar_told base = {
    .m = 512,
    .n = 8192,
    .k = 4096,
    .c = {.registration = 3, .offset = 1 << 20, .ld = 8192},
    .dtype = 1,
    .alpha = 1.0f,
};

START_TEST(equal_calls_agree)
{
    struct gemmar_told other = base;

    ck_assert_uint_eq(gemmar_told_hash(&base), gemmar_told_hash(&other));
    ck_assert_uint_le(gemmar_told_hash(&base), 0xffff);
}
END_TEST

START_TEST(every_member_counts)
{
    struct gemmar_told others[10];

    for (int i = 0; i < 10; i++) {
        others[i] = base;
    }
    others[0].m++;
    others[1].n++;
    others[2].k++;
    others[3].c.registration++;
    others[4].c.offset += 16;
    others[5].c.ld += 8;
    others[6].dtype++;
    others[7].bias = 1;
    others[8].alpha = 2.0f;
    others[9].beta = 1.0f;
    for (int i = 0; i < 10; i++) {
        ck_assert_msg(gemmar_told_hash(&others[i]) != gemmar_told_hash(&base), "member %d", i);
    }
}
END_TEST

/* A longer row must not make up for another offset, nor an offset for another registration. */
START_TEST(places_of_c_do_not_cancel)
{
    int equal = 0;

    for (int bit = 0; bit < 40; bit++) {
        for (int shift = -16; shift <= 16; shift++) {
            struct gemmar_told other = base;
            int to = bit + shift;

            other.c.offset ^= UINT64_C(1) << bit;
            other.c.ld ^= to >= 0 && to < 40 ? INT64_C(1) << to : 0;
            equal += gemmar_told_hash(&other) == gemmar_told_hash(&base);
        }
    }
    ck_assert_int_le(equal, 2); /* 1320 pairs of 2^16 values */
}
END_TEST

/* A rank of an exchange that is in its next call when the other one looks has not made another. */
START_TEST(a_later_call_is_not_another_one)
{
    uint64_t mine = UINT64_C(0x1234567890) << 16 | 0x4242, later = mine + (1 << 16);

    ck_assert(!gemmar_told_differs(mine, mine));
    ck_assert(gemmar_told_differs(mine ^ 1, mine));
    ck_assert(gemmar_told_differs(mine ^ 0x8000, mine));
    ck_assert(!gemmar_told_differs(later, mine));
    ck_assert(!gemmar_told_differs(later ^ 1, mine));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("told");
    TCase *all = tcase_create("told");
    SRunner *runner;
    int failed;

    tcase_add_test(all, equal_calls_agree);
    tcase_add_test(all, every_member_counts);
    tcase_add_test(all, places_of_c_do_not_cancel);
    tcase_add_test(all, a_later_call_is_not_another_one);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
