// SPDX-License-Identifier: Apache-2.0
// What this process holds: threads, descriptors and, over softhca, verbs objects.
#ifndef GEMMAR_TEST_PLUGIN_PROBE_H
#define GEMMAR_TEST_PLUGIN_PROBE_H

#include "tools/softhca/softhca.h"

struct held {
    int threads, fds;
    struct softhca_objects verbs; // zeros without softhca
};

void held_take(struct held *out_held);
// Fails the case when more or less is held than before, after waiting a little for threads to end.
void held_check(const struct held *before, const char *when);
// 0 when libibverbs is not softhca: then visit was not called.
int probe_visit_qps(void (*visit)(void *user, const struct ibv_qp *qp,
                                  const struct ibv_qp_attr *attr),
                    void *user);
// The same for regions, with their access flags.
int probe_visit_mrs(softhca_visit_mr *visit, void *user);
// Events that softhca's fault rules have hit in this process; 0 without softhca.
unsigned probe_faults(void);
// Sends that were posted on the live queue pairs and are not over; 0 without softhca.
uint64_t probe_open_sends(void);
// Scatter entries of length 0 that were posted on the live queue pairs; 0 without softhca.
uint64_t probe_empty_entries(void);
// Bytes that the queue pairs of a device have sent so far, repeats included. Without softhca:
// packets that the device has sent for anyone, 0 where it does not count them.
uint64_t probe_sent_bytes(const char *device);

#endif
