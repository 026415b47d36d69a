// SPDX-License-Identifier: Apache-2.0
// Memory registration.
#include "transport/ib_mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/advice.h"

static int access_of(const struct gemmar_ib_device *d, enum gemmar_mr_kind kind)
{
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

    return kind == GEMMAR_MR_DATA && d->relaxed ? access | IBV_ACCESS_RELAXED_ORDERING : access;
}

/* Relaxed ordering is an optional flag, which only the newer entry may be given. */
static struct ibv_mr *reg_host(struct gemmar_ib_device *d, void *address, size_t length, int access)
{
    if (access & IBV_ACCESS_RELAXED_ORDERING && d->verbs->reg_mr_iova2 != NULL) {
        return d->verbs->reg_mr_iova2(d->pd, address, length, (uintptr_t)address,
                                      (unsigned int)access);
    }
    return d->verbs->reg_mr(d->pd, address, length, access & ~(int)IBV_ACCESS_RELAXED_ORDERING);
}

static void explain_host(const struct gemmar_ib_device *d, uint64_t length, int error)
{
    char advice[GEMMAR_ADVICE_BYTES];

    gemmar_warn(d->log, "ib_mr: device %s cannot register %llu bytes: %s%s", d->name,
                (unsigned long long)length, strerror(error),
                gemmar_advice_limit(error, length, advice, sizeof(advice)));
}

/* dma-buf first, peer memory second. [start, start + length) are the whole pages of `memory`. */
static struct ibv_mr *reg_gpu(struct gemmar_ib_device *d, const struct gemmar_memory *memory,
                              uint64_t start, uint64_t length, int access, int *out_error)
{
    uint64_t before = (uintptr_t)memory->address - start;
    int dmabuf_error = EOPNOTSUPP, peer_error;
    struct ibv_mr *mr;

    if (memory->dmabuf_fd >= 0 && d->verbs->reg_dmabuf_mr != NULL) {
        mr = d->verbs->reg_dmabuf_mr(d->pd, memory->dmabuf_offset - before, length, start,
                                     memory->dmabuf_fd, access);
        if (mr != NULL) {
            return mr;
        }
        dmabuf_error = errno;
    }
    mr = reg_host(d, (void *)(uintptr_t)start, length, access);
    if (mr != NULL) {
        gemmar_info(d->log, "ib_mr: device %s: GPU memory registered through peer memory", d->name);
        return mr;
    }
    peer_error = errno;
    gemmar_warn(
        d->log,
        "ib_mr: device %s cannot register %llu bytes of GPU memory: dma-buf: %s; peer memory: "
        "%s; load nvidia-peermem or use a kernel and driver with dma-buf",
        d->name, (unsigned long long)memory->length, strerror(dmabuf_error), strerror(peer_error));
    *out_error = peer_error;
    return NULL;
}

static struct gemmar_ib_mr *find(struct gemmar_ib_device *d, uint64_t start, uint64_t end,
                                 enum gemmar_mr_kind kind, bool gpu)
{
    for (struct gemmar_ib_mr *m = d->mrs; m != NULL; m = m->next) {
        if (m->start <= start && end <= m->end && m->kind == kind && m->gpu == gpu) {
            return m;
        }
    }
    return NULL;
}

/* Under mr_lock. */
static int add(struct gemmar_ib_device *d, const struct gemmar_memory *memory, uint64_t start,
               uint64_t end, enum gemmar_mr_kind kind, struct gemmar_ib_mr **out)
{
    struct gemmar_ib_mr *m = calloc(1, sizeof(*m));
    int error = 0;

    if (m == NULL) {
        return -ENOMEM;
    }
    if (memory->is_gpu) {
        m->mr = reg_gpu(d, memory, start, end - start, access_of(d, kind), &error);
    } else {
        errno = 0;
        m->mr = reg_host(d, (void *)(uintptr_t)start, end - start, access_of(d, kind));
        if (m->mr == NULL) {
            error = errno != 0 ? errno : EIO;
            explain_host(d, end - start, error);
        }
    }
    if (m->mr == NULL) {
        free(m);
        return error != 0 ? -error : -EIO;
    }
    m->start = start;
    m->end = end;
    m->kind = kind;
    m->gpu = memory->is_gpu != 0;
    m->next = d->mrs;
    d->mrs = m;
    *out = m;
    return 0;
}

int gemmar_ib_mr_get(struct gemmar_ib_device *d, const struct gemmar_memory *memory,
                     enum gemmar_mr_kind kind, struct gemmar_ib_mr **out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)memory->address, end;
    struct gemmar_ib_mr *m;
    int rc = 0;

    if (memory->length == 0 || start + memory->length < start) {
        gemmar_warn(d->log, "ib_mr: a range of %llu bytes at %p cannot be registered",
                    (unsigned long long)memory->length, memory->address);
        return -EINVAL;
    }
    end = start + memory->length;
    start = start / page * page;
    end = (end + page - 1) / page * page;
    if (memory->dmabuf_fd >= 0 &&
        memory->dmabuf_offset % page != (uintptr_t)memory->address % page) {
        gemmar_warn(d->log,
                    "ib_mr: address %p and offset %llu in its dma-buf lie differently in "
                    "their pages",
                    memory->address, (unsigned long long)memory->dmabuf_offset);
        return -EINVAL;
    }
    (void)pthread_mutex_lock(&d->mr_lock);
    m = find(d, start, end, kind, memory->is_gpu != 0);
    if (m == NULL) {
        rc = add(d, memory, start, end, kind, &m);
    }
    if (rc == 0) {
        m->users++;
        *out = m;
    }
    (void)pthread_mutex_unlock(&d->mr_lock);
    return rc;
}

void gemmar_ib_mr_put(struct gemmar_ib_device *d, struct gemmar_ib_mr *mr)
{
    if (mr == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&d->mr_lock);
    if (--mr->users == 0) {
        struct gemmar_ib_mr **at = &d->mrs;

        while (*at != mr) {
            at = &(*at)->next;
        }
        *at = mr->next;
        if (d->verbs->dereg_mr(mr->mr) != 0) {
            gemmar_warn(d->log, "ib_mr: device %s: deregistration failed", d->name);
        }
        free(mr);
    }
    (void)pthread_mutex_unlock(&d->mr_lock);
}
