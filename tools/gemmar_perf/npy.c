// SPDX-License-Identifier: Apache-2.0
// A strict reader of NumPy's .npy files, versions 1 and 2: matrices only, row-major only.
#include "tools/gemmar_perf/npy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The header dictionary between two pointers; it is not terminated. */
struct cursor {
    const uint8_t *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n')) {
        c->at++;
    }
}

static bool take(struct cursor *c, char ch)
{
    skip_blanks(c);
    if (c->at == c->end || *c->at != (uint8_t)ch) {
        return false;
    }
    c->at++;
    return true;
}

/* 'text' or "text", without escapes. */
static bool take_text(struct cursor *c, char *text, size_t bytes)
{
    size_t n = 0;
    uint8_t quote;

    skip_blanks(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) {
        return false;
    }
    quote = *c->at++;
    while (c->at < c->end && *c->at != quote) {
        if (n + 1 == bytes || *c->at < 0x20 || *c->at > 0x7e || *c->at == '\\') {
            return false;
        }
        text[n++] = (char)*c->at++;
    }
    text[n] = '\0';
    return take(c, (char)quote);
}

static bool take_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);

    skip_blanks(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) {
        return false;
    }
    c->at += n;
    return true;
}

static bool take_size(struct cursor *c, int64_t *out_value)
{
    int64_t value = 0;

    skip_blanks(c);
    if (c->at == c->end || *c->at < '0' || *c->at > '9') {
        return false;
    }
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        value = value * 10 + (*c->at - '0');
        if (value > INT64_C(1) << 40) {
            return false;
        }
    }
    *out_value = value;
    return true;
}

struct dictionary {
    char descr[16];
    bool fortran;
    int64_t size[2];
    int dimensions;
    unsigned seen; /* bit 0 descr, 1 fortran_order, 2 shape */
};

