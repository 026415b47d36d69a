// SPDX-License-Identifier: Apache-2.0
// Emulated GPUs: words in global memory, shared memory, mbarriers.
#include "test/emulated/machine.h"

#include <algorithm>

#define SHARED_BASE 1024u /* of the memory that the kernel gets: no shared address is 0 */

static std::vector<fiber *> dirty; /* those that have stores which others do not see */

static void apply(const later &s)
{
    if (s.bytes == 8) {
        __atomic_store_n((uint64_t *)s.to, s.value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n((uint32_t *)s.to, (uint32_t)s.value, __ATOMIC_RELEASE);
    }
}

static void apply_all(fiber *f)
{
    for (const later &s : f->stores) {
        apply(s);
    }
    f->stores.clear();
}

void emulated_release(void)
{
    apply_all(emulated_current);
}

/* Stores of a thread to one word keep their order. */
void emulated_store_later(void *to, const void *from, uint32_t bytes)
{
    later s = {to, 0, bytes};

    memcpy(&s.value, from, bytes);
    for (const later &earlier : emulated_current->stores) {
        if (earlier.to == to) {
            apply_all(emulated_current);
            break;
        }
    }
    if (emulated_current->stores.empty()) {
        dirty.push_back(emulated_current);
    }
    emulated_current->stores.push_back(s);
}

/* One store of one thread. */
void emulated_store_step(void)
{
    uint32_t i = emulated_chance((uint32_t)dirty.size());
    fiber *f = dirty[i];

    if (!f->stores.empty()) {
        apply(emulated_take(f->stores, emulated_chance((uint32_t)f->stores.size())));
    }
    if (f->stores.empty()) {
        (void)emulated_take(dirty, i);
    }
}

uint64_t emulated_load(const uint64_t *word)
{
    bool again = emulated_current->last_word == word &&
                 emulated_current->last_value == __atomic_load_n(word, __ATOMIC_ACQUIRE);

    if (again || emulated_chance(4) == 0) {
        emulated_yield(again);
    }
    for (const later &s : emulated_current->stores) {
        if (s.to == word) {
            emulated_release();
            break;
        }
    }
    emulated_current->last_word = word;
    emulated_current->last_value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    return emulated_current->last_value;
}

bool emulated_stores_wait(void)
{
    return !dirty.empty();
}

void emulated_forget_stores(const emulated_grid *grid)
{
    dirty.erase(std::remove_if(dirty.begin(), dirty.end(),
                               [=](const fiber *f) { return f->home->grid == grid; }),
                dirty.end());
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

void emulated_mbarrier_complete(cta *c, uint32_t bar, uint32_t bytes)
{
    ((bar_word *)(c->shared + bar))->bytes -= (int32_t)bytes;
    finish_phase(c, bar);
}

void emulated_mbarrier_init(uint32_t bar, uint32_t arrivals)
{
    bar_word *w = (bar_word *)emulated_shared(bar);

    *w = {0, (uint16_t)arrivals, (uint16_t)(arrivals * 2)};
}

void emulated_mbarrier_arrive(uint32_t cta_index, uint32_t bar, uint32_t expected_bytes)
{
    cta *c = emulated_in_cluster(emulated_current->home, cta_index);
    bar_word *w = (bar_word *)(c->shared + bar);

    emulated_release();
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
