// SPDX-License-Identifier: Apache-2.0
// Both libraries name the same build, or neither would take the other.
// usage: one_build PLUGIN LIBGEMMAR
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <gemmar/gemmar.h>
#include <gemmar/transport.h>

int main(int argc, char **argv)
{
    void *plugin = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *library = argc == 3 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct gemmar_transport_table *table;
    const char *(*get)(void);

    if (plugin == NULL || library == NULL) {
        (void)fprintf(stderr, "one_build: %s\n", argc == 3 ? dlerror() : "two arguments");
        return 1;
    }
    table = dlsym(plugin, GEMMAR_TRANSPORT_SYMBOL);
    *(void **)&get = dlsym(library, "gemmarGetBuildId");
    if (table == NULL || get == NULL) {
        (void)fprintf(stderr, "one_build: a symbol is missing\n");
        return 1;
    }
    (void)printf("plugin %s, libgemmar %s\n", table->build_id, get());
    return strcmp(table->build_id, get()) != 0 || strchr(get(), '+') == NULL;
}