static bool take_shape(struct cursor *c, struct dictionary *d)
{
    d->dimensions = 0;
    if (!take(c, '(')) {
        return false;
    }
    while (!take(c, ')')) {
        int64_t value;

        if (!take_size(c, &value)) {
            return false;
        }
        if (d->dimensions < 2) {
            d->size[d->dimensions] = value;
        }
        if (d->dimensions++ == 32) {
            return false;
        }
        if (!take(c, ',')) {
            return take(c, ')');
        }
    }
    return true;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and nothing behind it. */
static bool take_dictionary(struct cursor *c, struct dictionary *d)
{
    if (!take(c, '{')) {
        return false;
    }
    while (!take(c, '}')) {
        char key[16];
        unsigned bit;
        bool good;

        if (!take_text(c, key, sizeof(key)) || !take(c, ':')) {
            return false;
        }
        if (strcmp(key, "descr") == 0) {
            bit = 1;
            good = take_text(c, d->descr, sizeof(d->descr));
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = 2;
            d->fortran = take_word(c, "True");
            good = d->fortran || take_word(c, "False");
        } else if (strcmp(key, "shape") == 0) {
            bit = 4;
            good = take_shape(c, d);
        } else {
            return false;
        }
        if (!good || (d->seen & bit) != 0) {
            return false;
        }
        d->seen |= bit;
        if (!take(c, ',')) {
            if (!take(c, '}')) {
                return false;
            }
            break;
        }
    }
    skip_blanks(c);
    return d->seen == 7 && c->at == c->end;
}

__attribute__((format(printf, 3, 4))) static int refuse(char *why, size_t why_bytes,
                                                        const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(why, why_bytes, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

/* Where the dictionary lies: 0 or -EINVAL. */
static int find_dictionary(const uint8_t *head, size_t have, uint64_t file_bytes,
                           struct cursor *out_cursor, char *why, size_t why_bytes)
{
    static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    size_t start, length;

    if (have < 10 || have > file_bytes || memcmp(head, magic, sizeof(magic)) != 0) {
        return refuse(why, why_bytes, "is not a .npy file");
    }
    if ((head[6] != 1 && head[6] != 2) || head[7] != 0) {
        return refuse(why, why_bytes, "has .npy version %u.%u, want 1.0 or 2.0", head[6], head[7]);
    }
    length = head[8] | (size_t)head[9] << 8;
    start = 10;
    if (head[6] == 2) {
        if (have < 12) {
            return refuse(why, why_bytes, "ends inside its header");
        }
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
        start = 12;
    }
    if (length > file_bytes - start) {
        return refuse(why, why_bytes, "ends inside its header");
    }
    if (length > have - start) {
        return refuse(why, why_bytes, "has a header of %zu bytes, more than %u", length,
                      GEMMAR_NPY_HEAD_BYTES);
    }
    *out_cursor = (struct cursor){head + start, head + start + length};
    return 0;
}

int gemmar_npy_parse(const uint8_t *head, size_t have, uint64_t file_bytes,
                     struct gemmar_npy *out_npy, char *why, size_t why_bytes)
{
    struct dictionary d = {.seen = 0};
    struct gemmar_npy npy;
    struct cursor c = {head, head};
    uint64_t element, bytes;
    int rc = find_dictionary(head, have, file_bytes, &c, why, why_bytes);

    if (rc != 0) {
        return rc;
    }
    npy.data_offset = (size_t)(c.end - head);
    if (!take_dictionary(&c, &d)) {
        return refuse(why, why_bytes, "has a header that is not the dictionary of a .npy file");
    }
    if (strcmp(d.descr, "<f4") == 0) {
        npy.type = GEMMAR_NPY_F4;
    } else if (strcmp(d.descr, "<f2") == 0) {
        npy.type = GEMMAR_NPY_F2;
    } else if (strcmp(d.descr, "<u2") == 0) {
        npy.type = GEMMAR_NPY_U2;
    } else {
        return refuse(why, why_bytes,
                      "has elements of type '%s', want '<f4', '<f2', or '<u2' for bfloat16",
                      d.descr);
    }
    if (d.fortran) {
        return refuse(why, why_bytes, "is column-major (fortran_order), want row-major");
    }
    if (d.dimensions != 2) {
        return refuse(why, why_bytes, "has %d dimensions, want 2", d.dimensions);
    }
    element = npy.type == GEMMAR_NPY_F4 ? 4 : 2;
    if (d.size[1] != 0 && (uint64_t)d.size[0] > (UINT64_MAX >> 3) / (uint64_t)d.size[1]) {
        return refuse(why, why_bytes, "has a shape that is too large");
    }
    bytes = (uint64_t)d.size[0] * (uint64_t)d.size[1] * element;
    if (bytes != file_bytes - npy.data_offset) {
        return refuse(why, why_bytes,
                      "holds %llu bytes of elements, its shape (%lld, %lld) needs %llu",
                      (unsigned long long)(file_bytes - npy.data_offset), (long long)d.size[0],
                      (long long)d.size[1], (unsigned long long)bytes);
    }
    npy.rows = d.size[0];
    npy.columns = d.size[1];
    npy.data_bytes = (size_t)bytes;
    *out_npy = npy;
    return 0;
}

int gemmar_npy_open(const char *path, struct gemmar_npy *out_npy, char *why, size_t why_bytes)
{
    FILE *file = fopen(path, "rbe");
    uint8_t *head = malloc(GEMMAR_NPY_HEAD_BYTES);
    char reason[256];
    struct stat st;
    int rc = -errno;

    if (file == NULL || head == NULL) {
        (void)refuse(why, why_bytes, "cannot open %s: %s", path, strerror(-rc));
    } else if (fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = refuse(why, why_bytes, "%s is not a regular file", path);
    } else {
        size_t have = fread(head, 1, GEMMAR_NPY_HEAD_BYTES, file);

        rc = gemmar_npy_parse(head, have, (uint64_t)st.st_size, out_npy, reason, sizeof(reason));
        if (rc != 0) {
            (void)refuse(why, why_bytes, "%s %s", path, reason);
        }
    }
    free(head);
    if (file != NULL) {
        (void)fclose(file); /* read only */
    }
    return rc;
}

int gemmar_npy_read(const char *path, const struct gemmar_npy *npy, void *data, char *why,
                    size_t why_bytes)
{
    FILE *file = fopen(path, "rbe");
    int rc = 0;

    if (file == NULL) {
        rc = -errno;
        (void)refuse(why, why_bytes, "cannot open %s: %s", path, strerror(-rc));
        return rc;
    }
    if (fseeko(file, (off_t)npy->data_offset, SEEK_SET) != 0 ||
        fread(data, 1, npy->data_bytes, file) != npy->data_bytes) {
        (void)refuse(why, why_bytes, "%s ends before its last element", path);
        rc = -EIO;
    }
    (void)fclose(file); /* read only */
    return rc;
}
