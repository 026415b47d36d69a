// SPDX-License-Identifier: Apache-2.0
// Every environment knob: one table. Read once, when a context is made; a value out of range is an
// error with a sentence, never a silent clamp. NCCL's own variables keep NCCL's meaning and
// default.
#ifndef GEMMAR_ENV_H
#define GEMMAR_ENV_H

#include <stddef.h>
#include <stdint.h>

#include "transport/log.h"

#define GEMMAR_KNOB_TEXT_BYTES 4096
#define GEMMAR_KNOB_OTHERS     32
#define GEMMAR_KNOB_NAME_BYTES 80

/*
 * X(member, type, variable, default, min, max, choices, sentence)
 * Types: INT (int64_t, decimal or 0x; min..max), TEXT (char[]), SECONDS (a decimal fraction, stored
 * as int64_t nanoseconds; min..max in seconds), CHOICE (int64_t, index into "a|b|c").
 */
#define GEMMAR_KNOBS(X)                                                                            \
    X(ib_disable, INT, "NCCL_IB_DISABLE", "0", 0, 1, "", "1: use no verbs device")                 \
    X(ib_hca, TEXT, "NCCL_IB_HCA", "", 0, 0, "",                                                   \
      "devices to use: prefixes, = exact, ^ exclude, optional :port")                              \
    X(ib_gid_index, INT, "NCCL_IB_GID_INDEX", "-1", -1, 65535, "",                                 \
      "index into a RoCE port's GID table; -1: choose")                                            \
    X(ib_roce_version, INT, "NCCL_IB_ROCE_VERSION_NUM", "2", 1, 2, "",                             \
      "RoCE version of the GID that is chosen")                                                    \
    X(ib_addr_family, CHOICE, "NCCL_IB_ADDR_FAMILY", "AF_INET", 0, 0, "AF_INET|AF_INET6",          \
      "address family of the GID that is chosen")                                                  \
    X(ib_addr_range, TEXT, "NCCL_IB_ADDR_RANGE", "", 0, 0, "",                                     \
      "CIDR range that the chosen GID must lie in")                                                \
    X(ib_timeout, INT, "NCCL_IB_TIMEOUT", "20", 0, 31, "",                                         \
      "local ACK timeout: 4.096 us * 2^value")                                                     \
    X(ib_retry_count, INT, "NCCL_IB_RETRY_CNT", "7", 0, 7, "", "transport retries")                \
    X(ib_mqp_retries, INT, "NCCL_IB_MQP_RETRY_CNT", "34", 0, 1000, "",                             \
      "retries of a queue pair's move that timed out")                                             \
    X(ib_mqp_retry_all, INT, "NCCL_IB_MQP_RETRY_ALL", "0", 0, 1, "",                               \
      "1: retry such a move after any error, not only a time-out")                                 \
    X(ib_mqp_sleep_ms, INT, "NCCL_IB_MQP_RETRY_SLEEP_MSEC", "100", 0, 60000, "",                   \
      "ms before such a retry, times its number")                                                  \
    X(ib_pkey, INT, "NCCL_IB_PKEY", "0", 0, 65535, "", "partition key index")                      \
    X(ib_sl, INT, "NCCL_IB_SL", "-1", -1, 15, "", "service level (InfiniBand); -1: 0")             \
    X(ib_tc, INT, "NCCL_IB_TC", "-1", -1, 255, "", "traffic class (RoCE); -1: 0")                  \
    X(ib_relaxed_ordering, INT, "NCCL_IB_PCI_RELAXED_ORDERING", "2", 0, 2, "",                     \
      "relaxed PCI ordering for bulk data: 0 never, 1 always, 2 where supported")                  \
    X(ib_qps, INT, "NCCL_IB_QPS_PER_CONNECTION", "1", 1, 32, "", "queue pairs per peer and rail")  \
    X(ib_ece, INT, "NCCL_IB_ECE_ENABLE", "1", 0, 1, "",                                            \
      "enhanced connection establishment where both ends have it")                                 \
    X(ib_fifo_tc, INT, "NCCL_IB_FIFO_TC", "-1", -1, 255, "",                                       \
      "traffic class (RoCE) of clear-to-send messages; -1: that of the data")                      \
    X(ib_split_data, INT, "NCCL_IB_SPLIT_DATA_ON_QPS", "0", 0, 1, "",                              \
      "1: split each message over all queue pairs, 0: one after the other")                        \
    X(ib_adaptive_routing, INT, "NCCL_IB_ADAPTIVE_ROUTING", "-2", -2, 1, "",                       \
      "1: the fabric may reorder packets; -2: on InfiniBand only")                                 \
    X(ib_ar_threshold, INT, "NCCL_IB_AR_THRESHOLD", "8192", -2, INT64_MAX / 2, "",                 \
      "bytes above which adaptive routing moves the completion to a write of its own; -2: 8192")   \
    X(ib_async_events, INT, "NCCL_IB_RETURN_ASYNC_EVENTS", "1", 0, 1, "",                          \
      "1: a fatal device event fails the calls, 0: it is only logged")                             \
    X(ib_merge_vfs, INT, "NCCL_IB_MERGE_VFS", "1", 0, 1, "",                                       \
      "1: virtual functions of one adapter count as its ports")                                    \
    X(ib_merge_nics, INT, "NCCL_IB_MERGE_NICS", "1", 0, 1, "",                                     \
      "1: NCCL may join devices into a virtual one")                                               \
    X(gdr_flush_disable, INT, "NCCL_GDR_FLUSH_DISABLE", "0", 0, 1, "",                             \
      "1: no flush of what a device wrote into GPU memory")                                        \
    X(port_failover, INT, "NCCL_IB_RESILIENCY_PORT_FAILOVER", "0", 0, 1, "",                       \
      "1: a failed port's traffic moves to another rail; unset: GEMMAR_NET_FAILOVER decides")      \
    X(port_failover_delay_ms, INT, "NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY", "10", 0,        \
      3600000, "", "ms before a sender asks which messages arrived")                               \
    X(port_recovery, INT, "NCCL_IB_RESILIENCY_PORT_RECOVERY", "0", 0, 1, "",                       \
      "1: traffic returns to a port that healed; unset: GEMMAR_NET_FAILOVER decides")              \
    X(port_recovery_start_ms, INT, "NCCL_IB_RESILIENCY_PORT_RECOVERY_START_DELAY", "200", 0,       \
      3600000, "", "ms after a failure before its port is tried")                                  \
    X(port_recovery_batch, INT, "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE", "5", 1,   \
      10, "", "trial messages of a batch")                                                         \
    X(port_recovery_attempts, INT, "NCCL_IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX", "5", 1, 1000,  \
      "", "trials before a port stays unused")                                                     \
    X(ibverbs_lib, TEXT, "NCCL_IBVERBS_LIB", "", 0, 0, "", "path of libibverbs")                   \
    X(socket_ifname, TEXT, "NCCL_SOCKET_IFNAME", "", 0, 0, "",                                     \
      "interfaces for set-up: prefixes, = exact, ^ exclude")                                       \
    X(socket_family, CHOICE, "NCCL_SOCKET_FAMILY", "any", 0, 0, "any|AF_INET|AF_INET6",            \
      "address family for set-up")                                                                 \
    X(comm_id, TEXT, "NCCL_COMM_ID", "", 0, 0, "",                                                 \
      "host:port of rank 0; set-up prefers the interface of its subnet")                           \
    X(hostid, TEXT, "NCCL_HOSTID", "", 0, 0, "", "ranks with equal text are one node")             \
    X(nccl_net, TEXT, "NCCL_NET", "", 0, 0, "",                                                    \
      "network that NCCL asks for by its name; only gemmar_info looks at it")                      \
    X(nccl_net_plugin, TEXT, "NCCL_NET_PLUGIN", "", 0, 0, "",                                      \
      "plugins that NCCL tries; only gemmar_info looks at it")                                     \
    X(nccl_ref_count, TEXT, "NCCL_NET_PLUGIN_REF_COUNT", "", 0, 0, "",                             \
      "1: NCCL keeps the plugin loaded; only gemmar_info looks at it")                             \
    X(nccl_debug, TEXT, "NCCL_DEBUG", "", 0, 0, "",                                                \
      "lines to log where GEMMAR_DEBUG is unset: VERSION, WARN, INFO, TRACE")                      \
    X(debug, CHOICE, "GEMMAR_DEBUG", "warn", 0, 0, "none|warn|info|trace", "lines to log")         \
    X(timeout, SECONDS, "GEMMAR_TIMEOUT", "60", 0.001, 86400, "",                                  \
      "seconds to wait for a peer before the communicator breaks")                                 \
    X(setup_timeout, SECONDS, "GEMMAR_SETUP_TIMEOUT", "300", 0.001, 86400, "",                     \
      "seconds that the set-up of one connection of NCCL may take")                                \
    X(transport, TEXT, "GEMMAR_TRANSPORT", "", 0, 0, "", "path of libnccl-net-gemmar.so")          \
    X(ibverbs, TEXT, "GEMMAR_IBVERBS", "", 0, 0, "", "path of libibverbs.so.1")                    \
    X(net_failover, INT, "GEMMAR_NET_FAILOVER", "1", 0, 1, "",                                     \
      "1: traffic moves off a failed port of several and returns when it heals")                   \
    X(signal, CHOICE, "GEMMAR_SIGNAL", "stamp", 0, 0, "stamp|imm",                                 \
      "how an arrival is told: a write behind the data, or an immediate")                          \
    X(ring_entries, INT, "GEMMAR_RING_ENTRIES", "4096", 1, 1048576, "",                            \
      "commands in the device-to-host ring, a power of two")                                       \
    X(proxy_pin, INT, "GEMMAR_PROXY_PIN", "1", 0, 1, "",                                           \
      "1: the proxy may prefer CPUs near the device, inside the inherited mask")                   \
    X(algo, CHOICE, "GEMMAR_ALGO", "auto", 0, 0, "auto|direct|two-shot",                           \
      "algorithm between nodes")                                                                   \
    X(tile_m, INT, "GEMMAR_TILE_M", "0", 0, 1024, "", "rows of a tile; 0: the plan's")             \
    X(tile_n, INT, "GEMMAR_TILE_N", "0", 0, 1024, "", "columns of a tile; 0: the plan's")          \
    X(chunk, INT, "GEMMAR_CHUNK", "0", 0, 1024, "", "tiles of a chunk; 0: the plan's")             \
    X(ctas, INT, "GEMMAR_CTAS", "0", 0, 1024, "", "threads or CTAs of a call; 0: the plan's")      \
    X(max_ctas, INT, "GEMMAR_MAX_CTAS", "0", 0, 1024, "",                                          \
      "CTAs of a call on a GPU at most, so that other kernels have room; 0: all that fit")         \
    X(strategy, CHOICE, "GEMMAR_STRATEGY", "auto", 0, 0, "auto|push|pull|exchange",                \
      "how the products of a node's GPUs come together")                                           \
    X(tuning, TEXT, "GEMMAR_TUNING", "", 0, 0, "",                                                 \
      "path of a tuning table for GPUs, read by rank 0 for all ranks")                             \
    X(deterministic, INT, "GEMMAR_DETERMINISTIC", "0", 0, 1, "",                                   \
      "1: calls on GPUs run by their shape alone, without a tuning table")                         \
    X(stages, INT, "GEMMAR_STAGES", "0", 0, 64, "",                                                \
      "depth of the GPU's operand pipeline; 0: the plan's")                                        \
    X(check, INT, "GEMMAR_CHECK", "0", 0, 1, "",                                                   \
      "1: compare the arguments of every call between the ranks")                                  \
    X(trace, TEXT, "GEMMAR_TRACE", "", 0, 0, "",                                                   \
      "path that a GPU rank's stage trace of its last call is appended to, %r: its rank")          \
    X(epoch_start, INT, "GEMMAR_EPOCH_START", "1", 1, (INT64_C(1) << 47) - 1, "",                  \
      "epoch of the first call (for tests of wrapping counters)")

