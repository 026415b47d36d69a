// SPDX-License-Identifier: Apache-2.0
// How a CPU thread waits: spin briefly, then yield, then sleep.
#include "transport/wait.h"

#include <sched.h>
#include <time.h>

#include "transport/order.h"

#define SPIN_STEPS  64   /* pauses: about a microsecond */
#define YIELD_STEPS 1024 /* then the CPU is offered to others */
#define NAP_NS      100000
#define LONG_STEPS  (YIELD_STEPS + 10000)
#define LONG_NAPS   10
#define CLOCK_EVERY 16

uint64_t gemmar_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail on Linux */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void gemmar_wait_init(struct gemmar_wait *wait, uint64_t timeout_ns)
{
    uint64_t now = gemmar_now_ns();

    wait->deadline_ns = timeout_ns == 0                 ? 0
                        : timeout_ns < UINT64_MAX - now ? now + timeout_ns
                                                        : UINT64_MAX;
    wait->steps = 0;
    wait->nap_ns = 0;
}

bool gemmar_wait_sleeps(const struct gemmar_wait *wait)
{
    return wait->steps > YIELD_STEPS;
}

bool gemmar_wait_step(struct gemmar_wait *wait)
{
    uint64_t step = wait->steps++;

    if (step < SPIN_STEPS) {
        gemmar_pause();
        return true;
    }
    if (step < YIELD_STEPS) {
        (void)sched_yield(); /* cannot fail on Linux */
    } else {
        uint64_t ns = (step - YIELD_STEPS + 1) * 1000;
        uint64_t most =
            (wait->nap_ns != 0 ? wait->nap_ns : NAP_NS) * (step < LONG_STEPS ? 1 : LONG_NAPS);
        struct timespec nap = {.tv_nsec = (long)(ns < most ? ns : most)};

        (void)nanosleep(&nap, NULL); /* a signal only makes the nap shorter */
    }
    return wait->deadline_ns == 0 || step % CLOCK_EVERY != 0 || gemmar_now_ns() < wait->deadline_ns;
}
