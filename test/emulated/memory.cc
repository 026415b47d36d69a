// SPDX-License-Identifier: Apache-2.0
// Emulated GPUs: words in global memory, shared memory, mbarriers.
#include "test/emulated/machine.h"

#include <algorithm>

#define SHARED_BASE 1024u /* of the memory that the kernel gets: no shared address is 0 */
#define MOST_POOLED 64u   /* stores of a CTA: they are searched often */

static std::vector<stores *> listed; /* those that are not empty, and some that are */

static void apply(const later &s)
{
    if (s.to == NULL) {
        s.copy();
    } else if (s.bytes == 8) {
        __atomic_store_n((uint64_t *)s.to, s.value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n((uint32_t *)s.to, (uint32_t)s.value, __ATOMIC_RELEASE);
    }
}

static void apply_all(stores &s)
{
    for (const later &l : s.waiting) {
        apply(l);
    }
    s.waiting.clear();
}

/* A quarter of them. */
static void apply_some(stores &s)
{
    for (size_t n = (s.waiting.size() + 3) / 4; n > 0; n--) {
        apply(emulated_take(s.waiting, emulated_chance((uint32_t)s.waiting.size())));
    }
}

static void add(stores &s, const later &l)
{
    s.waiting.push_back(l);
    if (!s.listed) {
        s.listed = true;
        listed.push_back(&s);
    }
}

static bool touches(const stores &s, const void *from, uint32_t bytes)
{
    for (const later &l : s.waiting) {
        if ((const char *)l.to < (const char *)from + bytes &&
            (const char *)from < (const char *)l.to + l.bytes) {
            return true;
        }
    }
    return false;
}

static void move_all(stores &from, stores &to)
{
    for (const later &l : from.waiting) {
        add(to, l);
    }
    from.waiting.clear();
}

void emulated_release(void)
{
    apply_all(emulated_current->home->pool);
    apply_all(emulated_current->own);
}

void emulated_release_to_cta(void)
{
    stores &pool = emulated_current->home->pool;

    move_all(emulated_current->own, pool);
    while (pool.waiting.size() > MOST_POOLED) {
        apply_some(pool);
    }
}

/* Stores to one word keep their order. */
static void keep_order(const void *word, uint32_t bytes)
{
    if (touches(emulated_current->home->pool, word, bytes) ||
        touches(emulated_current->own, word, bytes)) {
        emulated_release();
    }
}

void emulated_store_later(void *to, const void *from, uint32_t bytes)
{
    later s = {to, 0, bytes, NULL};

    memcpy(&s.value, from, bytes);
    keep_order(to, bytes);
    add(emulated_current->own, s);
}

void emulated_store_copied(fiber *by, std::function<void()> copy)
{
    add(by->copied, {NULL, 0, 0, copy});
}

void emulated_fence_async(void)
{
    emulated_current->unfenced.clear();
    move_all(emulated_current->copied, emulated_current->own);
}

bool emulated_stores_wait(void)
{
    return !listed.empty();
}

/* A store of one thread or CTA, or some, so that many do not take long. */
void emulated_store_step(void)
{
    uint32_t i = emulated_chance((uint32_t)listed.size());
    stores &s = *listed[i];

    apply_some(s);
    if (s.waiting.empty()) {
        s.listed = false;
        (void)emulated_take(listed, i);
    }
}

static void end(stores &s)
{
    apply_all(s);
    if (s.listed) {
        listed.erase(std::find(listed.begin(), listed.end(), &s));
    }
}

void emulated_end_stores(const emulated_grid *grid)
{
    for (cta *c : grid->ctas) {
        end(c->pool);
        for (fiber *f : c->fibers) {
            end(f->own);
            end(f->copied);
        }
    }
}

uint64_t emulated_load(const uint64_t *word)
{
    seen &last = emulated_current->last[((uintptr_t)word >> 11 ^ (uintptr_t)word >> 3) % LAST_SEEN];
    bool again = last.word == word && last.value == __atomic_load_n(word, __ATOMIC_ACQUIRE);

    if (again || emulated_chance(4) == 0) {
        emulated_yield(again);
    }
    keep_order(word, 16);
    last.word = word;
    last.value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    return last.value;
}

/* In the eight bytes of the barrier. */
struct bar_word {
    int32_t bytes; /* that are still to come */
    uint16_t arrivals;
    uint16_t of_phase; /* arrivals of a phase * 2 + parity of the phase */
};
static_assert(sizeof(bar_word) == 8, "an mbarrier is a word");

uint8_t *emulated_shared_base(void)
{
    return emulated_current->home->shared + SHARED_BASE;
}

uint32_t emulated_shared_address(const void *p)
{
    uint64_t offset = (uint64_t)((const uint8_t *)p - emulated_current->home->shared);

    if (offset >= EMULATED_SHARED_BYTES) {
        emulated_fail("not an address in shared memory");
    }
    return (uint32_t)offset;
}

uint8_t *emulated_shared(uint32_t address)
{
    if (address >= EMULATED_SHARED_BYTES) {
        emulated_fail("behind the end of shared memory");
    }
    return emulated_current->home->shared + address;
}

cta *emulated_in_cluster(cta *home, uint32_t i)
{
    return home->grid->ctas[home->index / CLUSTER * CLUSTER + i];
}

static void finish_phase(cta *c, uint32_t bar)
{
    bar_word *w = (bar_word *)(c->shared + bar);

    if (w->arrivals > 0 || w->bytes != 0) {
        return;
    }
    w->of_phase ^= 1;
    w->arrivals = w->of_phase / 2;
    for (fiber *f : c->fibers) {
        if (f->blocked != NULL && f->bar == bar && (w->of_phase & 1) != f->phase) {
            f->bar = 0;
            emulated_wake(f);
        }
    }
}

void emulated_expect_whole_phases(const cta *c)
{
    for (uint32_t bar : c->bars_in_use) {
        const bar_word *w = (const bar_word *)(c->shared + bar);

        if (w->bytes != 0 || w->arrivals != w->of_phase / 2) {
            emulated_fail("a kernel ended in the middle of a phase of an mbarrier");
        }
    }
}

void emulated_mbarrier_complete(cta *c, uint32_t bar, uint32_t bytes)
{
    ((bar_word *)(c->shared + bar))->bytes -= (int32_t)bytes;
    finish_phase(c, bar);
}

void emulated_mbarrier_init(uint32_t bar, uint32_t arrivals)
{
    bar_word *w = (bar_word *)emulated_shared(bar);

    *w = {0, (uint16_t)arrivals, (uint16_t)(arrivals * 2)};
    emulated_current->home->bars_in_use.push_back(bar);
}

void emulated_mbarrier_arrive(uint32_t cta_index, uint32_t bar, uint32_t expected_bytes)
{
    cta *c = emulated_in_cluster(emulated_current->home, cta_index);
    bar_word *w = (bar_word *)(c->shared + bar);

    emulated_release_to_cta();
    if (c->living == 0) {
        emulated_fail("arrived at a barrier of a CTA that has ended");
    }
    if (w->arrivals == 0) {
        emulated_fail("one arrival too many");
    }
    w->bytes += (int32_t)expected_bytes;
    w->arrivals--;
    finish_phase(c, bar);
}

void emulated_mbarrier_wait(uint32_t bar, uint32_t phase)
{
    bar_word *w = (bar_word *)emulated_shared(bar);

    if ((w->of_phase & 1) != phase) {
        return;
    }
    emulated_current->bar = bar;
    emulated_current->phase = phase;
    emulated_block("an mbarrier");
}
