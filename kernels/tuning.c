// SPDX-License-Identifier: Apache-2.0
// The tuning table: its text, and what a call finds in it.
#include "kernels/tuning.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"

#define FIELDS      10
#define FIELD_BYTES 24
#define ROUND       65536 /* parts in which two M are told apart */

struct line {
    char field[FIELDS + 1][FIELD_BYTES];
    int fields;
    bool bad; /* one is too long or no text */
};

/* A line's words; bytes behind its # are not looked at. */
static struct line split(const char *text, size_t bytes)
{
    struct line line = {.fields = 0};
    size_t at = 0, length = 0;

    for (; at < bytes && text[at] != '#'; at++) {
        char c = text[at];

        if (c == ' ' || c == '\t' || c == '\r') {
            length = 0;
            continue;
        }
        if (length == 0 && line.fields <= FIELDS) {
            line.fields++;
        }
        if (length + 1 >= FIELD_BYTES || (unsigned char)c < ' ') {
            line.bad = true;
        } else {
            line.field[line.fields - 1][length] = c;
        }
        length++;
    }
    return line;
}

static int take_number(const char *text, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low ||
        value > high) {
        return -EINVAL;
    }
    *out = value;
    return 0;
}

static int take_u32(const char *text, int64_t low, int64_t high, uint32_t *out)
{
    int64_t value;
    int rc = take_number(text, low, high, &value);

    if (rc == 0) {
        *out = (uint32_t)value;
    }
    return rc;
}

static int take_word(const char *text, const char *first, const char *second, uint32_t *out)
{
    *out = strcmp(text, second) == 0;
    return *out || strcmp(text, first) == 0 ? 0 : -EINVAL;
}

static const char *const strategies[GEMMAR_STRATEGIES] = {
    [GEMMAR_STRATEGY_PUSH] = "push",
    [GEMMAR_STRATEGY_PULL] = "pull",
    [GEMMAR_STRATEGY_EXCHANGE] = "exchange",
};

const char *gemmar_strategy_name(uint32_t strategy)
{
    return strategies[strategy];
}

static int take_strategy(const char *text, uint32_t *out)
{
    *out = 0;
    while (*out < GEMMAR_STRATEGIES && strcmp(text, strategies[*out]) != 0) {
        ++*out;
    }
    return *out < GEMMAR_STRATEGIES ? 0 : -EINVAL;
}

static int take_tile(const char *text, uint32_t *out_shape)
{
    for (uint32_t shape = 0; shape < GEMMAR_TILE_SHAPES; shape++) {
        char name[FIELD_BYTES];
        uint32_t m, n;

        gemmar_plan_tile(shape, &m, &n);
        (void)snprintf(name, sizeof(name), "%ux%u", m, n);
        if (strcmp(text, name) == 0) {
            *out_shape = shape;
            return 0;
        }
    }
    return -EINVAL;
}

static int take_field(int field, const char *text, struct gemmar_tuning_entry *e)
{
    uint32_t fp16;
    int rc;

    switch (field) {
    case 0: return take_number(text, 1, GEMMAR_TUNING_MAX_SIZE, &e->m);
    case 1: return take_number(text, 1, GEMMAR_TUNING_MAX_SIZE, &e->n);
    case 2: return take_number(text, 0, GEMMAR_TUNING_MAX_SIZE, &e->k);
    case 3:
        rc = take_word(text, "bf16", "fp16", &fp16);
        e->dtype = fp16 ? GEMMAR_DTYPE_FP16 : GEMMAR_DTYPE_BF16;
        return rc;
    case 4: return take_u32(text, 1, GEMMAR_MAX_LOCAL_RANKS, &e->locals);
    case 5: return take_tile(text, &e->how.shape);
    case 6: return take_strategy(text, &e->how.strategy);
    case 7: return take_u32(text, 1, GEMMAR_TUNING_MAX_LEAD, &e->how.lead);
    case 8: return take_u32(text, 0, GEMMAR_TUNING_MAX_LINK, &e->how.link_bytes);
    default: return take_u32(text, 1, GEMMAR_TUNING_MAX_BAND, &e->how.band);
    }
}

static bool same_call(const struct gemmar_tuning_entry *a, const struct gemmar_tuning_entry *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->dtype == b->dtype &&
           a->locals == b->locals;
}

static int take_line(const struct line *line, struct gemmar_tuning *t, char *why, size_t why_bytes)
{
    static const char *const want[FIELDS] = {"M from 1 to 2^40",
                                             "N from 1 to 2^40",
                                             "K from 0 to 2^40",
                                             "bf16 or fp16",
                                             "ranks of a node from 1 to 16",
                                             "256x256, 256x128, 128x256 or 128x128",
                                             "push, pull or exchange",
                                             "a lead from 1 to 16",
                                             "link bytes from 0 to 67108864",
                                             "a band from 1 to 1024"};
    struct gemmar_tuning_entry entry;

    memset(&entry, 0, sizeof(entry));
    if (line->fields != FIELDS || line->bad) {
        (void)snprintf(why, why_bytes, "want M N K type G tile strategy lead link band");
        return -EINVAL;
    }
    for (int i = 0; i < FIELDS; i++) {
        if (take_field(i, line->field[i], &entry) != 0) {
            (void)snprintf(why, why_bytes, "'%s' is not %s", line->field[i], want[i]);
            return -EINVAL;
        }
    }
    for (uint64_t i = 0; i < t->count; i++) {
        if (same_call(&t->entry[i], &entry)) {
            (void)snprintf(why, why_bytes, "a second line for the same M N K type G");
            return -EINVAL;
        }
    }
    if (gemmar_tuning_put(t, &entry) != 0) {
        (void)snprintf(why, why_bytes, "a table has at most %d entries", GEMMAR_TUNING_ENTRIES);
        return -EINVAL;
    }
    return 0;
}

