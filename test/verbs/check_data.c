// SPDX-License-Identifier: Apache-2.0
// Checks: bytes arrive, all of them, nowhere else, for every operation, size and alignment.
#include "test/verbs/conformance.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5, BIG = 8 << 20 };

static const size_t sizes[] = {0,    1,    2,    3,     7,     8,      9,       63,   64,
                               65,   255,  256,  257,   1023,  1024,   1025,    4095, 4096,
                               4097, 8191, 8193, 65535, 65537, 262144, 1048579, BIG};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

// Moves every size with one operation; source and destination have different alignments.
static void every_size(enum ibv_wr_opcode opcode)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.size = BIG + 4096});
    bool receives = opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    struct side *from = opcode == IBV_WR_RDMA_READ ? &p.b : &p.a;
    struct side *to = opcode == IBV_WR_RDMA_READ ? &p.a : &p.b;

    for (unsigned i = 0; i < SIZES; i++) {
        size_t n = sizes[i], at = GUARD + i % 5, source = GUARD + i * 3 % 7;
        pattern_fill(from->buf + source, n, i);
        memset(to->buf, GUARD_BYTE, at + n + GUARD);
        if (receives) {
            recv_post(&p.b, 1000 + i, at, n);
        }
        if (opcode == IBV_WR_RDMA_READ) {
            job_fill(&j, opcode, i, &p.a, at, &p.b, source, n);
        } else {
            job_fill(&j, opcode, i, &p.a, source, &p.b, at, n);
        }
        job_post(p.a.qp, &j);
        wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
        if (receives) {
            struct ibv_wc wc = wc_expect(p.b.recv_cq, 1000 + i, IBV_WC_SUCCESS);
            MUST(wc.byte_len == n, "byte_len %zu, not %u", n, wc.byte_len);
        }
        MUST(pattern_is(to->buf + at, n, i), "%zu bytes", n);
        MUST(bytes_are(to->buf, at, GUARD_BYTE), "%zu bytes: those before are untouched", n);
        MUST(bytes_are(to->buf + at + n, GUARD, GUARD_BYTE), "%zu bytes: those after", n);
    }
    wc_none(p.b.send_cq, 0);
    pair_close(&p);
}

static void write_sizes(void)
{
    every_size(IBV_WR_RDMA_WRITE);
}

static void read_sizes(void)
{
    every_size(IBV_WR_RDMA_READ);
}

static void send_sizes(void)
{
    every_size(IBV_WR_SEND);
}

static void write_imm_sizes(void)
{
    every_size(IBV_WR_RDMA_WRITE_WITH_IMM);
}

// Four pieces of different lengths, one of them empty, out of or into places far apart.
enum { PIECES = 4, PIECE_GAP = 20000, PIECES_TOTAL = 5 + 9000 + 4098 };
static const uint32_t piece_length[PIECES] = {5, 9000, 0, 4098};

static void pieces(struct ibv_sge *sge, const struct side *s)
{
    for (size_t i = 0; i < PIECES; i++) {
        sge[i] = (struct ibv_sge){.addr = (uintptr_t)s->buf + i * PIECE_GAP + i,
                                  .length = piece_length[i],
                                  .lkey = s->mr->lkey};
    }
}

static bool pieces_are(const struct side *s, const uint8_t *whole)
{
    bool good = true;
    for (size_t i = 0; i < PIECES; i++) {
        good &= memcmp(s->buf + i * PIECE_GAP + i, whole, piece_length[i]) == 0;
        whole += piece_length[i];
    }
    return good;
}

static void pieces_set(struct side *s, const uint8_t *whole)
{
    for (size_t i = 0; i < PIECES; i++) {
        memcpy(s->buf + i * PIECE_GAP + i, whole, piece_length[i]);
        whole += piece_length[i];
    }
}

