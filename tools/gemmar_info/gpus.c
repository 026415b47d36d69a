// SPDX-License-Identifier: Apache-2.0
// Section "gpus": NVIDIA GPUs by PCI, and what the driver says about each. Nothing links to CUDA.
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_info/doctor.h"

/* The few entries of the driver that are needed; the numbers of its attributes never change. */
enum {
    GPU_DIRECT_RDMA_SUPPORTED = 116,
    GPU_DIRECT_RDMA_WRITES_ORDERING = 118,
    DMA_BUF_SUPPORTED = 124,
};

struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*attribute)(int *value, int attribute, int device);
    int (*bus)(char *text, int bytes, int device);
};

/* false: `why` says what is missing. The driver stays loaded. */
static bool load_driver(struct driver *driver, char *why, size_t why_bytes)
{
    static const char *const names[] = {
        "cuInit",      "cuDriverGetVersion",   "cuDeviceGetCount",
        "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetPCIBusId"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *entry[6] = {NULL};
    int rc;

    if (library == NULL) {
        (void)snprintf(why, why_bytes, "no CUDA driver (libcuda.so.1)");
        return false;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        entry[i] = dlsym(library, names[i]);
        if (entry[i] == NULL) {
            (void)snprintf(why, why_bytes, "libcuda.so.1 has no %s", names[i]);
            return false;
        }
    }
    memcpy(driver, entry, sizeof(*driver));
    rc = driver->init(0);
    if (rc != 0) {
        (void)snprintf(why, why_bytes, "the CUDA driver does not start: cuInit gives %d", rc);
        return false;
    }
    return true;
}

static struct gemmar_info_gpu *find(struct gemmar_info *d, const char *bus)
{
    for (int i = 0; i < d->gpus; i++) {
        if (strcasecmp(d->gpu[i].bus, bus) == 0) {
            return &d->gpu[i];
        }
    }
    return NULL;
}

static struct gemmar_info_gpu *add(struct gemmar_info *d, const char *bus)
{
    struct gemmar_info_gpu *gpu;
    char path[1024], text[64], *real;

    if (d->gpus == GEMMAR_INFO_GPUS) {
        return NULL;
    }
    gpu = &d->gpu[d->gpus++];
    memset(gpu, 0, sizeof(*gpu));
    (void)snprintf(gpu->bus, sizeof(gpu->bus), "%s", bus);
    gpu->dmabuf = -1;
    (void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s", d->root, bus);
    real = realpath(path, NULL);
    if (real != NULL && strlen(real) < sizeof(gpu->path)) {
        (void)snprintf(gpu->path, sizeof(gpu->path), "%s", real);
    }
    free(real);
    (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", bus);
    gpu->numa = gemmar_info_read_line(d, path, text, sizeof(text)) ? atoi(text) : -1;
    return gpu;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct gemmar_info_gpu *)a)->bus,
                  ((const struct gemmar_info_gpu *)b)->bus);
}

