// SPDX-License-Identifier: Apache-2.0
// Settings of a communicator: the caller's config over the knobs.
#ifndef GEMMAR_KERNELS_SETTINGS_H
#define GEMMAR_KERNELS_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#include <gemmar/gemmar.h>

#include "kernels/error.h"
#include "kernels/plan.h"
#include "transport/env.h"
#include "transport/log.h"

/* Of a config of the first layout, which callers may have been built with. */
#define GEMMAR_CONFIG_LEAST offsetof(gemmarConfig_t, strategy)

/* Members down to `deterministic` must be equal on all ranks. */
struct gemmar_settings {
    uint64_t algo; /* enum gemmar_algo, 0: the plan chooses */
    uint64_t tile_m, tile_n, chunk;
    uint64_t timeout_ns;
    uint64_t check;
    uint64_t epoch_start;
    uint64_t signal;        /* enum gemmar_signal_mode */
    uint64_t strategy;      /* GPU: enum gemmar_strategy + 1; 0: the plan chooses */
    uint64_t deterministic; /* GPU: 1: the plan has no tuning table */

    uint32_t ctas;
    uint32_t max_ctas; /* GPU: that may be resident; 0: all that fit */
    /* GPU: the fewest multiprocessors, and CTAs of the kernel that can be resident, of any rank; 0
     * on the CPU. Set by attaching. */
    uint32_t sms, resident;
    uint32_t net_mbps; /* what the slowest rank can send to other nodes, Mbit/s; 0: unknown. Set by
                          attaching */
    const struct gemmar_tuning *table; /* GPU: of rank 0; NULL: none. Set by gemmar_comm_tune() */
    uint32_t ring_entries;
    char transport[GEMMAR_KNOB_TEXT_BYTES]; /* path, or "" */
    char tuning[GEMMAR_KNOB_TEXT_BYTES];    /* path, or "" */
    char trace[GEMMAR_KNOB_TEXT_BYTES];     /* GPU: path, or "" */
    char node[256];                         /* text that tells nodes apart */
};

/* The agreed members, by name, for the comparison between ranks. */
#define GEMMAR_SETTINGS_AGREED(X)                                                                  \
    X(algo, "algo")                                                                                \
    X(tile_m, "tile_m")                                                                            \
    X(tile_n, "tile_n")                                                                            \
    X(chunk, "chunk")                                                                              \
    X(timeout_ns, "timeout (ns)")                                                                  \
    X(check, "check")                                                                              \
    X(epoch_start, "GEMMAR_EPOCH_START")                                                           \
    X(signal, "GEMMAR_SIGNAL")                                                                     \
    X(strategy, "strategy")                                                                        \
    X(deterministic, "deterministic")

/* Knobs, then `config` (may be NULL) over them. Sets log->level. `node_text` may be NULL. The
 * result; `error` says what is wrong. */
gemmarResult_t gemmar_settings_make(struct gemmar_settings *out, const gemmarConfig_t *config,
                                    const char *node_text, struct gemmar_logger *log,
                                    struct gemmar_error *error);

/* What the plan may know. */
struct gemmar_plan_facts gemmar_settings_facts(const struct gemmar_settings *settings,
                                               uint32_t nodes, uint32_t locals);

/* The wire type of a public data type; -EINVAL for any other value. */
int gemmar_settings_dtype(gemmarDataType_t datatype, uint32_t *out_dtype);

#endif