static void gather_and_scatter(void)
{
    struct pair p;
    struct job j;
    struct ibv_sge sge[PIECES];
    uint8_t *whole = malloc(PIECES_TOTAL);
    MUST(whole, "memory");
    pattern_fill(whole, PIECES_TOTAL, 8);
    pair_open(&p, NULL);
    size_t flat = 500001;

    pieces_set(&p.a, whole); // gathering WRITE
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, flat, 0);
    pieces(sge, &p.a);
    j.wr.sg_list = sge;
    j.wr.num_sge = PIECES;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    MUST(memcmp(p.b.buf + flat, whole, PIECES_TOTAL) == 0, "the pieces in one place");

    memset(p.a.buf, 0, p.a.setup.size); // scattering READ
    job_fill(&j, IBV_WR_RDMA_READ, 2, &p.a, 0, &p.b, flat, 0);
    j.wr.sg_list = sge;
    j.wr.num_sge = PIECES;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);
    MUST(pieces_are(&p.a, whole), "a READ fills the pieces");

    memset(p.b.buf, 0, p.b.setup.size); // gathering SEND into a scattering receive
    struct ibv_sge into[PIECES];
    pieces(into, &p.b);
    struct ibv_recv_wr recv = {.wr_id = 3, .sg_list = into, .num_sge = PIECES}, *bad;
    MUST(ibv_post_recv(p.b.qp, &recv, &bad) == 0, "ibv_post_recv");
    job_fill(&j, IBV_WR_SEND, 4, &p.a, 0, NULL, 0, 0);
    j.wr.sg_list = sge;
    j.wr.num_sge = PIECES;
    job_post(p.a.qp, &j);
    MUST(wc_expect(p.b.recv_cq, 3, IBV_WC_SUCCESS).byte_len == PIECES_TOTAL, "byte_len");
    wc_expect(p.a.send_cq, 4, IBV_WC_SUCCESS);
    MUST(pieces_are(&p.b, whole), "the message fills the pieces");
    pair_close(&p);
    free(whole);
}

// A message of no bytes touches no memory: its keys and addresses are not looked at.
static void zero_length(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 0);
    j.wr.num_sge = 0;
    j.wr.wr.rdma.rkey = 0;
    j.wr.wr.rdma.remote_addr = 0;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    j.wr.opcode = IBV_WR_RDMA_READ;
    j.wr.wr_id = 2;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);

    struct ibv_recv_wr recv = {.wr_id = 3, .num_sge = 0}, *bad;
    MUST(ibv_post_recv(p.b.qp, &recv, &bad) == 0, "a receive without a buffer");
    job_fill(&j, IBV_WR_SEND, 4, &p.a, 0, NULL, 0, 0);
    j.wr.num_sge = 0;
    job_post(p.a.qp, &j);
    MUST(wc_expect(p.b.recv_cq, 3, IBV_WC_SUCCESS).byte_len == 0, "byte_len 0");
    wc_expect(p.a.send_cq, 4, IBV_WC_SUCCESS);
    pair_close(&p);
}

// A shorter message leaves the rest of the receive buffer alone.
static void short_message(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    memset(p.b.buf, GUARD_BYTE, 10000);
    pattern_fill(p.a.buf, 5000, 6);
    recv_post(&p.b, 1, 0, 10000);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 2, &p.a, 0, NULL, 0, 5000));
    struct ibv_wc wc = wc_expect(p.b.recv_cq, 1, IBV_WC_SUCCESS);
    MUST(wc.byte_len == 5000 && wc.opcode == IBV_WC_RECV, "its length");
    MUST(pattern_is(p.b.buf, 5000, 6), "the message");
    MUST(bytes_are(p.b.buf + 5000, 5000, GUARD_BYTE), "nothing behind it");
    wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);
    pair_close(&p);
}

// Inline bytes are taken at the call: the buffer needs no key and is free at once.
static void inline_data(void)
{
    enum { N = 100 };
    struct pair p;
    struct job j;
    uint8_t bytes[64]; // on the stack, not registered
    pair_open(&p, &(struct setup){.inline_data = sizeof(bytes), .send_wr = N});
    for (unsigned i = 0; i < N; i++) {
        pattern_fill(bytes, sizeof(bytes), i);
        job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, i * sizeof(bytes), sizeof(bytes));
        j.sge.addr = (uintptr_t)bytes;
        j.sge.lkey = 0;
        j.wr.send_flags |= IBV_SEND_INLINE;
        job_post(p.a.qp, &j);
        memset(bytes, 0, sizeof(bytes));
    }
    for (unsigned i = 0; i < N; i++) {
        wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
        MUST(pattern_is(p.b.buf + i * sizeof(bytes), sizeof(bytes), i), "write %u", i);
    }
    recv_post(&p.b, 7, 100000, 64);
    pattern_fill(bytes, sizeof(bytes), 55);
    struct ibv_sge two[2] = {{.addr = (uintptr_t)bytes, .length = 30},
                             {.addr = (uintptr_t)bytes + 30, .length = 34}};
    job_fill(&j, IBV_WR_SEND, 8, &p.a, 0, NULL, 0, 0);
    j.wr.sg_list = two;
    j.wr.num_sge = 2;
    j.wr.send_flags |= IBV_SEND_INLINE;
    job_post(p.a.qp, &j);
    memset(bytes, 0, sizeof(bytes));
    wc_expect(p.b.recv_cq, 7, IBV_WC_SUCCESS);
    wc_expect(p.a.send_cq, 8, IBV_WC_SUCCESS);
    MUST(pattern_is(p.b.buf + 100000, 64, 55), "an inline message in two pieces");
    pair_close(&p);
}

