// SPDX-License-Identifier: Apache-2.0
// A connection within one process for the cases in which calls may fail: every error comes back to
// the case. Both ends run in the calling thread.
#ifndef GEMMAR_TEST_PLUGIN_LINE_H
#define GEMMAR_TEST_PLUGIN_LINE_H

#include "test/plugin/world.h"

#define LINE_MESSAGES 32u // of a round, all under way at once

struct line {
    struct pair p;
    uint32_t send_qp, recv_qp; // the first of each end, over softhca
    size_t bytes;              // of a message
    int gpu;                   // memory is registered as GPU memory, by a dma-buf
    char *from, *to;
    void *from_mh, *to_mh;
    unsigned failed; // SENDER or RECEIVER, after an error
    void *sent[LINE_MESSAGES], *received[LINE_MESSAGES];
};

// 0, or what the first call returned that failed; then line_close is still to be called.
int line_open(struct world *w, struct line *l, size_t bytes, int gpu);
// Rounds of LINE_MESSAGES messages; what arrives is compared, and flushed where it is GPU memory.
int line_run(struct world *w, struct line *l, unsigned rounds);
// Runs until a call fails, which it has to within the limit; returns what it returned.
int line_run_out(struct world *w, struct line *l, unsigned limit_ms);
// Tests what is still under way for a while: nothing of it may succeed with wrong data or be told.
void line_linger(struct world *w, struct line *l, unsigned ms);
int line_close(struct world *w, struct line *l);

// Runs `run` in a child that ends with exit(0) unless the case fails there. Returns its exit code;
// a failure there is one here. The library must not be in this process yet.
int field_child(struct world *w, int (*run)(struct world *w, const void *arg), const void *arg);
// softhca-ctl with this rule, or a skip where SOFTHCA_CTL is unset.
void field_rule(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void field_clear(struct world *w);

#endif
