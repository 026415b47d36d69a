// SPDX-License-Identifier: Apache-2.0
// Scripted faults. A rule is "what key=value ...":
//   drop     every=N count=N qp=HEX          lose the N-th, 2N-th ... message (count times at most)
//   delay    every=N count=N qp=HEX us=N     hold messages of a queue pair back; others pass them
//   late     every=N count=N qp=HEX us=N     the network holds requests to a queue pair back
//   key      nth=N count=N qp=HEX            the N-th request has a wrong remote key
//   complete nth=N count=N qp=HEX status=N   the N-th send completion has that ibv_wc_status
//   call     name=post_send nth=N count=N errno=N   the N-th call fails (names: fault.c)
// node=NAME limits a rule to processes of that node. Counting is per process and rule.
#ifndef GEMMAR_SOFTHCA_FAULT_H
#define GEMMAR_SOFTHCA_FAULT_H

#include <pthread.h>
#include <stdint.h>

struct softhca_config;
struct softhca_fabric;

enum softhca_fault_what {
    SOFTHCA_FAULT_NONE,
    SOFTHCA_FAULT_DROP,
    SOFTHCA_FAULT_DELAY,
    SOFTHCA_FAULT_LATE,
    SOFTHCA_FAULT_KEY,
    SOFTHCA_FAULT_COMPLETE,
    SOFTHCA_FAULT_CALL
};

enum softhca_call {
    SOFTHCA_CALL_OPEN_DEVICE,
    SOFTHCA_CALL_QUERY_DEVICE,
    SOFTHCA_CALL_QUERY_PORT,
    SOFTHCA_CALL_QUERY_GID,
    SOFTHCA_CALL_ALLOC_PD,
    SOFTHCA_CALL_REG_MR,
    SOFTHCA_CALL_CREATE_CHANNEL,
    SOFTHCA_CALL_CREATE_CQ,
    SOFTHCA_CALL_CREATE_SRQ,
    SOFTHCA_CALL_CREATE_QP,
    SOFTHCA_CALL_MODIFY_QP,
    SOFTHCA_CALL_POST_SEND,
    SOFTHCA_CALL_POST_RECV,
    SOFTHCA_CALL_POLL_CQ,
    SOFTHCA_CALL_REQ_NOTIFY,
    SOFTHCA_CALLS
};

struct softhca_rule {
    enum softhca_fault_what what;
    enum softhca_call call;
    uint32_t qp; // 0: every queue pair
    uint64_t every, nth, count;
    uint64_t us;
    uint32_t status;
    int err;
    char node[64];
    char text[128];
    uint64_t seen;  // matching events so far: under the set's lock for calls, else progress thread
    uint64_t fired; // of these, made to fail
};

#define SOFTHCA_FAULT_RULES 48u

struct softhca_fault_set {
    struct softhca_rule rules[SOFTHCA_FAULT_RULES];
    uint32_t env_rules; // the first ones come from the environment and stay
    uint32_t count;
    uint32_t has_calls;   // 1: a call rule exists. Relaxed: a fast look before taking the lock
    pthread_mutex_t lock; // calls, against the progress thread that rewrites the rules
};

// 0, or -EINVAL with the reason logged.
int softhca_rule_parse(const char *text, struct softhca_rule *out_rule);

int softhca_fault_init(struct softhca_fault_set *set, const struct softhca_config *config);
// Progress thread: take over the fabric's rules. Counters of rules that stay are kept.
void softhca_fault_reload(struct softhca_fault_set *set, struct softhca_fabric *fabric,
                          const char *node);

// 0, or the errno with which this call must fail. Any thread.
int softhca_fault_call(enum softhca_call call);
// Progress thread: 1 when the event of this kind on that queue pair is the faulty one.
const struct softhca_rule *softhca_fault_hit(struct softhca_fault_set *set,
                                             enum softhca_fault_what what, uint32_t qpn);

#endif
