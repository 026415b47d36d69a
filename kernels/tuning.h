// SPDX-License-Identifier: Apache-2.0
// The tuning table: for calls that were measured (gemmar_perf --tune), how they run best.
//
// A text file. Of each line what follows a # is left out; an empty line is skipped. The others are
//
//   M N K TYPE G TILE STRATEGY LEAD LINK BAND      8192 8192 4096 bf16 2 256x256 push 2 1048576 8
//
// TYPE is bf16 or fp16, G the ranks of a node, TILE one of the kernel's, STRATEGY push, pull or
// exchange (which is push where ranks cannot exchange: kernels/plan.h); LEAD, LINK (bytes) and BAND
// as in struct gemmar_tuned. No two lines have the same M N K TYPE G. Whether B is transposed is
// not part of it: that may differ between ranks, and these choices may not.
#ifndef GEMMAR_KERNELS_TUNING_H
#define GEMMAR_KERNELS_TUNING_H

#include <stddef.h>
#include <stdint.h>

#define GEMMAR_TUNING_ENTRIES    256
#define GEMMAR_TUNING_BYTES      65536 /* of a file */
#define GEMMAR_TUNING_LINE_BYTES 128   /* that gemmar_tuning_line writes, with the final 0 */
#define GEMMAR_TUNING_MAX_SIZE   (INT64_C(1) << 40)
#define GEMMAR_TUNING_MAX_LEAD   16
#define GEMMAR_TUNING_MAX_LINK   (64 << 20)
#define GEMMAR_TUNING_MAX_BAND   1024

/* How a call runs. */
struct gemmar_tuned {
    uint32_t shape;      /* enum gemmar_tile_shape */
    uint32_t strategy;   /* enum gemmar_strategy */
    uint32_t lead;       /* rounds, struct gemmar_visit_order */
    uint32_t link_bytes; /* on their way to other GPUs at once; 0: no limit */
    uint32_t band;       /* rows of chunks walked together */
};

struct gemmar_tuning_entry {
    int64_t m, n, k;
    uint32_t dtype;  /* GEMMAR_DTYPE_* */
    uint32_t locals; /* G */
    struct gemmar_tuned how;
    uint32_t pad; /* 0 */
};

/* The same bytes on all ranks: unused entries are zero. */
struct gemmar_tuning {
    uint64_t count;
    struct gemmar_tuning_entry entry[GEMMAR_TUNING_ENTRIES];
};

/* Parse a file's text. 0, or -EINVAL: `why` names the line and what is wrong, `out` is
 * untouched. */
int gemmar_tuning_parse(const char *text, size_t bytes, struct gemmar_tuning *out, char *why,
                        size_t why_bytes);

/* Read and parse a file. 0, or -errno: `why` begins with the path. */
int gemmar_tuning_read(const char *path, struct gemmar_tuning *out, char *why, size_t why_bytes);

/* The entry of this call, else that of the nearest M, at most half as large again or as small, with
 * everything else equal (of two as near the first); NULL: none. A pure function of its arguments.
 */
const struct gemmar_tuning_entry *gemmar_tuning_find(const struct gemmar_tuning *tuning, int64_t m,
                                                     int64_t n, int64_t k, uint32_t dtype,
                                                     uint32_t locals);

/* Put in an entry, in place of the one of the same call. 0, or -ENOSPC. */
int gemmar_tuning_put(struct gemmar_tuning *tuning, const struct gemmar_tuning_entry *entry);

/* push, pull or exchange; `strategy` is an enum gemmar_strategy. */
const char *gemmar_strategy_name(uint32_t strategy);

/* An entry as the text of a line, without its end. */
void gemmar_tuning_line(const struct gemmar_tuning_entry *entry, char *text, size_t bytes);

#endif
