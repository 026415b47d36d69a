// SPDX-License-Identifier: Apache-2.0
// Two ranks as two processes, joined by one channel each: what the cases of transport_pair share.
#ifndef GEMMAR_TEST_PAIR_H
#define GEMMAR_TEST_PAIR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gemmar/transport.h>

#define PAIR_MAX_ROUTES 2

/* What a case wants of its channel; zero takes the value in brackets. */
struct pair_options {
    uint32_t queue_pairs;  /* [1] */
    uint32_t ring_entries; /* [64] */
    uint32_t routes;       /* [1] */
    uint32_t slots;        /* [8] of each route */
    uint32_t slot_bytes;   /* [4096] distance of two slots, a multiple of 128, at most 1 MiB */
    uint32_t signal;       /* enum gemmar_signal_mode [stamp] */
    bool wrong_key;        /* rank 0 takes a data key out of rank 1's blob that is none [no] */
    bool gpu;              /* the data claims to be GPU memory [host memory] */
    uint64_t first_epoch;  /* [1] */
    uint64_t timeout_ms;   /* [20000] of the channel */
    uint32_t ib_timeout;   /* [18] NCCL_IB_TIMEOUT: the retries outlast a busy machine's pauses */
    const char *faults;    /* SOFTHCA_FAULTS of rank 0 [none] */
    const char *log;       /* a warning with this text is expected [none] */
};

/* How the whole program was called. */
struct pair_program {
    const char *device[2]; /* NCCL_IB_HCA of the ranks, or NULL */
    const char *port_down; /* shell commands that take rank 0's port away and bring it back */
    const char *port_up;
    bool softhca; /* the faults that only softhca has can be asked for */
};

/* One rank, inside its process. */
struct pair_end {
    const struct gemmar_transport_table *table;
    struct gemmar_transport *transport;
    struct gemmar_channel *channel;
    struct pair_options options;
    const struct pair_program *program;
    uint32_t rank;
    int sock;    /* to the other rank */
    pid_t other; /* its process; rank 1 only */
    char *data;  /* guard page, windows, guard page */
    char *stamps;
    uint64_t window_bytes;
    uint64_t data_bytes, stamp_bytes;
    struct gemmar_fifo_ring ring;
    uint64_t ticket, known_tail;
    uint64_t heads[2]; /* ring position at the end of the last epoch of each parity */
    uint64_t abort_word __attribute__((aligned(64)));
};

typedef void (*pair_body)(struct pair_end *end);

/* Run `body` in two processes; prints the TAP line `name`. `ends_with_1` is the signal that rank 1
 * dies of, 0 when it must leave by itself. */
void pair_case(const struct pair_program *program, const char *name,
               const struct pair_options *options, pair_body body, int ends_with_1);
/* Print a line for a case that cannot run, or the plan at the end; returns the exit status. */
void pair_skip(const char *name, const char *why);
int pair_finish(void);

/* Inside a rank. Each fails the case with a sentence when it cannot do its part. */
void pair_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The channel broke where it should not: fails with its error. */
void pair_fail_broken(const struct pair_end *end) __attribute__((noreturn));
void pair_open(struct pair_end *end);      /* transport and channel */
void pair_join(struct pair_end *end);      /* swap blobs, connect, start; both ranks */
void pair_close(struct pair_end *end);     /* channel and transport */
void pair_meet(struct pair_end *end);      /* both ranks have come here */
void pair_wait_gone(struct pair_end *end); /* the other rank's sockets are closed */

/* Bytes of data of slot `slot`: from nothing to a whole slot. */
uint32_t pair_length(const struct pair_end *end, uint64_t epoch, uint32_t slot);
/* One epoch: fill, push all slots of all routes, wait for the peer's, check them. False when the
 * channel broke. */
bool pair_push(struct pair_end *end, uint64_t epoch);
bool pair_take(struct pair_end *end, uint64_t epoch);
bool pair_epochs(struct pair_end *end, uint64_t first, uint64_t count);
/* The same, and none of it may fail. */
void pair_expect_epochs(struct pair_end *end, uint64_t first, uint64_t count);
/* Drain, then the counters must say that exactly `epochs` epochs were sent. */
void pair_expect_counters(struct pair_end *end, uint64_t epochs);
/* The channel must break within `ms`; the error's sentence is returned. */
const struct gemmar_transport_error *pair_expect_error(struct pair_end *end, uint64_t ms);
void pair_expect_text(const char *text, const char *part);
/* Nothing outside the sinks and stamp windows was written. */
void pair_expect_guards(const struct pair_end *end);
void pair_sleep_ms(uint64_t ms);

#endif
