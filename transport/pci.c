// SPDX-License-Identifier: Apache-2.0
// Where a PCI device sits, and how far two of them are from each other.
#include "transport/pci.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number in a file of its own; -1 when there is none. */
static int read_number(const char *path)
{
    FILE *file = fopen(path, "re");
    int value = -1;

    if (file != NULL) {
        if (fscanf(file, "%d", &value) != 1) {
            value = -1;
        }
        (void)fclose(file); /* it was only read */
    }
    return value;
}

void gemmar_pci_find(const char *root, const char *bus_id, struct gemmar_pci_place *out)
{
    char path[PATH_MAX], resolved[PATH_MAX], name[32];
    size_t i = 0;

    memset(out, 0, sizeof(*out));
    for (; bus_id[i] != '\0' && i + 1 < sizeof(name); i++) {
        name[i] = (char)tolower((unsigned char)bus_id[i]); /* as the kernel writes them */
    }
    name[i] = '\0';
    (void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s", root, name);
    if (realpath(path, resolved) != NULL && strlen(resolved) < sizeof(out->path)) {
        memcpy(out->path, resolved, strlen(resolved) + 1);
    }
    (void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/numa_node", root, name);
    out->numa_node = read_number(path);
}

/* The part from the host bridge on, "pci0000:00/..."; NULL when there is none. */
static const char *from_host_bridge(const char *path)
{
    const char *at = strstr(path, "/pci");

    return at != NULL ? at + 1 : NULL;
}

/* Parts of a path between slashes. */
static int parts(const char *path)
{
    int count = *path != '\0';

    for (; *path != '\0'; path++) {
        count += *path == '/' && path[1] != '\0';
    }
    return count;
}

/*
 * What two paths do not share is, below one switch, at most the switch's downstream port and the
 * device on each side. A longer rest on either side has a further switch in it.
 */
enum gemmar_pci_distance gemmar_pci_distance(const char *a, int numa_a, const char *b, int numa_b)
{
    const char *left = from_host_bridge(a), *right = from_host_bridge(b);
    int shared = 0;

    if (left == NULL || right == NULL) {
        return GEMMAR_PCI_UNSEEN;
    }
    for (;;) {
        size_t length = strcspn(left, "/");

        if (length == 0 || length != strcspn(right, "/") || strncmp(left, right, length) != 0) {
            break;
        }
        shared++;
        left += length + (left[length] == '/');
        right += length + (right[length] == '/');
    }
    if (shared == 0) {
        return numa_a >= 0 && numa_a == numa_b ? GEMMAR_PCI_NODE : GEMMAR_PCI_SYS;
    }
    if (shared == 1) {
        return GEMMAR_PCI_PHB;
    }
    return parts(left) <= 2 && parts(right) <= 2 ? GEMMAR_PCI_PIX : GEMMAR_PCI_PXB;
}

const char *gemmar_pci_distance_name(enum gemmar_pci_distance distance)
{
    static const char *const names[] = {"PIX", "PXB", "PHB", "NODE", "SYS", "?"};

    return names[distance];
}
