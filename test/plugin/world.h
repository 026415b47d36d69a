// SPDX-License-Identifier: Apache-2.0
// What a case runs in: a process that is the sender, the receiver, or both in one thread.
#ifndef GEMMAR_TEST_PLUGIN_WORLD_H
#define GEMMAR_TEST_PLUGIN_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "test/plugin/net.h"

#define SENDER   1u
#define RECEIVER 2u
#define SKIP     77
#define HANDLES  64u

struct options {
    const char *library;     // path, or "nccl"
    const char *disturbance; // shell command that runs beside the case `disturbed`, or NULL
    const char *only;        // comma list of cases, NULL: all
    int api;
    int dev;
    int rails;          // of the virtual NIC that all cases use, 0: dev
    const char *hca[2]; // NCCL_IB_HCA of the sender and the receiver, or NULL
    size_t max_bytes;   // largest message
    unsigned transfers; // of the random mix
    unsigned rounds;    // of load and unload
    unsigned seconds;   // limit of a case
    uint64_t seed;
    unsigned modes; // 1: one process, 2: two processes
};

struct shared {              // between the two processes of a case
    uint32_t ready[HANDLES]; // writer: receiver, release; reader: sender, acquire
    char handle[HANDLES][NET_HANDLE_BYTES];
    uint32_t met[2];  // meetings so far; each written by one side, release; acquire
    uint64_t word;    // of the case, written before a meeting and read after it
    char reason[256]; // of a skip. Writer: the case; reader: the parent after its end
};

struct world {
    const struct options *o; // own is it, once the virtual NIC has a number
    struct options own;
    struct shared *shared;
    struct net net;
    unsigned roles;    // SENDER, RECEIVER, or both
    unsigned handles;  // used so far
    unsigned meetings; // so far
    unsigned warnings; // that the case has provoked
    int devices;
    void *ctx;
};

struct pair { // a connection; the ends that this process has, else NULL
    void *listener, *send, *recv;
};

// Ends the process: the case has failed.
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void skip(struct world *w, const char *reason) __attribute__((noreturn));
// The call must have succeeded.
void must(int rc, const char *what);
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail(__VA_ARGS__);                                                                     \
        }                                                                                          \
    } while (0)

void breathe(void); // lets the other threads run
void nap_ms(unsigned ms);
uint64_t now_ms(void);

void world_open(struct world *w); // load, init, at least one device; fails the case otherwise
void world_close(struct world *w);
// The other process has come as far; at once when there is one process.
void world_meet(struct world *w);

// Both processes call these in the same order.
void pair_open(struct world *w, struct pair *p, int dev);
void pair_open_on(struct world *w, struct pair *p, int send_dev, int recv_dev);
void pair_close(struct world *w, struct pair *p);

// The same numbers in both processes.
uint64_t random_next(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t n);

struct contract_case {
    const char *name;
    void (*run)(struct world *w);
    unsigned modes;           // as in options
    int raw;                  // 1: the case loads the library itself
    int oldest;               // API version
    const char *no_reference; // why NCCL's own table is not driven here, or NULL
};
extern const struct contract_case contract_cases[]; // ends with a NULL name

#endif
