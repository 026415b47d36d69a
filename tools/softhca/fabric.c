// SPDX-License-Identifier: Apache-2.0
// Makes, maps and cleans the fabric's shared segment.
#include "tools/softhca/fabric.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/softhca/config.h"
#include "tools/softhca/sync.h"

#define MAGIC        0x3161636874666f73ull // "softhca1"
#define LOCK_TIMEOUT 5000000000ull         // ns; a holder stopped inside a claim must not hang us

int softhca_fabric_lock(const struct softhca_member *m)
{
    uint64_t deadline = softhca_now_ns() + LOCK_TIMEOUT;
    while (flock(m->lock_fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return -errno;
        }
        if (softhca_now_ns() > deadline) {
            softhca_log("softhca: fabric: the lock of %s is held for more than 5 s", m->dir);
            return -ETIMEDOUT;
        }
        struct timespec ms = {.tv_nsec = 200000};
        (void)nanosleep(&ms, NULL); // cut short is fine
    }
    return 0;
}

void softhca_fabric_unlock(const struct softhca_member *m)
{
    (void)flock(m->lock_fd, LOCK_UN); // cannot fail on a held lock
}

int softhca_fabric_alive(const struct softhca_member *m, uint32_t slot)
{
    if (slot == m->slot && m->gen) {
        return 1; // a process does not see its own record locks
    }
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};
    if (fcntl(m->live_fd, F_GETLK, &l)) {
        return 1; // cannot tell: keep it
    }
    return l.l_type != F_UNLCK;
}

int softhca_fabric_reserve(int fd, uint64_t bytes)
{
    const struct timespec now = {0};
    sigset_t all, old, pending, oversize;
    int err;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    (void)sigpending(&pending);
    do {
        err = posix_fallocate(fd, 0, (off_t)bytes);
    } while (err == EINTR); // stopped and continued
    if (err == EFBIG && !sigismember(&pending, SIGXFSZ)) {
        (void)sigemptyset(&oversize);
        (void)sigaddset(&oversize, SIGXFSZ);
        (void)sigtimedwait(&oversize, NULL, &now); // there is none without a limit
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -err;
}

int softhca_fabric_find_node(const struct softhca_fabric *f, const char *name)
{
    for (uint32_t n = 0; n < SOFTHCA_MAX_NODES; n++) {
        if (SOFTHCA_LOAD_ACQUIRE(&f->nodes[n].used) && strcmp(f->nodes[n].name, name) == 0) {
            return (int)n;
        }
    }
    return -ENOENT;
}

void softhca_fabric_wake(struct softhca_proc *p)
{
    (void)SOFTHCA_ADD(&p->bell, 1);
    softhca_futex_wake(&p->bell);
}

void softhca_wake_sleeper(struct softhca_proc *p)
{
    if (SOFTHCA_LOAD_SC(&p->sleeping) && SOFTHCA_EXCHANGE_SC(&p->sleeping, 0)) {
        softhca_fabric_wake(p);
    }
}

void softhca_fabric_changed(struct softhca_fabric *f)
{
    (void)SOFTHCA_ADD(&f->epoch, 1);
    for (uint32_t s = 0; s < SOFTHCA_MAX_PROCS; s++) {
        if (SOFTHCA_LOAD_ACQUIRE(&f->procs[s].used)) {
            softhca_fabric_wake(&f->procs[s]);
        }
    }
}

// Under flock. Rings of which one end is gone: nobody opens them again.
static void sweep_rings(const struct softhca_member *m)
{
    DIR *d = opendir(m->dir);
    if (!d) {
        return;
    }
    struct dirent *e;
    while ((e = readdir(d))) {
        unsigned src, src_gen, dst, dst_gen;
        if (sscanf(e->d_name, "ring.%u.%u.%u.%u", &src, &src_gen, &dst, &dst_gen) != 4 ||
            src >= SOFTHCA_MAX_PROCS || dst >= SOFTHCA_MAX_PROCS) {
            continue;
        }
        const struct softhca_proc *p = m->fabric->procs;
        if (!p[src].used || p[src].gen != src_gen || !p[dst].used || p[dst].gen != dst_gen) {
            (void)unlinkat(dirfd(d), e->d_name, 0); // another sweep may have been first
        }
    }
    (void)closedir(d);
}

// Under flock.
static void reclaim(struct softhca_member *m, uint32_t slot)
{
    struct softhca_fabric *f = m->fabric;
    for (uint32_t i = 0; i < SOFTHCA_MAX_QPS; i++) {
        uint64_t r = SOFTHCA_LOAD_ACQUIRE(&f->qps[i]);
        if (r && SOFTHCA_ROUTE_SLOT(r) == slot) {
            SOFTHCA_STORE_RELEASE(&f->qps[i], 0);
        }
    }
    for (uint32_t s = 0; s < SOFTHCA_MAX_PROCS; s++) {
        (void)SOFTHCA_AND(&f->procs[s].inbound[slot / 64], ~(1ull << slot % 64));
    }
    for (uint32_t e = 0; e < SOFTHCA_MAX_EXPORTS; e++) {
        SOFTHCA_STORE_RELEASE(&f->mapped[e][slot], 0);
        if (SOFTHCA_LOAD_ACQUIRE(&f->exports[e].state) && f->exports[e].slot == slot) {
            softhca_fabric_withdraw(m, e);
        }
    }
    SOFTHCA_STORE_RELEASE(&f->procs[slot].used, 0);
}

// Under flock.
static int claim_node(struct softhca_member *m, const char *name)
{
    struct softhca_fabric *f = m->fabric;
    int found = softhca_fabric_find_node(f, name);
    for (uint32_t n = 0; found < 0 && n < SOFTHCA_MAX_NODES; n++) {
        if (!f->nodes[n].used) {
            strcpy(f->nodes[n].name, name);
            SOFTHCA_STORE_RELEASE(&f->nodes[n].used, 1);
            found = (int)n;
        }
    }
    if (found < 0) {
        softhca_log("softhca: fabric: %s already has %u nodes", m->dir, SOFTHCA_MAX_NODES);
        return -ENOSPC;
    }
    m->node = (uint32_t)found;
    return 0;
}

// Under flock.
static int claim_slot(struct softhca_member *m, const char *node)
{
    struct softhca_fabric *f = m->fabric;
    uint32_t free_slot = SOFTHCA_MAX_PROCS;
    for (uint32_t s = SOFTHCA_MAX_PROCS; s-- > 0;) {
        if (f->procs[s].used && !softhca_fabric_alive(m, s)) {
            reclaim(m, s);
        }
        free_slot = f->procs[s].used ? free_slot : s;
    }
    if (free_slot == SOFTHCA_MAX_PROCS) {
        softhca_log("softhca: fabric: %s already has %u processes", m->dir, SOFTHCA_MAX_PROCS);
        return -ENOSPC;
    }
    int err = claim_node(m, node);
    if (err) {
        return err;
    }
    struct flock l = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)free_slot, .l_len = 1};
    if (fcntl(m->live_fd, F_SETLK, &l)) {
        return -errno;
    }
    struct softhca_proc *p = &f->procs[free_slot];
    for (size_t w = 0; w < SOFTHCA_MAX_PROCS / 64; w++) {
        SOFTHCA_STORE_RELAXED(&p->inbound[w], 0);
    }
    p->pid = getpid();
    p->node = m->node;
    SOFTHCA_STORE_RELAXED(&p->sleeping, 0);
    SOFTHCA_STORE_RELAXED(&p->gen, p->gen + 1 ? p->gen + 1 : 1);
    SOFTHCA_STORE_RELEASE(&p->used, 1);
    m->slot = free_slot;
    m->gen = p->gen;
    sweep_rings(m);
    return 0;
}

