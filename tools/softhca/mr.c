// SPDX-License-Identifier: Apache-2.0
// Protection domains and memory regions: keys, bounds, rights, and the locked-memory limit.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/softhca.h"
#include "tools/softhca/sync.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define RKEY_MARK        0x80u // local and remote key of a region differ, so that mixing them fails
#define CAP_IPC_LOCK_BIT 14

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

SOFTHCA_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    int err = softhca_fault_call(SOFTHCA_CALL_ALLOC_PD);
    struct softhca_pd *pd = err ? NULL : calloc(1, sizeof *pd);
    if (!pd) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    pd->pd.context = context;
    (void)SOFTHCA_ADD(&softhca_hca->pd_count, 1);
    return &pd->pd;
}

SOFTHCA_EXPORT int ibv_dealloc_pd(struct ibv_pd *base)
{
    struct softhca_pd *pd = (struct softhca_pd *)base;
    softhca_lock();
    int busy = pd->refs != 0;
    softhca_unlock();
    if (busy) {
        return EBUSY;
    }
    (void)SOFTHCA_SUB(&softhca_hca->pd_count, 1);
    free(pd);
    return 0;
}

// The kernel asks for the capability in the first user namespace; in another one it is not there,
// whatever the mask says.
static int may_lock_memory(void)
{
    char line[256];
    unsigned long long caps = 0;
    unsigned inside = 1, outside = 1, length = 0;
    FILE *f = fopen("/proc/self/uid_map", "re");
    if (f) {
        if (fscanf(f, "%u %u %u", &inside, &outside, &length) != 3) {
            length = 0;
        }
        (void)fclose(f);
    }
    f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "CapEff: %llx", &caps) == 1) {
            break;
        }
    }
    if (f) {
        (void)fclose(f);
    }
    return length == UINT_MAX && (caps >> CAP_IPC_LOCK_BIT & 1) && !softhca_hca->config.no_ipc_lock;
}

// Under hca.lock. Whole pages count, as the kernel counts pinned pages.
static int charge(struct softhca_mr *mr, uint64_t addr, uint64_t length)
{
    struct softhca_hca *h = softhca_hca;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = ((addr + length + page - 1) & ~(page - 1)) - (addr & ~(page - 1));
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        h->locked_bytes + bytes > limit.rlim_cur && !may_lock_memory()) {
        return ENOMEM;
    }
    h->locked_bytes += bytes;
    mr->charged = bytes;
    return 0;
}

// Under hca.lock.
static int claim_key(struct softhca_mr *mr)
{
    struct softhca_hca *h = softhca_hca;
    if (h->mr_count >= h->config.max_mr) {
        return ENOMEM;
    }
    uint32_t i = h->mr_next;
    while (h->mrs[i]) {
        i = i + 1 < SOFTHCA_MR_SLOTS ? i + 1 : 1;
    }
    h->mr_next = i + 1 < SOFTHCA_MR_SLOTS ? i + 1 : 1;
    h->mr_tag[i] = (uint8_t)((h->mr_tag[i] + 1) & (RKEY_MARK - 1)); // an old key does not fit
    h->mrs[i] = mr;
    h->mr_count++;
    mr->mr.lkey = i << 8 | h->mr_tag[i];
    mr->mr.rkey = mr->mr.lkey | RKEY_MARK;
    mr->mr.handle = i;
    return 0;
}

static int check_access(unsigned access)
{
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND |
                           IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;
    if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED)) {
        return EOPNOTSUPP;
    }
    // remote writing without local writing is refused by the specification
    if ((access & ~known) || ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
                              !(access & IBV_ACCESS_LOCAL_WRITE))) {
        return EINVAL;
    }
    return 0;
}

// Pinning faults every page in, and fails where there is none or where it may not be written.
static int populate(void *addr, size_t length, unsigned access)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)addr & ~(page - 1);
    size_t bytes = (((uintptr_t)addr + length + page - 1) & ~(page - 1)) - start;
    if (!length) {
        return 0;
    }
    // EINVAL: a kernel older than 5.14, memory of a device, or no right to read at all
    if (madvise((void *)start, bytes, MADV_POPULATE_READ)) {
        return errno == EINVAL || errno == EAGAIN ? 0 : EFAULT;
    }
    if ((access & IBV_ACCESS_LOCAL_WRITE) && madvise((void *)start, bytes, MADV_POPULATE_WRITE)) {
        return errno == EAGAIN ? 0 : EFAULT; // could be read, so EINVAL means: not written
    }
    return 0;
}

