// SPDX-License-Identifier: Apache-2.0
// What comm_pairs calls of the CUDA driver, on host memory and with everything done at once. Time
// is what the fake of NCCL says its collectives take, so that a busy machine changes nothing.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static double now_ms;

void fake_cuda_pass(double ms)
{
    now_ms += ms;
}

int cuInit(unsigned flags)
{
    return flags != 0;
}

int cuDevicePrimaryCtxRetain(void **out, int device)
{
    static int context;
    *out = &context;
    return device > 1; // there are two
}

int cuCtxSetCurrent(void *context)
{
    return !context;
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    *out = (uintptr_t)malloc(bytes);
    return !*out;
}

int cuMemFree_v2(uint64_t at)
{
    free((void *)(uintptr_t)at);
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return 0;
}

int cuMemsetD8_v2(uint64_t at, unsigned char value, size_t bytes)
{
    memset((void *)(uintptr_t)at, value, bytes);
    return 0;
}

int cuStreamCreate(void **out, unsigned flags)
{
    static int stream;
    *out = &stream;
    return flags != 1; // one that waits for no other
}

int cuStreamSynchronize(void *stream)
{
    (void)stream;
    return 0;
}

int cuStreamQuery(void *stream)
{
    (void)stream;
    return 0;
}

int cuEventCreate(void **out, unsigned flags)
{
    *out = calloc(1, sizeof(double));
    return !*out || flags;
}

int cuEventRecord(void *event, void *stream)
{
    (void)stream;
    *(double *)event = now_ms;
    return 0;
}

int cuEventElapsedTime(float *out_ms, void *begin, void *end)
{
    *out_ms = (float)(*(const double *)end - *(const double *)begin);
    return 0;
}
