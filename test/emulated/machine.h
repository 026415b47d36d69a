// SPDX-License-Identifier: Apache-2.0
// What the parts of the emulated GPUs share: threads, CTAs, grids. All of it under the runtime's
// lock.
#ifndef GEMMAR_TEST_EMULATED_MACHINE_H
#define GEMMAR_TEST_EMULATED_MACHINE_H

#include <csetjmp>
#include <deque>
#include <memory>
#include <ucontext.h>
#include <vector>

#include "test/emulated/gpu.h"

#define CLUSTER   2u /* CTAs */
#define WARPGROUP 128u

struct fiber;

/* Who has come to a rendezvous. */
struct meeting {
    std::vector<fiber *> inside;
};

struct warp {
    meeting all, values;
    uint64_t value[2][32]; /* of the last two exchanges */
};

/* A store that others do not see yet: of 4 or 8 bytes, or by the copy engine. */
struct later {
    void *to; /* NULL: by the copy engine */
    uint64_t value;
    uint32_t bytes;
    std::function<void()> copy;
};

struct stores {
    std::vector<later> waiting;
    bool listed; /* among those of which one is drawn */
};

struct cta {
    emulated_grid *grid;
    uint32_t index;
    uint8_t *shared; /* EMULATED_SHARED_BYTES */
    std::vector<fiber *> fibers;
    std::vector<warp> warps;
    meeting bars[16];
    std::vector<meeting> warpgroups;
    stores pool;                       /* released inside of the CTA, and no further */
    std::vector<uint32_t> bars_in_use; /* mbarriers */
    uint32_t copies;                   /* that still use the shared memory */
    uint32_t living;
};

struct emulated_grid {
    std::function<void()> thread;
    uint32_t threads;
    std::vector<cta *> ctas;
    std::vector<meeting> clusters;
    uint32_t living, copies;
};

/* Bulk stores that were committed together. */
struct group {
    uint32_t reads, writes; /* that are not done */
};

/* Of shared memory, from `address` on. */
struct range {
    uint32_t address, bytes;
};

struct mma {
    float *d;
    uint32_t columns;
    bool bf16, trans_b, accumulate;
    uint32_t a, b; /* descriptors, low half */
};

#define LAST_SEEN 8

/* What a thread has loaded. */
struct seen {
    const uint64_t *word;
    uint64_t value;
};

struct fiber {
    cta *home;
    uint32_t thread;
    bool started, ended, slow;
    jmp_buf at;
    ucontext_t first;
    char *stack;
    const char *blocked;   /* NULL: it can run */
    uint32_t bar, phase;   /* that it is blocked at */
    bool bulk, bulk_reads; /* it is blocked until these stores are done, or have been read: */
    uint32_t bulk_pending; /* all groups but so many */
    uint64_t exchanges;
    stores own, copied; /* copied: by the copy engine, and no fence has come behind it */
    seen last[LAST_SEEN];
    std::vector<range> unfenced; /* written, and no fence for the copy engine since */
    std::shared_ptr<group> open;
    std::deque<std::shared_ptr<group>> committed;
    std::vector<mma> mmas;
    std::deque<std::vector<mma>> mma_groups;
};

extern fiber *emulated_current; /* the one that runs; NULL: the scheduler does */

/* Ends the program. */
[[noreturn]] void emulated_fail(const char *what);

/* Of [0, n). */
uint32_t emulated_chance(uint32_t n);

/* An element, of which the order does not matter. */
template <class T> static inline T emulated_take(std::vector<T> &from, uint32_t i)
{
    T x = from[i];

    from[i] = from.back();
    from.pop_back();
    return x;
}

/* The current thread until another one wakes it; `why` for who looks. */
void emulated_block(const char *why);
void emulated_wake(fiber *f);

/* True for the last of `threads`, before the others go on. */
bool emulated_meet(meeting &m, uint32_t threads, const char *why);

cta *emulated_in_cluster(cta *home, uint32_t i);

/* 128-byte swizzle of a shared address: which of the eight words of 16 bytes of a line, by the
 * line. */
static inline uint32_t emulated_swizzle(uint32_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

/* Nobody is in the middle of a phase. */
void emulated_expect_whole_phases(const cta *c);

/* `bytes` of what was expected have come to a barrier. */
void emulated_mbarrier_complete(cta *c, uint32_t bar, uint32_t bytes);

/* What gets on by itself: one step, if there is something to do. */
bool emulated_stores_wait(void);
void emulated_store_step(void);
void emulated_store_copied(fiber *by, std::function<void()> copy);
void emulated_end_stores(const emulated_grid *grid); /* that has ended: all see them */
bool emulated_copies_wait(void);
void emulated_copy_step(void);

#endif
