// SPDX-License-Identifier: Apache-2.0
// Which network API a release of NCCL takes.
#ifndef GEMMAR_INFO_NCCL_H
#define GEMMAR_INFO_NCCL_H

#include <stdbool.h>

#define GEMMAR_INFO_FIRST_NET 6
#define GEMMAR_INFO_LAST_NET  12

/* Newest ncclNetPlugin_v* that NCCL of ncclGetVersion()'s number `version` (22809 is 2.28.9) looks
 * up; 0 when it knows none that the plugin has. */
int gemmar_info_nccl_newest_net(int version);
/* Does it, once unloaded, forget the plugin's name, so that the next communicator runs without? */
bool gemmar_info_nccl_forgets(int version);
/* NCCL_NET_PLUGIN_REF_COUNT when it is not set. */
int gemmar_info_nccl_ref_count(int version);

#endif
