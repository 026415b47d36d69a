// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs that act as several nodes of this host: what softhca and NCCL need to know before a
// rank's program starts.
#include "tools/gemmar_perf/nodes.h"

#include <limits.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gemmar/transport.h>

#include "tools/gemmar_perf/device.h"
#include "tools/gemmar_perf/say.h"

#define BUSY_THREADS 4 /* of a rank: itself, NCCL's proxy, the operator's proxy, softhca's NIC */

/* One port of 400 Gb/s and 2 us. NCCL uses GPU Direct RDMA however far the NIC is from the GPU, and
 * no GPU-initiated networking, which softhca has not (docs/nccl-tests.md). Queues of the device for
 * all streams: in one with a kernel that waits for a message, softhca's stream would wait behind
 * it. */
static const struct variable {
    const char *name, *value;
} standard[] = {
    {"SOFTHCA_MBPS", "400000"},    {"SOFTHCA_LATENCY_NS", "2000"},
    {"SOFTHCA_RING_KIB", "4096"},  {"SOFTHCA_SPIN_US", "100000"},
    {"NCCL_NET_PLUGIN", "gemmar"}, {"NCCL_NET_GDR_LEVEL", "SYS"},
    {"NCCL_NET_GDR_READ", "1"},    {"NCCL_GIN_TYPE", "0"},
    {"NCCL_MNNVL_ENABLE", "0"},    {"NCCL_NET_MERGE_LEVEL", "LOC"},
    {"NCCL_SOCKET_IFNAME", "lo"},  {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
};

bool gemmar_perf_nodes_wanted(const struct gemmar_perf_options *o)
{
    return o->cuda && o->nodes > 1 && o->hca == GEMMAR_PERF_HCA_SOFT;
}

/* Put the folder of `file` in front of LD_LIBRARY_PATH. */
static void prepend_folder(char *file)
{
    const char *before = getenv("LD_LIBRARY_PATH");
    char list[2 * PATH_MAX];
    char *slash = strrchr(file, '/');

    if (slash != NULL) {
        *slash = '\0';
        (void)snprintf(list, sizeof(list), "%s%s%s", file, before != NULL ? ":" : "",
                       before != NULL ? before : "");
        (void)setenv("LD_LIBRARY_PATH", list, 1);
    }
}

int gemmar_perf_nodes_environment(void)
{
    char path[PATH_MAX];

    if (gemmar_perf_beside("../../plugin/" GEMMAR_TRANSPORT_SONAME, path, sizeof(path))) {
        prepend_folder(path);
    }
    if (!gemmar_perf_beside(GEMMAR_PERF_SOFTHCA, path, sizeof(path))) {
        gemmar_perf_say(GEMMAR_PERF_NO_SOFTHCA);
        return 1;
    }
    prepend_folder(path);
    for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++) {
        (void)setenv(standard[i].name, standard[i].value, 0);
    }
    return 0;
}

void gemmar_perf_nodes_pin(uint32_t rank, uint32_t ranks)
{
    cpu_set_t may, mine;
    uint32_t share, nth = 0;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof(may), &may) != 0) {
        return; /* unpinned, then */
    }
    share = (uint32_t)CPU_COUNT(&may) / ranks;
    for (int cpu = 0; cpu < CPU_SETSIZE && share >= BUSY_THREADS; cpu++) {
        if (CPU_ISSET(cpu, &may) && nth++ / share == rank) {
            CPU_SET(cpu, &mine);
        }
    }
    if (CPU_COUNT(&mine) != 0) {
        (void)sched_setaffinity(0, sizeof(mine), &mine); /* unpinned, then */
    }
}
