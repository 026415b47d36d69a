// SPDX-License-Identifier: Apache-2.0
// Sections "knobs" and "environment": every knob with its value and where that comes from, and the
// variables that look like knobs and are none.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_info/doctor.h"

extern char **environ;

/* A value that is not taken stops the transport when it starts. */
static void hear(void *user, enum gemmar_log_level level, const char *text)
{
    struct gemmar_info *d = user;

    if (level == GEMMAR_LOG_WARN) {
        gemmar_info_problem_in(&d->report, "knobs", true, "correct the value or unset the variable",
                               "%s", strncmp(text, "env: ", 5) == 0 ? text + 5 : text);
    }
}

static void tell_value(struct gemmar_info *d, const struct gemmar_knob *knob)
{
    const char *member = (const char *)&d->knobs + knob->offset;
    struct gemmar_info_report *r = &d->report;
    int64_t value = 0;

    if (knob->type == GEMMAR_KNOB_TEXT) {
        if (member[0] != '\0') {
            gemmar_info_text(r, "value", "%s", member);
        } else {
            gemmar_info_unknown(r, "value");
        }
        return;
    }
    memcpy(&value, member, sizeof(value));
    if (knob->type == GEMMAR_KNOB_INT) {
        gemmar_info_text(r, "value", "%" PRId64, value);
    } else if (knob->type == GEMMAR_KNOB_SECONDS) {
        gemmar_info_text(r, "value", "%g", (double)value / 1e9);
    } else {
        const char *at = knob->choices;

        for (; value > 0 && strchr(at, '|') != NULL; value--) {
            at = strchr(at, '|') + 1;
        }
        gemmar_info_text(r, "value", "%.*s", (int)strcspn(at, "|"), at);
    }
}

static bool is_knob(const char *name, size_t length)
{
    const struct gemmar_knob *table = gemmar_knob_table();

    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        if (strlen(table[i].variable) == length && strncmp(table[i].variable, name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Variables of NCCL's InfiniBand transport and of ours; the rest belongs to somebody else. */
static void tell_others(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    int found = 0;

    gemmar_info_section(r, "environment", "Variables that are set and have no effect here");
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        size_t length = strcspn(*at, "=");
        bool ours = strncmp(*at, "GEMMAR_", 7) == 0;

        if ((!ours && strncmp(*at, "NCCL_IB_", 8) != 0) || is_knob(*at, length)) {
            continue;
        }
        found++;
        gemmar_info_row(r);
        gemmar_info_text(r, "variable", "%.*s", (int)length, *at);
        gemmar_info_text(r, "value", "%s", (*at)[length] == '=' ? *at + length + 1 : "");
        gemmar_info_text(r, "remark", "unknown");
        gemmar_info_problem(r, false, "see the list of knobs for its spelling, or unset it",
                            "%.*s is set and no knob of this build", (int)length, *at);
    }
    if (found == 0) {
        gemmar_info_note(r, "None.");
    }
}

void gemmar_info_knobs_read(struct gemmar_info *d)
{
    struct gemmar_logger log = {hear, d, GEMMAR_LOG_WARN};

    (void)gemmar_knobs_read(&d->knobs, &log); /* told by hear(); the others are read all the same */
}

void gemmar_info_knobs(struct gemmar_info *d)
{
    static const char *const origins[] = {"default", "file", "environment"};
    const struct gemmar_knob *table = gemmar_knob_table();
    struct gemmar_info_report *r = &d->report;

    gemmar_info_section(r, "knobs", "Knobs");
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        gemmar_info_row(r);
        gemmar_info_text(r, "variable", "%s", table[i].variable);
        tell_value(d, &table[i]);
        gemmar_info_text(r, "origin", "%s", origins[d->knobs.origin[i]]);
        gemmar_info_text(r, "meaning", "%s", table[i].sentence);
    }
    tell_others(d);
}
