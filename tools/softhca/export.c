// SPDX-License-Identifier: Apache-2.0
// Device memory that processes show each other, so that the receiver of a message can copy it by
// itself. A thread maps what others show as soon as they do: mapping may wait for a kernel that
// waits for data, and must not hold up the progress thread. Until then data is staged.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

#define SLEEP_NS 200000000ull

struct own { // an allocation of this process that regions lie in
    uint64_t id;
    uint32_t e, gen, refs;
    uint64_t base;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own owns[SOFTHCA_MAX_EXPORTS]; // under lock; refs 0: free
static struct softhca_hca *watched;          // under lock: whose thread runs
static pthread_t watcher;                    // under lock

static void set_import(uint32_t e, const struct softhca_import *import)
{
    struct softhca_hca *h = softhca_hca;
    softhca_lock();
    softhca_pull_finish(); // none may still use what was there
    h->imports[e] = *import;
    softhca_unlock();
}

uint64_t softhca_import_at(uint32_t e, uint32_t gen, uint64_t offset, uint64_t len)
{
    if (e >= SOFTHCA_MAX_EXPORTS) {
        return 0;
    }
    const struct softhca_import *i = &softhca_hca->imports[e];
    return i->gen == gen && gen && offset <= i->bytes && len <= i->bytes - offset ? i->addr + offset
                                                                                  : 0;
}

uint64_t softhca_import_device(uint32_t e)
{
    return e < SOFTHCA_MAX_EXPORTS ? softhca_hca->imports[e].device : 0;
}

static int is_live(const struct softhca_export *x, uint32_t gen)
{
    return SOFTHCA_LOAD_ACQUIRE(&x->state) == SOFTHCA_EXPORT_LIVE &&
           SOFTHCA_LOAD_RELAXED(&x->gen) == gen;
}

// Word by word: the owner may withdraw it meanwhile, and another one write it.
static void copy_words(struct softhca_export *to, const struct softhca_export *from)
{
    uint64_t words[sizeof *from / 8];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        words[i] = SOFTHCA_LOAD_RELAXED((const uint64_t *)(const void *)from + i);
    }
    memcpy(to, words, sizeof *to);
}

static uint64_t import(const struct softhca_export *x, uint32_t e, uint32_t gen)
{
    if (x->kind == SOFTHCA_EXPORT_IPC) {
        return softhca_cuda_import(x, -1);
    }
    int fd = softhca_handoff_fetch(x, e, gen);
    uint64_t addr = fd < 0 ? 0 : softhca_cuda_import(x, fd);
    if (fd >= 0) {
        (void)close(fd); // the mapping stays
    }
    return addr;
}

static void look_at(struct softhca_hca *h, uint32_t e)
{
    struct softhca_fabric *f = h->member.fabric;
    const struct softhca_export *x = &f->exports[e];
    if (SOFTHCA_LOAD_ACQUIRE(&x->state) == SOFTHCA_EXPORT_FREE && !SOFTHCA_LOAD_RELAXED(&x->gen)) {
        return; // was never used
    }
    softhca_lock();
    struct softhca_import have = h->imports[e]; // only this thread changes what is not our own
    softhca_unlock();
    if (have.gen && !have.is_own && !is_live(x, have.gen)) {
        SOFTHCA_STORE_RELEASE(&f->mapped[e][h->member.slot], 0);
        set_import(e, &(struct softhca_import){0});
        softhca_cuda_drop(have.addr, have.bytes, have.kind);
        have.gen = 0;
    }
    uint32_t gen = SOFTHCA_LOAD_RELAXED(&x->gen);
    if (have.gen || !is_live(x, gen) || SOFTHCA_LOAD_RELAXED(&x->slot) == h->member.slot) {
        return;
    }
    struct softhca_export copy;
    copy_words(&copy, x);
    if (!is_live(x, gen)) {
        return; // changed while it was copied
    }
    uint64_t addr = import(&copy, e, gen);
    if (addr) { // else it stays staged
        set_import(e, &(struct softhca_import){.gen = gen,
                                               .kind = copy.kind,
                                               .addr = addr,
                                               .bytes = copy.bytes,
                                               .device = copy.device});
        SOFTHCA_STORE_RELEASE(&f->mapped[e][h->member.slot], gen);
    }
}

