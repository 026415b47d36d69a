// SPDX-License-Identifier: Apache-2.0
// Where rank 0 listens, and how the others reach it.
#ifndef GEMMAR_PERF_RENDEZVOUS_H
#define GEMMAR_PERF_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>

/* HOST:PORT or [HOST]:PORT apart; `host` has host_bytes. False: it is neither. */
bool gemmar_perf_rendezvous_split(const char *address, char *host, size_t host_bytes,
                                  const char **out_port);

/* A listening socket: at a numeric address as it is; at a name on the interface that
 * NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY choose, or on all. A descriptor, or a negative errno
 * with a sentence. */
int gemmar_perf_rendezvous_listen(const char *address, char *why, size_t why_bytes);

/* Connect to rank 0, at whichever of a name's addresses answers first (of NCCL_SOCKET_FAMILY),
 * trying again until timeout_s is over. Blocks in the look-up of a name. 0, or a negative errno
 * with a sentence. */
int gemmar_perf_rendezvous_connect(const char *address, double timeout_s, int *out_fd, char *why,
                                   size_t why_bytes);

#endif
