// SPDX-License-Identifier: Apache-2.0
// Every barrier, atomic and sleep softhca may use. No other file of softhca spells one.
#ifndef GEMMAR_SOFTHCA_SYNC_H
#define GEMMAR_SOFTHCA_SYNC_H

#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SOFTHCA_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define SOFTHCA_TSAN 1
#endif
#if defined(SOFTHCA_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// A packet comes from another process, which may have learned from a third one what this process
// did: ThreadSanitizer cannot follow that. Partner of gemmar_order_call_begins; other builds: none.
static inline void softhca_sync_with_peers(void)
{
#if defined(SOFTHCA_TSAN)
    __tsan_acquire(&environ);
#endif
}

// Single words. "acquire" pairs with the "release" of the same word.
#define SOFTHCA_LOAD_ACQUIRE(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define SOFTHCA_LOAD_RELAXED(p)     __atomic_load_n((p), __ATOMIC_RELAXED)
#define SOFTHCA_STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define SOFTHCA_STORE_RELAXED(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

// "store mine, then look at yours" between two parties that both do so: work published against a
// sleeper's flag, a completion against an armed queue. Only sequential consistency makes at least
// one of the two see the other. A fence would do too, but ThreadSanitizer does not know fences.
#define SOFTHCA_LOAD_SC(p)        __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define SOFTHCA_STORE_SC(p, v)    __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define SOFTHCA_EXCHANGE_SC(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define SOFTHCA_ADD(p, v)         __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define SOFTHCA_SUB(p, v)         __atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST)
#define SOFTHCA_OR(p, v)          __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define SOFTHCA_AND(p, v)         __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
#define SOFTHCA_CAS(p, expected, v)                                                                \
    __atomic_compare_exchange_n((p), (expected), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

static inline uint64_t softhca_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); // cannot fail for this clock
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void softhca_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// Sleep while *word == seen, at most ns. Spurious returns are fine for every caller.
static inline void softhca_futex_wait(uint32_t *word, uint32_t seen, uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
}

static inline void softhca_futex_wake(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

// Progress thread only. What a NIC does to memory: bytes become visible in address order, and a
// reader that sees an aligned word of the tail with an acquire load sees every byte before it.
void softhca_dma_write(void *dst, const void *src, uint64_t len);
// Progress thread only. The opposite direction: words that the program publishes with release
// stores are read whole.
void softhca_dma_read(void *dst, const void *src, uint64_t len);

#endif
