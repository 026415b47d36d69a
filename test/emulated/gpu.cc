// SPDX-License-Identifier: Apache-2.0
// Threads, rendezvous, mbarriers, copy engine and tensor cores of the emulated GPUs.
#include "test/emulated/gpu.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <vector>

#include "kernels/dtype.h"

#define STACK_BYTES (64u * 1024u)
#define SHARED_BASE                                                                                \
    1024u /* of the memory that the kernel gets: a shared address of 0 is not used */
#define CLUSTER      2u
#define WARPGROUP    128u
#define POLL_EVERY   16u /* of so many steps one is of those that wait for a word */
#define IDLE_STEPS   64u /* without anything else: let other processes run */
#define MMA_ROWS     64
#define MMA_DEPTH    16
#define MOST_COLUMNS 256
#define BOX_COLUMNS  64

struct fiber;

/* Who has come to a rendezvous. */
struct meeting {
    std::vector<fiber *> inside;
};

struct warp {
    meeting all, values;
    uint64_t value[2][32]; /* of the last two exchanges */
};

struct emulated_grid;

struct cta {
    emulated_grid *grid;
    uint32_t index;
    uint8_t *shared; /* EMULATED_SHARED_BYTES */
    std::vector<fiber *> fibers;
    std::vector<warp> warps;
    meeting bars[16];
    std::vector<meeting> warpgroups;
    uint32_t copies; /* that still use the shared memory */
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

/* A store that others do not see yet. */
struct later {
    void *to;
    uint64_t value;
    uint32_t bytes;
};

struct mma {
    float *d;
    uint32_t columns;
    bool bf16, trans_b, accumulate;
    uint32_t a, b; /* descriptors, low half */
};

struct fiber {
    cta *home;
    uint32_t thread;
    bool started, polling, ended;
    jmp_buf at;
    ucontext_t first;
    char *stack;
    const char *blocked;   /* NULL: it can run */
    uint32_t bar, phase;   /* that it is blocked at */
    bool bulk, bulk_reads; /* it is blocked until these stores are done, or have been read: */
    uint32_t bulk_pending; /* all groups but so many */
    uint64_t exchanges;
    std::vector<later> stores;
    const uint64_t *last_word;
    uint64_t last_value;
    std::shared_ptr<group> open;
    std::deque<std::shared_ptr<group>> committed;
    std::vector<mma> mmas;
    std::deque<std::vector<mma>> mma_groups;
};

/* What the copy engine has to do. */
struct copy {
    cta *home;
    uint32_t at, bytes;
    uint32_t mask, bar;                  /* a load's */
    std::function<void(uint8_t *)> load; /* NULL: a store */
    std::function<void(const uint8_t *)> store;
    std::shared_ptr<group> of;
    fiber *owner;              /* of a store */
    std::vector<uint8_t> read; /* by a store, and not written yet */
    bool is_read;
};

static fiber *current;
static jmp_buf scheduler;
static std::vector<fiber *> runnable, polling, dirty; /* dirty: have stores */
static std::vector<copy *> copies;
static std::vector<char *> stacks; /* free ones */
static std::vector<emulated_grid *> grids;
static uint64_t idle;

/* ---- chance -----------------------------------------------------------------------------------
 */

static uint64_t chance_state;
static uint32_t copy_pace, store_pace; /* one step of so many */

static uint32_t chance(uint32_t n)
{
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return (uint32_t)((chance_state * UINT64_C(0x2545f4914f6cdd1d) >> 33) % n);
}

/* For each grid anew: all that moves by itself is quick or slow. */
static void draw_paces(void)
{
    static const uint32_t paces[] = {1, 4, 32, 256};

    if (chance_state == 0) {
        const char *seed = getenv("EMULATED_SEED");

        chance_state =
            (seed != NULL ? strtoull(seed, NULL, 0) : 1) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    }
    copy_pace = paces[chance(4)];
    store_pace = paces[chance(4)];
}

template <class T> static T take(std::vector<T> &from, uint32_t i)
{
    T x = from[i];

    from[i] = from.back();
    from.pop_back();
    return x;
}

/* ---- fibers -----------------------------------------------------------------------------------
 */

[[noreturn]] static void fail(const char *what)
{
    fprintf(stderr, "emulated GPU: %s", what);
    if (current != NULL) {
        fprintf(stderr, ": CTA %u thread %u", current->home->index, current->thread);
    }
    fprintf(stderr, "\n");
    abort();
}

[[noreturn]] int emulated_nowhere(const char *what)
{
    fprintf(stderr, "%s is not emulated\n", what);
    abort();
}

static void leave(void)
{
    if (_setjmp(current->at) == 0) {
        _longjmp(scheduler, 1);
    }
}

static void block(const char *why)
{
    current->blocked = why;
    leave();
}

static void wake(fiber *f)
{
    f->blocked = NULL;
    runnable.push_back(f);
}

void emulated_yield(bool again)
{
    (again ? polling : runnable).push_back(current);
    leave();
}

void emulated_pause(void)
{
    emulated_yield(true);
}

static void run_thread(void)
{
    fiber *f = current;

    f->home->grid->thread();
    emulated_release();
    f->ended = true;
    f->home->living--;
    f->home->grid->living--;
    if (f->home->living == 0 && f->home->copies != 0) {
        fail("a CTA ended before what it had given to the copy engine");
    }
    _longjmp(scheduler, 1);
}

static void run(fiber *f)
{
    current = f;
    if (_setjmp(scheduler) == 0) {
        if (f->started) {
            _longjmp(f->at, 1);
        }
        f->started = true;
        (void)setcontext(&f->first);
    }
    if (f->ended) {
        stacks.push_back(f->stack);
        f->stack = NULL;
    }
    current = NULL;
}

static char *new_stack(void)
{
    if (stacks.empty()) {
        char *memory = (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_NONE) != 0) {
            fail("no memory for a stack");
        }
        return memory;
    }
    char *last = stacks.back();

