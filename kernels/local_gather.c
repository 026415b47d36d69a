// SPDX-License-Identifier: Apache-2.0
// The all-gather between the ranks of one node.
#include "kernels/local_gather.h"

#include <errno.h>
#include <string.h>

#include "transport/order.h"
#include "transport/wait.h"

#define LOOK_TURNS                                                                                 \
    512 /* turns of a wait, most of them sleeps, between two looks at the process                  \
         */

static struct gemmar_gather_area *area_of(const struct gemmar_local_gather *g, uint32_t local)
{
    return (struct gemmar_gather_area *)(g->peers->segments[local].base + g->offset);
}

static int wait_for(const struct gemmar_local_gather *g, uint32_t local, uint64_t pieces)
{
    const struct gemmar_gather_area *area = area_of(g, local);
    const struct gemmar_control *control = g->peers->controls[local];
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, g->timeout_ns);
    for (int turn = 1; gemmar_load_acquire(&area->written) < pieces; turn++) {
        if (!gemmar_wait_step(&wait)) {
            return -ETIMEDOUT;
        }
        if (gemmar_load_acquire(&control->broken) != 0) {
            return -ECONNRESET;
        }
        if (turn % LOOK_TURNS == 0 && g->peers->visible[local] &&
            gemmar_process_gone(&control->process)) {
            return -EHOSTDOWN;
        }
    }
    return 0;
}

/* out[i * stride] gets rank i's piece. */
static int gather_piece(struct gemmar_local_gather *g, const char *mine, size_t bytes, char *out,
                        size_t stride)
{
    uint64_t index = g->pieces++;
    struct gemmar_gather_area *own = area_of(g, g->local);
    int rc = 0;

    memcpy(own->piece[index & 1], mine, bytes);
    gemmar_store_release(&own->written, index + 1);
    for (uint32_t i = 0; rc == 0 && i < g->locals; i++) {
        rc = wait_for(g, i, index + 1);
        if (rc == 0) {
            memcpy(out + i * stride, area_of(g, i)->piece[index & 1], bytes);
        }
    }
    return rc;
}

int gemmar_local_gather_all(void *context, const void *mine, void *all, size_t bytes)
{
    struct gemmar_local_gather *g = context;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < bytes; at += GEMMAR_GATHER_PIECE) {
        size_t n = bytes - at < GEMMAR_GATHER_PIECE ? bytes - at : GEMMAR_GATHER_PIECE;

        rc = gather_piece(g, (const char *)mine + at, n, (char *)all + at, bytes);
    }
    return rc;
}

int gemmar_local_gather_barrier(struct gemmar_local_gather *g)
{
    char nothing = 0;

    return gather_piece(g, &nothing, 0, &nothing, 0);
}
