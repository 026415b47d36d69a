// SPDX-License-Identifier: Apache-2.0
// What NCCL's log says of its networks.
#include "tools/gemmar_perf/nccl_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/gemmar_perf/say.h"

#define MOST_WARNINGS 5

int gemmar_perf_nccl_log_open(void)
{
    char path[32];
    int log;

    if (getenv("NCCL_DEBUG") != NULL || getenv("NCCL_DEBUG_FILE") != NULL) {
        return -1;
    }
    log = memfd_create("nccl-log", MFD_CLOEXEC);
    if (log >= 0) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", log);
        (void)setenv("NCCL_DEBUG", "INFO", 1);
        (void)setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 0);
        (void)setenv("NCCL_DEBUG_FILE", path, 1);
        (void)setenv("GEMMAR_DEBUG", "warn", 0); /* else it would follow NCCL_DEBUG */
    }
    return log;
}

void gemmar_perf_nccl_log_close(int log)
{
    if (log >= 0) {
        (void)close(log);
    }
}

/* To be freed; NULL: cannot be read. */
static char *read_all(int log)
{
    struct stat st;
    char *text;
    ssize_t n;

    if (log < 0 || fstat(log, &st) != 0) {
        return NULL;
    }
    text = malloc((size_t)st.st_size + 1);
    n = text != NULL ? pread(log, text, (size_t)st.st_size, 0) : -1;
    if (n < 0) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

/* Every connection has a line "... via NET/NAME/DEVICE[/GDRDMA][...]". */
static void count(const char *text, const char *mark, struct gemmar_perf_links *links)
{
    for (const char *at = text; (at = strstr(at, mark)) != NULL; at++) {
        const char *name = strstr(at, "NET/"), *direct = strstr(name, "/GDRDMA");

        links->all++;
        links->direct += direct != NULL && direct < name + strcspn(name, " \n");
    }
}

void gemmar_perf_nccl_log_parse(const char *text, struct gemmar_perf_nccl_facts *out_facts)
{
    *out_facts = (struct gemmar_perf_nccl_facts){.loaded = false};
    count(text, "via NET/IB/", &out_facts->builtin);
    count(text, "via NET/Gemmar/", &out_facts->plugin);
    out_facts->loaded = strstr(text, "Loaded net plugin Gemmar") != NULL;
}

bool gemmar_perf_nccl_log_read(int log, struct gemmar_perf_nccl_facts *out_facts)
{
    char *text = read_all(log);

    gemmar_perf_nccl_log_parse(text != NULL ? text : "", out_facts);
    free(text);
    return text != NULL;
}

void gemmar_perf_nccl_log_warnings(int log)
{
    char *text = read_all(log), *rest = NULL;
    int shown = 0;

    for (char *line = text != NULL ? strtok_r(text, "\n", &rest) : NULL;
         line != NULL && shown < MOST_WARNINGS; line = strtok_r(NULL, "\n", &rest)) {
        if (strstr(line, "NCCL WARN") != NULL) {
            gemmar_perf_say("%s", strstr(line, "NCCL WARN"));
            shown++;
        }
    }
    free(text);
}
