// SPDX-License-Identifier: Apache-2.0
// What main() calls for --device cuda: one rank's run on a GPU.
#ifndef GEMMAR_PERF_GPU_RUN_H
#define GEMMAR_PERF_GPU_RUN_H

#include "tools/gemmar_perf/session.h"

/* Take this rank's GPU, make NCCL's communicator and gemmar's beside it: fills s->gpu, s->comm and
 * s->machine. Collective. 0, or the exit status after a sentence. */
int gemmar_perf_gpu_make(struct gemmar_perf_session *s);

/* Every shape of the options, or the mixed calls. 0, or the exit status after a sentence. */
int gemmar_perf_gpu_run(struct gemmar_perf_session *s);

/* Before gemmar's communicator goes: give back what it registered. With a status other than 0 the
 * peers may be gone, and nothing that waits for them is done. */
void gemmar_perf_gpu_finish(struct gemmar_perf_session *s, int status);

/* After it: NCCL's communicator and the GPU's memory. A session without a GPU is legal. `status` as
 * above. */
void gemmar_perf_gpu_close(struct gemmar_perf_session *s, int status);

#endif
