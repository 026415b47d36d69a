// SPDX-License-Identifier: Apache-2.0
// Sections "libraries" and "nccl": the two libraries of gemmar, NCCL, and what they make of each
// other.
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gemmar/gemmar.h"
#include "gemmar/transport.h"
#include "tools/gemmar_info/asked.h"
#include "tools/gemmar_info/doctor.h"
#include "tools/gemmar_info/nccl.h"
#include "transport/build_id.h"

struct plugin {
    void *handle;
    char path[PATH_MAX];
    bool searched; /* the loader finds it by its name, as NCCL looks for it */
    const char *build;
    unsigned versions;              /* bit n: exports ncclNetPlugin_vn */
    struct gemmar_info_asked asked; /* what NCCL_NET_PLUGIN leads to, where it is set */
};

static void path_of(void *handle, char *path, size_t bytes)
{
    struct link_map *map = NULL;
    char *real;

    path[0] = '\0';
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL) {
        real = realpath(map->l_name, NULL);
        (void)snprintf(path, bytes, "%s", real != NULL ? real : map->l_name);
        free(real);
    }
}

/* Where GEMMAR_TRANSPORT says, else beside this program as it is installed or built. */
static void *open_near(const struct gemmar_info *d, const char *name, const char *built)
{
    char folder[PATH_MAX], path[PATH_MAX + 128];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    const char *places[] = {"/../lib/", "/../lib64/", "/../lib/x86_64-linux-gnu/",
                            "/../lib/aarch64-linux-gnu/", built};
    void *handle = NULL;

    if (strcmp(name, GEMMAR_TRANSPORT_SONAME) == 0 && d->knobs.transport[0] != '\0') {
        handle = dlopen(d->knobs.transport, RTLD_LAZY | RTLD_LOCAL);
    }
    folder[length > 0 ? length : 0] = '\0';
    if (strrchr(folder, '/') != NULL) {
        *strrchr(folder, '/') = '\0';
    }
    for (size_t i = 0; handle == NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s%s%s", folder, places[i], name);
        handle = access(path, F_OK) == 0 ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    }
    return handle;
}

static bool find_plugin(const struct gemmar_info *d, struct plugin *out)
{
    const struct gemmar_transport_table *table;

    memset(out, 0, sizeof(*out));
    out->handle = dlopen(GEMMAR_TRANSPORT_SONAME, RTLD_LAZY | RTLD_LOCAL);
    out->searched = out->handle != NULL; /* before the name is found among what is open */
    if (d->knobs.nccl_net_plugin[0] != '\0') {
        gemmar_info_asked_find(d->knobs.nccl_net_plugin, &out->asked);
    }
    if (out->asked.handle != NULL) {
        out->handle = out->asked.handle;
    }
    if (out->handle == NULL) {
        out->handle = open_near(d, GEMMAR_TRANSPORT_SONAME, "/../../plugin/");
    }
    if (out->handle == NULL) {
        return false;
    }
    path_of(out->handle, out->path, sizeof(out->path));
    table = dlsym(out->handle, GEMMAR_TRANSPORT_SYMBOL);
    out->build = table != NULL && table->build_id != NULL ? table->build_id : "";
    for (int v = GEMMAR_INFO_FIRST_NET; v <= GEMMAR_INFO_LAST_NET; v++) {
        char symbol[32];

        (void)snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
        out->versions |= dlsym(out->handle, symbol) != NULL ? 1u << v : 0;
    }
    return true;
}

/* What libgemmar says of itself; "" from one that is too old to say it. */
static const char *build_of(void *handle)
{
    const char *(*get)(void);

    *(void **)&get = dlsym(handle, "gemmarGetBuildId");
    return get != NULL ? get() : "";
}

/* Freeing NULL needs no GPU, and a library without GPU code refuses it all the same. */
static void tell_gpu_code(struct gemmar_info_report *r, void *handle)
{
    gemmarResult_t (*free_memory)(void *ptr);

    *(void **)&free_memory = dlsym(handle, "gemmarMemFree");
    if (free_memory != NULL) {
        gemmar_info_flag(r, "gpu_code", free_memory(NULL) == gemmarSuccess);
    } else {
        gemmar_info_unknown(r, "gpu_code");
    }
}

