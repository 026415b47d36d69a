// SPDX-License-Identifier: Apache-2.0
// The report for machines: one JSON object (RFC 8259), UTF-8.
#include "tools/gemmar_info/report.h"

#include <string.h>

/* Length of the UTF-8 sequence at `s`, 0 when it is none (RFC 3629: shortest form, no surrogates).
 */
static size_t sequence(const unsigned char *s)
{
    static const struct {
        unsigned char mask, lead;
        size_t length;
        unsigned long smallest;
    } forms[] = {{0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800}, {0xf8, 0xf0, 4, 0x10000}};

    if (s[0] < 0x80) {
        return 1;
    }
    for (size_t f = 0; f < 3; f++) {
        unsigned long code = s[0] & (unsigned char)~forms[f].mask;
        size_t i = 1;

        if ((s[0] & forms[f].mask) != forms[f].lead) {
            continue;
        }
        for (; i < forms[f].length && (s[i] & 0xc0) == 0x80; i++) {
            code = code << 6 | (s[i] & 0x3f);
        }
        return i == forms[f].length && code >= forms[f].smallest && code <= 0x10ffff &&
                       (code < 0xd800 || code > 0xdfff)
                   ? i
                   : 0;
    }
    return 0;
}

static void string(const char *text, FILE *out)
{
    const unsigned char *s = (const unsigned char *)text;

    (void)fputc('"', out);
    while (*s != '\0') {
        size_t length = sequence(s);

        if (length == 0) {
            (void)fputs("\\ufffd", out);
            length = 1;
        } else if (*s == '"' || *s == '\\') {
            (void)fprintf(out, "\\%c", *s);
        } else if (*s < 0x20) {
            (void)fprintf(out, "\\u%04x", *s);
        } else {
            (void)fwrite(s, 1, length, out);
        }
        s += length;
    }
    (void)fputc('"', out);
}

static void value(const struct gemmar_info_value *v, FILE *out)
{
    string(v->key, out);
    (void)fputs(": ", out);
    switch (v->kind) {
    case GEMMAR_INFO_TEXT: string(v->text, out); break;
    case GEMMAR_INFO_NUMBER: (void)fputs(v->text, out); break;
    case GEMMAR_INFO_FLAG: (void)fputs(v->text[0] == 'y' ? "true" : "false", out); break;
    case GEMMAR_INFO_UNKNOWN: (void)fputs("null", out); break;
    }
}

static void members(const struct gemmar_info_row *row, FILE *out)
{
    for (size_t i = 0; i < row->count; i++) {
        (void)fputs(i != 0 ? ", " : "", out);
        value(&row->value[i], out);
    }
}

static void section(const struct gemmar_info_section *s, FILE *out)
{
    (void)fprintf(out, "  \"%s\": {", s->name);
    members(&s->facts, out);
    (void)fprintf(out, "%s\"rows\": [", s->facts.count != 0 ? ", " : "");
    for (size_t i = 0; i < s->rows; i++) {
        (void)fputs(i != 0 ? ",\n    {" : "\n    {", out);
        members(&s->row[i], out);
        (void)fputc('}', out);
    }
    (void)fputs("], \"notes\": [", out);
    for (size_t i = 0; i < s->notes; i++) {
        (void)fputs(i != 0 ? ", " : "", out);
        string(s->note[i], out);
    }
    (void)fputs("]},\n", out);
}

void gemmar_info_print_json(const struct gemmar_info_report *r, FILE *out)
{
    (void)fputs("{\n", out);
    for (size_t i = 0; i < r->sections; i++) {
        section(&r->section[i], out);
    }
    (void)fputs("  \"problems\": [", out);
    for (size_t i = 0; i < r->problems; i++) {
        const struct gemmar_info_problem *p = &r->problem[i];

        (void)fprintf(out, "%s\n    {\"section\": \"%s\", \"stops_rdma\": %s, \"problem\": ",
                      i != 0 ? "," : "", p->section, p->stops ? "true" : "false");
        string(p->text, out);
        (void)fputs(", \"remedy\": ", out);
        string(p->remedy, out);
        (void)fputc('}', out);
    }
    (void)fprintf(out, "],\n  \"problem_count\": %zu,\n  \"rdma_usable\": %s\n}\n", r->problems,
                  gemmar_info_report_stops(r) ? "false" : "true");
}
