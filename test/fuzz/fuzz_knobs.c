// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the value of one knob. The first byte chooses the knob, the rest is its text.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/env.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static int64_t choices(const char *text)
{
    int64_t count = 1;

    for (; *text != '\0'; text++) {
        count += *text == '|';
    }
    return count;
}

static void check_value(const struct gemmar_knob *knob, const struct gemmar_knobs *knobs,
                        const char *text)
{
    const char *member = (const char *)knobs + knob->offset;
    int64_t value;

    if (knob->type == GEMMAR_KNOB_TEXT) {
        check(strcmp(member, text) == 0);
        return;
    }
    memcpy(&value, member, sizeof(value));
    if (knob->type == GEMMAR_KNOB_CHOICE) {
        check(value >= 0 && value < choices(knob->choices));
    } else {
        double unit = knob->type == GEMMAR_KNOB_SECONDS ? 1e9 : 1;

        check((double)value >= knob->min * unit - 1 && (double)value <= knob->max * unit);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct gemmar_knobs knobs, before;
    const struct gemmar_knob *knob;
    char why[128] = "", *text;

    if (bytes == 0) {
        return 0;
    }
    knob = &gemmar_knob_table()[data[0] % GEMMAR_KNOB_COUNT];
    text = malloc(bytes); /* of its own, so that reading past its end is seen */
    check(text != NULL);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    memset(&knobs, 0, sizeof(knobs));
    memcpy(&before, &knobs, sizeof(before));
    if (gemmar_knob_parse(&knobs, knob, text, why, sizeof(why)) == 0) {
        check_value(knob, &knobs, text);
    } else {
        check(why[0] != '\0');
        check(memcmp(&before, &knobs, sizeof(before)) == 0);
    }
    free(text);
    return 0;
}