static void tell_plugin(struct gemmar_info *d, const struct plugin *p)
{
    struct gemmar_info_report *r = &d->report;
    char list[64] = "";

    for (int v = GEMMAR_INFO_FIRST_NET; v <= GEMMAR_INFO_LAST_NET; v++) {
        size_t length = strlen(list);

        if ((p->versions >> v & 1) != 0) {
            (void)snprintf(list + length, sizeof(list) - length, "%sv%d", length != 0 ? " " : "",
                           v);
        }
    }
    gemmar_info_text(r, "plugin", "%s", p->path);
    gemmar_info_text(r, "plugin_build", "%s", p->build);
    gemmar_info_flag(r, "plugin_on_search_path", p->searched);
    gemmar_info_text(r, "plugin_net_apis", "%s", list[0] != '\0' ? list : "none");
    if (!p->searched && d->knobs.nccl_net_plugin[0] == '\0') {
        gemmar_info_problem(r, false,
                            "add its folder to LD_LIBRARY_PATH (or run ldconfig), or put its whole "
                            "path into NCCL_NET_PLUGIN",
                            "NCCL will not find %s by its name", p->path);
    }
    if (strcmp(p->build, gemmar_build_id) != 0) {
        gemmar_info_problem(r, false, "install program and libraries of one build",
                            "%s is of build '%s', this program of '%s'", p->path, p->build,
                            gemmar_build_id);
    }
}

static void tell_libgemmar(struct gemmar_info *d, const struct plugin *p)
{
    struct gemmar_info_report *r = &d->report;
    void *handle = dlopen("libgemmar.so.0", RTLD_LAZY | RTLD_LOCAL);
    char path[PATH_MAX];
    const char *build;
    bool same;

    if (handle == NULL) {
        handle = open_near(d, "libgemmar.so.0", "/../../kernels/");
    }
    if (handle == NULL) {
        gemmar_info_unknown(r, "libgemmar");
        gemmar_info_note(r, "No libgemmar.so.0: NCCL does not need it, gemmar_fused() does.");
        return;
    }
    path_of(handle, path, sizeof(path));
    gemmar_info_text(r, "libgemmar", "%s", path);
    build = build_of(handle);
    gemmar_info_text(r, "libgemmar_build", "%s", build);
    tell_gpu_code(r, handle);
    same = p->handle != NULL && build[0] != '\0' && strcmp(build, p->build) == 0;
    gemmar_info_flag(r, "one_build", same);
    if (!same && p->handle != NULL) {
        gemmar_info_problem(r, false, "install both libraries of one build",
                            "%s is of build '%s', the plugin of '%s'", path, build, p->build);
    }
}

/* libnccl-net.so, which NCCL opens when it has no name: is it ours? */
static bool default_name_is_ours(void)
{
    void *handle = dlopen("libnccl-net.so", RTLD_LAZY | RTLD_LOCAL);
    bool ours = handle != NULL && dlsym(handle, GEMMAR_TRANSPORT_SYMBOL) != NULL;

    if (handle != NULL) {
        (void)dlclose(handle); /* only gives the reference back */
    }
    return ours;
}

/* NCCL does not use this plugin, or not for long. */
static void judge_choice(struct gemmar_info *d, const struct plugin *p, int version)
{
    const char *plugin = d->knobs.nccl_net_plugin, *net = d->knobs.nccl_net;
    const char *count = d->knobs.nccl_ref_count;
    struct gemmar_info_report *r = &d->report;
    bool kept = count[0] != '\0' ? atoi(count) > 0 : gemmar_info_nccl_ref_count(version) > 0;

    if (plugin[0] != '\0') {
        gemmar_info_text(r, "plugin_asked_for", "%s", plugin);
    } else {
        gemmar_info_unknown(r, "plugin_asked_for");
    }
    if (net[0] != '\0' && strcasecmp(net, "Gemmar") != 0) {
        gemmar_info_problem(r, false, "unset NCCL_NET, or set it to Gemmar",
                            "NCCL_NET is %s: NCCL will not use this plugin", net);
    }
    if (plugin[0] == '\0' && !default_name_is_ours()) {
        gemmar_info_note(r, "NCCL_NET_PLUGIN is not set: NCCL uses the plugin with "
                            "NCCL_NET_PLUGIN=gemmar only.");
    }
    if (plugin[0] != '\0' && p->asked.handle == NULL) {
        gemmar_info_problem(r, false,
                            "set NCCL_NET_PLUGIN=gemmar, with the plugin's folder in "
                            "LD_LIBRARY_PATH, or the whole path of libnccl-net-gemmar.so",
                            "NCCL_NET_PLUGIN is '%s': NCCL will not use this plugin (%s)", plugin,
                            p->asked.why);
        return;
    }
    if (version != 0 && !gemmar_info_nccl_forgets(version)) {
        return;
    }
    gemmar_info_note(r, "NCCL 2.27 to 2.29 forget the plugin's name once it is unloaded (after the "
                        "last communicator); 2.27 does not unload it unless told to.");
    if (version != 0 && plugin[0] != '\0' && !kept && !default_name_is_ours()) {
        gemmar_info_problem(r, false,
                            "set NCCL_NET_PLUGIN_REF_COUNT=1, or make libnccl-net.so a symlink to "
                            "libnccl-net-gemmar.so",
                            "this NCCL runs without the plugin in communicators made after all "
                            "earlier ones were destroyed");
    }
}