static int open_file(const struct softhca_member *m, const char *name, int *out_fd)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", m->dir, name); // dir is shorter than 160
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        int err = -errno;
        softhca_log("softhca: fabric: cannot open %s: %s", path, strerror(-err));
        return err;
    }
    *out_fd = fd;
    return 0;
}

// Under flock. The first process gives the segment its memory at once: a full file system is an
// error here and not a SIGBUS later.
static int map_segment(struct softhca_member *m)
{
    int fd = -1;
    int err = open_file(m, "fabric", &fd);
    if (err) {
        return err;
    }
    struct stat st;
    if (fstat(fd, &st)) {
        err = -errno;
    } else if (st.st_size == 0) {
        err = softhca_fabric_reserve(fd, sizeof *m->fabric);
    } else if (st.st_size != (off_t)sizeof *m->fabric) {
        err = -EPROTO;
    }
    struct softhca_fabric *f = MAP_FAILED;
    if (!err) {
        f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        err = f == MAP_FAILED ? -errno : 0;
    }
    (void)close(fd); // the mapping stays
    if (!err && f->magic == 0) {
        f->bytes = sizeof *f;
        f->next_qp = 1;
        f->magic = MAGIC;
    }
    if (!err && (f->magic != MAGIC || f->bytes != sizeof *f)) {
        (void)munmap(f, sizeof *f);
        err = -EPROTO;
    }
    if (err) {
        softhca_log("softhca: fabric: cannot use the segment in %s: %s", m->dir,
                    err == -EPROTO ? "made by another version of softhca; remove the folder when "
                                     "nothing uses it, or set SOFTHCA_FABRIC to another one"
                                   : strerror(-err));
        return err;
    }
    m->fabric = f;
    return 0;
}

