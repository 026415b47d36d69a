// SPDX-License-Identifier: Apache-2.0
// What the sections of the doctor share. Each looks at one thing, adds its section to the report
// and leaves here what later ones need. One thread.
#ifndef GEMMAR_INFO_DOCTOR_H
#define GEMMAR_INFO_DOCTOR_H

#include <stdbool.h>

#include "tools/gemmar_info/report.h"
#include "transport/env.h"
#include "transport/ib_verbs.h"

#define GEMMAR_INFO_PORTS      128
#define GEMMAR_INFO_GPUS       64
#define GEMMAR_INFO_PATH_BYTES 512

#define GEMMAR_INFO_MEMLOCK_REMEDY                                                                 \
    "raise it (ulimit -l unlimited; docker run --ulimit memlock=-1; systemd "                      \
    "LimitMEMLOCK=infinity) "                                                                      \
    "or grant CAP_IPC_LOCK"

struct gemmar_info_port {
    char device[64];
    int port;
    char path[GEMMAR_INFO_PATH_BYTES]; /* in sysfs, or "" */
    int numa;                          /* -1: unknown */
    bool dmabuf;
    bool used;
};

struct gemmar_info_gpu {
    char bus[32];                      /* domain:bus:device.function */
    char path[GEMMAR_INFO_PATH_BYTES]; /* in sysfs, or "" */
    int numa;                          /* -1: unknown */
    int dmabuf;                        /* 1, 0, or -1: the driver did not say */
};

struct gemmar_info {
    const char *root; /* put before /sys, /proc and /dev: "" but in tests */
    const char *nccl; /* path of libnccl.so.2; NULL: search */
    struct gemmar_info_report report;
    struct gemmar_knobs knobs;
    struct gemmar_ib_verbs verbs;
    bool verbs_good;
    struct gemmar_info_port port[GEMMAR_INFO_PORTS];
    int ports;
    struct gemmar_info_gpu gpu[GEMMAR_INFO_GPUS];
    int gpus;
    bool memlock_told; /* registering failed at the limit */
};

/* In this order: */
void gemmar_info_knobs_read(struct gemmar_info *d); /* no section */
void gemmar_info_verbs(struct gemmar_info *d);
void gemmar_info_devices(struct gemmar_info *d); /* with the GID tables */
void gemmar_info_setup(struct gemmar_info *d);
void gemmar_info_gpus(struct gemmar_info *d);
void gemmar_info_gpudirect(struct gemmar_info *d);
void gemmar_info_limits(struct gemmar_info *d);
void gemmar_info_libraries(struct gemmar_info *d); /* and NCCL */
void gemmar_info_knobs(struct gemmar_info *d);

/* First line of the file root/path into `text` without its newline; "" when it cannot be read. */
bool gemmar_info_read_line(const struct gemmar_info *d, const char *path, char *text, size_t bytes);
/* Path of the object that `symbol` lies in, symlinks resolved. "" when the loader does not know. */
void gemmar_info_object_of(const void *symbol, char *path, size_t bytes);

#endif
