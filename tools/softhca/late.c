// SPDX-License-Identifier: Apache-2.0
// Requests that the network holds back (fault rule `late`). What follows one on its queue pair
// waits behind it, as on a path that stands still: the sender may give up, reset or go away
// meanwhile, and its first copies come all the same. They are judged when they come.
#include <stdlib.h>
#include <string.h>

#include "tools/softhca/hca.h"

#define HELD_BYTES (64u << 20) // of all requests; what comes then is lost, as in a full switch

struct softhca_late {
    struct softhca_late *next;
    uint64_t due_ns;
    struct softhca_packet packet; // with its payload behind it
};

static struct softhca_qp *qp_of(struct softhca_hca *h, const struct softhca_packet *p)
{
    struct softhca_qp *qp = h->qps[SOFTHCA_QP_INDEX(p->dst_qpn)];
    return qp && qp->ex.qp_base.qp_num == p->dst_qpn ? qp : NULL;
}

static void keep(struct softhca_hca *h, struct softhca_qp *qp, const struct softhca_packet *p)
{
    size_t bytes = sizeof(struct softhca_late) + p->length;
    struct softhca_late *l = h->late_bytes + bytes > HELD_BYTES ? NULL : malloc(bytes);
    if (!l) {
        return;
    }
    l->next = NULL;
    l->due_ns = qp->late_ns;
    memcpy(&l->packet, p, sizeof *p + p->length);
    *(h->late ? &h->late_last->next : &h->late) = l;
    h->late_last = l;
    h->late_bytes += bytes;
    qp->late_count++;
}

int softhca_late_takes(struct softhca_hca *h, struct softhca_qp *qp, const struct softhca_packet *p)
{
    if (p->kind > SOFTHCA_FETCH_ADD) {
        return 0;
    }
    const struct softhca_rule *r =
        p->offset ? NULL : softhca_fault_hit(&h->faults, SOFTHCA_FAULT_LATE, p->dst_qpn);
    uint64_t due_ns = r ? h->now_ns + r->us * 1000 : 0;
    if (!qp->late_count) {
        qp->late_ns = 0;
    }
    qp->late_ns = due_ns > qp->late_ns ? due_ns : qp->late_ns;
    if (!r && !qp->late_count) {
        return 0;
    }
    keep(h, qp, p);
    softhca_wake_at(qp->late_ns);
    return 1;
}

// Oldest first, so that the order within a queue pair is kept.
int softhca_late_step(struct softhca_hca *h)
{
    int did = 0;
    struct softhca_late **at = &h->late, *last = NULL;
    while (*at) {
        struct softhca_late *l = *at;
        if (l->due_ns > h->now_ns) {
            softhca_wake_at(l->due_ns);
        } else if (softhca_deliver(h, &l->packet) == 0) {
            struct softhca_qp *qp = qp_of(h, &l->packet);
            if (qp) {
                qp->late_count--;
            }
            *at = l->next;
            h->late_bytes -= sizeof *l + l->packet.length;
            free(l);
            did = 1;
            continue;
        } else {
            return did; // after copies that are under way; h->late_last is still the last one
        }
        last = l;
        at = &l->next;
    }
    h->late_last = last;
    return did;
}

void softhca_late_forget(struct softhca_hca *h)
{
    while (h->late) {
        struct softhca_late *l = h->late;
        struct softhca_qp *qp = qp_of(h, &l->packet);
        if (qp) {
            qp->late_count--;
        }
        h->late = l->next;
        free(l);
    }
    h->late_last = NULL;
    h->late_bytes = 0;
}
