// SPDX-License-Identifier: Apache-2.0
// Reads the settings; the only place of the library that looks at the environment.
#include "tools/softhca/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void softhca_log(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n < 0) {
        return;
    }
    size_t len = (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[len++] = '\n';
    (void)!write(STDERR_FILENO, line, len); // nobody is left to tell
}

static int read_number(const char *name, uint64_t def, uint64_t lo, uint64_t hi, uint64_t *out)
{
    const char *text = getenv(name);
    if (!text || !*text) {
        *out = def;
        return 0;
    }
    char *end;
    errno = 0;
    uint64_t v = strtoull(text, &end, 0);
    if (errno || *end || *text == '-' || v < lo || v > hi) {
        softhca_log("softhca: config: %s '%s' is not a number from %llu to %llu", name, text,
                    (unsigned long long)lo, (unsigned long long)hi);
        return -EINVAL;
    }
    *out = v;
    return 0;
}

// A list of speeds, one a device, as "400,200".
static int read_speeds(struct softhca_config *c)
{
    const char *text = getenv("SOFTHCA_DEVICE_GBPS");
    for (unsigned i = 0; i < 8; i++) {
        c->device_gbps[i] = c->speed_gbps;
        if (!text || !*text) {
            continue;
        }
        char *end;
        unsigned long v = strtoul(text, &end, 10);
        if (v < 10 || v > 800 || (*end && *end != ',')) {
            softhca_log("softhca: config: SOFTHCA_DEVICE_GBPS: '%s' starts with no number from 10 "
                        "to 800",
                        text);
            return -EINVAL;
        }
        c->device_gbps[i] = v;
        text = *end ? end + 1 : end;
    }
    return 0;
}

static int read_text(const char *name, const char *text, char *out, size_t size)
{
    if (strlen(text) >= size) {
        softhca_log("softhca: config: %s is longer than %zu bytes", name, size - 1);
        return -EINVAL;
    }
    strcpy(out, text);
    return 0;
}

void softhca_config_fabric(char out_path[160])
{
    const char *dir = getenv("SOFTHCA_FABRIC");
    if (dir && *dir && strlen(dir) < 160) {
        strcpy(out_path, dir);
        return;
    }
    struct stat st;
    const char *base = stat("/dev/shm", &st) == 0 && S_ISDIR(st.st_mode) ? "/dev/shm" : "/tmp";
    (void)snprintf(out_path, 160, "%s/softhca.%u", base, (unsigned)geteuid());
}

static int read_names(struct softhca_config *c)
{
    const char *dir = getenv("SOFTHCA_FABRIC");
    if (dir && read_text("SOFTHCA_FABRIC", dir, c->fabric, sizeof c->fabric)) {
        return -EINVAL;
    }
    softhca_config_fabric(c->fabric);
    const char *node = getenv("SOFTHCA_NODE");
    const char *name = "SOFTHCA_NODE";
    if (!node || !*node) {
        node = getenv("NCCL_HOSTID");
        name = "NCCL_HOSTID";
    }
    char host[64] = "localhost";
    if (!node || !*node) {
        if (gethostname(host, sizeof host - 1)) {
            strcpy(host, "localhost");
        }
        node = host;
        name = "host name";
    }
    const char *faults = getenv("SOFTHCA_FAULTS");
    if (read_text(name, node, c->node, sizeof c->node) ||
        read_text("SOFTHCA_FAULTS", faults ? faults : "", c->faults, sizeof c->faults)) {
        return -EINVAL;
    }
    const char *link = getenv("SOFTHCA_LINK");
    if (link && strcmp(link, "ib") != 0 && strcmp(link, "roce") != 0) {
        softhca_log("softhca: config: SOFTHCA_LINK '%s' is neither ib nor roce", link);
        return -EINVAL;
    }
    c->roce = link && strcmp(link, "roce") == 0;
    return 0;
}

int softhca_config_read(struct softhca_config *out_config)
{
    struct softhca_config c;
    memset(&c, 0, sizeof c);
    int bad = 0;
#define READ(field, env, def, lo, hi, sentence) bad |= read_number(env, def, lo, hi, &c.field);
    SOFTHCA_NUMBERS(READ)
#undef READ
    bad |= read_names(&c);
    bad |= read_speeds(&c);
    if (!bad && ((c.ring_kib & (c.ring_kib - 1)) || c.chunk % 64)) {
        softhca_log("softhca: config: SOFTHCA_RING_KIB is no power of two or SOFTHCA_CHUNK no "
                    "multiple of 64");
        bad = -EINVAL;
    }
    if (bad) {
        return -EINVAL;
    }
    *out_config = c;
    return 0;
}
