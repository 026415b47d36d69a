// SPDX-License-Identifier: Apache-2.0
// Emulated GPUs: threads, what is drawn, rendezvous, the scheduler.
#include "test/emulated/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (64u * 1024u)
#define POLL_EVERY  16u   /* of so many steps one is of those that wait for a word */
#define SLOW_EVERY  1024u /* ... and one is of those that are slow */
#define IDLE_STEPS  64u   /* without anything else: sleep, others have the word */
#define IDLE_US     50

fiber *emulated_current;
static jmp_buf scheduler;
static std::vector<fiber *> runnable, slow, polling;
static std::vector<char *> stacks; /* free ones */
static std::vector<emulated_grid *> grids;
static uint64_t idle;

static uint64_t chance_state;
static uint32_t copy_pace, store_pace; /* one step of so many */

uint32_t emulated_chance(uint32_t n)
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
    copy_pace = paces[emulated_chance(4)];
    store_pace = paces[emulated_chance(4)];
}

[[noreturn]] void emulated_fail(const char *what)
{
    fprintf(stderr, "emulated GPU: %s", what);
    if (emulated_current != NULL) {
        fprintf(stderr, ": CTA %u thread %u", emulated_current->home->index,
                emulated_current->thread);
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
    if (_setjmp(emulated_current->at) == 0) {
        _longjmp(scheduler, 1);
    }
}

void emulated_block(const char *why)
{
    emulated_current->blocked = why;
    leave();
}

void emulated_wake(fiber *f)
{
    f->blocked = NULL;
    (f->slow ? slow : runnable).push_back(f);
}

void emulated_yield(bool again)
{
    (again ? polling : emulated_current->slow ? slow : runnable).push_back(emulated_current);
    leave();
}

void emulated_pause(void)
{
    emulated_yield(true);
}

static void run_thread(void)
{
    fiber *f = emulated_current;

    f->home->grid->thread();
    f->ended = true;
    f->home->living--;
    f->home->grid->living--;
    if (f->home->living == 0 && f->home->copies != 0) {
        emulated_fail("a CTA ended before what it had given to the copy engine");
    }
    _longjmp(scheduler, 1);
}

static void run(fiber *f)
{
    emulated_current = f;
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
    emulated_current = NULL;
}

static char *new_stack(void)
{
    if (stacks.empty()) {
        char *memory = (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_NONE) != 0) {
            emulated_fail("no memory for a stack");
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
    return f;
}

/* Of a grid some threads are slower than all others: a warp, a warpgroup or all of one CTA or of
 * every one. */
static void draw_slow(const emulated_grid *g)
{
    uint32_t widths[] = {0, 32, WARPGROUP, g->threads}, width = widths[emulated_chance(4)];
    uint32_t first = width != 0 ? emulated_chance(g->threads / width) * width : 0;
    uint32_t which = emulated_chance((uint32_t)g->ctas.size());
    bool every = emulated_chance(2) != 0;

    for (const cta *c : g->ctas) {
        for (fiber *f : c->fibers) {
            f->slow = f->thread - first < width && (every || c->index == which);
            (f->slow ? slow : runnable).push_back(f);
        }
    }
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
    draw_slow(g);
    grids.push_back(g);
    return g;
}

bool emulated_ended(struct emulated_grid *g)
{
    if (g->living > 0 || g->copies > 0) {
        return false;
    }
    grids.erase(std::find(grids.begin(), grids.end(), g));
    for (const cta *c : g->ctas) {
        emulated_expect_whole_phases(c);
    }
    emulated_end_stores(g);
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
    return emulated_current->thread;
}

uint32_t emulated_cta(void)
{
    return emulated_current->home->index;
}

uint32_t emulated_ctas(void)
{
    return (uint32_t)emulated_current->home->grid->ctas.size();
}

uint32_t emulated_cta_of_cluster(void)
{
    return emulated_current->home->index % CLUSTER;
}

uint64_t emulated_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool emulated_meet(meeting &m, uint32_t threads, const char *why)
{
    if (m.inside.size() + 1 < threads) {
        m.inside.push_back(emulated_current);
        emulated_block(why);
        return false;
    }
    for (fiber *f : m.inside) {
        emulated_wake(f);
    }
    m.inside.clear();
    return true;
}

static warp &my_warp(void)
{
    return emulated_current->home->warps[emulated_current->thread / 32];
}

void emulated_warp_sync(void)
{
    emulated_release_to_cta();
    (void)emulated_meet(my_warp().all, 32, "a warp");
}

void emulated_bar_sync(uint32_t barrier, uint32_t threads)
{
    emulated_release_to_cta();
    (void)emulated_meet(emulated_current->home->bars[barrier], threads, "a barrier of the CTA");
}

void emulated_cluster_sync(void)
{
    emulated_grid *g = emulated_current->home->grid;

    emulated_release();
    (void)emulated_meet(g->clusters[emulated_current->home->index / CLUSTER], CLUSTER * g->threads,
                        "the cluster");
}

const uint64_t *emulated_exchange(uint64_t value)
{
    warp &w = my_warp();
    uint64_t *values = w.value[emulated_current->exchanges++ % 2];

    values[emulated_current->thread % 32] = value;
    (void)emulated_meet(w.values, 32, "a warp's values");
    return values;
}

/* Nobody can go on: all have ended, or they wait for each other. */
static void expect_no_deadlock(void)
{
    bool all_ended = true;

    for (const emulated_grid *g : grids) {
        all_ended = all_ended && g->living == 0;
    }
    if (all_ended) {
        return;
    }
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
    run(emulated_take(which, emulated_chance((uint32_t)which.size())));
}

/* Of all that could go on, one thing. */
void emulated_step(void)
{
    bool busy = !runnable.empty() || !slow.empty();
    bool polls = !polling.empty() && (!busy || emulated_chance(POLL_EVERY) == 0);

    if (emulated_copies_wait() && (!busy || emulated_chance(copy_pace) == 0)) {
        emulated_copy_step();
    } else if (emulated_stores_wait() && (!busy || emulated_chance(store_pace) == 0)) {
        emulated_store_step();
    } else if (busy && !polls) {
        bool late = runnable.empty() || (!slow.empty() && emulated_chance(SLOW_EVERY) == 0);

        run_one_of(late ? slow : runnable);
    } else if (polls) {
        run_one_of(polling);
        idle = busy ? 0 : idle + 1;
        if (idle % IDLE_STEPS == IDLE_STEPS - 1) {
            (void)usleep(IDLE_US);
        }
    } else {
        expect_no_deadlock();
    }
}
