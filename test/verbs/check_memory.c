// SPDX-License-Identifier: Apache-2.0
// Checks: registered memory that is large, shared with a fork, limited, or goes away under way.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOCAL = IBV_ACCESS_LOCAL_WRITE, REMOTE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static uint8_t *map(size_t n)
{
    uint8_t *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(p != MAP_FAILED, "mmap of %zu bytes", n);
    return p;
}

// A long range over little memory: the same 48 MiB again and again, so that no two places that are
// 4 GiB apart are the same.
static uint8_t *map_repeated(size_t n)
{
    enum { PIECE = 48 << 20 };
    int fd = memfd_create("piece", 0);
    MUST(fd >= 0 && ftruncate(fd, PIECE) == 0, "a file in memory");
    uint8_t *p = map(n);
    for (size_t at = 0; at < n; at += PIECE) {
        size_t length = n - at < PIECE ? n - at : PIECE;
        MUST(mmap(p + at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p + at,
             "mmap");
    }
    MUST(close(fd) == 0, "close");
    return p;
}

// Lengths and offsets have 64 bits.
static void beyond_4_gib(void)
{
    struct pair p;
    struct job j;
    size_t size = (UINT64_C(5) << 30) + 8192, at = (UINT64_C(4) << 30) + 100;
    pair_open(&p, NULL);
    uint8_t *big = map_repeated(size);
    struct ibv_mr *mr = ibv_reg_mr(p.b.pd, big, size, REMOTE);
    MUST(mr && mr->length == size, "a region of 5 GiB");
    pattern_fill(p.a.buf, 5000, 1);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 5000);
    j.wr.wr.rdma.rkey = mr->rkey;
    j.wr.wr.rdma.remote_addr = (uintptr_t)big + at;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    MUST(pattern_is(big + at, 5000, 1), "written behind 4 GiB");
    MUST(bytes_are(big + 100, 5000, 0), "and not at the same offset modulo 4 GiB");
    j.wr.wr_id = 2;
    j.wr.wr.rdma.remote_addr = (uintptr_t)big + size - 4999;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
    MUST(ibv_dereg_mr(mr) == 0 && munmap(big, size) == 0, "both go");
    pair_close(&p);
}

// The range of a remote access may not wrap around the end of the address space.
static void address_wraps(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 64);
    j.wr.wr.rdma.remote_addr = UINT64_MAX - 31;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
    pair_close(&p);
}

// A region whose remote addresses start where the caller says, as NCCL registers its buffers.
static void own_addresses(void)
{
    struct pair p;
    struct job j;
    uint64_t iova = UINT64_C(0x123450000000);
    pair_open(&p, NULL);
    struct ibv_mr *mr = ibv_reg_mr_iova(p.b.pd, p.b.buf, 65536, iova, REMOTE);
    MUST(mr, "ibv_reg_mr_iova");
    pattern_fill(p.a.buf, 5000, 1);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 5000);
    j.wr.wr.rdma.rkey = mr->rkey;
    j.wr.wr.rdma.remote_addr = iova + 8000;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    MUST(pattern_is(p.b.buf + 8000, 5000, 1), "written at the offset of the address");
    j.wr.wr_id = 2;
    j.wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
    MUST(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    pair_close(&p);
}

static void drop_lock_capability(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    MUST(syscall(SYS_capget, &head, data) == 0, "capget");
    data[CAP_IPC_LOCK / 32].effective &= ~(1u << CAP_IPC_LOCK % 32);
    data[CAP_IPC_LOCK / 32].permitted &= ~(1u << CAP_IPC_LOCK % 32);
    MUST(syscall(SYS_capset, &head, data) == 0, "capset");
}

// Registered memory counts against RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK.
static void locked_memory(void)
{
    enum { LIMIT = 256 << 10, QUARTER = LIMIT / 4 };
    struct ibv_context *ctx = device_open(0);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    MUST(pd, "ibv_alloc_pd");
    uint8_t *p = map(2 * LIMIT);
    drop_lock_capability();
    MUST(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){LIMIT, LIMIT}) == 0, "setrlimit");
    for (int round = 0; round < 3; round++) {
        struct ibv_mr *mr[4];
        errno = 0;
        MUST(!ibv_reg_mr(pd, p, 2 * LIMIT, LOCAL) && errno == ENOMEM, "too much is ENOMEM");
        for (int i = 0; i < 3; i++) {
            mr[i] = ibv_reg_mr(pd, p + i * QUARTER, QUARTER, LOCAL);
            MUST(mr[i], "less than the limit is fine");
        }
        errno = 0;
        MUST(!ibv_reg_mr(pd, p + LIMIT, 2 * QUARTER, LOCAL) && errno == ENOMEM, "the sum counts");
        for (int i = 0; i < 3; i++) {
            MUST(ibv_dereg_mr(mr[i]) == 0, "ibv_dereg_mr gives the memory back");
        }
    }
    MUST(munmap(p, 2 * LIMIT) == 0, "munmap");
    MUST(ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0, "both go");
}

