// SPDX-License-Identifier: Apache-2.0
// One CTA's way through a call: the stages it belongs to, in an order that cannot deadlock, and the
// end of the call.
//
//   stage          CTAs           waits for                          signals
//   gemm tiles     plan.compute   nobody                             ready (at the chunk's owner)
//   intra reduce   plan.intra     ready x G, retired (once)          staged, FIFO command
//   inter reduce   plan.inter     staged, arrival x (N - 1)          published x G, FIFO command
//   copy           plan.copy      published of every chunk           -
//   end            the last CTA   all CTAs                           heads, epoch
#ifndef GEMMAR_KERNELS_ROLES_CUH
#define GEMMAR_KERNELS_ROLES_CUH

#include "kernels/exec.h"
#include "kernels/gemm_tile.cuh"
#include "kernels/inter_reduce.cuh"
#include "kernels/intra_reduce.cuh"
#include "kernels/publish.cuh"

/* The last CTA to leave saves where the ring stood and moves the epoch on. */
GEMMAR_EXEC void gemmar_roles_end(const struct gemmar_call *call, const struct gemmar_cta *cta)
{
    (void)gemmar_exec_all(cta, true);
    if (cta->lane != 0 || !gemmar_exec_last(call->words.ctas_done, call->plan.ctas)) {
        return;
    }
    if (call->algo != GEMMAR_ALGO_LOCAL) {
        call->net.heads[cta->parity] = *call->net.ticket;
    }
    *call->words.epoch = cta->epoch + 1;
}

/* False when the call was left before its end; the communicator is then broken. */
GEMMAR_EXEC bool gemmar_roles_run(const struct gemmar_call *call, uint32_t index, uint32_t lane,
                                  uint32_t lanes, struct gemmar_gemm_scratch *scratch)
{
    const struct gemmar_local_plan *plan = &call->plan;
    struct gemmar_cta cta;

    cta.index = index;
    cta.lane = lane;
    cta.lanes = lanes;
    cta.epoch = *call->words.epoch;
    cta.parity = (uint32_t)(cta.epoch & 1);
    if ((gemmar_range_has(&plan->compute, index) && !gemmar_gemm_tiles(call, &cta, scratch)) ||
        (gemmar_range_has(&plan->intra, index) && !gemmar_intra_reduce(call, &cta)) ||
        (gemmar_range_has(&plan->inter, index) && !gemmar_inter_reduce(call, &cta)) ||
        (gemmar_range_has(&plan->copy, index) && !gemmar_publish_copy(call, &cta))) {
        return false;
    }
    gemmar_roles_end(call, &cta);
    return true;
}

#endif