static int take_lines(const char *text, size_t bytes, struct gemmar_tuning *t, char *why,
                      size_t why_bytes)
{
    size_t at = 0;

    for (unsigned number = 1; at < bytes; number++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        struct line line = split(text + at, length);
        char reason[160];

        if (line.fields != 0 && take_line(&line, t, reason, sizeof(reason)) != 0) {
            (void)snprintf(why, why_bytes, "line %u: %s", number, reason);
            return -EINVAL;
        }
        at += length + 1;
    }
    return 0;
}

int gemmar_tuning_parse(const char *text, size_t bytes, struct gemmar_tuning *out, char *why,
                        size_t why_bytes)
{
    struct gemmar_tuning *t = calloc(1, sizeof(*t));
    int rc;

    if (t == NULL) {
        (void)snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    rc = take_lines(text, bytes, t, why, why_bytes);
    if (rc == 0) {
        *out = *t;
    }
    free(t);
    return rc;
}

/* The whole file; one byte more than a table may have tells that it is larger. */
static int load(const char *path, char *text, size_t *out_bytes, const char **out_why)
{
    FILE *file = fopen(path, "re");
    int rc = 0;

    if (file == NULL) {
        rc = -errno;
        *out_why = strerror(-rc);
        return rc;
    }
    *out_bytes = fread(text, 1, GEMMAR_TUNING_BYTES + 1, file);
    if (ferror(file)) {
        rc = -EIO;
        *out_why = "it cannot be read";
    } else if (*out_bytes > GEMMAR_TUNING_BYTES) {
        rc = -EFBIG;
        *out_why = "a tuning table has at most 65536 bytes";
    }
    (void)fclose(file); /* it was only read */
    return rc;
}

int gemmar_tuning_read(const char *path, struct gemmar_tuning *out, char *why, size_t why_bytes)
{
    char *text = malloc(GEMMAR_TUNING_BYTES + 1), reason[200];
    const char *what = "out of memory";
    size_t bytes = 0;
    int rc = text != NULL ? load(path, text, &bytes, &what) : -ENOMEM;

    if (rc == 0) {
        rc = gemmar_tuning_parse(text, bytes, out, reason, sizeof(reason));
        what = reason;
    }
    if (rc != 0) {
        (void)snprintf(why, why_bytes, "%.200s: %s", path, what);
    }
    free(text);
    return rc;
}

/* How far two M are apart: the larger over the smaller. */
static int64_t ratio(int64_t a, int64_t b)
{
    return a > b ? a * ROUND / b : b * ROUND / a;
}

const struct gemmar_tuning_entry *gemmar_tuning_find(const struct gemmar_tuning *tuning, int64_t m,
                                                     int64_t n, int64_t k, uint32_t dtype,
                                                     uint32_t locals)
{
    const struct gemmar_tuning_entry *best = NULL;
    int64_t least = ROUND + ROUND / 2 + 1;

    if (tuning == NULL || m < 1 || m > GEMMAR_TUNING_MAX_SIZE) {
        return NULL;
    }
    for (uint64_t i = 0; i < tuning->count; i++) {
        const struct gemmar_tuning_entry *e = &tuning->entry[i];

        if (e->n != n || e->k != k || e->dtype != dtype || e->locals != locals) {
            continue;
        }
        if (e->m == m) {
            return e;
        }
        if (ratio(m, e->m) < least) {
            least = ratio(m, e->m);
            best = e;
        }
    }
    return best;
}

int gemmar_tuning_put(struct gemmar_tuning *tuning, const struct gemmar_tuning_entry *entry)
{
    uint64_t i = 0;

    while (i < tuning->count && !same_call(&tuning->entry[i], entry)) {
        i++;
    }
    if (i == GEMMAR_TUNING_ENTRIES) {
        return -ENOSPC;
    }
    tuning->entry[i] = *entry;
    tuning->count += i == tuning->count;
    return 0;
}

void gemmar_tuning_line(const struct gemmar_tuning_entry *e, char *text, size_t bytes)
{
    uint32_t m, n;

    gemmar_plan_tile(e->how.shape, &m, &n);
    (void)snprintf(
        text, bytes, "%lld %lld %lld %s %u %ux%u %s %u %u %u", (long long)e->m, (long long)e->n,
        (long long)e->k, e->dtype == GEMMAR_DTYPE_FP16 ? "fp16" : "bf16", e->locals, m, n,
        gemmar_strategy_name(e->how.strategy), e->how.lead, e->how.link_bytes, e->how.band);
}
