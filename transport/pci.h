// SPDX-License-Identifier: Apache-2.0
// Where a PCI device sits, from sysfs, and how far two of them are from each other.
#ifndef GEMMAR_PCI_H
#define GEMMAR_PCI_H

#include <stdint.h>

/* Zeroed but for numa_node -1: unknown. */
struct gemmar_pci_place {
    char path[256];    /* resolved, such as /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0 */
    int32_t numa_node; /* -1: unknown */
};

/* Nearest first. */
enum gemmar_pci_distance {
    GEMMAR_PCI_PIX,    /* below one PCIe switch */
    GEMMAR_PCI_PXB,    /* several switches, no host bridge */
    GEMMAR_PCI_PHB,    /* through one host bridge */
    GEMMAR_PCI_NODE,   /* through two host bridges of one NUMA node; NCCL says PHB */
    GEMMAR_PCI_SYS,    /* between NUMA nodes */
    GEMMAR_PCI_UNSEEN, /* a path is hidden */
};

/* The place of the device with this bus id, such as 0000:1B:00.0, which a container or VM may hide.
 * `root` is put before /sys: "" but in tests. */
void gemmar_pci_find(const char *root, const char *bus_id, struct gemmar_pci_place *out);

/* NUMA nodes are -1 for unknown. */
enum gemmar_pci_distance gemmar_pci_distance(const char *path_a, int numa_a, const char *path_b,
                                             int numa_b);
/* "PIX" ...; "?" for UNSEEN. */
const char *gemmar_pci_distance_name(enum gemmar_pci_distance distance);

#endif