    stacks.pop_back();
    return last;
}

static fiber *new_fiber(cta *home, uint32_t thread)
{
    fiber *f = new fiber();

    f->home = home;
    f->thread = thread;
    f->stack = new_stack();
    (void)getcontext(&f->first);
    f->first.uc_stack.ss_sp = f->stack;
    f->first.uc_stack.ss_size = STACK_BYTES;
    f->first.uc_link = NULL;
    makecontext(&f->first, run_thread, 0);
    runnable.push_back(f);
    return f;
}

struct emulated_grid *emulated_start(std::function<void()> thread, uint32_t ctas, uint32_t threads)
{
    emulated_grid *g = new emulated_grid();

    draw_paces();
    g->thread = thread;
    g->threads = threads;
    g->clusters.resize((ctas + CLUSTER - 1) / CLUSTER);
    g->living = ctas * threads;
    for (uint32_t i = 0; i < ctas; i++) {
        cta *c = new cta();

        c->grid = g;
        c->index = i;
        c->shared = (uint8_t *)aligned_alloc(1024, EMULATED_SHARED_BYTES);
        memset(c->shared, 0xff, EMULATED_SHARED_BYTES);
        c->warps.resize(threads / 32);
        c->warpgroups.resize((threads + WARPGROUP - 1) / WARPGROUP);
        c->living = threads;
        for (uint32_t t = 0; t < threads; t++) {
            c->fibers.push_back(new_fiber(c, t));
        }
        g->ctas.push_back(c);
    }
    grids.push_back(g);
    return g;
}

bool emulated_ended(struct emulated_grid *g)
{
    if (g->living > 0 || g->copies > 0) {
        return false;
    }
    grids.erase(std::find(grids.begin(), grids.end(), g));
    dirty.erase(std::remove_if(dirty.begin(), dirty.end(),
                               [=](const fiber *f) { return f->home->grid == g; }),
                dirty.end());
    for (cta *c : g->ctas) {
        for (fiber *f : c->fibers) {
            delete f;
        }
        free(c->shared);
        delete c;
    }
    delete g;
    return true;
}

uint32_t emulated_thread(void)
{
    return current->thread;
}

uint32_t emulated_cta(void)
{
    return current->home->index;
}

uint32_t emulated_ctas(void)
{
    return (uint32_t)current->home->grid->ctas.size();
}