static int add_mr(struct softhca_mr *mr, struct ibv_pd *pd)
{
    softhca_lock();
    int err = mr->base.gpu ? 0 : charge(mr, (uintptr_t)mr->mr.addr, mr->mr.length);
    if (!err) {
        err = claim_key(mr);
        if (err) {
            softhca_hca->locked_bytes -= mr->charged;
        }
    }
    if (!err) {
        ((struct softhca_pd *)pd)->refs++;
    }
    softhca_unlock();
    return err;
}

// gpu: the memory is known to be on a device, by its dma-buf.
static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                          unsigned access, void *map, struct softhca_gpu *gpu)
{
    struct softhca_mr *mr = NULL;
    int err = softhca_fault_call(SOFTHCA_CALL_REG_MR);
    err = err ? err : pd ? check_access(access) : EINVAL;
    if (!err && ((uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova)) {
        err = EINVAL;
    }
    if (!err && !gpu && !map) {
        int found = softhca_cuda_find(addr, length, &gpu);
        err = found < 0 ? -found : found && !softhca_hca->config.peermem ? EFAULT : 0;
    }
    if (!err && !gpu) {
        err = populate(addr, length, access);
    }
    if (!err && !(mr = calloc(1, sizeof *mr))) {
        err = ENOMEM;
    }
    if (err) {
        errno = err;
        return NULL;
    }
    mr->mr.context = pd->context;
    mr->mr.pd = pd;
    mr->mr.addr = addr;
    mr->mr.length = length;
    mr->iova = iova;
    mr->base = (struct softhca_place){.at = addr, .gpu = gpu};
    mr->access = access;
    mr->map = map;
    mr->export = SOFTHCA_NO_EXPORT;
    if (gpu && softhca_hca->config.pull_kib) {
        softhca_export_add(mr);
    }
    err = add_mr(mr, pd);
    if (err) {
        softhca_export_remove(mr);
        free(mr);
        errno = err;
        return NULL;
    }
    return &mr->mr;
}

SOFTHCA_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                               uint64_t iova, unsigned int access)
{
    return reg(pd, addr, length, iova, access, NULL, NULL);
}

SOFTHCA_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return reg(pd, addr, length, (uintptr_t)addr, (unsigned)access, NULL, NULL);
}

SOFTHCA_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
                                              uint64_t iova, int access)
{
    return reg(pd, addr, length, iova, (unsigned)access, NULL, NULL);
}

static int is_dmabuf(int fd)
{
    char path[64], target[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd); // fits
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) {
        return -EBADF;
    }
    target[n] = 0;
    return strncmp(target, "/dmabuf:", 8) == 0 || softhca_hca->config.dmabuf == 2;
}

SOFTHCA_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                                uint64_t iova, int fd, int access)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (!softhca_hca->config.dmabuf) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    int is = fd < 0 ? -EBADF : is_dmabuf(fd);
    if (is <= 0 || !length || (offset & (page - 1)) != (iova & (page - 1))) {
        errno = is < 0 ? -is : EINVAL;
        return NULL;
    }
    // The driver exports device memory, but only CUDA can copy it: the region is found by its
    // address, which programs give as the iova. The descriptor may be closed after this call.
    struct softhca_gpu *gpu = NULL;
    void *device = (void *)(uintptr_t)iova;
    int found = softhca_cuda_find(device, length, &gpu);
    if (found) {
        errno = -found;
        return found < 0 ? NULL : reg(pd, device, length, iova, (unsigned)access, NULL, gpu);
    }
    uint64_t first = offset & ~(page - 1);
    size_t bytes = length + (offset - first);
    int prot = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
    uint8_t *map = mmap(NULL, bytes, prot, MAP_SHARED, fd, (off_t)first);
    if (map == MAP_FAILED) {
        return NULL; // errno says why
    }
    struct ibv_mr *mr = reg(pd, map + (offset - first), length, iova, (unsigned)access, map, NULL);
    if (!mr) {
        int err = errno;
        (void)munmap(map, bytes);
        errno = err;
        return NULL;
    }
    return mr;
}