static void *watch(void *arg)
{
    struct softhca_hca *h = arg;
    struct softhca_fabric *f = h->member.fabric;
    while (!SOFTHCA_LOAD_ACQUIRE(&h->left)) {
        uint32_t seq = SOFTHCA_LOAD_ACQUIRE(&f->export_seq);
        for (uint32_t e = 0; e < SOFTHCA_MAX_EXPORTS; e++) {
            look_at(h, e);
        }
        softhca_futex_wait(&f->export_seq, seq, SLEEP_NS);
    }
    return NULL;
}

// Under lock.
static void start_watching(struct softhca_hca *h)
{
    sigset_t all, old; // signals belong to the program's threads
    if (watched == h) {
        return;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&watcher, NULL, watch, h);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) {
        softhca_log("softhca: export: cannot start a thread: %s; data is staged", strerror(err));
        return;
    }
    (void)pthread_setname_np(watcher, "softhca-map");
    watched = h;
}

void softhca_export_stop(struct softhca_hca *h)
{
    struct timespec t;
    (void)pthread_mutex_lock(&lock);
    int runs = watched == h;
    watched = NULL;
    (void)pthread_mutex_unlock(&lock);
    if (runs) {
        (void)SOFTHCA_ADD(&h->member.fabric->export_seq, 1);
        softhca_futex_wake(&h->member.fabric->export_seq);
        (void)clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += 1;
        (void)pthread_timedjoin_np(watcher, NULL, &t); // may hang in a driver that is going away
    }
    softhca_handoff_stop();
}

// Under lock. The entry of an allocation, made when there is none; NULL when the table is full.
static struct own *own_of(struct softhca_hca *h, uint64_t id, struct softhca_export *x, int *fd)
{
    struct own *o = NULL;
    for (uint32_t i = 0; i < SOFTHCA_MAX_EXPORTS; i++) {
        if (owns[i].refs && owns[i].id == id) {
            return &owns[i];
        }
        o = owns[i].refs ? o : &owns[i];
    }
    int unnamed = x->kind == SOFTHCA_EXPORT_DESCRIPTOR && softhca_handoff_name(x);
    uint32_t e = o && !unnamed ? softhca_fabric_export(&h->member, x) : SOFTHCA_NO_EXPORT;
    if (e == SOFTHCA_NO_EXPORT) {
        return NULL;
    }
    *o = (struct own){.id = id, .e = e, .gen = h->member.fabric->exports[e].gen, .base = x->base};
    if (*fd >= 0) {
        softhca_handoff_offer(e, o->gen, *fd);
        *fd = -1;
    }
    set_import(
        e,
        &(struct softhca_import){
            .gen = o->gen, .addr = x->base, .bytes = x->bytes, .is_own = 1, .device = x->device});
    return o;
}

void softhca_export_add(struct softhca_mr *mr)
{
    struct softhca_hca *h = softhca_hca;
    struct softhca_export x = {0};
    uint64_t id = 0;
    int fd = -1;
    int err = softhca_cuda_export(mr->base.gpu, mr->base.at, &x, &id, &fd);
    (void)pthread_mutex_lock(&lock);
    start_watching(h);
    struct own *o = err ? NULL : own_of(h, id, &x, &fd);
    if (o) {
        o->refs++;
        mr->export = o->e;
        mr->export_gen = o->gen;
        mr->export_base = o->base;
    }
    (void)pthread_mutex_unlock(&lock);
    if (fd >= 0) {
        (void)close(fd); // there was one already, or it is not to be shown
    }
}

void softhca_export_remove(struct softhca_mr *mr)
{
    struct softhca_hca *h = softhca_hca;
    if (mr->export == SOFTHCA_NO_EXPORT) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < SOFTHCA_MAX_EXPORTS; i++) {
        struct own *o = &owns[i];
        if (o->refs && o->e == mr->export && --o->refs == 0) {
            set_import(o->e, &(struct softhca_import){0});
            softhca_fabric_withdraw(&h->member, o->e);
            softhca_handoff_end(o->e);
        }
    }
    (void)pthread_mutex_unlock(&lock);
    mr->export = SOFTHCA_NO_EXPORT;
}
