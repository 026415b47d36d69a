// SPDX-License-Identifier: Apache-2.0
// Loads the transport as a program of plain C does: no link to it, to CUDA, or to libibverbs.
//
// usage: dlopen_transport LIBRARY LINK   (LINK: a path that is made, a second name of the library)
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gemmar/transport.h>

static int failed;

static void expect(int ok, const char *what)
{
    (void)printf("%s: %s\n", ok ? "ok" : "FAILED", what);
    failed |= !ok;
}

static void on_log(void *user, enum gemmar_log_level level, const char *text)
{
    (void)printf("  log: %s\n", text);
    *(int *)user += level == GEMMAR_LOG_WARN && strchr(text, '\n') == NULL;
}

/* Every member of the table is there. */
static int complete(const struct gemmar_transport_table *t)
{
    return t->build_id != NULL && t->acquire != NULL && t->release != NULL &&
           t->device_count != NULL && t->device != NULL && t->channel_open != NULL &&
           t->channel_blob != NULL && t->channel_connect != NULL && t->channel_start != NULL &&
           t->channel_ring != NULL && t->channel_drain != NULL && t->channel_error != NULL &&
           t->channel_counters != NULL && t->channel_qp != NULL && t->channel_close != NULL;
}

/* NCCL takes the newest version that it knows, so that each has to be there, by one name. */
static int nccl_finds_every_version(void *library)
{
    char symbol[32];

    for (int version = 6; version <= 12; version++) {
        const char *const *name;

        (void)snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
        name = dlsym(library, symbol); /* the name is the first member of each table */
        if (name == NULL || strcmp(*name, "Gemmar") != 0) {
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    const struct gemmar_transport_table *table;
    struct gemmar_transport_settings settings = {.size = sizeof(settings), .log = on_log};
    struct gemmar_transport *transport = NULL;
    void *library, *again;
    int warnings = 0, rc;
    char path[PATH_MAX];

    if (argc != 3 || realpath(argv[1], path) == NULL) {
        return 2;
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)printf("FAILED: %s\n", dlerror());
        return 1;
    }
    table = dlsym(library, GEMMAR_TRANSPORT_SYMBOL);
    expect(table != NULL, "the table is exported");
    if (table == NULL) {
        return 1;
    }
    expect(table->size == sizeof(*table) && table->version == GEMMAR_TRANSPORT_VERSION,
           "size and version");
    expect(complete(table), "no member is missing");
    expect(dlsym(library, "gemmar_log") == NULL, "internal symbols are hidden");
    expect(nccl_finds_every_version(library), "a table for every version of NCCL's network API");

    again = dlopen(GEMMAR_TRANSPORT_SONAME, RTLD_NOW | RTLD_NOLOAD);
    expect(again == library, "the SONAME finds the loaded library");
    (void)unlink(argv[2]); /* of an earlier run, if any */
    expect(symlink(path, argv[2]) == 0, "second name");
    expect(dlopen(argv[2], RTLD_NOW) == library, "a second name is the same transport");
    (void)unlink(argv[2]);

    (void)setenv("NCCL_IB_DISABLE", "1", 1);
    settings.log_user = &warnings;
    rc = table->acquire(&settings, &transport);
    expect(rc == -ENODEV && transport == NULL && warnings == 1,
           "no device: -ENODEV and one sentence");
    (void)unsetenv("NCCL_IB_DISABLE");
    (void)setenv("GEMMAR_IBVERBS", "/nowhere/libibverbs.so.1", 1);
    warnings = 0;
    rc = table->acquire(&settings, &transport);
    expect(rc < 0 && transport == NULL && warnings == 1, "no libibverbs: one sentence");
    (void)setenv("GEMMAR_TIMEOUT", "soon", 1);
    warnings = 0;
    rc = table->acquire(&settings, &transport);
    expect(rc == -EINVAL && transport == NULL && warnings == 1, "a bad knob: one sentence");
    table->release(NULL);
    table->channel_close(NULL);

    for (int i = 0; i < 3; i++) {
        (void)dlclose(library);
    }
    expect(dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL, "it stays after dlclose");
    return failed;
}