static int nccl_version(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    const char *name = d->nccl != NULL ? d->nccl : "libnccl.so.2";
    void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    int (*get)(int *version) = NULL;
    char path[PATH_MAX];
    int version = 0;
    void *symbol;

    gemmar_info_flag(r, "found", handle != NULL);
    if (handle == NULL) {
        gemmar_info_note(r,
                         "No %s: %s. --nccl PATH names one (Python packages have it in "
                         "nvidia/nccl/lib).",
                         name, dlerror());
        return 0;
    }
    path_of(handle, path, sizeof(path));
    gemmar_info_text(r, "path", "%s", path);
    symbol = dlsym(handle, "ncclGetVersion");
    memcpy(&get, &symbol, sizeof(symbol));
    if (get == NULL || get(&version) != 0 || version <= 0) {
        gemmar_info_unknown(r, "version");
        gemmar_info_note(r, "%s does not tell its version.", path);
        return 0;
    }
    if (version >= 10000) {
        gemmar_info_text(r, "version", "%d.%d.%d", version / 10000, version / 100 % 100,
                         version % 100);
    } else {
        gemmar_info_text(r, "version", "%d.%d.%d", version / 1000, version / 100 % 10,
                         version % 100);
    }
    return version;
}

static void tell_nccl(struct gemmar_info *d, const struct plugin *p)
{
    struct gemmar_info_report *r = &d->report;
    int version, newest, take;

    gemmar_info_section(r, "nccl", "NCCL");
    version = nccl_version(d);
    newest = gemmar_info_nccl_newest_net(version);
    for (take = newest; take >= GEMMAR_INFO_FIRST_NET && (p->versions >> take & 1) == 0; take--) {
    }
    if (version != 0 && newest == 0) {
        gemmar_info_problem(r, false, "use NCCL 2.13 or newer", "this NCCL is too old for plugins");
    } else if (version != 0) {
        gemmar_info_text(r, "newest_net_api", "v%d", newest);
    }
    if (take >= GEMMAR_INFO_FIRST_NET) {
        gemmar_info_text(r, "takes_from_plugin", "ncclNetPlugin_v%d", take);
    } else {
        gemmar_info_unknown(r, "takes_from_plugin");
    }
    if (p->handle != NULL && newest != 0 && take < GEMMAR_INFO_FIRST_NET) {
        gemmar_info_problem(r, false, "install a plugin that exports ncclNetPlugin symbols",
                            "%s exports no network API that this NCCL knows", p->path);
    }
    judge_choice(d, p, version);
}

void gemmar_info_libraries(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    struct plugin plugin;

    gemmar_info_section(r, "libraries", "Libraries of gemmar");
    gemmar_info_text(r, "this_build", "%s", gemmar_build_id);
    if (find_plugin(d, &plugin)) {
        tell_plugin(d, &plugin);
    } else {
        gemmar_info_unknown(r, "plugin");
        gemmar_info_problem(r, false,
                            "install it, and add its folder to LD_LIBRARY_PATH or its path to "
                            "GEMMAR_TRANSPORT",
                            "%s is not found", GEMMAR_TRANSPORT_SONAME);
    }
    tell_libgemmar(d, &plugin);
    tell_nccl(d, &plugin);
}
