// SPDX-License-Identifier: Apache-2.0
// The CPU's side of kernels/exec.h: one lane per CTA, C11 order, yielding waits.
#ifndef GEMMAR_KERNELS_CPU_EXEC_CPU_H
#define GEMMAR_KERNELS_CPU_EXEC_CPU_H

#include <string.h>

#include "transport/order.h"

/* Panels and accumulators of one compute thread; kernels/cpu/gemm_tile_cpu.c. */
struct gemmar_gemm_scratch;

/* All lanes of the CTA are here, and all of them said yes. */
GEMMAR_EXEC bool gemmar_exec_all(const struct gemmar_cta *cta, bool ok)
{
    (void)cta;
    return ok;
}

/* Publish what the CTA stored before: partner of gemmar_exec_wait in another rank or CTA. */
GEMMAR_EXEC void gemmar_exec_stamp(uint64_t *word, uint64_t epoch)
{
    gemmar_store_release(word, epoch);
}

/* Count an arrival at a last-arriver word; true for the last of `count`, which sees what all the
 * others stored before and finds the word at 0 again. */
GEMMAR_EXEC bool gemmar_exec_last(uint64_t *word, uint64_t count)
{
    if (gemmar_add_acq_rel(word, 1) + 1 != count) {
        return false;
    }
    gemmar_store_relaxed(word, 0);
    return true;
}

GEMMAR_EXEC uint64_t gemmar_exec_ticket(uint64_t *word)
{
    return gemmar_add_relaxed(word, 1);
}

/* Two halves with a lap bit each: the reader accepts only both together, so their order does not
 * matter, but each of them must come after what the command speaks of. */
GEMMAR_EXEC void gemmar_exec_push(struct gemmar_fifo_command *at,
                                  const struct gemmar_fifo_command *command)
{
    gemmar_store_release(&at->word[0], command->word[0]);
    gemmar_store_release(&at->word[1], command->word[1]);
}

GEMMAR_EXEC void gemmar_exec_copy(const struct gemmar_cta *cta, void *to, const void *from,
                                  int64_t bytes)
{
    (void)cta;
    memcpy(to, from, (size_t)bytes);
}

/* Has somebody asked the call to leave? */
GEMMAR_EXEC bool gemmar_exec_left(const struct gemmar_call *call)
{
    return gemmar_load_acquire(call->watch.abort_word) != 0;
}

/* Slow path of gemmar_exec_wait; kernels/cpu/executor.c. */
bool gemmar_cpu_wait(const struct gemmar_call *call, const uint64_t *word, uint64_t target,
                     const struct gemmar_wait_for *whom);

/*
 * Wait until *word >= target; what its writer published before is then visible. False when the call
 * must be left: the deadline passed, the abort word is set, or a local peer is gone; call->watch
 * has the record. One lane of the CTA calls it; gemmar_exec_all tells the others.
 */
GEMMAR_EXEC bool gemmar_exec_wait(const struct gemmar_call *call, const uint64_t *word,
                                  uint64_t target, const struct gemmar_wait_for *whom)
{
    return gemmar_load_acquire(word) >= target || gemmar_cpu_wait(call, word, target, whom);
}

/* The same for words of the proxy's. */
GEMMAR_EXEC bool gemmar_exec_wait_host(const struct gemmar_call *call, const uint64_t *word,
                                       uint64_t target, const struct gemmar_wait_for *whom)
{
    return gemmar_exec_wait(call, word, target, whom);
}

GEMMAR_EXEC bool gemmar_exec_wait_tail(const struct gemmar_call *call, uint64_t target,
                                       const struct gemmar_wait_for *whom)
{
    return gemmar_exec_wait(call, call->net.ring.tail, target, whom);
}

/* Tile t of a chunk: A * B in fp32, rounded to the wire type into my `partial`. */
void gemmar_exec_gemm_tile(const struct gemmar_call *call, const struct gemmar_cta *cta,
                           const struct gemmar_chunk *chunk, int64_t t,
                           struct gemmar_gemm_scratch *scratch);

#endif
