// SPDX-License-Identifier: Apache-2.0
// Environment knobs: the parser, the configuration file, the environment.
#include "transport/env.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const struct gemmar_knob table[GEMMAR_KNOB_COUNT] = {
#define ROW(member, type, variable, standard, min, max, choices, sentence)                         \
    {variable,      GEMMAR_KNOB_##type,                                                            \
     standard,      (double)(min),                                                                 \
     (double)(max), choices,                                                                       \
     sentence,      offsetof(struct gemmar_knobs, member)},
    GEMMAR_KNOBS(ROW)
#undef ROW
};

const struct gemmar_knob *gemmar_knob_table(void)
{
    return table;
}

static int parse_int(const struct gemmar_knob *knob, const char *text, int64_t *out, char *why,
                     size_t why_bytes)
{
    char *end;

    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (end == text || *end != '\0' || errno != 0) {
        (void)snprintf(why, why_bytes, "is not an integer");
        return -EINVAL;
    }
    if ((double)value < knob->min || (double)value > knob->max) {
        (void)snprintf(why, why_bytes, "is outside %.0f..%.0f", knob->min, knob->max);
        return -EINVAL;
    }
    *out = value;
    return 0;
}

static int parse_seconds(const struct gemmar_knob *knob, const char *text, int64_t *out, char *why,
                         size_t why_bytes)
{
    char *end;

    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !isfinite(value)) {
        (void)snprintf(why, why_bytes, "is not a number of seconds");
        return -EINVAL;
    }
    if (value < knob->min || value > knob->max) {
        (void)snprintf(why, why_bytes, "is outside %g..%g seconds", knob->min, knob->max);
        return -EINVAL;
    }
    *out = (int64_t)(value * 1e9);
    return 0;
}

static int parse_choice(const struct gemmar_knob *knob, const char *text, int64_t *out, char *why,
                        size_t why_bytes)
{
    size_t length = strlen(text);
    int64_t index = 0;

    for (const char *at = knob->choices;; index++) {
        size_t word = strcspn(at, "|");

        if (word == length && strncasecmp(at, text, word) == 0) {
            *out = index;
            return 0;
        }
        if (at[word] == '\0') {
            (void)snprintf(why, why_bytes, "is none of %s", knob->choices);
            return -EINVAL;
        }
        at += word + 1;
    }
}

int gemmar_knob_parse(struct gemmar_knobs *knobs, const struct gemmar_knob *knob, const char *text,
                      char *why, size_t why_bytes)
{
    char *member = (char *)knobs + knob->offset;
    int64_t value = 0;
    int rc;

    if (knob->type == GEMMAR_KNOB_TEXT) {
        size_t length = strlen(text);

        if (length >= GEMMAR_KNOB_TEXT_BYTES) {
            (void)snprintf(why, why_bytes, "is longer than %d characters",
                           GEMMAR_KNOB_TEXT_BYTES - 1);
            return -EINVAL;
        }
        memcpy(member, text, length + 1);
        return 0;
    }
    rc = knob->type == GEMMAR_KNOB_INT       ? parse_int(knob, text, &value, why, why_bytes)
         : knob->type == GEMMAR_KNOB_SECONDS ? parse_seconds(knob, text, &value, why, why_bytes)
                                             : parse_choice(knob, text, &value, why, why_bytes);
    if (rc == 0) {
        memcpy(member, &value, sizeof(value));
    }
    return rc;
}

static int set_knob(struct gemmar_knobs *knobs, int index, const char *text,
                    enum gemmar_knob_origin origin, const struct gemmar_logger *log)
{
    char why[128];
    int rc = gemmar_knob_parse(knobs, &table[index], text, why, sizeof(why));

    if (rc != 0) {
        gemmar_warn(log, "env: %s value '%.200s' %s (%s)", table[index].variable, text, why,
                    table[index].sentence);
        return rc;
    }
    knobs->origin[index] = origin;
    return 0;
}