SOFTHCA_EXPORT int ibv_dereg_mr(struct ibv_mr *base)
{
    struct softhca_mr *mr = (struct softhca_mr *)base;
    struct softhca_hca *h = softhca_hca;
    softhca_lock(); // the progress thread is in no copy now, and will find the key gone
    if (mr->base.gpu) {
        softhca_pull_finish();
    }
    h->mrs[base->handle] = NULL;
    h->mr_count--;
    h->locked_bytes -= mr->charged;
    ((struct softhca_pd *)base->pd)->refs--;
    softhca_unlock();
    softhca_export_remove(mr);
    if (mr->map) {
        (void)munmap(mr->map, base->length + (size_t)(mr->base.at - (uint8_t *)mr->map));
    }
    free(mr);
    return 0;
}

SOFTHCA_EXPORT int ibv_rereg_mr(struct ibv_mr *base, int flags, struct ibv_pd *pd, void *addr,
                                size_t length, int access)
{
    struct softhca_mr *mr = (struct softhca_mr *)base;
    if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || !flags || mr->map || mr->base.gpu) {
        errno = EINVAL;
        return IBV_REREG_MR_ERR_INPUT;
    }
    unsigned new_access = flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access : mr->access;
    void *new_addr = flags & IBV_REREG_MR_CHANGE_TRANSLATION ? addr : base->addr;
    size_t new_length = flags & IBV_REREG_MR_CHANGE_TRANSLATION ? length : base->length;
    struct softhca_gpu *gpu;
    int err = check_access(new_access);
    err = err ? err : softhca_cuda_find(new_addr, new_length, &gpu) ? EOPNOTSUPP : 0;
    err = err ? err : populate(new_addr, new_length, new_access);
    if (err) {
        errno = err;
        return IBV_REREG_MR_ERR_INPUT;
    }
    softhca_lock();
    uint64_t old = mr->charged;
    softhca_hca->locked_bytes -= old;
    err = charge(mr, (uintptr_t)new_addr, new_length);
    if (err) {
        softhca_hca->locked_bytes += old;
    } else {
        if (flags & IBV_REREG_MR_CHANGE_PD) {
            ((struct softhca_pd *)base->pd)->refs--;
            ((struct softhca_pd *)pd)->refs++;
            base->pd = pd;
        }
        base->addr = new_addr;
        base->length = new_length;
        mr->base.at = new_addr;
        mr->iova = (uintptr_t)new_addr;
        mr->access = new_access;
    }
    softhca_unlock();
    errno = err;
    return err ? IBV_REREG_MR_ERR_CMD : 0;
}

int softhca_mr_reach(const struct ibv_pd *pd, enum softhca_key kind, uint32_t key, uint64_t addr,
                     uint64_t len, unsigned need, struct softhca_place *out_place)
{
    const struct softhca_mr *mr = (key >> 8) < SOFTHCA_MR_SLOTS ? softhca_hca->mrs[key >> 8] : NULL;
    if (!mr || (kind == SOFTHCA_LKEY ? mr->mr.lkey : mr->mr.rkey) != key || mr->mr.pd != pd ||
        (mr->access & need) != need) {
        return -EACCES;
    }
    if (addr < mr->iova || len > mr->mr.length || addr - mr->iova > mr->mr.length - len) {
        return -EACCES;
    }
    out_place->at = mr->base.at + (addr - mr->iova);
    out_place->gpu = mr->base.gpu;
    out_place->mr = mr;
    return 0;
}

SOFTHCA_EXPORT int softhca_query_mr(const struct ibv_mr *base, struct softhca_mr_info *out_info)
{
    const struct softhca_mr *mr = (const struct softhca_mr *)base;
    softhca_lock();
    out_info->access = mr->access;
    out_info->charged_bytes = mr->charged;
    out_info->process_mrs = softhca_hca->mr_count;
    out_info->process_locked_bytes = softhca_hca->locked_bytes;
    softhca_unlock();
    return 0;
}

SOFTHCA_EXPORT void softhca_visit_mrs(softhca_visit_mr *visit, void *user)
{
    softhca_lock();
    for (uint32_t i = 0; i < SOFTHCA_MR_SLOTS; i++) {
        const struct softhca_mr *mr = softhca_hca->mrs[i];
        if (mr) {
            visit(user, &mr->mr, mr->access);
        }
    }
    softhca_unlock();
}
