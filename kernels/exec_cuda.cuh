// SPDX-License-Identifier: Apache-2.0
// The GPU's side of kernels/exec.h: a CTA is a thread block, a lane is one of its threads.
#ifndef GEMMAR_KERNELS_EXEC_CUDA_CUH
#define GEMMAR_KERNELS_EXEC_CUDA_CUH

#include "kernels/ptx/ld_st.cuh"

#define GEMMAR_WAIT_NS    256
#define GEMMAR_WAIT_SPIN  32 /* turns without a pause: about as long as a part is on its way */
#define GEMMAR_WAIT_TURNS 64 /* between two readings of the clock */
/* Between two readings of a word in host memory. Reads of host memory by many CTAs hold up what
 * else goes over the bus and the links: when all CTAs of a grid read the abort word every 30 us,
 * stores to the other GPU stood still for 150 us at a time. */
#define GEMMAR_WAIT_HOST_NS 4000
/* Between two looks whether the call is to be left: block 0 at the abort word, all others at the
 * copy that it makes of it in the GPU's own memory. */
#define GEMMAR_WAIT_LOOK_NS 200000
#define GEMMAR_WAIT_SELF_NS 50000000 /* ... and at the abort word, as block 0 may have ended */

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
    *word = 0; /* nobody counts here again before what comes next has been seen */
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

/* Is the call to be left? Looks at the abort word. */
GEMMAR_EXEC bool gemmar_exec_left(const struct gemmar_call *call)
{
    if (gemmar_ld_acquire_sys(call->watch.abort_word) == 0) {
        return false;
    }
    gemmar_exec_stamp(call->words.left, 1);
    return true;
}

/* Has somebody seen that it is? */
GEMMAR_EXEC bool gemmar_exec_left_seen(const struct gemmar_call *call)
{
    return gemmar_ld_relaxed_gpu(call->words.left) != 0;
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
    gemmar_exec_stamp(call->words.left, 1);
}

/* A wait's clock; all zero at its start. */
struct gemmar_exec_patience {
    uint64_t began, look, self;
};

/* Now and then in a wait: does it go on? */
GEMMAR_EXEC bool gemmar_exec_goes_on(const struct gemmar_call *call, const uint64_t *word,
                                     uint64_t target, const struct gemmar_wait_for *whom,
                                     struct gemmar_exec_patience *p)
{
    uint64_t now = gemmar_globaltimer();

    if (p->began == 0) {
        p->began = now;
        p->look = now + GEMMAR_WAIT_LOOK_NS;
        p->self = now + (blockIdx.x == 0 ? GEMMAR_WAIT_LOOK_NS : GEMMAR_WAIT_SELF_NS);
    }
    if (now < p->look) {
        return true;
    }
    p->look = now + GEMMAR_WAIT_LOOK_NS;
    if (now >= p->self ? gemmar_exec_left(call) : gemmar_exec_left_seen(call)) {
        return false;
    }
    if (now >= p->self) {
        p->self = now + (blockIdx.x == 0 ? GEMMAR_WAIT_LOOK_NS : GEMMAR_WAIT_SELF_NS);
    }
    if (call->watch.timeout_ns != 0 && now - p->began > gemmar_wait_patience(call, whom)) {
        gemmar_exec_give_up(call, word, target, whom, now - p->began);
        return false;
    }
    return true;
}

/* Wait with a pause between two readings; the first `spin` readings come without one. */
GEMMAR_EXEC bool gemmar_exec_wait_paced(const struct gemmar_call *call, const uint64_t *word,
                                        uint64_t target, const struct gemmar_wait_for *whom,
                                        uint32_t pause_ns, uint32_t spin)
{
    struct gemmar_exec_patience patience = {0, 0, 0};

    for (uint32_t turn = 1; gemmar_ld_acquire_sys(word) < target; turn++) {
        if (turn > spin) {
            __nanosleep(pause_ns);
        }
        if (turn % GEMMAR_WAIT_TURNS == 0 &&
            !gemmar_exec_goes_on(call, word, target, whom, &patience)) {
            return false;
        }
    }
    return true;
}

/* As on the CPU: false when the call must be left. One lane; a word in the GPU's memory. */
GEMMAR_EXEC bool gemmar_exec_wait(const struct gemmar_call *call, const uint64_t *word,
                                  uint64_t target, const struct gemmar_wait_for *whom)
{
    return gemmar_exec_wait_paced(call, word, target, whom, GEMMAR_WAIT_NS, GEMMAR_WAIT_SPIN);
}

/* A word in host memory. */
GEMMAR_EXEC bool gemmar_exec_wait_host(const struct gemmar_call *call, const uint64_t *word,
                                       uint64_t target, const struct gemmar_wait_for *whom)
{
    return gemmar_exec_wait_paced(call, word, target, whom, GEMMAR_WAIT_HOST_NS, 0);
}

/* The ring's tail, which lies in host memory: one thread of the grid reads it for all. That is who
 * waits for the first position that did not fit by the last look; the others wait for that look. */
GEMMAR_EXEC bool gemmar_exec_wait_tail(const struct gemmar_call *call, uint64_t target,
                                       const struct gemmar_wait_for *whom)
{
    uint64_t *seen_word = call->net.tail_seen;

    for (;;) {
        uint64_t seen = gemmar_ld_acquire_sys(seen_word);

        if (seen >= target) {
            return true;
        }
        if (target == seen + 1) {
            break;
        }
        if (!gemmar_exec_wait(call, seen_word, seen + 1, whom)) {
            return false;
        }
    }
    if (!gemmar_exec_wait_host(call, call->net.ring.tail, target, whom)) {
        return false;
    }
    gemmar_exec_stamp(seen_word, gemmar_ld_acquire_sys(call->net.ring.tail));
    return true;
}

#endif
