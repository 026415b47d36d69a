// SPDX-License-Identifier: Apache-2.0
// The settings of softhca: one table, read once from the environment.
#ifndef GEMMAR_SOFTHCA_CONFIG_H
#define GEMMAR_SOFTHCA_CONFIG_H

#include <stdint.h>

// clang-format off
// NUMBER(field, environment variable, default, smallest, largest, sentence)
#define SOFTHCA_NUMBERS(NUMBER)                                                                     \
    NUMBER(devices, "SOFTHCA_DEVICES", 1, 1, 8, "devices of this node")                             \
    NUMBER(ports, "SOFTHCA_PORTS", 1, 1, 2, "ports of each device")                                 \
    NUMBER(mbps, "SOFTHCA_MBPS", 0, 0, 10000000, "port bandwidth in Mbit/s, 0 for no limit")        \
    NUMBER(latency_ns, "SOFTHCA_LATENCY_NS", 0, 0, 1000000000, "one-way latency in ns")             \
    NUMBER(msg_rate, "SOFTHCA_MSG_RATE", 0, 0, 1000000000, "messages/s of a port, 0 for no limit")  \
    NUMBER(speed_gbps, "SOFTHCA_SPEED_GBPS", 400, 10, 800, "the speed that a port reports")         \
    NUMBER(ring_kib, "SOFTHCA_RING_KIB", 512, 64, 65536, "KiB of each ring, a power of two")        \
    NUMBER(chunk, "SOFTHCA_CHUNK", 32768, 256, 65536, "largest packet in bytes, multiple of 64")    \
    NUMBER(spin_us, "SOFTHCA_SPIN_US", 0, 0, 1000000, "spin of the idle progress thread in us")     \
    NUMBER(ack_floor_us, "SOFTHCA_ACK_FLOOR_US", 20000, 0, 10000000,                                \
           "shortest acknowledge timeout in us; a QP's shorter one is raised to it")                \
    NUMBER(dmabuf, "SOFTHCA_DMABUF", 1, 0, 2, "dma-buf: 0 off, 1 on, 2 any mappable descriptor")    \
    NUMBER(peermem, "SOFTHCA_PEERMEM", 1, 0, 1, "0: ibv_reg_mr refuses CUDA memory")                \
    NUMBER(pull_kib, "SOFTHCA_PULL_KIB", 1024, 0, 65536,                                           \
           "KiB of CUDA memory that a packet may name for the receiver to copy; 0: all is staged")  \
    NUMBER(pull_overlap, "SOFTHCA_PULL_OVERLAP", 1, 0, 1, "1: ask for a copy engine beside kernels") \
    NUMBER(ahead_ns, "SOFTHCA_AHEAD_NS", 80000, 1000, 10000000,                                     \
           "ns that a modelled port may be ahead of its line rate")                                 \
    NUMBER(word_ns, "SOFTHCA_WORD_NS", 1500, 0, 100000,                                             \
           "ns that a GPU needs at least to write a word that it is asked for")                     \
    NUMBER(copy_ns, "SOFTHCA_COPY_NS", 20000, 0, 10000000000,                                       \
           "ns before they must have ended at which copies of CUDA memory begin")                   \
    NUMBER(no_ipc_lock, "SOFTHCA_NO_IPC_LOCK", 0, 0, 1, "1: act as if CAP_IPC_LOCK were missing")   \
    NUMBER(max_qp_wr, "SOFTHCA_MAX_QP_WR", 16384, 1, 32768, "largest queue of a queue pair")        \
    NUMBER(max_cqe, "SOFTHCA_MAX_CQE", 1048576, 16, 4194304, "largest completion queue")            \
    NUMBER(max_mr, "SOFTHCA_MAX_MR", 65535, 1, 65535, "memory regions of a process")
// clang-format on

struct softhca_config {
#define FIELD(field, env, def, lo, hi, sentence) uint64_t field;
    SOFTHCA_NUMBERS(FIELD)
#undef FIELD
    uint64_t device_gbps[8]; // SOFTHCA_DEVICE_GBPS; speed_gbps where it says nothing
    int roce;                // SOFTHCA_LINK: 0 "ib" (default), 1 "roce"
    char fabric[160];        // SOFTHCA_FABRIC: directory of the fabric
    char node[64];           // SOFTHCA_NODE, else NCCL_HOSTID, else the host name
    char faults[512];        // SOFTHCA_FAULTS: rules as fault.h spells them, separated by ';'
};

// 0, or -EINVAL after saying on stderr which variable is out of range.
int softhca_config_read(struct softhca_config *out_config);

// Only for softhca-ctl: the directory that softhca_config_read would choose.
void softhca_config_fabric(char out_path[160]);

void softhca_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