enum gemmar_knob_type {
    GEMMAR_KNOB_INT,
    GEMMAR_KNOB_TEXT,
    GEMMAR_KNOB_SECONDS,
    GEMMAR_KNOB_CHOICE,
};

enum gemmar_knob_origin {
    GEMMAR_KNOB_DEFAULT,
    GEMMAR_KNOB_FILE,
    GEMMAR_KNOB_ENVIRONMENT,
};

enum gemmar_family { /* of socket_family */
                     GEMMAR_FAMILY_ANY,
                     GEMMAR_FAMILY_IPV4,
                     GEMMAR_FAMILY_IPV6,
};

enum gemmar_debug {
    GEMMAR_DEBUG_NONE,
    GEMMAR_DEBUG_WARN,
    GEMMAR_DEBUG_INFO,
    GEMMAR_DEBUG_TRACE,
};

enum gemmar_knob_index {
#define GEMMAR_KNOB_INDEX(member, ...) GEMMAR_KNOB_##member,
    GEMMAR_KNOBS(GEMMAR_KNOB_INDEX)
#undef GEMMAR_KNOB_INDEX
        GEMMAR_KNOB_COUNT
};

/* A row of the table as data, for documentation and tools. */
struct gemmar_knob {
    const char *variable;
    enum gemmar_knob_type type;
    const char *standard;
    double min, max;
    const char *choices;
    const char *sentence;
    size_t offset; /* in struct gemmar_knobs */
};

