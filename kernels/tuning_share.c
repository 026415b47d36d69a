// SPDX-License-Identifier: Apache-2.0
// Rank 0's tuning table on all ranks.
#include <stdlib.h>

#include "kernels/communicator.h"
#include "kernels/tuning.h"

static void read_mine(struct gemmarComm *comm, struct gemmar_tuning *mine,
                      struct gemmar_error *error)
{
    char why[400];

    if (gemmar_tuning_read(comm->settings.tuning, mine, why, sizeof(why)) != 0) {
        (void)gemmar_error_set(error, gemmarInvalidArgument, "GEMMAR_TUNING: %s", why);
    }
}

gemmarResult_t gemmar_comm_tune(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct gemmar_tuning *all = calloc(comm->place.ranks + 1u, sizeof(*all));
    struct gemmar_tuning *mine = all != NULL ? &all[comm->place.ranks] : NULL;
    gemmarResult_t result;

    if (comm->tuning == NULL) {
        comm->tuning = calloc(1, sizeof(*comm->tuning));
    }
    if (all == NULL || comm->tuning == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    } else if (comm->place.rank == 0 && error->result == gemmarSuccess) {
        read_mine(comm, mine, error);
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_TUNING, error, mine, sizeof(*mine), all);
    if (result == gemmarSuccess) {
        *comm->tuning = all[0];
        comm->settings.table = comm->tuning;
        gemmar_info(&comm->log, "tuning: rank %u has %llu entries of rank 0", comm->place.rank,
                    (unsigned long long)comm->tuning->count);
    }
    free(all);
    return result;
}
