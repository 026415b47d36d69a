// SPDX-License-Identifier: Apache-2.0
// The grammar of NCCL_IB_HCA.
#include "transport/hca_filter.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.' || c == '/' || c == '@';
}

/* Up to three numbers, each behind a colon; the first one is the port. */
static int parse_numbers(const char **at, int *out_port, char *why, size_t why_bytes)
{
    int port = -1;

    for (int i = 0; **at == ':'; i++) {
        int value = 0, digits = 0;

        for ((*at)++; isdigit((unsigned char)**at) && digits < 6; (*at)++, digits++) {
            value = value * 10 + (**at - '0');
        }
        if (digits == 0 || i > 2 || (i == 0 && (value < 1 || value > 255))) {
            (void)snprintf(why, why_bytes, "has no valid port at '%.20s'", *at);
            return -EINVAL;
        }
        port = i == 0 ? value : port;
    }
    *out_port = port;
    return 0;
}

int gemmar_hca_filter_parse(const char *text, struct gemmar_hca_filter *out, char *why,
                            size_t why_bytes)
{
    struct gemmar_hca_filter f;
    const char *at = text;

    memset(&f, 0, sizeof(f));
    if (*at == '^') {
        f.exclude = true;
        at++;
    }
    if (*at == '=') {
        f.exact = true;
        at++;
    }
    while (*at != '\0') {
        size_t length = 0;
        int rc;

        if (*at == ',') {
            at++; /* empty entries are harmless, as in NCCL */
            continue;
        }
        while (is_name(at[length])) {
            length++;
        }
        if (length == 0 || length >= GEMMAR_HCA_NAME_BYTES) {
            (void)snprintf(why, why_bytes, "has no valid name at '%.20s'", at);
            return -EINVAL;
        }
        if (f.count == GEMMAR_HCA_FILTER_ENTRIES) {
            (void)snprintf(why, why_bytes, "has more than %d entries", GEMMAR_HCA_FILTER_ENTRIES);
            return -EINVAL;
        }
        memcpy(f.entry[f.count].name, at, length);
        at += length;
        rc = parse_numbers(&at, &f.entry[f.count].port, why, why_bytes);
        if (rc != 0) {
            return rc;
        }
        f.count++;
        if (*at != ',' && *at != '\0') {
            (void)snprintf(why, why_bytes, "is not understood at '%.20s'", at);
            return -EINVAL;
        }
    }
    if (f.count == 0 && text[0] != '\0') {
        (void)snprintf(why, why_bytes, "names nothing");
        return -EINVAL;
    }
    *out = f;
    return 0;
}

bool gemmar_hca_filter_match(const struct gemmar_hca_filter *f, const char *name, int port)
{
    bool listed = f->count == 0 && !f->exclude;

    for (int i = 0; i < f->count && !listed; i++) {
        const char *want = f->entry[i].name;
        bool same = f->exact ? strcmp(name, want) == 0 : strncmp(name, want, strlen(want)) == 0;

        listed = same && (f->entry[i].port == -1 || port == -1 || f->entry[i].port == port);
    }
    return listed != f->exclude;
}