// A fork that only runs on does not disturb its parent's regions: their pages stay the parent's.
static void fork_beside(void)
{
    MUST(ibv_fork_init() == 0, "ibv_fork_init");
    struct pair p;
    pair_open(&p, NULL);
    pair_works(&p);
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        MUST(pid >= 0, "fork");
        if (pid == 0) {
            nap(0.05); // registered memory may be missing here, the library decides
            _exit(0);
        }
        int status = 1;
        pair_works(&p);
        MUST(waitpid(pid, &status, 0) == pid && status == 0, "the fork ends");
        pair_works(&p);
    }
    pair_close(&p);
}

// Once ibv_dereg_mr has returned the memory may be unmapped, whatever is still under way.
static void target_goes_away(void)
{
    enum { BYTES = 256 << 10, N = 64 };
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.size = BYTES});
    uint8_t *target = map(BYTES);
    struct ibv_mr *mr = ibv_reg_mr(p.b.pd, target, BYTES, REMOTE);
    MUST(mr, "ibv_reg_mr");
    for (unsigned i = 0; i < N; i++) {
        job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, 0, BYTES);
        j.wr.wr.rdma.rkey = mr->rkey;
        j.wr.wr.rdma.remote_addr = (uintptr_t)target;
        job_post(p.a.qp, &j);
    }
    wc_expect(p.a.send_cq, 0, IBV_WC_SUCCESS);
    MUST(ibv_dereg_mr(mr) == 0 && munmap(target, BYTES) == 0, "deregistered and unmapped");
    bool failed = false;
    for (unsigned i = 1; i < N; i++) {
        struct ibv_wc wc = {0};
        MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.wr_id == i,
             "every write completes, in order");
        MUST(wc.status == (failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS) ||
                 (!failed && wc.status == IBV_WC_REM_ACCESS_ERR),
             "success, one access error, flushes; not '%s'", ibv_wc_status_str(wc.status));
        failed |= wc.status != IBV_WC_SUCCESS;
    }
    pair_close(&p);
}

static void source_goes_away(void)
{
    enum { BYTES = 256 << 10, N = 64 };
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.size = BYTES});
    uint8_t *source = map(BYTES);
    struct ibv_mr *mr = ibv_reg_mr(p.a.pd, source, BYTES, LOCAL);
    MUST(mr, "ibv_reg_mr");
    for (unsigned i = 0; i < N; i++) {
        job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, 0, BYTES);
        j.sge.addr = (uintptr_t)source;
        j.sge.lkey = mr->lkey;
        job_post(p.a.qp, &j);
    }
    wc_expect(p.a.send_cq, 0, IBV_WC_SUCCESS);
    MUST(ibv_dereg_mr(mr) == 0 && munmap(source, BYTES) == 0, "deregistered and unmapped");
    bool failed = false;
    for (unsigned i = 1; i < N; i++) {
        struct ibv_wc wc = {0};
        MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.wr_id == i,
             "every write completes, in order");
        MUST(!failed || wc.status == IBV_WC_WR_FLUSH_ERR, "flushes behind the first error");
        failed |= wc.status != IBV_WC_SUCCESS;
    }
    pair_close(&p);
}

const struct check memory_checks[] = {
    {"memory.beyond_4_gib", beyond_4_gib, 0},
    {"memory.remote_address_wraps", address_wraps, 0},
    {"memory.region_with_its_own_addresses", own_addresses, 0},
    {"memory.locked_memory_is_limited", locked_memory, 0},
    {"memory.fork_leaves_the_parent_alone", fork_beside, 0},
    {"memory.target_unmapped_under_way", target_goes_away, 0},
    {"memory.source_unmapped_under_way", source_goes_away, 0},
    {0},
};