uint32_t emulated_cta_of_cluster(void)
{
    return current->home->index % CLUSTER;
}

uint64_t emulated_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- rendezvous -------------------------------------------------------------------------------
 */

/* True for the last of `threads`, before the others go on. */
static bool meet(meeting &m, uint32_t threads, const char *why)
{
    if (m.inside.size() + 1 < threads) {
        m.inside.push_back(current);
        block(why);
        return false;
    }
    for (fiber *f : m.inside) {
        wake(f);
    }
    m.inside.clear();
    return true;
}

static warp &my_warp(void)
{
    return current->home->warps[current->thread / 32];
}

void emulated_warp_sync(void)
{
    emulated_release();
    (void)meet(my_warp().all, 32, "a warp");
}

void emulated_bar_sync(uint32_t barrier, uint32_t threads)
{
    emulated_release();
    (void)meet(current->home->bars[barrier], threads, "a barrier of the CTA");
}

void emulated_cluster_sync(void)
{
    emulated_grid *g = current->home->grid;

    emulated_release();
    (void)meet(g->clusters[current->home->index / CLUSTER], CLUSTER * g->threads, "the cluster");
}

const uint64_t *emulated_exchange(uint64_t value)
{
    warp &w = my_warp();
    uint64_t *values = w.value[current->exchanges++ % 2];

    values[current->thread % 32] = value;
    (void)meet(w.values, 32, "a warp's values");
    return values;
}

/* ---- global memory ----------------------------------------------------------------------------
 */

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
    apply_all(current);
}

/* Stores of a thread to one word keep their order. */
void emulated_store_later(void *to, const void *from, uint32_t bytes)
{
    later s = {to, 0, bytes};

    memcpy(&s.value, from, bytes);
    for (const later &earlier : current->stores) {
        if (earlier.to == to) {
            apply_all(current);
            break;
        }
    }
    if (current->stores.empty()) {
        dirty.push_back(current);
    }
    current->stores.push_back(s);
}

/* One store of one thread. */
static void store_step(void)
{
    uint32_t i = chance((uint32_t)dirty.size());
    fiber *f = dirty[i];

    if (!f->stores.empty()) {
        apply(take(f->stores, chance((uint32_t)f->stores.size())));
    }
    if (f->stores.empty()) {
        (void)take(dirty, i);
    }
}

uint64_t emulated_load(const uint64_t *word)
{
    bool again = current->last_word == word &&
                 current->last_value == __atomic_load_n(word, __ATOMIC_ACQUIRE);

    if (again || chance(4) == 0) {
        emulated_yield(again);
    }
    for (const later &s : current->stores) {
        if (s.to == word) {
            emulated_release();
            break;
        }
    }
    current->last_word = word;
    current->last_value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    return current->last_value;
}

/* ---- shared memory and mbarriers --------------------------------------------------------------
 */

/* In the eight bytes of the barrier. */
struct bar_word {
    int32_t bytes; /* that are still to come */
    uint16_t arrivals;
    uint16_t of_phase; /* arrivals of a phase * 2 + parity of the phase */
};
static_assert(sizeof(bar_word) == 8, "an mbarrier is a word");

uint8_t *emulated_shared_base(void)
{
    return current->home->shared + SHARED_BASE;
}

uint32_t emulated_shared_address(const void *p)
{
    uint64_t offset = (uint64_t)((const uint8_t *)p - current->home->shared);

    if (offset >= EMULATED_SHARED_BYTES) {
        fail("not an address in shared memory");
    }
    return (uint32_t)offset;
}

uint8_t *emulated_shared(uint32_t address)
{
    if (address >= EMULATED_SHARED_BYTES) {
        fail("behind the end of shared memory");
    }
    return current->home->shared + address;
}

static cta *in_cluster(cta *home, uint32_t i)
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
            wake(f);
        }
    }
}

void emulated_mbarrier_init(uint32_t bar, uint32_t arrivals)
{
    bar_word *w = (bar_word *)emulated_shared(bar);

    *w = {0, (uint16_t)arrivals, (uint16_t)(arrivals * 2)};
}

