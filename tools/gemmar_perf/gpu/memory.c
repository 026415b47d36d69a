// SPDX-License-Identifier: Apache-2.0
// The GPU's memory: one piece for operands, one for results, one for the baseline's results, made
// and registered once and used by one shape after the other.
#include <string.h>

#include "tools/gemmar_perf/gpu/gpu.h"
#include "tools/gemmar_perf/say.h"

#define STEP        4096u /* every buffer begins at a multiple */
#define GUARD_LEAST 4096u
#define ELEMENT     2u

static size_t step_up(size_t bytes)
{
    return (bytes + STEP - 1) / STEP * STEP;
}

static size_t guard_bytes(const struct gemmar_perf_shape *shape)
{
    size_t rows = GEMMAR_PERF_GPU_GUARD_ROWS * (size_t)shape->n * ELEMENT;

    return rows > GUARD_LEAST ? rows : GUARD_LEAST;
}

size_t gemmar_perf_gpu_operand_bytes(const struct gemmar_perf_shape *shape)
{
    return step_up((size_t)(shape->m * shape->k) * ELEMENT) +
           step_up((size_t)(shape->k * shape->n) * ELEMENT) + STEP;
}

size_t gemmar_perf_gpu_output_bytes(const struct gemmar_perf_shape *shape)
{
    return step_up((size_t)(shape->m * shape->n) * ELEMENT + guard_bytes(shape));
}

uint32_t gemmar_perf_gpu_sets(const struct gemmar_perf_gpu *g,
                              const struct gemmar_perf_shape *shape)
{
    size_t bytes = gemmar_perf_gpu_operand_bytes(shape), most = 2 * g->l2;

    if (bytes >= most) {
        return 1;
    }
    return most / bytes + 1 < GEMMAR_PERF_GPU_SETS ? (uint32_t)(most / bytes + 1)
                                                   : GEMMAR_PERF_GPU_SETS;
}

