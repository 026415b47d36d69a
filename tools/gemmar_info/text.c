// SPDX-License-Identifier: Apache-2.0
// The report for people: short sections, aligned columns, the problems at the end.
#include "tools/gemmar_info/report.h"

#include <string.h>

#define MAX_COLUMNS 24

/* Bytes from a device or the environment never reach the terminal as control characters. */
static void put(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        (void)fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
    }
}

static void put_key(FILE *out, const char *key)
{
    for (; *key != '\0'; key++) {
        (void)fputc(*key == '_' ? ' ' : *key, out);
    }
}

static void pad(FILE *out, size_t have, size_t width)
{
    (void)fprintf(out, "%*s", (int)(width > have ? width - have : 0), "");
}

static void print_facts(const struct gemmar_info_row *facts, FILE *out)
{
    size_t width = 0;

    for (size_t i = 0; i < facts->count; i++) {
        size_t length = strlen(facts->value[i].key);

        width = !facts->value[i].detail && length > width ? length : width;
    }
    for (size_t i = 0; i < facts->count; i++) {
        const struct gemmar_info_value *v = &facts->value[i];

        if (!v->detail) {
            (void)fputs("  ", out);
            put_key(out, v->key);
            pad(out, strlen(v->key), width + 2);
            put(out, v->text);
            (void)fputc('\n', out);
        }
    }
}

/* Width of each column that people see. */
static void measure(const struct gemmar_info_section *s, size_t *width)
{
    for (size_t k = 0; k < MAX_COLUMNS; k++) {
        width[k] = k < s->row[0].count ? strlen(s->row[0].value[k].key) : 0;
        for (size_t i = 0; i < s->rows; i++) {
            size_t length = k < s->row[i].count ? strlen(s->row[i].value[k].text) : 0;

            width[k] = length > width[k] ? length : width[k];
        }
    }
}

static void print_row(const struct gemmar_info_row *row, const size_t *width, bool head, FILE *out)
{
    size_t behind = 2; /* spaces that are due before the next cell: none at the end of a line */

    for (size_t k = 0; k < row->count && k < MAX_COLUMNS; k++) {
        const struct gemmar_info_value *v = &row->value[k];
        const char *text = head ? v->key : v->text;

        if (v->detail) {
            continue;
        }
        if (text[0] != '\0') {
            pad(out, 0, behind);
            behind = 0;
            (head ? put_key : put)(out, text);
        }
        behind += width[k] - strlen(text) + 2;
    }
    (void)fputc('\n', out);
}

static void print_section(const struct gemmar_info_section *s, FILE *out)
{
    size_t width[MAX_COLUMNS];

    (void)fprintf(out, "%s\n", s->title);
    print_facts(&s->facts, out);
    if (s->rows != 0) {
        measure(s, width);
        print_row(&s->row[0], width, true, out);
    }
    for (size_t i = 0; i < s->rows; i++) {
        print_row(&s->row[i], width, false, out);
    }
    for (size_t i = 0; i < s->notes; i++) {
        (void)fputs("  ", out);
        put(out, s->note[i]);
        (void)fputc('\n', out);
    }
    (void)fputc('\n', out);
}

void gemmar_info_print_text(const struct gemmar_info_report *r, FILE *out)
{
    for (size_t i = 0; i < r->sections; i++) {
        print_section(&r->section[i], out);
    }
    if (r->problems != 0) {
        (void)fputs("Problems\n", out);
    }
    for (size_t i = 0; i < r->problems; i++) {
        (void)fprintf(out, "  %zu. ", i + 1);
        put(out, r->problem[i].text);
        (void)fprintf(out, "%s\n     To do: %s.\n", r->problem[i].stops ? " (RDMA stops here)" : "",
                      r->problem[i].remedy);
    }
    (void)fprintf(out, "%zu problem%s\n", r->problems, r->problems == 1 ? "" : "s");
}
