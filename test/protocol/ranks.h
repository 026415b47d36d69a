// SPDX-License-Identifier: Apache-2.0
// Processes as ranks: each one forked, with a bootstrap over shared memory, on a node of its own
// choosing of the software HCA.
#ifndef GEMMAR_TEST_PROTOCOL_RANKS_H
#define GEMMAR_TEST_PROTOCOL_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <check.h>

#include <gemmar/gemmar.h>

#define RANKS_MAX       16
#define RANKS_TEXT      1024
#define RANKS_NUMBERS   64
#define RANKS_SECONDS   100 /* a run that takes longer has hung */
#define RANKS_GATHER_MS 60000

/* What a rank leaves for the test. */
struct report {
    gemmarResult_t result;   /* of the step that the test is about */
    char text[RANKS_TEXT];   /* its sentence */
    char broken[RANKS_TEXT]; /* not "": the rank found something wrong */
    uint64_t ms;             /* that the step took */
    uint64_t number[RANKS_NUMBERS];
};

struct rank {
    int rank, ranks, nodes;
    gemmarHostBootstrap_t bootstrap;
    gemmarConfig_t config;
    struct report *report;
    uint64_t *shared; /* [RANKS_NUMBERS] words that all ranks see */
    const void *argument;
};

struct run {
    int nodes, per_node;
    void (*body)(struct rank *rank);
    const void *argument;
    /* Once shared[0] is not 0: a signal to a rank, or arguments for softhca-ctl. */
    int signal;
    int signal_rank; /* ends by a signal: this one, or the harness's when the others have ended */
    const char *ctl;
};

/* Run the ranks to their end and give their reports. Fails the test when one hangs, dies, or has
 * something in `broken`. Afterwards no process and no segment is left. */
struct report *ranks_run(const struct run *run);

/* The same without a signal. */
struct report *ranks_simple(int nodes, int per_node, void (*body)(struct rank *rank),
                            const void *argument);

/* In a rank: note something wrong and end. */
void ranks_fail(struct rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)))
__attribute__((noreturn));

/* In a rank: create the communicator or ranks_fail. */
gemmarComm_t ranks_create(struct rank *rank);

/* In a rank: destroy it, or ranks_fail. */
void ranks_destroy(struct rank *rank, gemmarComm_t comm);

uint64_t ranks_ms(void);
void ranks_sleep_ms(unsigned ms);

/* Runs the suite with TAP on standard output. */
int ranks_main(Suite *suite);

#endif
