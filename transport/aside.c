// SPDX-License-Identifier: Apache-2.0
// Commands that wait for room in their own send queue, aside from the ring.
//
// The ring is shared by all queue pairs of a rank, so a command at its head whose send queue is
// full (a slow peer, a rail that repeats packets) would hold back everybody's. It is copied out
// instead, a bounded number of times; each queue pair keeps its own order. Proxy thread only.
#include <errno.h>

#include "transport/channel.h"

static struct gemmar_channel_qp *qp_of(struct gemmar_channel *c,
                                       const struct gemmar_fifo_request *r)
{
    return gemmar_rdma_write_qp(c, c->routes[r->route].local.peer, r->slot);
}

/* A free place + 1, or 0. */
static uint32_t place(struct gemmar_channel *c)
{
    uint32_t at = c->aside_free;

    if (at != 0) {
        c->aside_free = c->aside[at - 1].next;
        return at;
    }
    return c->aside_used < GEMMAR_ASIDE ? ++c->aside_used : 0;
}

bool gemmar_aside_put(struct gemmar_channel *c, const struct gemmar_fifo_request *request,
                      uint64_t position)
{
    struct gemmar_channel_qp *q = qp_of(c, request);
    uint32_t at = place(c);

    if (at == 0) {
        return false;
    }
    c->aside[at - 1] = (struct gemmar_aside){.request = *request, .position = position};
    if (q->aside_first == 0) {
        q->aside_first = at;
    } else {
        c->aside[q->aside_last - 1].next = at;
    }
    q->aside_last = at;
    q->limit = 0;
    c->aside_count++;
    return true;
}

/* The first one of a queue pair has been built. */
static void drop_first(struct gemmar_channel *c, struct gemmar_channel_qp *q)
{
    uint32_t at = q->aside_first;

    q->aside_first = c->aside[at - 1].next;
    c->aside[at - 1].next = c->aside_free;
    c->aside_free = at;
    c->aside_count--;
}

/* Build from one queue pair's until there is no room. */
static int take_from(struct gemmar_channel *c, struct gemmar_channel_qp *q, uint32_t most)
{
    uint32_t built = 0;
    int rc = 0;

    q->limit = GEMMAR_SEND_DEPTH;
    while (rc == 0 && built < most && q->aside_first != 0) {
        const struct gemmar_aside *a = &c->aside[q->aside_first - 1];

        rc = gemmar_rdma_write_build(c, &a->request, a->position);
        if (rc == 0) {
            drop_first(c, q);
            built++;
        }
    }
    if (q->aside_first != 0) {
        q->limit = 0;
    }
    return rc == 0 || rc == -EAGAIN || rc == -ENOSPC ? (int)built : rc;
}

int gemmar_aside_take(struct gemmar_channel *c, uint32_t most)
{
    uint32_t built = 0;

    for (uint32_t i = 0; i < c->qp_count && built < most; i++) {
        if (c->qps[i].aside_first != 0) {
            int n = take_from(c, &c->qps[i], most - built);

            if (n < 0) {
                return n;
            }
            built += (uint32_t)n;
        }
    }
    return (int)built;
}

uint64_t gemmar_aside_frontier(const struct gemmar_channel *c, uint64_t frontier)
{
    for (uint32_t i = 0; i < c->qp_count; i++) {
        uint32_t at = c->qps[i].aside_first;

        if (at != 0 && c->aside[at - 1].position < frontier) {
            frontier = c->aside[at - 1].position;
        }
    }
    return frontier;
}
