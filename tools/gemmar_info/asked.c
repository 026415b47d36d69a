// SPDX-License-Identifier: Apache-2.0
// Which library NCCL loads for NCCL_NET_PLUGIN: names with commas between them, in their order; the
// first one that is a network plugin counts, "none" stands for no plugin at all.
#include "tools/gemmar_info/asked.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gemmar/transport.h"
#include "tools/gemmar_info/nccl.h"
#include "transport/env.h"

/* The name itself, then, unless it is a path or lib*.so, libnccl-net-NAME.so. */
static void *open_name(const char *name, char *why, size_t why_bytes)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    size_t length = strlen(name);
    bool file = strchr(name, '/') != NULL || (strncmp(name, "lib", 3) == 0 && length >= 3 &&
                                              strcmp(name + length - 3, ".so") == 0);
    char path[GEMMAR_KNOB_TEXT_BYTES + 32];

    if (handle == NULL && !file) {
        (void)snprintf(path, sizeof(path), "libnccl-net-%s.so", name);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL) {
        (void)snprintf(why, why_bytes, "%s", dlerror());
    }
    return handle;
}

static bool has_network(void *handle)
{
    char symbol[32];

    for (int v = GEMMAR_INFO_FIRST_NET; v <= GEMMAR_INFO_LAST_NET; v++) {
        (void)snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
        if (dlsym(handle, symbol) != NULL) {
            return true;
        }
    }
    return false;
}

void gemmar_info_asked_find(const char *text, struct gemmar_info_asked *out)
{
    char copy[GEMMAR_KNOB_TEXT_BYTES], *save = NULL;

    memset(out, 0, sizeof(*out));
    (void)snprintf(out->why, sizeof(out->why), "no library is named");
    (void)snprintf(copy, sizeof(copy), "%s", strcasecmp(text, "none") != 0 ? text : "");
    for (char *name = strtok_r(copy, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
        void *handle = open_name(name, out->why, sizeof(out->why));

        if (handle != NULL && dlsym(handle, GEMMAR_TRANSPORT_SYMBOL) != NULL) {
            out->handle = handle;
            return;
        }
        if (handle != NULL && has_network(handle)) {
            (void)snprintf(out->why, sizeof(out->why), "%.200s is another plugin", name);
            return;
        }
        if (handle != NULL) {
            (void)snprintf(out->why, sizeof(out->why), "%.200s is no network plugin", name);
        }
    }
}
