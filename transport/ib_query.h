// SPDX-License-Identifier: Apache-2.0
// Facts about devices and ports, for whoever has opened them. Any thread; nothing is logged.
#ifndef GEMMAR_IB_QUERY_H
#define GEMMAR_IB_QUERY_H

#include <stdbool.h>

#include "transport/ib_gid.h"
#include "transport/ib_verbs.h"

/* Mb/s; 0 when the port's code is unknown. */
uint32_t gemmar_ib_port_speed(const struct ibv_port_attr *attr);

/* Where the device sits: its resolved path in sysfs, or "" where a container or VM hides it.
 * Returns the NUMA node, -1 when unknown. */
int gemmar_ib_device_place(const char *name, char *pci_path, size_t bytes);

/* Entry `index` of the port's table; all zero when it cannot be read. */
void gemmar_ib_gid_read(const struct gemmar_ib_verbs *verbs, struct ibv_context *context,
                        const char *name, uint8_t port, int index, struct gemmar_gid_entry *out);

/* Can the device register dma-bufs? */
bool gemmar_ib_has_dmabuf(const struct gemmar_ib_verbs *verbs, struct ibv_pd *pd);

/* Is a module loaded that lets ibv_reg_mr take GPU addresses? `path` gets the file or folder in
 * sysfs that shows it, looked for below `root` ("" but in tests); it is untouched otherwise. */
bool gemmar_ib_peer_memory(const char *root, char *path, size_t bytes);

#endif
