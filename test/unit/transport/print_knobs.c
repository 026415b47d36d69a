// SPDX-License-Identifier: Apache-2.0
// The rows of docs/tuning.md, made from the tables.
#include <stdio.h>

#include "transport/env.h"

static void print_values(const struct gemmar_knob *k)
{
    switch (k->type) {
    case GEMMAR_KNOB_TEXT: printf("text"); break;
    case GEMMAR_KNOB_SECONDS: printf("%g to %g s", k->min, k->max); break;
    case GEMMAR_KNOB_CHOICE:
        for (const char *c = k->choices; *c != '\0'; c++) {
            if (*c == '|') {
                printf(", ");
            } else {
                putchar(*c);
            }
        }
        break;
    default: printf("%.0f to %.0f", k->min, k->max);
    }
}

int main(void)
{
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        const struct gemmar_knob *k = &gemmar_knob_table()[i];

        printf("| %s | %s | ", k->variable, k->standard[0] != '\0' ? k->standard : "unset");
        print_values(k);
        printf(" | %s |\n", k->sentence);
    }
    for (const struct gemmar_ignored *i = gemmar_ignored_table(); i->variable != NULL; i++) {
        printf("| %s | %s |\n", i->variable, i->reason);
    }
    return 0;
}
