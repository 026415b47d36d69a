// SPDX-License-Identifier: Apache-2.0
// Sections "knobs" and "environment": every knob with its value and where that comes from, and the
// variables that look like knobs and are none.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_info/doctor.h"

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

/* NULL: not a variable of NCCL's that is known to be without effect. */
static const char *reason_of(const char *name)
{
    for (const struct gemmar_ignored *row = gemmar_ignored_table(); row->variable != NULL; row++) {
        if (strcmp(row->variable, name) == 0) {
            return row->reason;
        }
    }
    return NULL;
}

static void tell_other(struct gemmar_info *d, const char *name)
{
    struct gemmar_info_report *r = &d->report;
    const char *value = getenv(name), *reason = reason_of(name);

    gemmar_info_row(r);
    gemmar_info_text(r, "variable", "%s", name);
    if (value != NULL) {
        gemmar_info_text(r, "value", "%s", value);
    } else { /* of a configuration file */
        gemmar_info_unknown(r, "value");
    }
    gemmar_info_flag(r, "known", reason != NULL);
    gemmar_info_text(r, "remark", "%s", reason != NULL ? reason : "unknown, maybe misspelt");
    if (reason == NULL) {
        gemmar_info_problem(r, false, "see the list of knobs for its spelling, or unset it",
                            "%s is set, is not known and has no effect", name);
    }
}

static bool seen_before(const struct gemmar_info *d, int index)
{
    for (int i = 0; i < index; i++) {
        if (strcmp(d->knobs.other[i], d->knobs.other[index]) == 0) {
            return true;
        }
    }
    return false;
}

/* What the parser has noted. */
static void tell_others(struct gemmar_info *d)
{
    int found = 0;

    gemmar_info_section(&d->report, "environment",
                        "Variables that are set and have no effect here");
    for (int i = 0; i < d->knobs.others; i++) {
        if (!seen_before(d, i)) {
            tell_other(d, d->knobs.other[i]);
            found++;
        }
    }
    if (found == 0) {
        gemmar_info_note(&d->report, "None.");
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
