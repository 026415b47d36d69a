// SPDX-License-Identifier: Apache-2.0
// Section "verbs": is there a libibverbs, which one, and what does it lack.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_info/doctor.h"

void gemmar_info_object_of(const void *symbol, char *path, size_t bytes)
{
    Dl_info info;
    char *real;

    path[0] = '\0';
    if (dladdr(symbol, &info) == 0 || info.dli_fname == NULL) {
        return;
    }
    real = realpath(info.dli_fname, NULL);
    (void)snprintf(path, bytes, "%s", real != NULL ? real : info.dli_fname);
    free(real);
}

bool gemmar_info_read_line(const struct gemmar_info *d, const char *path, char *text, size_t bytes)
{
    char whole[1024];
    FILE *file;
    bool have;

    text[0] = '\0';
    (void)snprintf(whole, sizeof(whole), "%s%s", d->root, path);
    file = fopen(whole, "re");
    if (file == NULL) {
        return false;
    }
    have = fgets(text, (int)bytes, file) != NULL;
    (void)fclose(file); /* it was only read */
    text[strcspn(text, "\n")] = '\0';
    return have;
}

/* The transport's own sentences about the library, without the advice behind the semicolon: a
 * missing library or symbol is a problem, a missing optional symbol a note. */
static void hear(void *user, enum gemmar_log_level level, const char *text)
{
    struct gemmar_info *d = user;
    int length = (int)strcspn(text, ";");
    const char *tag = strstr(text, ": ");
    int skip = tag != NULL && tag - text < length ? (int)(tag - text) + 2 : 0;

    if (level == GEMMAR_LOG_WARN) {
        gemmar_info_problem(
            &d->report, true,
            "install rdma-core (Debian: libibverbs1 and ibverbs-providers), or name "
            "the library with GEMMAR_IBVERBS",
            "%.*s", length - skip, text + skip);
    } else {
        gemmar_info_note(&d->report, "%.*s", length - skip, text + skip);
    }
}

/* rdma-core has no function that tells its version; the file's name does. */
static void tell_version(struct gemmar_info_report *r, const char *path)
{
    const char *name = strstr(path, ".so.");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

    if (library != NULL && dlsym(library, "softhca_query_mr") != NULL) {
        gemmar_info_text(r, "version", "softhca");
        gemmar_info_note(r,
                         "softhca is a software HCA: what it measures says nothing about hardware");
    } else if (name != NULL && strchr(name + 4, '.') != NULL) {
        gemmar_info_text(r, "version", "%s", name + 4);
    } else {
        gemmar_info_unknown(r, "version");
    }
    if (library != NULL) {
        (void)dlclose(library); /* only gives the reference back */
    }
}

void gemmar_info_verbs(struct gemmar_info *d)
{
    struct gemmar_logger log = {hear, d, GEMMAR_LOG_INFO};
    struct gemmar_info_report *r = &d->report;
    char path[1024];
    void *symbol;

    gemmar_info_section(r, "verbs", "libibverbs");
    d->verbs_good = gemmar_ib_verbs_load(&d->knobs, &log, &d->verbs) == 0;
    gemmar_info_flag(r, "found", d->verbs_good);
    if (!d->verbs_good) {
        gemmar_info_note(r, "No usable libibverbs: RDMA devices cannot be looked at.");
        return;
    }
    memcpy(&symbol, &d->verbs.get_device_list, sizeof(symbol));
    gemmar_info_object_of(symbol, path, sizeof(path));
    gemmar_info_text(r, "path", "%s", path);
    tell_version(r, path);
    gemmar_info_flag(r, "dma_buf_call", d->verbs.reg_dmabuf_mr != NULL);
    gemmar_info_flag(r, "relaxed_ordering_call", d->verbs.reg_mr_iova2 != NULL);
    gemmar_info_flag(r, "gid_type_call", d->verbs.query_gid_ex != NULL);
    gemmar_info_flag(r, "ece_calls", d->verbs.query_ece != NULL && d->verbs.set_ece != NULL);
}