struct gemmar_perf_gpu_buffers gemmar_perf_gpu_buffers(const struct gemmar_perf_gpu *g,
                                                       const struct gemmar_perf_shape *shape,
                                                       size_t operands, size_t output)
{
    char *a = (char *)g->operands.base + operands;

    return (struct gemmar_perf_gpu_buffers){
        .a = a,
        .b = a + step_up((size_t)(shape->m * shape->k) * ELEMENT),
        .c = (char *)g->output.base + output,
        .c_bytes = (size_t)(shape->m * shape->n) * ELEMENT,
        .guard_bytes = guard_bytes(shape),
    };
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The largest that any shape needs. */
static void size_memory(const struct gemmar_perf_session *s, struct gemmar_perf_gpu *g)
{
    const struct gemmar_perf_shapes *shapes = &s->o->shapes;

    for (size_t i = 0; i < shapes->count; i++) {
        const struct gemmar_perf_shape *shape = &shapes->shape[i];
        size_t operands = gemmar_perf_gpu_operand_bytes(shape);

        g->operands.bytes = larger(g->operands.bytes, operands * gemmar_perf_gpu_sets(g, shape));
        g->output.bytes = larger(g->output.bytes, gemmar_perf_gpu_output_bytes(shape));
    }
    if (s->o->mix != 0) {
        g->operands.bytes += GEMMAR_PERF_GPU_BURST_BYTES;
        g->output.bytes += GEMMAR_PERF_GPU_BURST_BYTES;
    }
    g->baseline.bytes = s->o->baseline ? g->output.bytes : 0;
}

static int allocate(struct gemmar_perf_session *s, struct gemmar_perf_gpu *g)
{
    bool failed = gemmar_perf_gpu_bad(cudaMalloc(&g->operands.base, g->operands.bytes),
                                      "no memory for the operands");

    g->output.plain = s->o->plain;
    if (!failed && s->o->plain) {
        failed = gemmar_perf_gpu_bad(cudaMalloc(&g->output.base, g->output.bytes),
                                     "no memory for the result");
    } else if (!failed) {
        gemmarResult_t result = gemmarMemAlloc(&g->output.base, g->output.bytes);

        failed = result != gemmarSuccess;
        if (failed) {
            gemmar_perf_say("no memory for the result: %s: %s", gemmarGetErrorString(result),
                            gemmarGetLastError(NULL));
        }
    }
    if (!failed && g->baseline.bytes != 0) {
        failed = gemmar_perf_gpu_bad_nccl(g, ncclMemAlloc(&g->baseline.base, g->baseline.bytes),
                                          "no memory for the baseline's result");
    }
    return gemmar_perf_gpu_agree(s, failed);
}

/* NULL without a baseline, and without that communicator. */
static int open_window(struct gemmar_perf_gpu *g, ncclComm_t comm, ncclWindow_t *out)
{
    return g->baseline.base != NULL && comm != NULL &&
           gemmar_perf_gpu_bad_nccl(
               g,
               ncclCommWindowRegister(comm, g->baseline.base, g->baseline.bytes, out,
                                      g->symmetric ? NCCL_WIN_COLL_SYMMETRIC : NCCL_WIN_DEFAULT),
               "cannot register the baseline's result");
}

static void close_window(struct gemmar_perf_gpu *g, ncclComm_t comm, ncclWindow_t window)
{
    if (window != NULL) {
        (void)gemmar_perf_gpu_bad_nccl(g, ncclCommWindowDeregister(comm, window),
                                       "cannot deregister the baseline's result");
    }
}

/* A symmetric window makes NCCL create a multicast object unless NCCL_NVLS_ENABLE=0 says that it
 * may not: it is asked for only then, and inside a node, where it has a use. */
static int open_windows(struct gemmar_perf_session *s, struct gemmar_perf_gpu *g)
{
    if (!s->o->plain) {
        gemmarResult_t result =
            gemmarCommRegister(s->comm, g->output.base, g->output.bytes, &g->registration);

        if (result != gemmarSuccess) {
            gemmar_perf_say_error(s, "cannot register the result", result);
            return 1;
        }
    }
    g->symmetric = strcmp(g->nvls, "0") == 0 && s->nodes == 1;
    return open_window(g, g->nccl, &g->window) || open_window(g, g->builtin, &g->builtin_window);
}

int gemmar_perf_gpu_memory_open(struct gemmar_perf_session *s)
{
    struct gemmar_perf_gpu *g = s->gpu;
    int status;

    size_memory(s, g);
    status = allocate(s, g);
    gemmar_perf_meet_busy(s->meet, true);
    status = status == 0 ? open_windows(s, g) : status;
    gemmar_perf_meet_busy(s->meet, false);
    return status;
}

void gemmar_perf_gpu_memory_leave(struct gemmar_perf_session *s, bool healthy)
{
    struct gemmar_perf_gpu *g = s->gpu;

    if (g->registration != NULL && healthy) {
        gemmarResult_t result = gemmarCommDeregister(s->comm, g->registration);

        if (result != gemmarSuccess) {
            gemmar_perf_say_error(s, "cannot deregister the result", result);
        }
    }
    g->registration = NULL;
}

void gemmar_perf_gpu_memory_close(struct gemmar_perf_gpu *g, bool healthy)
{
    if (!healthy) {
        return; /* peers may still read it: it goes with the process */
    }
    close_window(g, g->builtin, g->builtin_window);
    close_window(g, g->nccl, g->window);
    if (g->baseline.base != NULL) {
        (void)ncclMemFree(g->baseline.base); /* the process ends next */
    }
    if (g->output.base != NULL && g->output.plain) {
        (void)cudaFree(g->output.base);
    } else if (g->output.base != NULL) {
        (void)gemmarMemFree(g->output.base);
    }
    (void)cudaFree(g->operands.base);
}
