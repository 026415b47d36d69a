// SPDX-License-Identifier: Apache-2.0
// Section "limits": what the process may lock, open and touch, and whether it is in a container.
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/gemmar_info/doctor.h"

#define IPC_LOCK_BIT 14 /* CAP_IPC_LOCK in linux/capability.h */

static void tell_limit(struct gemmar_info_report *r, const char *key, rlim_t limit)
{
    if (limit == RLIM_INFINITY) {
        gemmar_info_text(r, key, "unlimited");
    } else {
        gemmar_info_number(r, key, (long long)limit);
    }
}

/* From the effective set in /proc/self/status. */
static bool may_lock(const struct gemmar_info *d)
{
    char path[1024], line[256];
    unsigned long long set = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/proc/self/status", d->root);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "CapEff:", 7) == 0) {
            set = strtoull(line + 7, NULL, 16);
        }
    }
    if (file != NULL) {
        (void)fclose(file); /* it was only read */
    }
    return (set >> IPC_LOCK_BIT & 1) != 0;
}

static bool exists(const struct gemmar_info *d, const char *path)
{
    char whole[1024];

    (void)snprintf(whole, sizeof(whole), "%s%s", d->root, path);
    return access(whole, F_OK) == 0;
}

static const char *container_of(const struct gemmar_info *d)
{
    char line[512];

    if (exists(d, "/.dockerenv")) {
        return "docker";
    }
    if (exists(d, "/run/.containerenv")) {
        return "podman";
    }
    if (getenv("KUBERNETES_SERVICE_HOST") != NULL) {
        return "kubernetes";
    }
    if (getenv("container") != NULL) {
        return getenv("container");
    }
    (void)gemmar_info_read_line(d, "/proc/1/cgroup", line, sizeof(line)); /* "" holds no word */
    return strstr(line, "kubepods") != NULL ? "kubernetes"
           : strstr(line, "docker") != NULL ? "docker"
           : strstr(line, "lxc") != NULL    ? "lxc"
                                            : "no";
}

/* uverbs carries all verbs; the others are listed because people look for them. */
static int tell_nodes(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    char pattern[1024];
    glob_t found;
    int uverbs = 0;

    (void)snprintf(pattern, sizeof(pattern), "%s/dev/infiniband/*", d->root);
    if (glob(pattern, 0, NULL, &found) != 0) {
        return 0;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i] + strlen(d->root);
        bool good = access(found.gl_pathv[i], R_OK | W_OK) == 0, needed;
        int error = good ? 0 : errno;

        needed = strstr(path, "/uverbs") != NULL;
        uverbs += needed;
        gemmar_info_row(r);
        gemmar_info_text(r, "node", "%s", path);
        gemmar_info_text(r, "access", "%s", good ? "yes" : strerror(error));
        if (needed && !good) {
            gemmar_info_problem(r, false,
                                "give the user access (group or udev rule), or in a container "
                                "--device /dev/infiniband",
                                "%s may not be read and written: %s", path, strerror(error));
        }
    }
    globfree(&found);
    return uverbs;
}

static void judge_memlock(struct gemmar_info *d, rlim_t memlock, bool lock)
{
    if (memlock != RLIM_INFINITY && !lock && !d->memlock_told) {
        gemmar_info_problem(&d->report, false, GEMMAR_INFO_MEMLOCK_REMEDY,
                            "RLIMIT_MEMLOCK is %llu bytes: registrations beyond it will fail",
                            (unsigned long long)memlock);
    }
}

void gemmar_info_limits(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    const char *container = container_of(d);
    struct rlimit memlock = {0, 0}, files = {0, 0};
    bool lock = may_lock(d);

    (void)getrlimit(RLIMIT_MEMLOCK, &memlock); /* cannot fail for one's own limits */
    (void)getrlimit(RLIMIT_NOFILE, &files);
    gemmar_info_section(r, "limits", "Limits and access");
    tell_limit(r, "memlock_bytes", memlock.rlim_cur);
    tell_limit(r, "memlock_hard", memlock.rlim_max);
    gemmar_info_flag(r, "cap_ipc_lock", lock);
    tell_limit(r, "open_files", files.rlim_cur);
    tell_limit(r, "open_files_hard", files.rlim_max);
    gemmar_info_text(r, "container", "%s", container);
    judge_memlock(d, memlock.rlim_cur, lock);
    if (files.rlim_cur < 1024) {
        gemmar_info_problem(r, false, "ulimit -n 65536 (--ulimit nofile=65536 in a container)",
                            "RLIMIT_NOFILE is %llu: each connection takes a socket",
                            (unsigned long long)files.rlim_cur);
    }
    if (tell_nodes(d) == 0) {
        gemmar_info_note(r, "No /dev/infiniband/uverbs*: only a software HCA can work.");
    }
    if (strcmp(container, "no") != 0) {
        gemmar_info_note(r, "In a container RDMA needs --device /dev/infiniband, --ulimit "
                            "memlock=-1 and, for RoCE addresses, --network host.");
    }
}