static void immediate_data(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    pattern_fill(p.a.buf, 3000, 1);
    recv_post(&p.b, 1, 100000, 10);
    recv_post(&p.b, 2, 200000, 3000);
    recv_post(&p.b, 3, 300000, 3000);

    job_fill(&j, IBV_WR_RDMA_WRITE_WITH_IMM, 11, &p.a, 0, &p.b, 0, 3000);
    j.wr.imm_data = 0x01020304; // passed on as it lies in memory
    job_post(p.a.qp, &j);
    struct ibv_wc wc = wc_expect(p.b.recv_cq, 1, IBV_WC_SUCCESS);
    MUST(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "opcode");
    MUST((wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data == 0x01020304, "immediate data");
    MUST(wc.byte_len == 3000, "byte_len is the length of the write, not %u", wc.byte_len);
    MUST(pattern_is(p.b.buf, 3000, 1), "written before the receive completes");
    MUST(bytes_are(p.b.buf + 100000, 10, 0), "the receive buffer is not touched");
    MUST(wc_expect(p.a.send_cq, 11, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_WRITE, "sender's opcode");

    job_fill(&j, IBV_WR_SEND_WITH_IMM, 12, &p.a, 0, NULL, 0, 3000);
    j.wr.imm_data = 0xfffefdfc;
    job_post(p.a.qp, &j);
    wc = wc_expect(p.b.recv_cq, 2, IBV_WC_SUCCESS);
    MUST(wc.opcode == IBV_WC_RECV && (wc.wc_flags & IBV_WC_WITH_IMM), "opcode and flag");
    MUST(wc.imm_data == 0xfffefdfc && wc.byte_len == 3000, "immediate data and length");
    MUST(wc.qp_num == p.b.qp->qp_num, "the receiver's queue pair");
    wc_expect(p.a.send_cq, 12, IBV_WC_SUCCESS);

    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 13, &p.a, 0, NULL, 0, 3000));
    wc = wc_expect(p.b.recv_cq, 3, IBV_WC_SUCCESS);
    MUST(!(wc.wc_flags & IBV_WC_WITH_IMM), "no flag without immediate data");
    wc_expect(p.a.send_cq, 13, IBV_WC_SUCCESS);
    pair_close(&p);
}

// A plain write uses up no receive and completes nothing at the target.
static void write_is_one_sided(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, NULL);
    recv_post(&p.b, 1, 0, 100);
    pair_works(&p);
    wc_none(p.b.recv_cq, 20);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 2, &p.a, 0, NULL, 0, 1));
    wc_expect(p.b.recv_cq, 1, IBV_WC_SUCCESS);
    wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);
    pair_close(&p);
}

// One queue pair connected to itself, as a flush of arrived writes uses it.
static void self_connection(void)
{
    struct side s;
    struct job j;
    side_open(&s, 0, NULL);
    struct address self = side_address(&s);
    qp_connect(&s, s.qp, &self);
    pattern_fill(s.buf, 50000, 1);
    recv_post(&s, 1, 300000, 50000);
    job_post(s.qp, job_fill(&j, IBV_WR_RDMA_WRITE, 2, &s, 0, &s, 100000, 50000));
    job_post(s.qp, job_fill(&j, IBV_WR_RDMA_READ, 3, &s, 200000, &s, 0, 50000));
    job_post(s.qp, job_fill(&j, IBV_WR_SEND, 4, &s, 0, NULL, 0, 50000));
    for (uint64_t id = 2; id <= 4; id++) {
        wc_expect(s.send_cq, id, IBV_WC_SUCCESS);
    }
    wc_expect(s.recv_cq, 1, IBV_WC_SUCCESS);
    MUST(pattern_is(s.buf + 100000, 50000, 1), "the write");
    MUST(pattern_is(s.buf + 200000, 50000, 1), "the read");
    MUST(pattern_is(s.buf + 300000, 50000, 1), "the message");
    side_close(&s);
}

