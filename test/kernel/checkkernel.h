// SPDX-License-Identifier: Apache-2.0
// What the parts of checkkernel share: one process, rank r on GPU r % count.
#ifndef GEMMAR_TEST_CHECKKERNEL_H
#define GEMMAR_TEST_CHECKKERNEL_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/fused_sm90.h"
#include "kernels/layout.h"
#include "kernels/plan.h"
#include "test/kernel/oracle.h"

#define MAX_RANKS   GEMMAR_MAX_LOCAL_RANKS
#define MAX_RUNS    101
#define MAX_TURNS   16
#define GUARD_ROWS  3 /* behind C */
#define POISON      0xffff
#define TRACE_CTAS  132u
#define TRACE_ITEMS 64u

struct shape {
    int64_t m, n, k;
};

/* What the network between nodes does. */
enum nic_mode {
    NIC_RUNS = 0,
    NIC_HOLDS_DATA, /* takes commands and brings nothing */
    NIC_HOLDS_RING, /* takes no commands */
};

struct options {
    int nodes, locals, ranks; /* ranks = nodes * locals, node by node */
    uint32_t algo;            /* enum gemmar_algo, 0: both */
    int turns;                /* calls enqueued one behind the other */
    enum nic_mode hold;
    uint32_t ctas, tile_m, tile_n, band, lead;
    int strategy; /* enum gemmar_strategy, -1: all that these ranks can */
    int senders;  /* -1: the plan's */
    bool trans_b, bf16, bench;
    enum oracle_numbers numbers;
    int random, runs, skew;
    struct shape most; /* of random shapes */
    int64_t row_step;
    uint32_t copies; /* enum gemmar_copies */
    uint64_t seed, epoch, timeout_ns;
    uint64_t delay_ns; /* that some commands of the network wait at most */
    const char *json, *trace;
};

/* One rank: its device, its workspace and the operands of the current shape. */
struct rank {
    int device;
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *workspace;
    uint32_t *rank_of;
    const void **views;                  /* [2][2][routes]: recv and arrival of both parities */
    uint16_t *a, *b, *c, *before, *bias; /* turn t: A from row t on, the t-th C */
    uint16_t *seen;                      /* the t-th C when the call's stream went on */
    struct oracle_verdict *verdict;
    uint64_t *abort_word;
    struct gemmar_trouble *trouble;
    uint32_t most;   /* CTAs of this rank that can be resident */
    uint64_t *trace; /* NULL: none */
    cublasLtHandle_t lt;
    void *lt_workspace;
    cublasLtMatmulAlgo_t algo;
};

struct call_kind {
    float alpha, beta;
    bool bias, trans_b, bf16;
    int64_t pad;     /* elements between rows of every matrix, a multiple of 8 */
    uint32_t copies; /* enum gemmar_copies: can others, can a bulk store write into C? */
};

extern struct options options;
extern struct rank ranks[MAX_RANKS];
extern uint32_t *gate; /* host memory: streams stand at it until it has their number */
extern uint64_t failures;
extern FILE *json; /* NULL: none */

/* checkkernel_world.c. What fails ends the program with a sentence. */
void must(cudaError_t error, const char *what);
void must_blas(cublasStatus_t status, const char *what);
void use(const struct rank *r);
void *device_memory(size_t bytes);
uint64_t next_random(uint64_t *state);

void open_ranks(void);
/* algo: enum gemmar_algo; LOCAL for one node of `locals` ranks. */
struct gemmar_plan make_plan(const struct shape *s, uint32_t algo, uint32_t locals, int strategy);
/* Can these ranks call with it? */
bool can(int strategy);
/* Workspaces for at least what the plan needs. */
void want_workspaces(const struct gemmar_plan *plan);
/* New ones of the same capacity, and no call was left: behind calls that were. */
void renew_workspaces(void);
void allocate(const struct shape *s, const struct call_kind *kind);
void release(void);
/* Operands from the seed; every C is poisoned, or filled when it is read. */
void fill(const struct shape *s, const struct call_kind *kind, uint64_t seed);
/* Elements between rows of `columns` elements. */
int64_t row_length(int64_t columns, const struct call_kind *kind);
int64_t row_length_of_c(const struct shape *s, const struct call_kind *kind);
/* Elements between the A of two turns, and between the C. */
int64_t step_of_a(const struct shape *s, const struct call_kind *kind);
int64_t step_of_c(const struct shape *s, const struct call_kind *kind);
/* One call of rank i on its stream. alone: its own product, without the others. */
void enqueue(int i, const struct shape *s, const struct call_kind *kind,
             const struct gemmar_plan *plan, bool alone, int turn);
/* Between nodes: play the network for the next `turns` calls of all ranks; and when they have
 * ended, see that it has carried what it should. Returns failures. */
void network_start(const struct gemmar_plan *plan, enum nic_mode mode);
uint64_t network_stop(void);
/* Until all streams are done. */
void synchronize_all(void);
/* The same; a call that was left ends the program. */
void wait_all(void);

/* checkkernel_check.c */
void check(const struct shape *s, const struct call_kind *kind, uint32_t algo, int strategy,
           uint64_t seed);
void check_random(void);

/* Nothing comes from other nodes: every call must be left in time, and say for whom it waited. */
void check_hold(const struct shape *s, const struct call_kind *kind);

/* checkkernel_nic.c */
void nic_allocate(uint32_t rank);
struct gemmar_fifo_ring nic_ring(uint32_t rank);
/* Rings as new, for workspaces that are. */
void nic_reset(void);
/* The network of `turns` calls of all ranks from this epoch on. */
void nic_start(const struct gemmar_layout *layout, const struct gemmar_plan *plan, uint64_t epoch,
               uint64_t turns, enum nic_mode mode);
/* When the kernels have ended: until the rings are empty, each rank having pushed tickets[rank]
 * commands since the last reset. Returns failures. */
uint64_t nic_stop(const uint64_t *tickets);

/* checkkernel_bench.c */
void bench(const struct shape *s, const struct call_kind *kind);

#endif
