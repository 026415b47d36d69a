// SPDX-License-Identifier: Apache-2.0
// Every atomic access and barrier the CPU side may use, named by its use.
//
// The words are plain integers in memory that other threads, other processes, the GPU or the NIC
// see, so the accesses are spelled here and nowhere else. A C11 acquire or release access covers
// all observers that are cache-coherent with this CPU: other processes, DMA writes of a NIC, and a
// GPU that reads or writes with .sys scope. It promises nothing for a GPU access of .gpu scope.
#ifndef GEMMAR_ORDER_H
#define GEMMAR_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GEMMAR_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define GEMMAR_TSAN 1
#endif
#if defined(GEMMAR_TSAN)
#include <sanitizer/tsan_interface.h>
#include <unistd.h>
#endif

/* Read a word whose writer published data before it; partner of gemmar_store_release, of a GPU's
 * st.release.sys, and of a NIC's stamp behind its data. */
static inline uint64_t gemmar_load_acquire(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Publish data written before; partner of gemmar_load_acquire and of a GPU's ld.acquire.sys. */
static inline void gemmar_store_release(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Counters and own words: no order asked for. */
static inline uint64_t gemmar_load_relaxed(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void gemmar_store_relaxed(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline uint64_t gemmar_add_relaxed(uint64_t *word, uint64_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

/* A counter with one writer, read by any thread. */
static inline void gemmar_count(uint64_t *word, uint64_t n)
{
    __atomic_store_n(word, *word + n, __ATOMIC_RELAXED);
}

/* Last-arriver counters: joins what all arrivers wrote before. */
static inline uint64_t gemmar_add_acq_rel(uint64_t *word, uint64_t value)
{
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

/* Entry of a call: who was here before. */
static inline uint64_t gemmar_exchange_acq_rel(uint64_t *word, uint64_t value)
{
    return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);
}

/* First-writer-wins records and wrapping counters; true: the word was `expected` and is `value`. */
static inline bool gemmar_claim(uint64_t *word, uint64_t expected, uint64_t value)
{
    return __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/*
 * A call begins: what the NIC of this process brings from the next call's peers comes after
 * everything that happened here before. The order is real (docs/design.md, section 4) but goes
 * through other processes of the node, where ThreadSanitizer cannot follow it; its partner is
 * softhca_sync_with_peers, and both do nothing in other builds. Not used with one rank per node,
 * where the sanitizer sees the whole chain.
 */
static inline void gemmar_order_call_begins(void)
{
#if defined(GEMMAR_TSAN)
    __tsan_release(&environ); /* an address that both libraries have */
#endif
}

/* Between two polls of one word. */
static inline void gemmar_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

#endif
