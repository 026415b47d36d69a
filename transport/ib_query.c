// SPDX-License-Identifier: Apache-2.0
// Facts about devices and ports.
#include "transport/ib_query.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Mb/s of one lane (InfiniBand Architecture Specification, PortInfo LinkSpeed) times the lanes. */
uint32_t gemmar_ib_port_speed(const struct ibv_port_attr *attr)
{
    static const struct {
        uint32_t code, mbps;
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                  {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    static const struct {
        uint32_t code, lanes;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    uint32_t mbps = 0, lanes = 1;

    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
        mbps = speeds[i].code == attr->active_speed ? speeds[i].mbps : mbps;
    }
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        lanes = widths[i].code == attr->active_width ? widths[i].lanes : lanes;
    }
    return mbps * lanes;
}

static int read_number(const char *path, int otherwise)
{
    FILE *file = fopen(path, "re");
    int value = otherwise;

    if (file != NULL) {
        if (fscanf(file, "%d", &value) != 1) {
            value = otherwise;
        }
        (void)fclose(file); /* it was only read */
    }
    return value;
}

int gemmar_ib_device_place(const char *name, char *pci_path, size_t bytes)
{
    char path[PATH_MAX], resolved[PATH_MAX];

    pci_path[0] = '\0';
    (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", name);
    if (realpath(path, resolved) != NULL && strlen(resolved) < bytes) {
        memcpy(pci_path, resolved, strlen(resolved) + 1);
    }
    (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node", name);
    return read_number(path, -1);
}

/* sysfs says "IB/RoCE v1" or "RoCE v2"; without it a RoCE GID is taken for v2, the common one. */
static enum gemmar_gid_type gid_type_from_sysfs(const char *name, uint8_t port, int index)
{
    char path[PATH_MAX], text[32] = "";
    FILE *file;

    (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", name,
                   port, index);
    file = fopen(path, "re");
    if (file == NULL) {
        return GEMMAR_GID_ROCE_V2;
    }
    (void)!fgets(text, sizeof(text), file); /* unreadable: the empty text is v1 below */
    (void)fclose(file);
    return strncmp(text, "RoCE v2", 7) == 0 ? GEMMAR_GID_ROCE_V2 : GEMMAR_GID_ROCE_V1;
}

void gemmar_ib_gid_read(const struct gemmar_ib_verbs *verbs, struct ibv_context *context,
                        const char *name, uint8_t port, int index, struct gemmar_gid_entry *out)
{
    struct ibv_gid_entry entry;

    memset(out, 0, sizeof(*out));
    memset(&entry, 0, sizeof(entry));
    if (verbs->query_gid_ex != NULL &&
        verbs->query_gid_ex(context, port, (uint32_t)index, &entry, 0, sizeof(entry)) == 0) {
        out->gid = entry.gid;
        out->type = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? GEMMAR_GID_ROCE_V2
                    : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? GEMMAR_GID_ROCE_V1
                                                             : GEMMAR_GID_IB;
    } else if (verbs->query_gid(context, port, index, &out->gid) == 0) {
        out->type = gid_type_from_sysfs(name, port, index);
    } else {
        memset(&out->gid, 0, sizeof(out->gid));
    }
}

/* NCCL's probe: with dma-buf the file descriptor is looked at first, without it the call is
 * unknown. */
bool gemmar_ib_has_dmabuf(const struct gemmar_ib_verbs *verbs, struct ibv_pd *pd)
{
    if (verbs->reg_dmabuf_mr == NULL) {
        return false;
    }
    errno = 0;
    struct ibv_mr *mr = verbs->reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
    return mr == NULL && errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

bool gemmar_ib_peer_memory(const char *root, char *path, size_t bytes)
{
    /* nvidia-peermem and its predecessors; the first two are made by the driver stack of the NIC */
    static const char *const places[] = {
        "/sys/kernel/mm/memory_peers/nv_mem*/version",
        "/sys/kernel/memory_peers/nv_mem*/version",
        "/sys/module/nvidia_peermem",
        "/sys/module/nv_peer_mem",
    };

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char pattern[PATH_MAX];
        glob_t found;

        (void)snprintf(pattern, sizeof(pattern), "%s%s", root, places[i]);
        if (glob(pattern, 0, NULL, &found) == 0) {
            (void)snprintf(path, bytes, "%s", found.gl_pathv[0] + strlen(root));
            globfree(&found);
            return true;
        }
    }
    return false;
}