/* PCI devices of NVIDIA that are VGA or 3D controllers. */
static void find_by_pci(struct gemmar_info *d)
{
    char path[1024], vendor[32], class[32];
    DIR *folder;

    (void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", d->root);
    folder = opendir(path);
    if (folder == NULL) {
        return;
    }
    for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        if (strlen(e->d_name) >= sizeof(d->gpu[0].bus)) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", e->d_name);
        (void)gemmar_info_read_line(d, path, vendor, sizeof(vendor)); /* "" matches nothing */
        (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/class", e->d_name);
        (void)gemmar_info_read_line(d, path, class, sizeof(class));
        if (strcmp(vendor, "0x10de") == 0 &&
            (strncmp(class, "0x0300", 6) == 0 || strncmp(class, "0x0302", 6) == 0)) {
            (void)add(d, e->d_name); /* more than there is room for are left out */
        }
    }
    (void)closedir(folder); /* it was only read */
    qsort(d->gpu, (size_t)d->gpus, sizeof(d->gpu[0]), by_name);
}

static void model_of(const struct gemmar_info *d, const char *bus, char *text, size_t bytes)
{
    char path[1024], line[256];
    const char *at;

    (void)snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", bus);
    (void)gemmar_info_read_line(d, path, line, sizeof(line)); /* "Model: \t NAME" comes first */
    at = strncmp(line, "Model:", 6) == 0 ? line + 6 : "";
    (void)snprintf(text, bytes, "%s", at + strspn(at, " \t"));
}

static void tell_attribute(struct gemmar_info *d, const struct driver *driver, int device,
                           int attribute, const char *key, int *out_value)
{
    int value = 0;

    if (device < 0 || driver->attribute(&value, attribute, device) != 0) {
        gemmar_info_unknown(&d->report, key);
        return;
    }
    gemmar_info_flag(&d->report, key, value != 0);
    *out_value = value;
}

static void tell_gpu(struct gemmar_info *d, struct gemmar_info_gpu *gpu,
                     const struct driver *driver, int device)
{
    struct gemmar_info_report *r = &d->report;
    char model[128];
    int rdma = -1, ordering = 0;

    model_of(d, gpu->bus, model, sizeof(model));
    gemmar_info_row(r);
    gemmar_info_text(r, "gpu", "%s", gpu->bus);
    gemmar_info_text(r, "model", "%s", model[0] != '\0' ? model : "-");
    gemmar_info_number(r, "numa", gpu->numa);
    tell_attribute(d, driver, device, GPU_DIRECT_RDMA_SUPPORTED, "gpudirect_rdma", &rdma);
    tell_attribute(d, driver, device, DMA_BUF_SUPPORTED, "dma_buf", &gpu->dmabuf);
    if (device >= 0 && driver->attribute(&ordering, GPU_DIRECT_RDMA_WRITES_ORDERING, device) == 0) {
        gemmar_info_text(r, "writes_ordered_for", "%s",
                         ordering >= 200   ? "all devices"
                         : ordering >= 100 ? "owner"
                                           : "none");
    } else {
        gemmar_info_unknown(r, "writes_ordered_for");
    }
    gemmar_info_detail(r, "path", "%s", gpu->path);
    if (rdma == 0) {
        gemmar_info_note(r, "%s takes no GPUDirect RDMA: data goes through host memory.", gpu->bus);
    }
}

/* The driver's ordinal of a GPU; -1 when it does not show it (CUDA_VISIBLE_DEVICES, MIG). */
static int ordinal_of(const struct driver *driver, int count, const char *bus)
{
    for (int i = 0; i < count; i++) {
        char text[32] = "";
        int device;

        if (driver->get(&device, i) == 0 && driver->bus(text, sizeof(text), device) == 0 &&
            strcasecmp(text, bus) == 0) {
            return device;
        }
    }
    return -1;
}

/* GPUs of the driver that sysfs does not show, as in some containers. */
static void find_by_driver(struct gemmar_info *d, const struct driver *driver, int count)
{
    for (int i = 0; i < count; i++) {
        char text[32] = "";
        int device;

        if (driver->get(&device, i) != 0 || driver->bus(text, sizeof(text), device) != 0) {
            continue;
        }
        for (char *c = text; *c != '\0'; c++) {
            *c = (char)tolower((unsigned char)*c);
        }
        if (find(d, text) == NULL) {
            (void)add(d, text); /* more than there is room for are left out */
        }
    }
}

void gemmar_info_gpus(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    struct driver driver = {0};
    char why[160] = "";
    int count = 0, version = 0;
    bool have;

    gemmar_info_section(r, "gpus", "GPUs");
    find_by_pci(d);
    have = load_driver(&driver, why, sizeof(why));
    if (have && driver.count(&count) == 0) {
        find_by_driver(d, &driver, count);
    }
    if (have && driver.version(&version) == 0) {
        gemmar_info_text(r, "driver_api", "CUDA %d.%d", version / 1000, version % 1000 / 10);
    } else {
        gemmar_info_unknown(r, "driver_api");
    }
    gemmar_info_number(r, "found", d->gpus);
    for (int i = 0; i < d->gpus; i++) {
        tell_gpu(d, &d->gpu[i], &driver, have ? ordinal_of(&driver, count, d->gpu[i].bus) : -1);
    }
    if (!have) {
        gemmar_info_note(r, "The driver was not asked: %s.", why);
    }
    if (d->gpus == 0) {
        gemmar_info_note(r, "No NVIDIA GPU: only host memory can be sent.");
    }
}
