// SPDX-License-Identifier: Apache-2.0
// What the parts of checkcomm share: one rank per GPU, a thread or a process, or ranks of several
// nodes that share the GPUs.
#ifndef GEMMAR_TEST_CHECKCOMM_H
#define GEMMAR_TEST_CHECKCOMM_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <gemmar/gemmar.h>

#define MAX_RANKS 8
#define POISON    INT32_MAX /* set_c: a NaN */

/* Seen by all ranks. */
struct shared {
    pthread_barrier_t barrier;
    ncclUniqueId id;
    int ranks, nodes, gpus;
    int failures; /* atomic */
    int checks;   /* atomic */
};

struct rank {
    struct shared *all;
    int rank;
    int device; /* GPUs go round the ranks, and so round each node */
    ncclComm_t nccl;
    gemmarComm_t comm;
    cudaStream_t stream, other;
    const char *test;
    const char *step; /* what it is in, if it hangs */
};

/* checkcomm_rank.c: a failed check is told and counted, the test goes on. */
void check(struct rank *r, bool ok, const char *format, ...) __attribute__((format(printf, 3, 4)));
void cuda(struct rank *r, cudaError_t rc, const char *what);
/* The result of a call, and with `sentence` not NULL a part of the error's text. */
void expect(struct rank *r, gemmarResult_t got, gemmarResult_t want, const char *sentence,
            const char *what);
void barrier(struct rank *r);
double now_us(void);
void create(struct rank *r, unsigned timeout_ms, unsigned compare_calls);
void destroy(struct rank *r);

/* checkcomm_problem.c */
struct shape {
    int64_t m, n, k;
};

/* One problem: operands on the GPU, the expected product of all ranks on the host. */
struct problem {
    struct shape s;
    bool bf16, trans_b;
    uint16_t *a, *b, *bias, *c;
    int *product; /* [m, n] sum over ranks of A * B */
    int64_t ldc;
    uint16_t *c_given; /* registered memory, or NULL: an allocation of c's own */
};

#define SHAPES 9
extern const struct shape shapes[SHAPES];

/* Collective. */
void open_problem(struct rank *r, struct problem *p);
void close_problem(struct rank *r, struct problem *p);
/* C = value everywhere, the gaps between its rows too. */
void set_c(struct rank *r, const struct problem *p, int value);
/* C == times * product + plus + bias * with_bias; gaps between rows are poisoned. */
void compare(struct rank *r, const struct problem *p, int times, int plus, bool with_bias,
             const char *what);
gemmarResult_t call_on(struct rank *r, const struct problem *p, float alpha, float beta, bool bias,
                       cudaStream_t stream);
/* Collective: a call with a plain result, as a sign that everything works. */
void one_call(struct rank *r, struct shape s, const char *what);

/* The tests; all ranks run each of them. checkcomm_calls.c */
void test_results(struct rank *r);
void test_registered(struct rank *r);
void test_graph(struct rank *r);
void test_graph_of_two_streams(struct rank *r);
void test_growth(struct rank *r);
void test_streams(struct rank *r);
void test_again(struct rank *r);
void test_host_time(struct rank *r);
/* checkcomm_refusals.c */
void test_refused_registration(struct rank *r);
void test_arguments(struct rank *r);
void test_wrong_creation(struct rank *r);
void test_compare_calls(struct rank *r);
void test_other_arguments(struct rank *r);
/* checkcomm_nodes.c: of several nodes */
void test_nodes(struct rank *r);
void test_signals(struct rank *r);
void test_algorithms(struct rank *r);
void test_gone_in_reserve(struct rank *r);
/* checkcomm_faults.c */
void test_killed(struct rank *r);
void test_port_down(struct rank *r);
void test_wrong_key(struct rank *r);
void test_flap(struct rank *r);
void test_two_communicators(struct rank *r);
/* checkcomm_failures.c */
void test_never_calls(struct rank *r);
void test_two_at_once(struct rank *r);
void test_abort(struct rank *r);
/* Not among the tests: it leaves NCCL's communicator without a rank. */
void peer_dies(struct rank *r);

#endif
