// SPDX-License-Identifier: Apache-2.0
// The calls: checks, plan, workspace, executor, result.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gemmar/gemmar.h>

#include "kernels/arguments.h"
#include "kernels/backend.h"
#include "kernels/communicator.h"
#include "kernels/dtype.h"
#include "kernels/workspace.h"

/* What all ranks must pass alike; compared when the communicator checks its calls. */
struct call_facts {
    int64_t m, n, k;
    uint64_t epoch;
    uint32_t dtype;
    float alpha, beta;
    uint32_t bias; /* 1: there is one */
};

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static const char *difference(const struct call_facts *a, const struct call_facts *b)
{
    return a->m != b->m                      ? "M"
           : a->n != b->n                    ? "N"
           : a->k != b->k                    ? "K"
           : a->dtype != b->dtype            ? "datatype"
           : !same_float(a->alpha, b->alpha) ? "alpha"
           : !same_float(a->beta, b->beta)   ? "beta"
           : a->bias != b->bias              ? "bias"
           : a->epoch != b->epoch            ? "history of calls"
                                             : NULL;
}

static const char *type_name(uint32_t dtype)
{
    return dtype == GEMMAR_DTYPE_FP32   ? "float32"
           : dtype == GEMMAR_DTYPE_BF16 ? "bfloat16"
                                        : "float16";
}

