// SPDX-License-Identifier: Apache-2.0
// Step 6, arrival: wait for the stamps that follow the peers' data.
//
// Input: arrival[parity][route][slot], written by the NIC (or the receiving proxy) behind the data
// of the chunk. Output: the data in recv may be read. One lane of a reduce CTA waits.
#ifndef GEMMAR_KERNELS_ARRIVAL_WAIT_CUH
#define GEMMAR_KERNELS_ARRIVAL_WAIT_CUH

#include "kernels/exec.h"

GEMMAR_EXEC bool gemmar_arrival_wait(const struct gemmar_call *call, const struct gemmar_cta *cta,
                                     uint32_t kind, uint32_t node, int64_t slot)
{
    uint32_t route = kind * call->place.nodes + node;
    struct gemmar_wait_for whom = {GEMMAR_STAGE_ARRIVAL,
                                   call->rank_of[node * call->place.locals + call->place.local],
                                   UINT32_MAX, (uint64_t)slot};

    return gemmar_exec_wait(call, &call->net.arrival[cta->parity][route][slot], cta->epoch, &whom);
}

/* From every other node. */
GEMMAR_EXEC bool gemmar_arrival_wait_all(const struct gemmar_call *call,
                                         const struct gemmar_cta *cta, uint32_t kind, int64_t slot)
{
    for (uint32_t node = 0; node < call->place.nodes; node++) {
        if (node != call->place.node && !gemmar_arrival_wait(call, cta, kind, node, slot)) {
            return false;
        }
    }
    return true;
}

#endif
