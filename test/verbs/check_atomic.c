// SPDX-License-Identifier: Apache-2.0
// Checks: 64-bit compare-and-swap and fetch-and-add.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <string.h>

enum { RESULT = 4096, TARGET = 64 };

// One atomic on the word at TARGET of b's buffer; returns what it brought back.
static uint64_t atomic(struct pair *p, enum ibv_wr_opcode opcode, uint64_t compare_add,
                       uint64_t swap)
{
    struct job j;
    uint64_t before;
    memset(p->a.buf + RESULT, 0xee, 8);
    job_fill(&j, opcode, 1, &p->a, RESULT, &p->b, TARGET, 8);
    j.wr.wr.atomic.compare_add = compare_add;
    j.wr.wr.atomic.swap = swap;
    job_post(p->a.qp, &j);
    struct ibv_wc wc = wc_expect(p->a.send_cq, 1, IBV_WC_SUCCESS);
    bool add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    MUST(wc.opcode == (add ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP), "opcode");
    memcpy(&before, p->a.buf + RESULT, 8);
    return before;
}

static uint64_t target(const struct pair *p)
{
    return word_acquire(p->b.buf + TARGET);
}

static void open_with(struct pair *p, uint64_t value)
{
    pair_open(p, NULL);
    memset(p->b.buf, 0x77, 2 * TARGET);
    memcpy(p->b.buf + TARGET, &value, 8);
}

static void close_checked(struct pair *p)
{
    MUST(bytes_are(p->b.buf, TARGET, 0x77), "the bytes before the word");
    MUST(bytes_are(p->b.buf + TARGET + 8, TARGET - 8, 0x77), "the bytes behind the word");
    pair_close(p);
}

static void fetch_and_add(void)
{
    struct pair p;
    open_with(&p, UINT64_C(0xfffffffffffffff0));
    MUST(atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0) == UINT64_C(0xfffffffffffffff0), "old");
    MUST(target(&p) == UINT64_C(0xfffffffffffffff5), "sum");
    MUST(atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 0x10000000b, 0) == UINT64_C(0xfffffffffffffff5),
         "old");
    MUST(target(&p) == UINT64_C(0x100000000), "the sum wraps at 64 bits");
    MUST(atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0) == UINT64_C(0x100000000), "adding 0 reads");
    close_checked(&p);
}

static void compare_and_swap(void)
{
    struct pair p;
    uint64_t old = UINT64_C(0x1122334455667788);
    open_with(&p, old);
    MUST(atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, old + 1, 5) == old, "old value, also without swap");
    MUST(target(&p) == old, "another value: no swap");
    MUST(atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, old, 5) == old, "old value");
    MUST(target(&p) == 5, "equal: swapped");
    MUST(atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, old ^ (UINT64_C(1) << 63), 6) == 5, "old value");
    MUST(target(&p) == 5, "all 64 bits count");
    close_checked(&p);
}

static void misaligned(void)
{
    for (unsigned at = 1; at < 8; at += 3) {
        struct pair p;
        struct job j;
        open_with(&p, 0);
        job_fill(&j, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &p.a, RESULT, &p.b, TARGET + at, 8);
        j.wr.wr.atomic.compare_add = 1;
        int rc = job_try(p.a.qp, &j);
        if (rc != 0) {
            MUST(rc == EINVAL && allowed(DIFF_MISALIGNED_ATOMIC_REFUSED_AT_ONCE), "EINVAL");
        } else {
            wc_expect(p.a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
        }
        MUST(target(&p) == 0, "nothing was added");
        close_checked(&p);
    }
}

static void bad_rkey(void)
{
    struct pair p;
    struct job j;
    open_with(&p, 0);
    job_fill(&j, IBV_WR_ATOMIC_CMP_AND_SWP, 1, &p.a, RESULT, &p.b, TARGET, 8);
    j.wr.wr.atomic.rkey ^= 0x5500;
    j.wr.wr.atomic.swap = 1;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
    MUST(target(&p) == 0, "nothing was swapped");
    close_checked(&p);
}

// Requests of two queue pairs on one word: no addition is lost, each old value is seen once.
static void two_queue_pairs(void)
{
    enum { N = 100 };
    struct pair p;
    bool seen[2 * N] = {false};
    open_with(&p, 0);
    struct ibv_qp *a = side_create_qp(&p.a), *b = side_create_qp(&p.b);
    struct address at_a = side_address(&p.a), at_b = side_address(&p.b);
    at_a.qp_num = a->qp_num;
    at_b.qp_num = b->qp_num;
    qp_connect(&p.a, a, &at_b);
    qp_connect(&p.b, b, &at_a);
    for (unsigned i = 0; i < 2 * N; i++) {
        struct job j;
        job_fill(&j, IBV_WR_ATOMIC_FETCH_AND_ADD, i, &p.a, RESULT + i * 8, &p.b, TARGET, 8);
        j.wr.wr.atomic.compare_add = 1;
        job_post(i % 2 ? a : p.a.qp, &j);
    }
    for (unsigned i = 0; i < 2 * N; i++) {
        struct ibv_wc wc;
        MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS, "a completion");
    }
    MUST(target(&p) == 2 * N, "%d additions", 2 * N);
    for (unsigned i = 0; i < 2 * N; i++) {
        uint64_t old;
        memcpy(&old, p.a.buf + RESULT + i * 8, 8);
        MUST(old < 2 * N && !seen[old], "each old value once");
        seen[old] = true;
    }
    MUST(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0, "ibv_destroy_qp");
    close_checked(&p);
}

// More READs and atomics than may be in flight: the requester holds the others back.
static void more_than_in_flight(void)
{
    enum { N = 64 };
    struct pair p;
    open_with(&p, 0);
    for (unsigned i = 0; i < N; i++) {
        struct job j;
        if (i % 2) {
            job_fill(&j, IBV_WR_RDMA_READ, i, &p.a, 100000, &p.b, 0, 10000);
        } else {
            job_fill(&j, IBV_WR_ATOMIC_FETCH_AND_ADD, i, &p.a, RESULT, &p.b, TARGET, 8);
            j.wr.wr.atomic.compare_add = 1;
        }
        job_post(p.a.qp, &j);
    }
    for (unsigned i = 0; i < N; i++) {
        wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
    }
    MUST(target(&p) == N / 2, "every addition once");
    close_checked(&p);
}

const struct check atomic_checks[] = {
    {"atomic.fetch_and_add", fetch_and_add, 0},
    {"atomic.compare_and_swap", compare_and_swap, 0},
    {"atomic.misaligned_address", misaligned, 0},
    {"atomic.bad_rkey", bad_rkey, 0},
    {"atomic.two_queue_pairs_on_one_word", two_queue_pairs, 0},
    {"atomic.more_than_may_be_in_flight", more_than_in_flight, 0},
    {0},
};
