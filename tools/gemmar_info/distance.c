// SPDX-License-Identifier: Apache-2.0
// How far two PCI devices are from each other.
#include "tools/gemmar_info/distance.h"

#include <string.h>

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
enum gemmar_info_distance gemmar_info_distance(const char *a, int numa_a, const char *b, int numa_b)
{
    const char *left = from_host_bridge(a), *right = from_host_bridge(b);
    int shared = 0;

    if (left == NULL || right == NULL) {
        return GEMMAR_INFO_UNSEEN;
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
        return numa_a >= 0 && numa_a == numa_b ? GEMMAR_INFO_NODE : GEMMAR_INFO_SYS;
    }
    if (shared == 1) {
        return GEMMAR_INFO_PHB;
    }
    return parts(left) <= 2 && parts(right) <= 2 ? GEMMAR_INFO_PIX : GEMMAR_INFO_PXB;
}

const char *gemmar_info_distance_name(enum gemmar_info_distance distance)
{
    static const char *const names[] = {"PIX", "PXB", "PHB", "NODE", "SYS", "?"};

    return names[distance];
}
