// SPDX-License-Identifier: Apache-2.0
// Finds the transport's function table.
#include "kernels/transport_loader.h"
#include "transport/build_id.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char marker; /* an address inside this library */

/* Folder of the object this code lies in; "" when the loader does not know. */
static void own_folder(char *out, size_t bytes)
{
    Dl_info info;
    char *slash;

    out[0] = '\0';
    if (dladdr(&marker, &info) == 0 || info.dli_fname == NULL) {
        return;
    }
    (void)snprintf(out, bytes, "%s", info.dli_fname);
    slash = strrchr(out, '/');
    if (slash == NULL) {
        out[0] = '\0';
    } else {
        *slash = '\0';
    }
}

/* A library that is loaded already by its SONAME, or one of the places where it may lie. */
static void *find(const char *path, char *why, size_t why_bytes)
{
    static const char *const beside[] = {"", "/../plugin"};
    char folder[PATH_MAX], file[PATH_MAX + 64];
    void *handle = dlopen(GEMMAR_TRANSPORT_SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const char *text;

    if (handle == NULL && path[0] != '\0') {
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) {
            text = dlerror();
            (void)snprintf(why, why_bytes, "GEMMAR_TRANSPORT: %s", text != NULL ? text : path);
        }
        return handle;
    }
    own_folder(folder, sizeof(folder));
    for (size_t i = 0; handle == NULL && folder[0] != '\0' && i < 2; i++) {
        (void)snprintf(file, sizeof(file), "%s%s/%s", folder, beside[i], GEMMAR_TRANSPORT_SONAME);
        if (access(file, F_OK) == 0) {
            handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
            if (handle == NULL) { /* it is there and does not load: say so instead of going on */
                text = dlerror();
                (void)snprintf(why, why_bytes, "%s", text != NULL ? text : file);
                return NULL;
            }
        }
    }
    if (handle == NULL) {
        handle = dlopen(GEMMAR_TRANSPORT_SONAME, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL) {
        text = dlerror();
        (void)snprintf(why, why_bytes, "%s (GEMMAR_TRANSPORT names its path)",
                       text != NULL ? text : GEMMAR_TRANSPORT_SONAME);
    }
    return handle;
}

static gemmarResult_t check_table(const struct gemmar_transport_table *table,
                                  struct gemmar_error *error)
{
    if (table == NULL) {
        return gemmar_error_set(error, gemmarSystemError, "%s has no symbol %s",
                                GEMMAR_TRANSPORT_SONAME, GEMMAR_TRANSPORT_SYMBOL);
    }
    if (table->version != GEMMAR_TRANSPORT_VERSION || table->size < sizeof(*table)) {
        return gemmar_error_set(error, gemmarSystemError,
                                "%s has a table of version %u and %zu bytes, this library needs "
                                "version %u and %zu bytes",
                                GEMMAR_TRANSPORT_SONAME, table->version, table->size,
                                GEMMAR_TRANSPORT_VERSION, sizeof(*table));
    }
    if (strcmp(table->build_id, gemmar_build_id) != 0) {
        return gemmar_error_set(error, gemmarSystemError, "%s is of build %s, libgemmar of %s",
                                GEMMAR_TRANSPORT_SONAME, table->build_id, gemmar_build_id);
    }
    return gemmarSuccess;
}

gemmarResult_t gemmar_transport_library_open(const char *path, const struct gemmar_logger *log,
                                             struct gemmar_transport_library *out,
                                             struct gemmar_error *error)
{
    struct gemmar_transport_library library = {0};
    char why[PATH_MAX + 512] = "";
    gemmarResult_t result;

    library.handle = find(path, why, sizeof(why));
    if (library.handle == NULL) {
        result = gemmar_error_set(error, gemmarSystemError, "no transport library: %.600s", why);
    } else {
        library.table = dlsym(library.handle, GEMMAR_TRANSPORT_SYMBOL);
        result = check_table(library.table, error);
    }
    if (result != gemmarSuccess) {
        gemmar_warn(log, "transport_loader: %s", error->text);
        gemmar_transport_library_close(&library);
        return result;
    }
    *out = library;
    return gemmarSuccess;
}

void gemmar_transport_library_close(struct gemmar_transport_library *library)
{
    if (library->handle != NULL) {
        (void)dlclose(library->handle); /* only gives the reference back */
    }
    library->handle = NULL;
    library->table = NULL;
}
