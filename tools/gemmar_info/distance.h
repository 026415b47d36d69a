// SPDX-License-Identifier: Apache-2.0
// How far two PCI devices are from each other, from their paths in sysfs.
#ifndef GEMMAR_INFO_DISTANCE_H
#define GEMMAR_INFO_DISTANCE_H

enum gemmar_info_distance {
    GEMMAR_INFO_PIX,    /* below one PCIe switch */
    GEMMAR_INFO_PXB,    /* several switches, no host bridge */
    GEMMAR_INFO_PHB,    /* through one host bridge */
    GEMMAR_INFO_NODE,   /* through two host bridges of one NUMA node; NCCL says PHB */
    GEMMAR_INFO_SYS,    /* between NUMA nodes */
    GEMMAR_INFO_UNSEEN, /* a path is hidden */
};

/* Paths such as /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0; NUMA nodes, -1 for unknown. */
enum gemmar_info_distance gemmar_info_distance(const char *a, int numa_a, const char *b,
                                               int numa_b);
/* "PIX" ...; "?" for UNSEEN. */
const char *gemmar_info_distance_name(enum gemmar_info_distance distance);

#endif
