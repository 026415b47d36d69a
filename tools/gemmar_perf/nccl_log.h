// SPDX-License-Identifier: Apache-2.0
// What NCCL's log says of its networks: which connections it made, and whether the NIC reads and
// writes the GPU's memory itself.
#ifndef GEMMAR_PERF_NCCL_LOG_H
#define GEMMAR_PERF_NCCL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gemmar_perf_links {
    uint32_t all;    /* connections over a network */
    uint32_t direct; /* of these with GPU Direct RDMA */
};

struct gemmar_perf_nccl_facts {
    struct gemmar_perf_links builtin; /* over NCCL's own transport, "IB" */
    struct gemmar_perf_links plugin;  /* over ours, "Gemmar" */
    bool loaded;                      /* "Loaded net plugin Gemmar" */
};

/* Have NCCL write the log of this process to memory. Before its first call; not thread-safe. -1
 * where NCCL_DEBUG or NCCL_DEBUG_FILE is set (the log is somebody else's) or there is no memory. */
int gemmar_perf_nccl_log_open(void);
/* -1 is legal. */
void gemmar_perf_nccl_log_close(int log);

/* What the log says so far. False: it cannot be read, and *out_facts has zeros. */
bool gemmar_perf_nccl_log_read(int log, struct gemmar_perf_nccl_facts *out_facts);
/* The same of `text`, which ends with a 0. */
void gemmar_perf_nccl_log_parse(const char *text, struct gemmar_perf_nccl_facts *out_facts);

/* Show NCCL's warnings: what it says of a failure beyond its error's name. */
void gemmar_perf_nccl_log_warnings(int log);

#endif
