// SPDX-License-Identifier: Apache-2.0
// The cases; the table in cases.c says which runs where.
#ifndef GEMMAR_TEST_PLUGIN_CASES_H
#define GEMMAR_TEST_PLUGIN_CASES_H

#include "test/plugin/world.h"

void case_table(struct world *w);
void case_properties(struct world *w);
void case_sizes(struct world *w);
void case_huge(struct world *w);
void case_groups(struct world *w);
void case_zero(struct world *w);
void case_optional(struct world *w);

#endif
