// SPDX-License-Identifier: Apache-2.0
// The rings between processes: files, mappings, positions.
#include "tools/softhca/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/softhca/config.h"
#include "tools/softhca/sync.h"

#define CONTROL_BYTES 65536u // a multiple of every page size in use

static uint64_t packet_bytes(uint32_t payload)
{
    return (sizeof(struct softhca_packet) + (uint64_t)payload + 63) & ~63ull;
}

static int map_ring(int fd, uint64_t bytes, struct softhca_ring *r)
{
    uint8_t *area = mmap(NULL, CONTROL_BYTES + 2 * bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        return -errno;
    }
    const int prot = PROT_READ | PROT_WRITE;
    if (mmap(area, CONTROL_BYTES + bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
        mmap(area + CONTROL_BYTES + bytes, bytes, prot, MAP_SHARED | MAP_FIXED, fd,
             CONTROL_BYTES) == MAP_FAILED) {
        int err = -errno;
        (void)munmap(area, CONTROL_BYTES + 2 * bytes);
        return err;
    }
    r->control = (struct softhca_ring_control *)(void *)area;
    r->data = area + CONTROL_BYTES;
    r->bytes = bytes;
    return 0;
}

static void ring_path(const struct softhca_member *m, uint32_t src, uint32_t src_gen, uint32_t dst,
                      uint32_t dst_gen, char out_path[256])
{
    (void)snprintf(out_path, 256, "%s/ring.%u.%u.%u.%u", m->dir, src, src_gen, dst, dst_gen);
}

int softhca_ring_create(const struct softhca_member *m, uint32_t slot, uint64_t bytes,
                        struct softhca_ring *out_ring)
{
    struct softhca_proc *peer = &m->fabric->procs[slot];
    struct softhca_ring r = {.slot = slot, .gen = SOFTHCA_LOAD_ACQUIRE(&peer->gen)};
    char path[256];
    ring_path(m, m->slot, m->gen, slot, r.gen, path);
    (void)unlink(path); // left by an instance of ours that the child of a fork replaced
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        int err = -errno;
        softhca_log("softhca: ring: cannot make %s: %s", path, strerror(-err));
        return err;
    }
    // memory now: a full file system must not become a SIGBUS in the middle of a copy
    int err = softhca_fabric_reserve(fd, CONTROL_BYTES + bytes);
    if (!err) {
        err = map_ring(fd, bytes, &r);
    }
    (void)close(fd); // the mapping stays
    if (err) {
        softhca_log("softhca: ring: no memory for %s: %s", path, strerror(-err));
        (void)unlink(path);
        return err;
    }
    (void)SOFTHCA_OR(&peer->inbound[m->slot / 64], 1ull << m->slot % 64);
    (void)SOFTHCA_ADD(&peer->inbound_seq, 1);
    softhca_fabric_wake(peer);
    *out_ring = r;
    return 0;
}

int softhca_ring_open(const struct softhca_member *m, uint32_t slot, struct softhca_ring *out_ring)
{
    struct softhca_ring r = {.slot = slot,
                             .gen = SOFTHCA_LOAD_ACQUIRE(&m->fabric->procs[slot].gen)};
    char path[256];
    ring_path(m, slot, r.gen, m->slot, m->gen, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    struct stat st;
    int err = fstat(fd, &st) ? -errno : 0;
    if (!err && st.st_size <= (off_t)CONTROL_BYTES) {
        err = -EPROTO;
    }
    if (!err) {
        err = map_ring(fd, (uint64_t)st.st_size - CONTROL_BYTES, &r);
    }
    (void)close(fd); // the mapping stays
    if (err) {
        softhca_log("softhca: ring: cannot map %s: %s", path, strerror(-err));
        return err;
    }
    *out_ring = r;
    return 0;
}

void softhca_ring_release(struct softhca_ring *r)
{
    if (r->control) {
        (void)munmap(r->control, CONTROL_BYTES + 2 * r->bytes); // our own mapping
        r->control = NULL;
    }
}

struct softhca_packet *softhca_ring_reserve(struct softhca_ring *r, uint32_t payload)
{
    uint64_t need = packet_bytes(payload);
    if (r->pos + need - r->seen > r->bytes) {
        r->seen = SOFTHCA_LOAD_ACQUIRE(&r->control->head);
        if (r->pos + need - r->seen > r->bytes) {
            SOFTHCA_STORE_SC(&r->control->want_space, 1);
            r->seen = SOFTHCA_LOAD_SC(&r->control->head);
            if (r->pos + need - r->seen > r->bytes) {
                return NULL;
            }
        }
    }
    struct softhca_packet *p =
        (struct softhca_packet *)(void *)(r->data + (r->pos & (r->bytes - 1)));
    memset(p, 0, sizeof *p);
    p->length = p->span = payload;
    return p;
}

void softhca_ring_push(struct softhca_ring *r, const struct softhca_packet *p)
{
    r->pos += packet_bytes(p->length);
    SOFTHCA_STORE_SC(&r->control->tail, r->pos);
}

struct softhca_packet *softhca_ring_at(struct softhca_ring *r, uint64_t at, uint64_t *out_next)
{
    if (at == r->seen) {
        r->seen = SOFTHCA_LOAD_SC(&r->control->tail);
        if (at == r->seen) {
            return NULL;
        }
    }
    struct softhca_packet *p = (struct softhca_packet *)(void *)(r->data + (at & (r->bytes - 1)));
    *out_next = at + packet_bytes(p->length);
    return p;
}

struct softhca_packet *softhca_ring_peek(struct softhca_ring *r)
{
    uint64_t next;
    return softhca_ring_at(r, r->pos, &next);
}

int softhca_ring_pop(struct softhca_ring *r, const struct softhca_packet *p)
{
    r->pos += packet_bytes(p->length);
    SOFTHCA_STORE_SC(&r->control->head, r->pos);
    // wake the source when a quarter is free, not for each packet
    return SOFTHCA_LOAD_SC(&r->control->want_space) && r->seen - r->pos <= r->bytes * 3 / 4 &&
           SOFTHCA_EXCHANGE_SC(&r->control->want_space, 0);
}
