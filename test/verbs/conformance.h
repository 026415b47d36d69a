// SPDX-License-Identifier: Apache-2.0
// The verbs conformance program: checks, what they may expect of a device, and two connected sides.
#ifndef GEMMAR_TEST_VERBS_CONFORMANCE_H
#define GEMMAR_TEST_VERBS_CONFORMANCE_H

#include "test/verbs/differences.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One check runs in a process of its own, so that a crash or a hang costs one line of the result.
struct check {
    const char *name; // family.what
    void (*run)(void);
    unsigned seconds; // deadline; 0 is DEFAULT_SECONDS
};
enum { DEFAULT_SECONDS = 60 };

// Each family ends with an entry without a name.
extern const struct check query_checks[];
extern const struct check object_checks[];
extern const struct check state_checks[];
extern const struct check data_checks[];
extern const struct check order_checks[];
extern const struct check local_checks[];
extern const struct check remote_checks[];
extern const struct check retry_checks[];
extern const struct check queue_checks[];
extern const struct check event_checks[];
extern const struct check atomic_checks[];
extern const struct check peer_checks[];
extern const struct check wr_api_checks[];
extern const struct check cq_ex_checks[];
extern const struct check memory_checks[];

struct options {
    const char *device[2]; // NULL: the first two devices, or the first one twice
    int port;
    int gid_index;         // -1: the first IPv4 GID, else 0
    const char *port_down; // shell commands for the port events, or NULL
    const char *port_up;
};
extern struct options options;

// Ends the running check. The text states the fact that was expected.
#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__);                             \
        }                                                                                          \
    } while (0)
_Noreturn void check_failed(const char *file, int line, const char *condition, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));
_Noreturn void check_skipped(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Asked when a device was seen to differ from the specification: true if this one may. The result
// line then names the difference.
bool allowed(enum difference id);

// ---- devices and sides

struct ibv_context *device_open(int which);
double now(void);
void nap(double seconds);

struct setup {
    size_t size;                                 // bytes of the registered buffer, default 1 MiB
    int mr_access;                               // default: local write and everything remote
    int qp_access;                               // default: everything remote
    unsigned send_wr, recv_wr, sge, inline_data; // defaults 128, 128, 4, 0
    int cqe;                                     // default 512
    int sig_all;
    uint8_t timeout, retry_cnt, rnr_retry, rnr_timer; // defaults 14, 6, 6, 1
    bool no_retry, no_rnr_retry;                      // these two are 0
    bool channel;                                     // completion events for both queues
    bool srq;
    bool same_device; // both sides on the first device
};

struct side {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buf;
    struct ibv_port_attr port;
    union ibv_gid gid;
    int gid_index;
    struct ibv_qp_cap cap; // as granted
    struct setup setup;
};

// What a side must know of the other one.
struct address {
    union ibv_gid gid;
    uint32_t qp_num;
    uint32_t rkey;
    uint64_t addr;
    uint16_t lid;
};

struct pair {
    struct side a, b;
};

void side_open(struct side *s, int device, const struct setup *setup);
void side_close(struct side *s);
struct address side_address(const struct side *s);
struct ibv_qp *side_create_qp(struct side *s);             // one more queue pair like s->qp
void pair_open(struct pair *p, const struct setup *setup); // connected; setup may be NULL
void pair_close(struct pair *p);

// ---- queue pair states; each fills in all that the transition requires

int init_attr(const struct side *s, struct ibv_qp_attr *attr);
int rtr_attr(const struct side *s, const struct address *to, struct ibv_qp_attr *attr);
int rts_attr(const struct side *s, struct ibv_qp_attr *attr);
void qp_init(const struct side *s, struct ibv_qp *qp);
void qp_rtr(const struct side *s, struct ibv_qp *qp, const struct address *to);
void qp_rts(const struct side *s, struct ibv_qp *qp);
void qp_connect(const struct side *s, struct ibv_qp *qp, const struct address *to);
void qp_move(struct ibv_qp *qp, enum ibv_qp_state state);
enum ibv_qp_state qp_state(struct ibv_qp *qp);

// ---- work requests

struct job {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
};

// A signaled request; its wr_id is `id`, its gather entry [from, from+length) of s's buffer, its
// remote address `to` in t's buffer.
struct job *job_fill(struct job *j, enum ibv_wr_opcode opcode, uint64_t id, const struct side *s,
                     size_t from, const struct side *t, size_t to, size_t length);
int job_try(struct ibv_qp *qp, struct job *j); // the result of ibv_post_send
void job_post(struct ibv_qp *qp, struct job *j);
void recv_post(struct side *s, uint64_t id, size_t at, size_t length);

// ---- completions

enum { WAIT_MS = 15000 };

int wc_poll(struct ibv_cq *cq, struct ibv_wc *wc, int ms); // 1, or 0 after ms without one
struct ibv_wc wc_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
// The same, or `other` on a device with this difference.
struct ibv_wc wc_expect_or(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status,
                           enum ibv_wc_status other, enum difference difference);
void wc_none(struct ibv_cq *cq, int ms);
// Post one write from a to b and expect it to arrive.
void pair_works(struct pair *p);

// ---- bytes

void pattern_fill(uint8_t *p, size_t n, uint32_t seed);
bool pattern_is(const uint8_t *p, size_t n, uint32_t seed);
bool bytes_are(const uint8_t *p, size_t n, uint8_t value);
uint64_t word_acquire(const void *p); // a word that a device or another process writes

#endif