/* Collective: all ranks refuse a call that one of them refuses, or that differs. */
static gemmarResult_t compare_calls(struct gemmarComm *comm, const gemmarFusedArgs_t *args,
                                    const struct gemmar_operands *o, struct gemmar_error *error)
{
    struct call_facts *all = calloc(comm->place.ranks, sizeof(*all)), mine = {0};
    gemmarResult_t result;

    if (all == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    if (error->result == gemmarSuccess) {
        mine = (struct call_facts){args->M,  args->N,  args->K, comm->backend->history(comm),
                                   o->dtype, o->alpha, o->beta, args->bias != NULL};
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_CALL, error, &mine, sizeof(mine), all);
    for (uint32_t r = 1; result == gemmarSuccess && r < comm->place.ranks; r++) {
        const char *what = difference(&all[0], &all[r]);

        if (what != NULL) {
            result = gemmar_error_set(
                error, gemmarInvalidUsage,
                "rank %u calls with another %s than rank 0: M %lld N %lld K %lld %s and "
                "M %lld N %lld K %lld %s",
                r, what, (long long)all[r].m, (long long)all[r].n, (long long)all[r].k,
                type_name(all[r].dtype), (long long)all[0].m, (long long)all[0].n,
                (long long)all[0].k, type_name(all[0].dtype));
        }
    }
    free(all);
    return result;
}

static gemmarResult_t make_plan(struct gemmarComm *comm, int64_t m, int64_t n, int64_t k,
                                uint32_t dtype, struct gemmar_plan *out, struct gemmar_error *error)
{
    struct gemmar_plan_facts facts =
        gemmar_settings_facts(&comm->settings, comm->place.nodes, comm->place.locals);
    char why[256];

    if (gemmar_plan_make(m, n, k, dtype, &facts, out, why, sizeof(why)) != 0) {
        return gemmar_error_set(error, gemmarInvalidArgument, "%s", why);
    }
    return gemmarSuccess;
}

/* Grow if the plan needs it: every rank comes to the same answer, having had the same calls. */
static gemmarResult_t make_room(struct gemmarComm *comm, const struct gemmar_plan *plan,
                                bool capturing, struct gemmar_error *error)
{
    struct gemmar_capacity need = gemmar_plan_capacity(plan);

    if (gemmar_capacity_holds(&comm->workspace->layout.capacity, &need)) {
        return gemmarSuccess;
    }
    if (capturing) {
        return gemmar_error_set(error, gemmarInvalidUsage,
                                "the workspace is too small for this shape and cannot grow in "
                                "stream capture: call gemmarCommReserve first");
    }
    return gemmar_workspace_grow(comm, &need, error);
}

void gemmar_launch_fill(struct gemmarComm *comm, const struct gemmar_plan *plan,
                        const struct gemmar_operands *operands, struct gemmar_call *call)
{
    memset(call, 0, sizeof(*call));
    call->map = plan->map;
    call->place = comm->place;
    call->operands = *operands;
    call->algo = plan->algo;
    call->rank_of = comm->rank_of;
    gemmar_workspace_fill(comm, comm->workspace, call);
    call->watch.abort_word = &comm->words->abort;
    call->watch.trouble = comm->trouble;
    call->watch.timeout_ns = comm->settings.timeout_ns;
}

void gemmar_launch_fill_tensor(struct gemmarComm *comm, const struct gemmar_plan *plan,
                               const struct gemmar_operands *operands, uint32_t most_ctas,
                               const struct gemmar_told_c *c, struct gemmar_call *call)
{
    struct gemmar_told told = {.m = plan->map.m,
                               .n = plan->map.n,
                               .k = operands->k,
                               .c = *c,
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
    call->out_ld = gemmar_plan_out_ld(plan->map.n);
    call->told = gemmar_told_hash(&told);
}

/* Everything before the launch. Success with chunks 0 in `plan`: there is nothing to do. */
static gemmarResult_t prepare(struct gemmarComm *comm, const gemmarFusedArgs_t *args,
                              gemmarStream_t stream, struct gemmar_plan *plan,
                              struct gemmar_operands *operands, struct gemmar_error *error)
{
    gemmarResult_t result = gemmar_arguments_check(args, operands, error);
    bool capturing = false;

    if (result == gemmarSuccess) {
        result = comm->backend->check(comm, args, stream, error);
    }
    if (result == gemmarSuccess) {
        capturing = comm->backend->capturing(comm, stream);
    }
    if (result == gemmarSuccess) {
        result = make_plan(comm, args->M, args->N, args->K, operands->dtype, plan, error);
    }
    if (comm->settings.check != 0 && !capturing) {
        result = compare_calls(comm, args, operands, error);
    }
    if (result == gemmarSuccess && plan->map.chunks > 0) {
        result = make_room(comm, plan, capturing, error);
    }
    return result;
}

/* A call that was not run. */
static gemmarResult_t refuse(struct gemmarComm *comm, const struct gemmar_error *error)
{
    return error->fatal ? gemmar_comm_break(comm, error->result, "rank %u: %s", comm->place.rank,
                                            error->text)
                        : gemmar_comm_refuse(comm, error->result, "%s", error->text);
}

gemmarResult_t gemmar_fused_ex(const gemmarFusedArgs_t *args, gemmarComm_t comm,
                               gemmarStream_t stream)
{
    struct gemmar_error error = {.result = gemmarSuccess};
    struct gemmar_operands operands;
    struct gemmar_plan plan;
    gemmarResult_t result = gemmar_comm_enter(comm);

    if (result != gemmarSuccess) {
        return result;
    }
    result = prepare(comm, args, stream, &plan, &operands, &error);
    if (result != gemmarSuccess) {
        return gemmar_comm_leave(comm, refuse(comm, &error));
    }
    comm->last_plan = plan; /* also without chunks: it put nothing on the wire */
    if (plan.map.chunks > 0) {
        result = comm->backend->run(comm, &plan, &operands, stream);
    }
    return gemmar_comm_leave(comm, result);
}

gemmarResult_t gemmar_fused(const void *A, const void *B, void *C, int64_t M, int64_t N, int64_t K,
                            gemmarDataType_t datatype, gemmarComm_t comm, gemmarStream_t stream)
{
    gemmarFusedArgs_t args = {
        .size = sizeof(args),
        .A = A,
        .B = B,
        .C = C,
        .M = M,
        .N = N,
        .K = K,
        .datatype = datatype,
        .alpha = 1.0f,
    };

    return gemmar_fused_ex(&args, comm, stream);
}

gemmarResult_t gemmarCommReserve(gemmarComm_t comm, int64_t M, int64_t N, int64_t K,
                                 gemmarDataType_t datatype)
{
    struct gemmar_error error = {.result = gemmarSuccess};
    struct gemmar_plan plan;
    uint32_t dtype;
    gemmarResult_t result = gemmar_comm_enter(comm);

    if (result != gemmarSuccess) {
        return result;
    }
    result = gemmar_arguments_shape(M, N, K, datatype, &dtype, &error);
    if (comm->tuned) {
        result = gemmar_comm_tune(comm, &error);
    }
    if (result == gemmarSuccess) {
        result = make_plan(comm, M, N, K, dtype, &plan, &error);
    }
    if (result == gemmarSuccess && plan.map.chunks > 0) {
        result = make_room(comm, &plan, false, &error);
    }
    if (result != gemmarSuccess) {
        result = refuse(comm, &error);
    }
    return gemmar_comm_leave(comm, result);
}

static gemmarResult_t workspace_bytes(int64_t m, int64_t n, int64_t k, gemmarDataType_t datatype,
                                      uint32_t nodes, uint32_t locals, const gemmarConfig_t *config,
                                      size_t *bytes, struct gemmar_error *error)
{
    struct gemmar_logger log = {.level = GEMMAR_LOG_WARN};
    struct gemmar_settings *settings = malloc(sizeof(*settings));
    struct gemmar_capacity first, need;
    struct gemmar_plan_facts facts;
    struct gemmar_plan plan;
    uint32_t dtype;
    char why[256];
    gemmarResult_t result;

    if (settings == NULL) {
        return gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    result = gemmar_arguments_shape(m, n, k, datatype, &dtype, error);
    if (result == gemmarSuccess) {
        result = gemmar_settings_make(settings, config, NULL, &log, error);
    }
    if (result == gemmarSuccess) {
        result = gemmar_workspace_first(settings, nodes, locals, &first, error);
    }
    if (result == gemmarSuccess) {
        facts = gemmar_settings_facts(settings, nodes, locals);
        if (gemmar_plan_make(m, n, k, dtype, &facts, &plan, why, sizeof(why)) != 0) {
            result = gemmar_error_set(error, gemmarInvalidArgument, "%s", why);
        }
    }
    if (result == gemmarSuccess) {
        need = gemmar_plan_capacity(&plan);
        need = gemmar_capacity_max(&first, &need);
        *bytes = gemmar_layout_make(&need, nodes, locals).bytes;
    }
    free(settings);
    return result;
}

gemmarResult_t gemmarWorkspaceBytes(int64_t M, int64_t N, int64_t K, gemmarDataType_t datatype,
                                    int nodes, int ranksPerNode, const gemmarConfig_t *config,
                                    size_t *bytes)
{
    struct gemmar_error *error = gemmar_error_thread();

    gemmar_error_clear(error);
    if (nodes < 1 || nodes > GEMMAR_MAX_NODES || ranksPerNode < 1 ||
        ranksPerNode > GEMMAR_MAX_LOCAL_RANKS || bytes == NULL) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "nodes %d ranksPerNode %d: 1..%d and 1..%d; bytes %s", nodes,
                                ranksPerNode, GEMMAR_MAX_NODES, GEMMAR_MAX_LOCAL_RANKS,
                                bytes != NULL ? "given" : "NULL");
    }
    return workspace_bytes(M, N, K, datatype, (uint32_t)nodes, (uint32_t)ranksPerNode, config,
                           bytes, error);
}
