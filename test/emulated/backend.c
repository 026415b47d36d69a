// SPDX-License-Identifier: Apache-2.0
// The backend of a CPU communicator whose calls are the tensor-core kernel's, on an emulated GPU:
// what kernels/launch_gpu.c tells the kernel, the memory of kernels/backend_cpu.c, the real
// network.
//
// One rank a process, because processes emulate beside each other. Peers never write into C.
#include "kernels/backend.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/fused_sm90.h"
#include "kernels/strides.h"
#include "kernels/told.h"
#include "transport/order.h"

static cudaStream_t stream;
static uint32_t most_ctas;

gemmarResult_t __real_gemmar_settings_make(struct gemmar_settings *, const gemmarConfig_t *,
                                           const char *, struct gemmar_logger *,
                                           struct gemmar_error *);
gemmarResult_t __wrap_gemmar_settings_make(struct gemmar_settings *, const gemmarConfig_t *,
                                           const char *, struct gemmar_logger *,
                                           struct gemmar_error *);

/* In the place of gemmar_settings_make (by the linker): all plans are for GPUs, all of one size. */
gemmarResult_t __wrap_gemmar_settings_make(struct gemmar_settings *out,
                                           const gemmarConfig_t *config, const char *node_text,
                                           struct gemmar_logger *log, struct gemmar_error *error)
{
    gemmarResult_t result = __real_gemmar_settings_make(out, config, node_text, log, error);

    if (stream == NULL && (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != 0 ||
                           gemmar_sm90_load(&most_ctas) != cudaSuccess)) {
        return gemmar_error_set(error, gemmarSystemError, "no emulated GPU");
    }
    out->sms = out->resident = most_ctas;
    return result;
}

static void begin(struct gemmarComm *comm, struct gemmar_error *error)
{
    (void)comm;
    (void)error;
}

static gemmarResult_t attach(struct gemmarComm *comm, struct gemmar_error *error)
{
    return comm->place.nodes > 1 ? gemmar_comm_attach(comm, error) : gemmarSuccess;
}

static void release(struct gemmarComm *comm)
{
    (void)comm;
}

static gemmarResult_t open_memory(struct gemmarComm *comm, struct gemmar_workspace *w,
                                  uint64_t epoch, struct gemmar_error *error)
{
    gemmarResult_t result = gemmar_local_peers_open(comm, w->layout.bytes, &w->peers, error);
    char *own;

    if (result != gemmarSuccess) {
        return result;
    }
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        w->bases[g] = w->peers.segments[g].base;
    }
    own = w->bases[comm->place.local];
    memset(own + w->layout.exchange, 0xff, 2 * w->layout.capacity.exchange_bytes);
    w->words = (struct gemmar_words *)(own + w->layout.words);
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
                            gemmarStream_t callers, struct gemmar_error *error)
{
    (void)comm;
    if (callers != NULL) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "stream must be NULL on a CPU communicator");
    }
    return args->datatype != gemmarFloat32
               ? gemmarSuccess
               : gemmar_error_set(error, gemmarInvalidArgument, "emulated GPUs take no fp32");
}

static bool capturing(struct gemmarComm *comm, gemmarStream_t unused)
{
    (void)comm;
    (void)unused;
    return false;
}

/* A copy of an operand that TMA cannot read, which it then means. NULL: as it lies. */
static void *pack(int64_t rows, int64_t cols, const void **base, int64_t *ld)
{
    int64_t packed_ld = gemmar_align_up(cols, GEMMAR_STRIDES_UNIT / 2);
    uint16_t *packed;

    if (rows == 0 || cols == 0 || gemmar_strides_aligned(*base, *ld, 2)) {
        return NULL;
    }
    packed = aligned_alloc(GEMMAR_STRIDES_UNIT, (size_t)(rows * packed_ld) * 2);
    if (packed == NULL) {
        abort();
    }
    for (int64_t r = 0; r < rows; r++) {
        memcpy(&packed[r * packed_ld], (const uint16_t *)*base + r * *ld, (size_t)cols * 2);
    }
    *base = packed;
    *ld = packed_ld;
    return packed;
}

static void fill_call(struct gemmarComm *comm, const struct gemmar_plan *plan,
                      const struct gemmar_operands *operands, struct gemmar_target *targets,
                      struct gemmar_call *call)
{
    const struct gemmar_workspace *w = comm->workspace;
    struct gemmar_told told = {.m = plan->map.m,
                               .n = plan->map.n,
                               .k = operands->k,
                               .dtype = operands->dtype,
                               .bias = operands->bias != NULL,
                               .alpha = operands->alpha,
                               .beta = operands->beta};

    gemmar_launch_fill(comm, plan, operands, call);
    call->plan = gemmar_plan_local_gpu(plan, most_ctas, comm->settings.ctas);
    call->tensor = plan->tensor;
    if (plan->algo == GEMMAR_ALGO_TWO_SHOT) {
        call->tensor.order.first_node = (comm->place.node + 1) % comm->place.nodes;
    }
    call->copies = GEMMAR_COPIES_ALL;
    call->out_ld = gemmar_plan_out_ld(plan->map.n);
    call->told = gemmar_told_hash(&told);
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        targets[g] = (struct gemmar_target){w->bases[g] + w->layout.out, call->out_ld};
    }
    if (gemmar_strides_storable(operands->c, plan->map.n, operands->ldc, 2)) {
        targets[comm->place.local] = (struct gemmar_target){operands->c, operands->ldc};
        call->copies = comm->place.locals > 1 ? GEMMAR_COPIES_FOREIGN : GEMMAR_COPIES_NOTHING;
    }
}

static gemmarResult_t run(struct gemmarComm *comm, const struct gemmar_plan *plan,
                          const struct gemmar_operands *operands, gemmarStream_t unused)
{
    struct gemmar_target targets[GEMMAR_MAX_LOCAL_RANKS];
    struct gemmar_operands o = *operands;
    struct gemmar_call call;
    void *a, *b;
    cudaError_t rc;

    (void)unused;
    gemmar_strides_of_one_row(&o, plan->map.m, plan->map.n, 2);
    a = pack(plan->map.m, o.k, &o.a, &o.lda);
    b = pack(o.trans_b ? plan->map.n : o.k, o.trans_b ? o.k : plan->map.n, &o.b, &o.ldb);
    memset(comm->trouble, 0, sizeof(*comm->trouble));
    fill_call(comm, plan, &o, targets, &call);
    rc = gemmar_sm90_launch(&call, targets, NULL, 0, stream);
    while (rc == cudaSuccess && cudaStreamQuery(stream) == cudaErrorNotReady) {
        if (gemmar_comm_look(comm, UINT32_MAX) != 0) { /* as gemmarCommGetAsyncError() does */
            (void)gemmar_comm_explain(comm);
        }
    }
    free(a);
    free(b);
    if (rc != cudaSuccess) {
        return gemmar_comm_break(comm, gemmarSystemError, "rank %u: the call could not start",
                                 comm->place.rank);
    }
    return gemmar_load_acquire(&comm->words->abort) == 0 ? gemmarSuccess
                                                         : gemmar_comm_explain(comm);
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