static bool is_knob(const char *name, size_t length)
{
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        if (strlen(table[i].variable) == length && strncmp(table[i].variable, name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Those of NCCL's InfiniBand transport and of gemmar, but for what gemmar_perf and the example in
 * Python read themselves. */
static bool is_ours(const char *name, size_t length)
{
    static const char perf[] = "GEMMAR_PERF_", example[] = "GEMMAR_LIB";

    if (strncmp(name, perf, strlen(perf)) == 0 ||
        (length == strlen(example) && strncmp(name, example, length) == 0)) {
        return false;
    }
    return strncmp(name, "NCCL_IB_", 8) == 0 || strncmp(name, "GEMMAR_", 7) == 0;
}

/* `text` begins with a name, which ends at `=` or with the text. */
static void note_other(struct gemmar_knobs *knobs, const char *text)
{
    size_t length = strcspn(text, "=");

    if (!is_ours(text, length) || is_knob(text, length) || length >= GEMMAR_KNOB_NAME_BYTES ||
        knobs->others == GEMMAR_KNOB_OTHERS) {
        return;
    }
    memcpy(knobs->other[knobs->others], text, length);
    knobs->other[knobs->others++][length] = '\0';
}

/* One `NAME=VALUE` line; names that are not in the table belong to somebody else. The first line
 * that sets a knob counts, over both files, and an empty value sets nothing: as in NCCL. */
static int set_from_line(struct gemmar_knobs *knobs, char *line, const struct gemmar_logger *log)
{
    char *equals = strchr(line, '=');

    if (line[0] == '#' || equals == NULL || equals[1] == '\0') {
        return 0;
    }
    *equals = '\0';
    note_other(knobs, line);
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        if (strcmp(line, table[i].variable) == 0 && knobs->origin[i] == GEMMAR_KNOB_DEFAULT) {
            return set_knob(knobs, i, equals + 1, GEMMAR_KNOB_FILE, log);
        }
    }
    return 0;
}

/* A missing file is no error. */
static int read_conf(struct gemmar_knobs *knobs, const char *path, const struct gemmar_logger *log)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    int rc = 0;

    if (file == NULL) {
        return 0;
    }
    while (getline(&line, &room, file) != -1) {
        int bad;

        line[strcspn(line, "\r\n")] = '\0';
        bad = set_from_line(knobs, line, log);
        rc = rc != 0 ? rc : bad;
    }
    free(line);
    (void)fclose(file); /* it was only read */
    return rc;
}

/* NCCL_CONF_FILE or else the user's file, then the machine's. */
static int read_confs(struct gemmar_knobs *knobs, const struct gemmar_logger *log)
{
    const char *named = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
    char path[4096];
    int rc = 0, bad;

    if (named != NULL && named[0] != '\0') {
        rc = read_conf(knobs, named, log);
    } else if (home != NULL &&
               snprintf(path, sizeof(path), "%s/.nccl.conf", home) < (int)sizeof(path)) {
        rc = read_conf(knobs, path, log);
    }
    bad = read_conf(knobs, "/etc/nccl.conf", log);
    return rc != 0 ? rc : bad;
}

static void note_environment(struct gemmar_knobs *knobs)
{
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        const char *equals = strchr(*at, '=');

        if (equals != NULL && equals[1] != '\0') {
            note_other(knobs, *at);
        }
    }
}

/* NCCL has levels below and between these; it takes any letter case and anything else for none. */
static void follow_nccl(struct gemmar_knobs *knobs)
{
    const char *text = knobs->nccl_debug;

    if (strcasecmp(text, "INFO") == 0 || strcasecmp(text, "ABORT") == 0) {
        knobs->debug = GEMMAR_DEBUG_INFO;
    } else if (strcasecmp(text, "TRACE") == 0) {
        knobs->debug = GEMMAR_DEBUG_TRACE;
    }
}

int gemmar_knobs_read(struct gemmar_knobs *knobs, struct gemmar_logger *log)
{
    int rc, bad;

    memset(knobs, 0, sizeof(*knobs));
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        rc = set_knob(knobs, i, table[i].standard, GEMMAR_KNOB_DEFAULT, log);
        if (rc != 0) {
            return rc;
        }
    }
    rc = read_confs(knobs, log);
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        const char *text = getenv(table[i].variable);

        if (text != NULL && text[0] != '\0') {
            bad = set_knob(knobs, i, text, GEMMAR_KNOB_ENVIRONMENT, log);
            rc = rc != 0 ? rc : bad;
        }
    }
    note_environment(knobs);
    if (knobs->origin[GEMMAR_KNOB_debug] == GEMMAR_KNOB_DEFAULT) {
        follow_nccl(knobs);
    }
    log->level = (enum gemmar_log_level)knobs->debug;
    return rc;
}
