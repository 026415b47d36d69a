// SPDX-License-Identifier: Apache-2.0
// The table of cases.
#include "test/plugin/cases.h"

#define ONE  1u
#define TWO  2u
#define BOTH 3u

const struct contract_case contract_cases[] = {
    {"table", case_table, ONE, 1, 6, NULL},
    {"properties", case_properties, ONE, 0, 6, NULL},
    {"sizes", case_sizes, BOTH, 0, 6, NULL},
    {"groups", case_groups, BOTH, 0, 6, NULL},
    {"zero", case_zero, BOTH, 0, 6, "reads the mhandle of an empty message"},
    {"optional", case_optional, BOTH, 0, 6, NULL},
    {"huge", case_huge, TWO, 0, 9, "keeps the size of a send in an int"},
    {0},
};
