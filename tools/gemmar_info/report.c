// SPDX-License-Identifier: Apache-2.0
// What the doctor found: storage.
#include "tools/gemmar_info/report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more element behind `count`; NULL and `failed` when there is none. */
static void *grow(struct gemmar_info_report *r, void *array, size_t count, size_t bytes)
{
    void *larger = realloc(array, (count + 1) * bytes);

    if (larger == NULL) {
        r->failed = true;
        return NULL;
    }
    memset((char *)larger + count * bytes, 0, bytes);
    return larger;
}

static char *format_text(struct gemmar_info_report *r, const char *format, va_list args)
{
    char *text = NULL;

    if (vasprintf(&text, format, args) < 0) {
        r->failed = true;
        return NULL;
    }
    return text;
}

static struct gemmar_info_section *newest(struct gemmar_info_report *r)
{
    return r->sections != 0 ? &r->section[r->sections - 1] : NULL;
}

static void add(struct gemmar_info_report *r, const char *key, enum gemmar_info_kind kind,
                bool detail, char *text)
{
    struct gemmar_info_section *s = newest(r);
    struct gemmar_info_row *row = s == NULL      ? NULL
                                  : s->rows != 0 ? &s->row[s->rows - 1]
                                                 : &s->facts;
    struct gemmar_info_value *larger =
        row == NULL || text == NULL ? NULL : grow(r, row->value, row->count, sizeof(*larger));

    if (larger == NULL) {
        free(text);
        return;
    }
    row->value = larger;
    row->value[row->count++] = (struct gemmar_info_value){key, text, kind, detail};
}

static void add_plain(struct gemmar_info_report *r, const char *key, enum gemmar_info_kind kind,
                      const char *text)
{
    char *copy = strdup(text);

    r->failed = r->failed || copy == NULL;
    add(r, key, kind, false, copy);
}

void gemmar_info_section(struct gemmar_info_report *r, const char *name, const char *title)
{
    struct gemmar_info_section *larger = grow(r, r->section, r->sections, sizeof(*larger));

    if (larger != NULL) {
        r->section = larger;
        r->section[r->sections].name = name;
        r->section[r->sections].title = title;
        r->sections++;
    }
}

void gemmar_info_row(struct gemmar_info_report *r)
{
    struct gemmar_info_section *s = newest(r);
    struct gemmar_info_row *larger = s == NULL ? NULL : grow(r, s->row, s->rows, sizeof(*larger));

    if (larger != NULL) {
        s->row = larger;
        s->rows++;
    }
}

void gemmar_info_text(struct gemmar_info_report *r, const char *key, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add(r, key, GEMMAR_INFO_TEXT, false, format_text(r, format, args));
    va_end(args);
}

void gemmar_info_detail(struct gemmar_info_report *r, const char *key, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add(r, key, GEMMAR_INFO_TEXT, true, format_text(r, format, args));
    va_end(args);
}

void gemmar_info_number(struct gemmar_info_report *r, const char *key, long long value)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%lld", value);
    add_plain(r, key, GEMMAR_INFO_NUMBER, text);
}

void gemmar_info_flag(struct gemmar_info_report *r, const char *key, bool value)
{
    add_plain(r, key, GEMMAR_INFO_FLAG, value ? "yes" : "no");
}

void gemmar_info_unknown(struct gemmar_info_report *r, const char *key)
{
    add_plain(r, key, GEMMAR_INFO_UNKNOWN, "-");
}

void gemmar_info_note(struct gemmar_info_report *r, const char *format, ...)
{
    struct gemmar_info_section *s = newest(r);
    char **larger = s == NULL ? NULL : grow(r, s->note, s->notes, sizeof(*larger));
    va_list args;

    if (larger == NULL) {
        return;
    }
    s->note = larger;
    va_start(args, format);
    s->note[s->notes] = format_text(r, format, args);
    va_end(args);
    s->notes += s->note[s->notes] != NULL;
}

/* Takes `text`. */
static void add_problem(struct gemmar_info_report *r, const char *section, bool stops,
                        const char *remedy, char *text)
{
    struct gemmar_info_problem *larger =
        text == NULL ? NULL : grow(r, r->problem, r->problems, sizeof(*larger));

    if (larger == NULL) {
        free(text);
        return;
    }
    r->problem = larger;
    r->problem[r->problems++] = (struct gemmar_info_problem){section, stops, text, remedy};
}

void gemmar_info_problem(struct gemmar_info_report *r, bool stops, const char *remedy,
                         const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_problem(r, r->sections != 0 ? newest(r)->name : "", stops, remedy,
                format_text(r, format, args));
    va_end(args);
}

void gemmar_info_problem_in(struct gemmar_info_report *r, const char *section, bool stops,
                            const char *remedy, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_problem(r, section, stops, remedy, format_text(r, format, args));
    va_end(args);
}

bool gemmar_info_report_stops(const struct gemmar_info_report *r)
{
    for (size_t i = 0; i < r->problems; i++) {
        if (r->problem[i].stops) {
            return true;
        }
    }
    return false;
}

static void release_row(struct gemmar_info_row *row)
{
    for (size_t i = 0; i < row->count; i++) {
        free(row->value[i].text);
    }
    free(row->value);
}

void gemmar_info_report_release(struct gemmar_info_report *r)
{
    for (size_t i = 0; i < r->sections; i++) {
        struct gemmar_info_section *s = &r->section[i];

        release_row(&s->facts);
        for (size_t k = 0; k < s->rows; k++) {
            release_row(&s->row[k]);
        }
        for (size_t k = 0; k < s->notes; k++) {
            free(s->note[k]);
        }
        free(s->row);
        free(s->note);
    }
    for (size_t i = 0; i < r->problems; i++) {
        free(r->problem[i].text);
    }
    free(r->section);
    free(r->problem);
    memset(r, 0, sizeof(*r));
}
