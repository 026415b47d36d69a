// SPDX-License-Identifier: Apache-2.0
// What softhca exports beyond libibverbs, for tests: look the names up with dlsym.
#ifndef GEMMAR_SOFTHCA_H
#define GEMMAR_SOFTHCA_H

#include <infiniband/verbs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct softhca_mr_info {
    uint32_t access;               // ibv_access_flags as given, relaxed ordering included
    uint32_t process_mrs;          // regions of this process
    uint64_t charged_bytes;        // of this region, against RLIMIT_MEMLOCK
    uint64_t process_locked_bytes; // of all regions
};

struct softhca_qp_info {
    uint64_t sent_bytes;    // payload handed to the wire, repeats included
    uint64_t sent_messages; // packets handed to the wire, acknowledges included
    uint64_t empty_sges;    // scatter entries of length 0 in posted sends; some devices read 2^31
    uint32_t sent_wrs;      // posted and not completed
    uint32_t free_wrs;      // that a post would find
};

struct softhca_objects { // of this process, not yet destroyed
    uint32_t contexts, pds, mrs, cqs, qps, channels;
};

// Both return 0 and cannot fail for a live object.
int softhca_query_mr(const struct ibv_mr *mr, struct softhca_mr_info *out_info);
int softhca_query_qp(struct ibv_qp *qp, struct softhca_qp_info *out_info);
void softhca_query_objects(struct softhca_objects *out_objects);
// Shows every queue pair of this process and its attributes as last set; visit may not call verbs.
void softhca_visit_qps(void (*visit)(void *user, const struct ibv_qp *qp,
                                     const struct ibv_qp_attr *attr),
                       void *user);
// Shows every region of this process with its access flags; visit may not call verbs.
typedef void softhca_visit_mr(void *user, const struct ibv_mr *mr, uint32_t access);
void softhca_visit_mrs(softhca_visit_mr *visit, void *user);
// Events that fault rules have hit in this process so far.
uint32_t softhca_query_faults(void);

#ifdef __cplusplus
}
#endif

#endif
