// SPDX-License-Identifier: Apache-2.0
// --device cuda in a build without CUDA, cuBLASLt or NCCL.
#include "tools/gemmar_perf/fifo.h"
#include "tools/gemmar_perf/gpu/run.h"
#include "tools/gemmar_perf/say.h"

int gemmar_perf_gpu_make(struct gemmar_perf_session *s)
{
    (void)s;
    gemmar_perf_say("--device cuda: this gemmar_perf was built without CUDA, cuBLASLt and NCCL "
                    "(-Dcuda=enabled)");
    return 1;
}

int gemmar_perf_gpu_run(struct gemmar_perf_session *s)
{
    (void)s;
    return 1;
}

void gemmar_perf_gpu_finish(struct gemmar_perf_session *s, int status)
{
    (void)s;
    (void)status;
}

void gemmar_perf_gpu_close(struct gemmar_perf_session *s, int status)
{
    (void)s;
    (void)status;
}

int gemmar_perf_gpu_fifo(const struct gemmar_perf_options *o, char **argv)
{
    (void)o;
    (void)argv;
    return gemmar_perf_gpu_make(NULL);
}