/* All values. Texts are "" when unset. Heap or static storage: it is large. */
struct gemmar_knobs {
#define GEMMAR_KNOB_MEMBER_INT(member)        int64_t member;
#define GEMMAR_KNOB_MEMBER_SECONDS(member)    int64_t member;
#define GEMMAR_KNOB_MEMBER_CHOICE(member)     int64_t member;
#define GEMMAR_KNOB_MEMBER_TEXT(member)       char member[GEMMAR_KNOB_TEXT_BYTES];
#define GEMMAR_KNOB_MEMBER(member, type, ...) GEMMAR_KNOB_MEMBER_##type(member)
    GEMMAR_KNOBS(GEMMAR_KNOB_MEMBER)
#undef GEMMAR_KNOB_MEMBER
    enum gemmar_knob_origin origin[GEMMAR_KNOB_COUNT];
    /* Names of NCCL_IB_ and GEMMAR_ variables that are set but not in the table, nor read by a
     * program of gemmar; those beyond the room are dropped. */
    int others;
    char other[GEMMAR_KNOB_OTHERS][GEMMAR_KNOB_NAME_BYTES];
};

/* A variable of NCCL 2.28.9 to 2.30.7 that has no effect here, and why. */
struct gemmar_ignored {
    const char *variable, *reason;
};

/* Ends with a NULL variable. */
const struct gemmar_ignored *gemmar_ignored_table(void);

/* Log what was set in vain: an ignored variable at level info, an unknown one, which may be
 * misspelt, as a warning. Each name once in a process by each library. Any thread. */
void gemmar_knobs_report_others(const struct gemmar_knobs *knobs, const struct gemmar_logger *log);

/* The table, [GEMMAR_KNOB_COUNT]. */
const struct gemmar_knob *gemmar_knob_table(void);

/* Parse one value into its member. -EINVAL: `why` says what is wrong with it, and the member is
 * unchanged. */
int gemmar_knob_parse(struct gemmar_knobs *knobs, const struct gemmar_knob *knob, const char *text,
                      char *why, size_t why_bytes);

/* Defaults, then the file of NCCL_CONF_FILE or ~/.nccl.conf, then what /etc/nccl.conf adds, then
 * the environment. -EINVAL with a logged sentence for each value that is not taken, naming its
 * variable; the others are read all the same. Also sets log->level, and with it `debug`, from
 * GEMMAR_DEBUG or else NCCL_DEBUG. */
int gemmar_knobs_read(struct gemmar_knobs *knobs, struct gemmar_logger *log);

#endif
