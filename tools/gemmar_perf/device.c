// SPDX-License-Identifier: Apache-2.0
// Which verbs device calls between nodes use: softhca, hardware, or none.
#include "tools/gemmar_perf/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gemmar/transport.h>

#include "tools/gemmar_perf/say.h"

/* An exported function that only softhca has. */
#define SOFTHCA_MARK "softhca_query_qp"

#define MBPS_PER_GBS 8e3

bool gemmar_perf_beside(const char *relative, char *path, size_t bytes)
{
    char self[PATH_MAX], plain[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (n <= 0) {
        return false;
    }
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    if ((size_t)snprintf(path, bytes, "%s/%s", self, relative) >= bytes ||
        access(path, R_OK) != 0) {
        return false;
    }
    /* without the dots, for people to read */
    return realpath(path, plain) == NULL || (size_t)snprintf(path, bytes, "%s", plain) < bytes;
}

int gemmar_perf_device_prepare(const struct gemmar_perf_options *o, uint32_t rank)
{
    char path[PATH_MAX];

    (void)rank;
    (void)setenv("GEMMAR_SIGNAL", o->imm ? "imm" : "stamp", o->imm);
    if (getenv("GEMMAR_TRANSPORT") == NULL &&
        gemmar_perf_beside("../../plugin/" GEMMAR_TRANSPORT_SONAME, path, sizeof(path))) {
        (void)setenv("GEMMAR_TRANSPORT", path, 1);
    }
    if (o->hca == GEMMAR_PERF_HCA_REAL) {
        (void)unsetenv("GEMMAR_IBVERBS");
    }
    if (o->hca != GEMMAR_PERF_HCA_SOFT) {
        return 0;
    }
    if (!gemmar_perf_beside(GEMMAR_PERF_SOFTHCA, path, sizeof(path))) {
        gemmar_perf_say(GEMMAR_PERF_NO_SOFTHCA);
        return 1;
    }
    (void)setenv("GEMMAR_IBVERBS", path, 1);
    return 0;
}

/* dl_iterate_phdr: the loaded libibverbs. */
static int find_verbs(struct dl_phdr_info *info, size_t size, void *out)
{
    const char *base = strrchr(info->dlpi_name, '/');

    (void)size;
    base = base != NULL ? base + 1 : info->dlpi_name;
    if (strncmp(base, "libibverbs.so", 13) != 0) {
        return 0;
    }
    (void)snprintf(out, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

static bool verbs_in_use(char *path, bool *out_soft)
{
    void *handle;

    if (dl_iterate_phdr(find_verbs, path) == 0) {
        return false;
    }
    handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    *out_soft = handle != NULL && dlsym(handle, SOFTHCA_MARK) != NULL;
    if (handle != NULL) {
        (void)dlclose(handle);
    }
    return true;
}

int gemmar_perf_device_accept(const struct gemmar_perf_options *o, uint32_t ranks)
{
    char path[PATH_MAX];
    bool soft;

    (void)ranks;
    if (o->hca == GEMMAR_PERF_HCA_REAL && verbs_in_use(path, &soft) && soft) {
        gemmar_perf_say("--hca real, but the loaded %s is softhca", path);
        return 1;
    }
    return 0;
}

/* Ask the transport that the library has loaded. */
static bool first_device(struct gemmar_transport_device *out_device)
{
    struct gemmar_transport_settings settings = {.size = sizeof(settings)};
    struct gemmar_transport *transport;
    const struct gemmar_transport_table *table;
    const char *file = getenv("GEMMAR_TRANSPORT");
    void *handle = dlopen(GEMMAR_TRANSPORT_SONAME, RTLD_LAZY | RTLD_NOLOAD);
    bool found = false;

    if (handle == NULL && file != NULL) {
        handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    }
    if (handle == NULL) {
        return false;
    }
    table = dlsym(handle, GEMMAR_TRANSPORT_SYMBOL);
    if (table != NULL && table->version == GEMMAR_TRANSPORT_VERSION &&
        table->acquire(&settings, &transport) == 0) {
        found = table->device(transport, 0, out_device) == 0;
        table->release(transport);
    }
    (void)dlclose(handle);
    return found;
}

void gemmar_perf_device_describe(char *text, size_t bytes)
{
    struct gemmar_transport_device device = {.size = sizeof(device)};
    char path[PATH_MAX];
    bool soft;

    if (!verbs_in_use(path, &soft)) {
        (void)snprintf(text, bytes, "none");
    } else if (!first_device(&device)) {
        (void)snprintf(text, bytes, "%s (%s)", soft ? "softhca: software emulation" : "unknown",
                       path);
    } else if (soft) {
        (void)snprintf(text, bytes, "%s port %u, softhca: software emulation (%s)", device.name,
                       device.port, path);
    } else {
        (void)snprintf(text, bytes, "%s port %u, %u Gb/s (%s)", device.name, device.port,
                       device.speed_mbps / 1000, path);
    }
}

static double variable(const char *name, double standard)
{
    const char *text = getenv(name);

    return text != NULL ? strtod(text, NULL) : standard;
}

double gemmar_perf_device_rate(uint32_t ranks_per_node)
{
    struct gemmar_transport_device device = {.size = sizeof(device)};
    char path[PATH_MAX];
    bool soft;

    if (!verbs_in_use(path, &soft)) {
        return NAN;
    }
    if (soft) {
        double mbps = variable("SOFTHCA_MBPS", 0) * variable("SOFTHCA_DEVICES", 1) *
                      variable("SOFTHCA_PORTS", 1);

        return mbps > 0 && getenv("SOFTHCA_DEVICE_GBPS") == NULL
                   ? mbps / MBPS_PER_GBS / ranks_per_node
                   : NAN;
    }
    return first_device(&device) ? device.speed_mbps / MBPS_PER_GBS : NAN;
}