static void one_device(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.same_device = true});
    pair_works(&p);
    pair_close(&p);
}

// Many queue pairs between the same two devices: bytes and completions stay apart.
static void many_queue_pairs(void)
{
    enum { QPS = 16, ROUNDS = 8, BYTES = 3000 };
    struct pair p;
    struct ibv_qp *a[QPS], *b[QPS];
    struct job j;
    pair_open(&p, &(struct setup){.size = (size_t)QPS * ROUNDS * BYTES});
    struct address at_a = side_address(&p.a), at_b = side_address(&p.b);
    for (int i = 0; i < QPS; i++) {
        a[i] = side_create_qp(&p.a);
        b[i] = side_create_qp(&p.b);
        at_a.qp_num = a[i]->qp_num;
        at_b.qp_num = b[i]->qp_num;
        qp_connect(&p.a, a[i], &at_b);
        qp_connect(&p.b, b[i], &at_a);
    }
    pattern_fill(p.a.buf, p.a.setup.size, 5);
    for (unsigned n = 0; n < QPS * ROUNDS; n++) {
        size_t at = (size_t)n * BYTES;
        job_post(a[n % QPS], job_fill(&j, IBV_WR_RDMA_WRITE, n, &p.a, at, &p.b, at, BYTES));
    }
    uint64_t next[QPS];
    for (unsigned i = 0; i < QPS; i++) {
        next[i] = i;
    }
    for (unsigned n = 0; n < QPS * ROUNDS; n++) {
        struct ibv_wc wc;
        MUST(wc_poll(p.a.send_cq, &wc, WAIT_MS) && wc.status == IBV_WC_SUCCESS, "a completion");
        unsigned i = wc.wr_id % QPS;
        MUST(wc.qp_num == a[i]->qp_num, "the completion names its queue pair");
        MUST(wc.wr_id == next[i], "in order within the queue pair");
        next[i] += QPS;
    }
    MUST(pattern_is(p.b.buf, p.b.setup.size, 5), "every byte");
    for (int i = 0; i < QPS; i++) {
        MUST(ibv_destroy_qp(a[i]) == 0 && ibv_destroy_qp(b[i]) == 0, "ibv_destroy_qp");
    }
    pair_close(&p);
}

static void shared_receives(void)
{
    enum { N = 40 };
    struct pair p;
    struct job j;
    struct ibv_device_attr attr;
    struct ibv_context *ctx = device_open(1);
    MUST(ibv_query_device(ctx, &attr) == 0 && ibv_close_device(ctx) == 0, "ibv_query_device");
    if (attr.max_srq == 0) {
        check_skipped("the device says that it has no shared receive queues");
    }
    pair_open(&p, &(struct setup){.srq = true, .recv_wr = N});
    for (unsigned i = 0; i < N; i++) {
        recv_post(&p.b, i, i * 1000, 1000);
    }
    for (unsigned i = 0; i < N; i++) {
        pattern_fill(p.a.buf + i * 1000, 1000, i);
        job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, i, &p.a, i * 1000, NULL, 0, 1000));
    }
    for (unsigned i = 0; i < N; i++) {
        wc_expect(p.a.send_cq, i, IBV_WC_SUCCESS);
        wc_expect(p.b.recv_cq, i, IBV_WC_SUCCESS);
        MUST(pattern_is(p.b.buf + i * 1000, 1000, i), "message %u", i);
    }
    pair_close(&p);
}

const struct check data_checks[] = {
    {"data.write_of_every_size", write_sizes, 120},
    {"data.read_of_every_size", read_sizes, 120},
    {"data.send_of_every_size", send_sizes, 120},
    {"data.write_with_imm_of_every_size", write_imm_sizes, 120},
    {"data.gather_and_scatter", gather_and_scatter, 0},
    {"data.zero_length_needs_no_keys", zero_length, 0},
    {"data.short_message_in_a_long_buffer", short_message, 0},
    {"data.inline_buffer_is_free_at_once", inline_data, 0},
    {"data.immediate_data", immediate_data, 0},
    {"data.write_is_one_sided", write_is_one_sided, 0},
    {"data.self_connection", self_connection, 0},
    {"data.both_sides_on_one_device", one_device, 0},
    {"data.many_queue_pairs", many_queue_pairs, 0},
    {"data.shared_receive_queue", shared_receives, 0},
    {0},
};
