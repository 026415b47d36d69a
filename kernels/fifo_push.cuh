// SPDX-License-Identifier: Apache-2.0
// Step 3, fifo push: one command per (chunk, route) into the device-to-host ring.
//
// Input: a chunk whose bytes the CTA has stored to staging or result. Output: a ring entry. Waits
// for the proxy when the ring is full. Runs on the CTA that finished the chunk; one lane stores.
#ifndef GEMMAR_KERNELS_FIFO_PUSH_CUH
#define GEMMAR_KERNELS_FIFO_PUSH_CUH

#include "kernels/exec.h"

GEMMAR_EXEC bool gemmar_fifo_push(const struct gemmar_call *call,
                                  const struct gemmar_fifo_request *request)
{
    const struct gemmar_fifo_ring *ring = &call->net.ring;
    uint64_t position = gemmar_exec_ticket(call->net.ticket);
    struct gemmar_fifo_command command =
        gemmar_fifo_pack(request, gemmar_fifo_lap(position, ring->entries));
    struct gemmar_wait_for proxy = {GEMMAR_STAGE_FIFO_PUSH, call->place.rank, UINT32_MAX, position};

    if (position >= ring->entries &&
        !gemmar_exec_wait_tail(call, position - ring->entries + 1, &proxy)) {
        return false;
    }
    gemmar_exec_push(&ring->commands[position & (ring->entries - 1)], &command);
    return true;
}

/* The chunk to every other node on routes of one kind. All lanes have stored; lane 0 calls. */
GEMMAR_EXEC bool gemmar_fifo_push_all(const struct gemmar_call *call, uint32_t kind,
                                      const struct gemmar_fifo_request *chunk)
{
    for (uint32_t j = 1; j < call->place.nodes; j++) {
        struct gemmar_fifo_request request = *chunk;
        uint32_t node = (call->place.node + j) % call->place.nodes;

        request.route = kind * call->place.nodes + node;
        if (!gemmar_fifo_push(call, &request)) {
            return false;
        }
    }
    return true;
}

/* Staging and result of this parity were last read by the NIC for call epoch - 2. On the CPU once
 * per CTA, before its first store there; on a GPU one thread waits for all. */
GEMMAR_EXEC bool gemmar_fifo_wait_retired(const struct gemmar_call *call, uint32_t parity)
{
    struct gemmar_wait_for proxy = {GEMMAR_STAGE_FIFO_PUSH, call->place.rank, UINT32_MAX,
                                    call->net.heads[parity]};

    return gemmar_exec_wait_host(call, call->net.ring.retired, call->net.heads[parity], &proxy);
}

#endif
