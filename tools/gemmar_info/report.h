// SPDX-License-Identifier: Apache-2.0
// What the doctor found, as data: sections with facts, a table and notes, and the problems. Printed
// as text for people or as one JSON object.
//
// One thread. Values go to the facts of the newest section until its first row begins, then to the
// newest row; the rows of a section have the same keys in the same order. Nothing here fails: when
// memory runs out, what is added is dropped and `failed` says so.
#ifndef GEMMAR_INFO_REPORT_H
#define GEMMAR_INFO_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum gemmar_info_kind {
    GEMMAR_INFO_TEXT,
    GEMMAR_INFO_NUMBER,
    GEMMAR_INFO_FLAG,
    GEMMAR_INFO_UNKNOWN, /* null in JSON, "-" for people */
};

struct gemmar_info_value {
    const char *key; /* the caller's, static */
    char *text;
    enum gemmar_info_kind kind;
    bool detail; /* for JSON only */
};

struct gemmar_info_row {
    struct gemmar_info_value *value;
    size_t count;
};

struct gemmar_info_section {
    const char *name;  /* key in JSON */
    const char *title; /* heading for people */
    struct gemmar_info_row facts;
    struct gemmar_info_row *row;
    size_t rows;
    char **note;
    size_t notes;
};

struct gemmar_info_problem {
    const char *section;
    bool stops; /* RDMA cannot be used before it is mended */
    char *text;
    const char *remedy;
};

struct gemmar_info_report {
    struct gemmar_info_section *section;
    size_t sections;
    struct gemmar_info_problem *problem;
    size_t problems;
    bool failed;
};

/* Caller's storage, all zero to begin with. */
void gemmar_info_report_release(struct gemmar_info_report *r);
bool gemmar_info_report_stops(const struct gemmar_info_report *r);

void gemmar_info_section(struct gemmar_info_report *r, const char *name, const char *title);
void gemmar_info_row(struct gemmar_info_report *r);
void gemmar_info_text(struct gemmar_info_report *r, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, for JSON only. */
void gemmar_info_detail(struct gemmar_info_report *r, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void gemmar_info_number(struct gemmar_info_report *r, const char *key, long long value);
void gemmar_info_flag(struct gemmar_info_report *r, const char *key, bool value);
void gemmar_info_unknown(struct gemmar_info_report *r, const char *key);
/* A sentence for people and machines that is no problem. */
void gemmar_info_note(struct gemmar_info_report *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* `remedy`: one static sentence on what to do. */
void gemmar_info_problem(struct gemmar_info_report *r, bool stops, const char *remedy,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same about a section that is not the newest. */
void gemmar_info_problem_in(struct gemmar_info_report *r, const char *section, bool stops,
                            const char *remedy, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void gemmar_info_print_text(const struct gemmar_info_report *r, FILE *out);
void gemmar_info_print_json(const struct gemmar_info_report *r, FILE *out);

#endif