int softhca_fabric_open(struct softhca_member *m, const char *dir, const char *node, int claim)
{
    memset(m, 0, sizeof *m);
    m->lock_fd = m->live_fd = -1;
    (void)snprintf(m->dir, sizeof m->dir, "%s", dir); // callers pass at most 159 bytes
    if (mkdir(dir, 0700) && errno != EEXIST) {
        int err = -errno;
        softhca_log("softhca: fabric: cannot make %s: %s", dir, strerror(-err));
        return err;
    }
    int err = open_file(m, "lock", &m->lock_fd);
    if (!err) {
        err = open_file(m, "live", &m->live_fd);
    }
    if (!err) {
        err = softhca_fabric_lock(m);
    }
    if (err) {
        softhca_fabric_close(m);
        return err;
    }
    err = map_segment(m);
    if (!err && claim) {
        err = claim_slot(m, node);
    }
    softhca_fabric_unlock(m);
    if (err) {
        softhca_fabric_close(m);
    }
    return err;
}

void softhca_fabric_close(struct softhca_member *m)
{
    if (m->fabric && m->gen && softhca_fabric_lock(m) == 0) {
        reclaim(m, m->slot);
        sweep_rings(m);
        softhca_fabric_unlock(m);
    }
    // the segment stays mapped: another thread may be looking at it while the process ends
    if (m->live_fd >= 0) {
        (void)close(m->live_fd); // drops the record lock
    }
    if (m->lock_fd >= 0) {
        (void)close(m->lock_fd);
    }
    m->lock_fd = m->live_fd = -1;
    m->gen = 0;
}

uint32_t softhca_fabric_export(const struct softhca_member *m, const struct softhca_export *x)
{
    struct softhca_fabric *f = m->fabric;
    for (uint32_t e = 0; e < SOFTHCA_MAX_EXPORTS; e++) {
        struct softhca_export *to = &f->exports[e];
        uint32_t expected = SOFTHCA_EXPORT_FREE;
        if (!SOFTHCA_CAS(&to->state, &expected, SOFTHCA_EXPORT_CLAIMED)) {
            continue;
        }
        uint32_t gen = to->gen + 1 ? to->gen + 1 : 1;
        SOFTHCA_STORE_RELAXED(&to->gen, gen);
        SOFTHCA_STORE_RELAXED(&to->slot, m->slot);
        SOFTHCA_STORE_RELAXED(&to->kind, x->kind);
        SOFTHCA_STORE_RELAXED(&to->base, x->base);
        SOFTHCA_STORE_RELAXED(&to->bytes, x->bytes);
        SOFTHCA_STORE_RELAXED(&to->device, x->device);
        for (size_t i = 0; i < sizeof x->handle / sizeof *x->handle; i++) {
            SOFTHCA_STORE_RELAXED(&to->handle[i], x->handle[i]);
        }
        SOFTHCA_STORE_RELEASE(&f->mapped[e][m->slot], gen); // where it is at home
        SOFTHCA_STORE_RELEASE(&to->state, SOFTHCA_EXPORT_LIVE);
        (void)SOFTHCA_ADD(&f->export_seq, 1);
        softhca_futex_wake(&f->export_seq);
        return e;
    }
    return SOFTHCA_NO_EXPORT;
}

void softhca_fabric_withdraw(const struct softhca_member *m, uint32_t e)
{
    SOFTHCA_STORE_RELEASE(&m->fabric->exports[e].state, SOFTHCA_EXPORT_FREE);
    (void)SOFTHCA_ADD(&m->fabric->export_seq, 1);
    softhca_futex_wake(&m->fabric->export_seq);
}

int softhca_fabric_claim_qp(const struct softhca_member *m, uint32_t *out_qpn)
{
    struct softhca_fabric *f = m->fabric;
    for (uint32_t tries = 0; tries < SOFTHCA_MAX_QPS; tries++) {
        uint32_t i = SOFTHCA_QP_INDEX(SOFTHCA_ADD(&f->next_qp, 1));
        uint64_t expected = 0;
        if (i == 0 || SOFTHCA_LOAD_ACQUIRE(&f->qps[i])) {
            continue; // entry 0 would give the numbers 0 and 1, which are special
        }
        uint64_t mine = SOFTHCA_ROUTE_USED | (uint64_t)m->slot << 24;
        if (!SOFTHCA_CAS(&f->qps[i], &expected, mine)) {
            continue;
        }
        uint32_t gen = SOFTHCA_ADD(&f->qp_gen[i], 1) & ((1u << SOFTHCA_QP_GEN_BITS) - 1);
        *out_qpn = gen << SOFTHCA_QP_INDEX_BITS | i;
        softhca_fabric_publish_qp(m, *out_qpn, 0, 0);
        return 0;
    }
    return -ENOMEM;
}

void softhca_fabric_publish_qp(const struct softhca_member *m, uint32_t qpn, uint32_t lid, int live)
{
    uint64_t r = SOFTHCA_ROUTE_USED | (live ? SOFTHCA_ROUTE_LIVE : 0) | (uint64_t)lid << 40 |
                 (uint64_t)m->slot << 24 | qpn;
    SOFTHCA_STORE_RELEASE(&m->fabric->qps[SOFTHCA_QP_INDEX(qpn)], r);
}

void softhca_fabric_release_qp(const struct softhca_member *m, uint32_t qpn)
{
    SOFTHCA_STORE_RELEASE(&m->fabric->qps[SOFTHCA_QP_INDEX(qpn)], 0);
}
