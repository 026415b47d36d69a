// SPDX-License-Identifier: Apache-2.0
// Counts what a process holds.
#include "test/plugin/probe.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "test/plugin/world.h"

static void *softhca_symbol(const char *name)
{
    void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *at = lib ? dlsym(lib, name) : NULL;
    if (lib) {
        (void)dlclose(lib); // whoever loaded it keeps it
    }
    return at;
}

static int entries(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    CHECK(dir, "cannot read %s", path);
    while (readdir(dir)) {
        n++;
    }
    (void)closedir(dir);
    return n;
}

static void take(struct held *out_held)
{
    void (*query)(struct softhca_objects *);
    memset(out_held, 0, sizeof *out_held);
    out_held->threads = entries("/proc/self/task");
    out_held->fds = entries("/proc/self/fd");
    *(void **)&query = softhca_symbol("softhca_query_objects"); // POSIX spells it so
    if (query) {
        query(&out_held->verbs);
    }
}

// A thread that was joined is listed a little longer.
void held_take(struct held *out_held)
{
    struct held next;
    take(out_held);
    for (int same = 0; same < 3;) {
        nap_ms(5);
        take(&next);
        same = memcmp(&next, out_held, sizeof next) == 0 ? same + 1 : 0;
        *out_held = next;
    }
}

void held_check(const struct held *before, const char *when)
{
    struct held now;
    for (int i = 0; i < 200; i++) {
        take(&now);
        if (memcmp(&now, before, sizeof now) == 0) {
            return;
        }
        nap_ms(10);
    }
    const struct softhca_objects *a = &before->verbs, *b = &now.verbs;
    fail("%s: before and now: threads %d %d, descriptors %d %d, contexts %u %u, pds %u %u, mrs %u "
         "%u, cqs %u %u, qps %u %u, channels %u %u",
         when, before->threads, now.threads, before->fds, now.fds, a->contexts, b->contexts, a->pds,
         b->pds, a->mrs, b->mrs, a->cqs, b->cqs, a->qps, b->qps, a->channels, b->channels);
}

int probe_visit_qps(void (*visit)(void *user, const struct ibv_qp *qp,
                                  const struct ibv_qp_attr *attr),
                    void *user)
{
    void (*visit_qps)(void (*)(void *, const struct ibv_qp *, const struct ibv_qp_attr *), void *);
    *(void **)&visit_qps = softhca_symbol("softhca_visit_qps");
    if (visit_qps) {
        visit_qps(visit, user);
    }
    return visit_qps != NULL;
}

int probe_visit_mrs(softhca_visit_mr *visit, void *user)
{
    void (*visit_mrs)(softhca_visit_mr *, void *);
    *(void **)&visit_mrs = softhca_symbol("softhca_visit_mrs");
    if (visit_mrs) {
        visit_mrs(visit, user);
    }
    return visit_mrs != NULL;
}

unsigned probe_faults(void)
{
    uint32_t (*query)(void);
    *(void **)&query = softhca_symbol("softhca_query_faults");
    return query ? query() : 0;
}

struct sent {
    const char *device;
    size_t length; // of its name; a port may follow
    unsigned count;
    const struct ibv_qp *qps[256];
};

static void take_qp(void *user, const struct ibv_qp *qp, const struct ibv_qp_attr *attr)
{
    struct sent *s = user;
    (void)attr;
    if (s->count < 256 && strlen(qp->context->device->name) == s->length &&
        strncmp(qp->context->device->name, s->device, s->length) == 0) {
        s->qps[s->count++] = qp;
    }
}

// As Soft-RoCE counts them.
static uint64_t sent_packets(const char *device, size_t length)
{
    char path[128];
    unsigned long long n = 0;
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%.*s/ports/1/hw_counters/sent_pkts",
                   (int)length, device);
    FILE *f = fopen(path, "re");
    if (f) {
        n = fscanf(f, "%llu", &n) == 1 ? n : 0;
        (void)fclose(f); // only read
    }
    return n;
}

uint64_t probe_sent_bytes(const char *device)
{
    int (*query)(struct ibv_qp *, struct softhca_qp_info *);
    struct sent s = {.device = device, .length = strcspn(device, ":")};
    uint64_t sum = 0;
    *(void **)&query = softhca_symbol("softhca_query_qp");
    if (!query) {
        return sent_packets(device, s.length);
    }
    if (probe_visit_qps(take_qp, &s)) {
        for (unsigned i = 0; i < s.count; i++) {
            struct softhca_qp_info info;
            (void)query((struct ibv_qp *)(uintptr_t)s.qps[i], &info); // cannot fail
            sum += info.sent_bytes;
        }
    }
    return sum;
}

static void take_any(void *user, const struct ibv_qp *qp, const struct ibv_qp_attr *attr)
{
    struct sent *s = user;
    (void)attr;
    if (s->count < 256) {
        s->qps[s->count++] = qp;
    }
}

// Of all live queue pairs together; zeros without softhca.
static struct softhca_qp_info total(void)
{
    int (*query)(struct ibv_qp *, struct softhca_qp_info *);
    struct sent s = {0};
    struct softhca_qp_info sum = {0};
    *(void **)&query = softhca_symbol("softhca_query_qp");
    if (query && probe_visit_qps(take_any, &s)) {
        for (unsigned i = 0; i < s.count; i++) {
            struct softhca_qp_info info;
            (void)query((struct ibv_qp *)(uintptr_t)s.qps[i], &info); // cannot fail
            sum.empty_sges += info.empty_sges;
            sum.sent_wrs += info.sent_wrs;
        }
    }
    return sum;
}

uint64_t probe_open_sends(void)
{
    return total().sent_wrs;
}

uint64_t probe_empty_entries(void)
{
    return total().empty_sges;
}
