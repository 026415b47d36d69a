// SPDX-License-Identifier: Apache-2.0
// What the ranks of a node tell each other beside the protocol.
#include "kernels/local_peers.h"

#include <stdlib.h>

#include "kernels/communicator.h"

static void create_own(struct gemmarComm *comm, uint64_t bytes, struct gemmar_segment *own,
                       struct gemmar_error *error)
{
    struct gemmar_control *control;
    char why[256];

    if (error->result != gemmarSuccess) {
        return;
    }
    if (gemmar_segment_create(bytes, own, why, sizeof(why)) != 0) {
        gemmar_warn(&comm->log, "fabric_shm: %s", why);
        (void)gemmar_error_set(error, gemmarSystemError, "%s", why);
        return;
    }
    control = (struct gemmar_control *)own->base;
    control->process = gemmar_process_self();
    control->rank = comm->place.rank;
}

/* names: [ranks][GEMMAR_SEGMENT_NAME_BYTES]. */
static void map_peers(struct gemmarComm *comm, uint64_t bytes, const char *names,
                      struct gemmar_local_peers *peers, struct gemmar_error *error)
{
    char why[256];

    for (uint32_t g = 0; g < comm->place.locals; g++) {
        uint32_t rank = comm->rank_of[comm->place.node * comm->place.locals + g];
        const char *name = names + (size_t)rank * GEMMAR_SEGMENT_NAME_BYTES;
        int rc = g == comm->place.local
                     ? 0
                     : gemmar_segment_map(name, bytes, &peers->segments[g], why, sizeof(why));

        if (rc != 0) {
            gemmar_warn(&comm->log, "fabric_shm: rank %u: %s", rank, why);
            (void)gemmar_error_set(error, gemmarSystemError, "local rank %u (rank %u): %s", g, rank,
                                   why);
            return;
        }
        peers->controls[g] = (struct gemmar_control *)peers->segments[g].base;
        peers->visible[g] = gemmar_process_visible(&peers->controls[g]->process);
    }
}

gemmarResult_t gemmar_local_peers_open(struct gemmarComm *comm, uint64_t bytes,
                                       struct gemmar_local_peers *peers, struct gemmar_error *error)
{
    struct gemmar_segment *own = &peers->segments[comm->place.local];
    char *names = calloc(comm->place.ranks, GEMMAR_SEGMENT_NAME_BYTES);
    gemmarResult_t result;

    if (names == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    } else {
        create_own(comm, bytes, own, error);
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_SEGMENT, error, own->name,
                          GEMMAR_SEGMENT_NAME_BYTES, names);
    if (result == gemmarSuccess) {
        map_peers(comm, bytes, names, peers, error);
        result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_MAPPED, error, NULL, 0, NULL);
    }
    gemmar_segment_unlink(own);
    free(names);
    return result;
}

void gemmar_local_peers_close(struct gemmar_local_peers *peers)
{
    for (uint32_t g = 0; g < GEMMAR_MAX_LOCAL_RANKS; g++) {
        gemmar_segment_close(&peers->segments[g]);
        peers->controls[g] = NULL;
        peers->abort[g] = NULL;
    }
}
