// SPDX-License-Identifier: Apache-2.0
// What the softhca tests share: a private fabric, connected queue pairs, a peer process.
#ifndef GEMMAR_TEST_SOFTHCA_HARNESS_H
#define GEMMAR_TEST_SOFTHCA_HARNESS_H

#include <check.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <sys/types.h>

#define DEADLINE_MS 20000 // for anything that should happen at once

struct side { // one end of a connection
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buf;
    size_t bytes;
    uint32_t psn;
};

struct address { // what the other end must know
    uint32_t qpn, psn, rkey, lid;
    uint64_t addr;
    union ibv_gid gid;
};

struct side_options {                                      // zero: the default in brackets
    uint32_t send_wr, recv_wr, cqe, send_sge, inline_data; // [64, 64, 256, 4, 64]
    size_t bytes;                                          // of the registered buffer [65536]
    int access;                                            // of the registration [all]
    int sig_all;
};

struct link_options {                      // of harness_connect
    uint8_t timeout, retry_cnt, rnr_retry; // [14, 7, 7]; 255 for 0
    uint8_t min_rnr_timer;                 // [1]
    int qp_access;                         // [all]; -1 for none
    uint8_t rd_atomic;                     // [4]; 255 for 0
};

#define ALL_ACCESS                                                                                 \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)

// Before and after each test: a fabric of its own, named by SOFTHCA_FABRIC.
void harness_setup(void);
void harness_teardown(void);

struct ibv_context *harness_open(void);
void harness_side_open(struct side *s, struct ibv_context *ctx, const struct side_options *o);
void harness_side_close(struct side *s);
struct address harness_address(const struct side *s);
void harness_connect(struct side *s, const struct address *to, const struct link_options *o);
// Two queue pairs of one process, connected to each other.
void harness_loop_open(struct side *a, struct side *b, const struct side_options *o,
                       const struct link_options *l);

// A completion within ms, or the test fails.
struct ibv_wc harness_wait(struct side *s, int ms);
struct ibv_wc harness_expect(struct side *s, enum ibv_wc_status status, uint64_t wr_id);
int harness_post_send(struct side *s, enum ibv_wr_opcode op, uint64_t wr_id, size_t offset,
                      uint32_t length, const struct address *to, size_t to_offset);
int harness_post_recv(struct side *s, uint64_t wr_id, size_t offset, uint32_t length);

// A forked process of another node; sock speaks to the parent. It runs body and exits with 0, or
// with 1 when an assertion of check failed.
struct peer {
    pid_t pid;
    int sock;
};
struct peer harness_peer_start(const char *node, void (*body)(int sock));
int harness_peer_wait(struct peer *p); // its exit status, or 128 + signal
void harness_say(int sock, const void *data, size_t size);
void harness_hear(int sock, void *data, size_t size);
// Both ends call it: addresses are exchanged and the queue pairs connected.
struct address harness_meet(struct side *s, int sock, const struct link_options *o);

uint64_t harness_ms(void);
void harness_sleep_ms(unsigned ms);
// softhca-ctl with these arguments; fails the test unless it succeeds.
void harness_ctl(const char *arguments);
// Run the suite and print TAP.
int harness_main(Suite *suite);

#endif
