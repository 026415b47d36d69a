// SPDX-License-Identifier: Apache-2.0
// The GPU's side of kernels/exec.h: a CTA is a thread block, a lane is one of its threads.
#ifndef GEMMAR_KERNELS_EXEC_CUDA_CUH
#define GEMMAR_KERNELS_EXEC_CUDA_CUH

#include "kernels/ptx/ld_st.cuh"

#define GEMMAR_WAIT_NS    256
#define GEMMAR_WAIT_SPIN  32 /* turns without a pause: about as long as a part is on its way */
#define GEMMAR_WAIT_TURNS 64 /* between two readings of the clock */
/* Between two looks at the abort word. It is host memory: when all CTAs of a grid read it every 30
 * us, stores to the other GPU were held up for 150 us at a time. */
#define GEMMAR_WAIT_LOOK_NS 200000

/* Shared memory of the inner product, given by the kernel. The kernel defines it and
 * gemmar_exec_gemm_tile (kernels/gemm_simt.cuh) before it includes the roles. */
struct gemmar_gemm_scratch;

/* All lanes of the CTA are here, and all of them said yes. */
GEMMAR_EXEC bool gemmar_exec_all(const struct gemmar_cta *cta, bool ok)
{
    (void)cta;
    return __syncthreads_and(ok) != 0;
}

/* Publish what the CTA stored before its last gemmar_exec_all: partner of gemmar_exec_wait. */
GEMMAR_EXEC void gemmar_exec_stamp(uint64_t *word, uint64_t epoch)
{
    gemmar_fence_acq_rel_sys();
    gemmar_st_relaxed_sys(word, epoch);
}

/* As on the CPU; the words are this GPU's own. */
GEMMAR_EXEC bool gemmar_exec_last(uint64_t *word, uint64_t count)
{
    if (gemmar_atom_add_acq_rel_gpu(word, 1) + 1 != count) {
        return false;
    }
    *word = 0; /* nobody counts here again before the next call */
    return true;
}

GEMMAR_EXEC uint64_t gemmar_exec_ticket(uint64_t *word)
{
    return gemmar_atom_add_relaxed_gpu(word, 1);
}

GEMMAR_EXEC void gemmar_exec_push(struct gemmar_fifo_command *at,
                                  const struct gemmar_fifo_command *command)
{
    gemmar_st_release_sys_b128(at, command->word[0], command->word[1]);
}

/* All lanes; 16 bytes a lane where both ends are aligned, else 2, the smallest element. */
GEMMAR_EXEC void gemmar_exec_copy(const struct gemmar_cta *cta, void *to, const void *from,
                                  int64_t bytes)
{
    if ((((uintptr_t)to | (uintptr_t)from | (uintptr_t)bytes) & 15) == 0) {
        for (int64_t i = cta->lane; i < bytes / 16; i += cta->lanes) {
            ((uint4 *)to)[i] = ((const uint4 *)from)[i];
        }
        return;
    }
    for (int64_t i = cta->lane; i < bytes / 2; i += cta->lanes) {
        ((uint16_t *)to)[i] = ((const uint16_t *)from)[i];
    }
}

GEMMAR_EXEC bool gemmar_exec_left(const struct gemmar_call *call)
{
    return gemmar_ld_acquire_sys(call->watch.abort_word) != 0;
}

GEMMAR_EXEC void gemmar_exec_give_up(const struct gemmar_call *call, const uint64_t *word,
                                     uint64_t target, const struct gemmar_wait_for *whom,
                                     uint64_t waited_ns)
{
    struct gemmar_trouble *trouble = call->watch.trouble;

    if (gemmar_atom_exchange_sys(&trouble->claimed, 1) == 0) {
        trouble->stage = whom->stage;
        trouble->rank = whom->rank;
        trouble->slot = whom->slot;
        trouble->expected = target;
        trouble->seen = gemmar_ld_acquire_sys(word);
        trouble->waited_ns = waited_ns;
        gemmar_exec_stamp(&trouble->complete, 1);
    }
    gemmar_exec_stamp(call->watch.abort_word, 1);
}

/* As on the CPU: false when the call must be left. One lane. */
GEMMAR_EXEC bool gemmar_exec_wait(const struct gemmar_call *call, const uint64_t *word,
                                  uint64_t target, const struct gemmar_wait_for *whom)
{
    uint64_t began = 0, look = 0;

    for (uint32_t turn = 1; gemmar_ld_acquire_sys(word) < target; turn++) {
        if (turn > GEMMAR_WAIT_SPIN) {
            __nanosleep(GEMMAR_WAIT_NS);
        }
        if (turn % GEMMAR_WAIT_TURNS != 0) {
            continue;
        }
        uint64_t now = gemmar_globaltimer();

        if (began == 0) {
            began = now;
            look = now + GEMMAR_WAIT_LOOK_NS;
        }
        if (now < look) {
            continue;
        }
        look = now + GEMMAR_WAIT_LOOK_NS;
        if (gemmar_exec_left(call)) {
            return false;
        }
        if (call->watch.timeout_ns != 0 && now - began > gemmar_wait_patience(call, whom)) {
            gemmar_exec_give_up(call, word, target, whom, now - began);
            return false;
        }
    }
    return true;
}

#endif