void emulated_mbarrier_arrive(uint32_t cta_index, uint32_t bar, uint32_t expected_bytes)
{
    cta *c = in_cluster(current->home, cta_index);
    bar_word *w = (bar_word *)(c->shared + bar);

    emulated_release();
    if (c->living == 0) {
        fail("arrived at a barrier of a CTA that has ended");
    }
    if (w->arrivals == 0) {
        fail("one arrival too many");
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
    current->bar = bar;
    current->phase = phase;
    block("an mbarrier");
}

/* ---- copy engine ------------------------------------------------------------------------------
 */

static void count_copy(copy *c, int step)
{
    c->home->grid->copies += (uint32_t)step;
    c->home->copies += (uint32_t)step;
}

void emulated_async_load(uint32_t dst, uint32_t mask, uint32_t bar, uint32_t bytes,
                         std::function<void(uint8_t *)> read)
{
    copy *c = new copy();

    if (dst % 16 != 0 || bytes % 16 != 0 || dst + bytes > EMULATED_SHARED_BYTES) {
        fail("a load that is not aligned, or too long");
    }
    c->home = current->home;
    c->at = dst;
    c->bytes = bytes;
    c->mask = mask;
    c->bar = bar;
    c->load = read;
    for (uint32_t i = 0; i < CLUSTER; i++) {
        if ((mask >> i & 1) != 0) { /* from now on it may be anything */
            memset(in_cluster(c->home, i)->shared + dst, 0xff, bytes);
        }
    }
    count_copy(c, 1);
    copies.push_back(c);
}

void emulated_async_store(uint32_t src, uint32_t bytes, std::function<void(const uint8_t *)> write)
{
    copy *c = new copy();

    if (src % 16 != 0 || bytes % 16 != 0 || src + bytes > EMULATED_SHARED_BYTES) {
        fail("a store that is not aligned, or too long");
    }
    if (current->open == NULL) {
        current->open = std::make_shared<group>();
    }
    c->home = current->home;
    c->at = src;
    c->bytes = bytes;
    c->store = write;
    c->of = current->open;
    c->of->reads++;
    c->of->writes++;
    c->owner = current;
    count_copy(c, 1);
    copies.push_back(c);
}

static bool bulk_done(const fiber *f)
{
    for (size_t i = 0; i + f->bulk_pending < f->committed.size(); i++) {
        const group &g = *f->committed[i];

        if (g.reads > 0 || (!f->bulk_reads && g.writes > 0)) {
            return false;
        }
    }
    return true;
}

static void bulk_moved(fiber *f)
{
    if (f->bulk && bulk_done(f)) {
        f->bulk = false;
        wake(f);
    }
}

void emulated_bulk_commit(void)
{
    if (current->open != NULL) {
        current->committed.push_back(current->open);
        current->open = NULL;
    }
    while (!current->committed.empty() && current->committed.front()->writes == 0) {
        current->committed.pop_front();
    }
}

void emulated_bulk_wait(uint32_t pending, bool reads_only)
{
    current->bulk_pending = pending;
    current->bulk_reads = reads_only;
    if (!bulk_done(current)) {
        current->bulk = true;
        block("the copy engine");
    }
}

static void load_step(copy *c)
{
    for (uint32_t to = 0; to < CLUSTER; to++) {
        cta *there = in_cluster(c->home, to);

        if ((c->mask >> to & 1) == 0) {
            continue;
        }
        if (there->living == 0) {
            fail("a load into a CTA that has ended");
        }
        c->load(there->shared + c->at);
        ((bar_word *)(there->shared + c->bar))->bytes -= (int32_t)c->bytes;
        finish_phase(there, c->bar);
    }
}

/* One copy: all of a load, half of a store. */
static void copy_step(void)
{
    uint32_t i = chance((uint32_t)copies.size());
    copy *c = copies[i];
    bool ends = c->load || c->is_read;

    if (c->load) {
        load_step(c);
        c->home->copies--;
    } else if (!c->is_read) {
        c->read.assign(c->home->shared + c->at, c->home->shared + c->at + c->bytes);
        c->is_read = true;
        c->of->reads--;
        c->home->copies--;
        bulk_moved(c->owner);
    } else {
        c->store(c->read.data());
        c->of->writes--;
        bulk_moved(c->owner);
    }
    if (ends) {
        c->home->grid->copies--;
        delete take(copies, i);
    }
}

/* ---- tensor maps ------------------------------------------------------------------------------
 */

/* 128-byte swizzle: which of the eight words of 16 bytes of a line, by the line. */
static uint32_t swizzle(uint32_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

/* Element (row, column) of the box at (x, y); NULL: it lies outside. */
static uint16_t *element(const emulated_map &m, int32_t x, int32_t y, uint32_t row, uint32_t column)
{
    int64_t r = (int64_t)y + row, c = (int64_t)x + column;

    if (r < 0 || r >= (int64_t)m.rows || c < 0 || c >= (int64_t)m.columns) {
        return NULL;
    }
    return (uint16_t *)((char *)m.base + r * (int64_t)m.row_bytes) + c;
}

void emulated_tensor_load(const emulated_map &m, int32_t x, int32_t y, uint32_t dst,
                          uint8_t *shared)
{
    for (uint32_t r = 0; r < m.box_rows; r++) {
        for (uint32_t c = 0; c < BOX_COLUMNS; c++) {
            const uint16_t *from = element(m, x, y, r, c);
            uint32_t at = swizzle(dst + r * 128 + c * 2) - dst;

            *(uint16_t *)(shared + at) = from != NULL ? *from : (uint16_t)0;
        }
    }
}

void emulated_tensor_store(const emulated_map &m, int32_t x, int32_t y, uint32_t src,
                           const uint8_t *shared)
{
    for (uint32_t r = 0; r < m.box_rows; r++) {
        for (uint32_t c = 0; c < BOX_COLUMNS; c++) {
            uint16_t *to = element(m, x, y, r, c);

            if (to != NULL) {
                *to = *(const uint16_t *)(shared + (swizzle(src + r * 128 + c * 2) - src));
            }
        }
    }
}

/* ---- tensor cores -----------------------------------------------------------------------------
 */

void emulated_wgmma(float *d, uint32_t columns, bool bf16, bool trans_b, uint32_t a, uint32_t b,
                    bool accumulate)
{
    current->mmas.push_back({d, columns, bf16, trans_b, accumulate, a, b});
}

void emulated_wgmma_commit(void)
{
    current->mma_groups.push_back(current->mmas);
    current->mmas.clear();
}

static uint32_t start_of(uint32_t descriptor)
{
    return (descriptor & 0x3fffu) << 4;
}

static float operand(const cta *c, uint32_t address, bool bf16)
{
    uint16_t bits = *(const uint16_t *)(c->shared + swizzle(address));

    return bf16 ? gemmar_from_bf16(bits) : gemmar_from_fp16(bits);
}

/* Row r of a K-major operand: eight rows every 1024 bytes. */
static uint32_t k_major(uint32_t start, uint32_t row, uint32_t k)
{
    return start + row / 8 * 1024 + row % 8 * 128 + k * 2;
}

/* Column n of an N-major operand: 64 columns every `box` bytes. */
static uint32_t n_major(uint32_t start, uint32_t box, uint32_t n, uint32_t k)
{
    return start + n / 64 * box + k / 8 * 1024 + k % 8 * 128 + n % 64 * 2;
}

/* Of a warpgroup: the tile's element in thread t's d. */
static uint32_t row_of(uint32_t t, uint32_t i)
{
    return t / 32 * 16 + t % 32 / 4 + (i >> 1 & 1) * 8;
}

static uint32_t column_of(uint32_t t, uint32_t i)
{
    return i / 4 * 8 + 2 * (t % 4) + (i & 1);
}

static float tile[MMA_ROWS][MOST_COLUMNS];

__attribute__((target_clones("avx2", "default"))) static void
multiply(const float (*x)[MMA_DEPTH], const float (*y)[MOST_COLUMNS], uint32_t columns)
{
    for (uint32_t r = 0; r < MMA_ROWS; r++) {
        for (uint32_t k = 0; k < MMA_DEPTH; k++) {
            for (uint32_t n = 0; n < columns; n++) {
                tile[r][n] += x[r][k] * y[k][n];
            }
        }
    }
}

static void run_mma(const cta *c, const mma &m)
{
    static float x[MMA_ROWS][MMA_DEPTH], y[MMA_DEPTH][MOST_COLUMNS];
    uint32_t a = start_of(m.a), b = start_of(m.b), box = (m.b >> 16 & 0x3fffu) << 4;

    for (uint32_t k = 0; k < MMA_DEPTH; k++) {
        for (uint32_t r = 0; r < MMA_ROWS; r++) {
            x[r][k] = operand(c, k_major(a, r, k), m.bf16);
        }
        for (uint32_t n = 0; n < m.columns; n++) {
            y[k][n] = operand(c, m.trans_b ? n_major(b, box, n, k) : k_major(b, n, k), m.bf16);
        }
    }
    if (!m.accumulate) {
        memset(tile, 0, sizeof(tile));
    }
    multiply(x, y, m.columns);
}

/* The oldest group of the warpgroup whose threads begin at `first`: d of every thread to the tile,
 * the products, and back. */
static void run_mma_group(const cta *c, uint32_t first)
{
    fiber *const *threads = &c->fibers[first];
    const std::vector<mma> work = threads[0]->mma_groups.front();
    uint32_t columns = work.front().columns;

    for (uint32_t t = 0; t < WARPGROUP; t++) {
        const float *d = threads[t]->mma_groups.front().front().d;

        for (uint32_t i = 0; i < columns / 2; i++) {
            tile[row_of(t, i)][column_of(t, i)] = d[i];
        }
    }
    for (const mma &m : work) {
        run_mma(c, m);
    }
    for (uint32_t t = 0; t < WARPGROUP; t++) {
        float *d = threads[t]->mma_groups.front().front().d;

        for (uint32_t i = 0; i < columns / 2; i++) {
            d[i] = tile[row_of(t, i)][column_of(t, i)];
        }
        threads[t]->mma_groups.pop_front();
    }
}

/* The last one that comes works for all. */
void emulated_wgmma_wait(uint32_t pending)
{
    cta *c = current->home;
    uint32_t group = current->thread / WARPGROUP;

    if (current->mma_groups.size() > pending &&
        meet(c->warpgroups[group], WARPGROUP, "a warpgroup")) {
        while (current->mma_groups.size() > pending) {
            run_mma_group(c, group * WARPGROUP);
        }
    }
}

/* ---- the scheduler ----------------------------------------------------------------------------
 */

/* Nobody can go on any more. */
[[noreturn]] static void deadlock(void)
{
    fprintf(stderr, "emulated GPU: nothing can go on:\n");
    for (const emulated_grid *g : grids) {
        for (const cta *c : g->ctas) {
            const char *before = NULL;
            uint32_t bar = 0;

            for (const fiber *f : c->fibers) {
                if (!f->ended && (f->blocked != before || f->bar != bar)) {
                    fprintf(stderr, "  CTA %u from thread %u on: %s %u\n", c->index, f->thread,
                            f->blocked != NULL ? f->blocked : "nothing", f->bar);
                }
                before = f->blocked;
                bar = f->bar;
            }
        }
    }
    abort();
}

static void run_one_of(std::vector<fiber *> &which)
{
    run(take(which, chance((uint32_t)which.size())));
}

/* Of all that could go on, one thing. */
void emulated_step(void)
{
    if (!copies.empty() && (runnable.empty() || chance(copy_pace) == 0)) {
        copy_step();
    } else if (!dirty.empty() && (runnable.empty() || chance(store_pace) == 0)) {
        store_step();
    } else if (!runnable.empty() && (polling.empty() || chance(POLL_EVERY) != 0)) {
        run_one_of(runnable);
    } else if (!polling.empty()) {
        run_one_of(polling);
        idle = runnable.empty() ? idle + 1 : 0;
        if (idle % IDLE_STEPS == IDLE_STEPS - 1) {
            (void)sched_yield();
        }
    } else {
        for (const emulated_grid *g : grids) {
            if (g->living > 0) {
                deadlock();
            }
        }
    }
}
