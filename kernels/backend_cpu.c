// SPDX-License-Identifier: Apache-2.0
// Communicators on the CPU: shared memory between the ranks of a node, threads as CTAs, calls that
// return when they have ended.
#include "kernels/backend.h"

#include <errno.h>
#include <string.h>

#include "kernels/cpu/executor.h"
#include "transport/order.h"

static void begin(struct gemmarComm *comm, struct gemmar_error *error)
{
    if (gemmar_cpu_executor_open(&comm->executor) != 0) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
}

static gemmarResult_t attach(struct gemmarComm *comm, struct gemmar_error *error)
{
    return comm->place.nodes > 1 ? gemmar_comm_attach(comm, error) : gemmarSuccess;
}

static void release(struct gemmarComm *comm)
{
    gemmar_cpu_executor_close(comm->executor);
}

static gemmarResult_t open_memory(struct gemmarComm *comm, struct gemmar_workspace *w,
                                  uint64_t epoch, struct gemmar_error *error)
{
    gemmarResult_t result = gemmar_local_peers_open(comm, w->layout.bytes, &w->peers, error);

    if (result != gemmarSuccess) {
        return result;
    }
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        w->bases[g] = w->peers.segments[g].base;
    }
    w->words = (struct gemmar_words *)(w->bases[comm->place.local] + w->layout.words);
    w->words->epoch = epoch;
    return gemmarSuccess;
}

static void close_memory(struct gemmarComm *comm, struct gemmar_workspace *w)
{
    (void)comm;
    gemmar_local_peers_close(&w->peers);
}

static bool quiet(struct gemmarComm *comm)
{
    (void)comm; /* calls have ended when they return */
    return true;
}

static gemmarResult_t check(struct gemmarComm *comm, const gemmarFusedArgs_t *args,
                            gemmarStream_t stream, struct gemmar_error *error)
{
    (void)comm;
    (void)args;
    return stream == NULL ? gemmarSuccess
                          : gemmar_error_set(error, gemmarInvalidArgument,
                                             "stream must be NULL on a CPU communicator");
}

static bool capturing(struct gemmarComm *comm, gemmarStream_t stream)
{
    (void)comm;
    (void)stream;
    return false;
}

static gemmarResult_t run(struct gemmarComm *comm, const struct gemmar_plan *plan,
                          const struct gemmar_operands *operands, gemmarStream_t stream)
{
    struct gemmar_call call;
    int rc;

    (void)stream;
    gemmar_launch_fill(comm, plan, operands, &call);
    call.plan = gemmar_plan_local(plan, comm->settings.ctas);
    memset(comm->trouble, 0, sizeof(*comm->trouble));
    call.watch.look = gemmar_comm_look;
    call.watch.look_context = comm;
    if (comm->place.locals > 1) {
        gemmar_order_call_begins();
    }
    rc = gemmar_cpu_run(comm->executor, &call);
    switch (-rc) {
    case 0: return gemmarSuccess;
    case EIO: return gemmar_comm_explain(comm);
    default: /* the other ranks are in the call already */
        return gemmar_comm_break(comm, gemmarSystemError, "rank %u: the call could not start: %s",
                                 comm->place.rank, strerror(-rc));
    }
}

static gemmarResult_t settle(struct gemmarComm *comm, struct gemmar_error *error)
{
    (void)comm;
    (void)error;
    return gemmarSuccess;
}

static uint64_t epoch(struct gemmarComm *comm)
{
    return comm->workspace->words->epoch;
}

const struct gemmar_backend gemmar_backend_cpu = {
    .local_path = "shared memory",
    .begin = begin,
    .attach = attach,
    .release = release,
    .open_memory = open_memory,
    .close_memory = close_memory,
    .quiet = quiet,
    .check = check,
    .capturing = capturing,
    .run = run,
    .settle = settle,
    .history = epoch,
    .epoch = epoch,
};
