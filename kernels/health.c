// SPDX-License-Identifier: Apache-2.0
// What breaks a communicator, who notices, and the sentence that says it.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "kernels/communicator.h"
#include "kernels/workspace.h"
#include "transport/order.h"
#include "transport/wait.h"

#define LOOK_EVERY_NS 10000000u /* a look at a peer's process costs two system calls */
#define RECORD_NS     10000000u

gemmarResult_t gemmar_comm_usable(const struct gemmarComm *comm)
{
    struct gemmar_error *thread = gemmar_error_thread();

    gemmar_error_clear(thread);
    if (comm == NULL || comm->magic != GEMMAR_COMM_MAGIC) {
        return gemmar_error_set(thread, gemmarInvalidArgument, "comm is %s",
                                comm == NULL ? "NULL" : "not a communicator");
    }
    if (comm->pid != getpid()) {
        return gemmar_error_set(thread, gemmarInvalidUsage,
                                "the communicator was made by process %d, and this is a child",
                                (int)comm->pid);
    }
    return gemmarSuccess;
}

/* Under the lock. The sentence reaches the local peers before the flag does; a gather that failed
 * has told them by itself. */
static void tell_local_peers(struct gemmarComm *comm)
{
    if (comm->peers != NULL) {
        struct gemmar_control *mine = comm->peers->controls[comm->place.local];

        if (gemmar_load_acquire(&mine->broken) == 0) {
            (void)snprintf(mine->text, sizeof(mine->text), "%s", comm->error.text);
            gemmar_store_release(&mine->broken, 1);
        }
        for (uint32_t g = 0; g < comm->place.locals; g++) {
            if (comm->peers->abort[g] != NULL) {
                gemmar_store_release(comm->peers->abort[g], 1);
            }
        }
    }
}

static gemmarResult_t keep(struct gemmarComm *comm, gemmarResult_t result,
                           enum gemmar_log_level level, const char *text)
{
    bool first;

    (void)pthread_mutex_lock(&comm->lock);
    first = comm->error.result == gemmarSuccess;
    if (first) {
        (void)gemmar_error_set(&comm->error, result, "%s", text);
        tell_local_peers(comm);
    }
    result = comm->error.result;
    (void)pthread_mutex_unlock(&comm->lock);
    gemmar_store_release(&comm->words->abort, 1);
    if (first && comm->backend->leave != NULL) {
        comm->backend->leave(comm);
    }
    if (first) {
        gemmar_log(&comm->log, level, "communicator: %s", text);
    }
    return result;
}

gemmarResult_t gemmar_comm_break(struct gemmarComm *comm, gemmarResult_t result, const char *format,
                                 ...)
{
    char text[GEMMAR_SENTENCE_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return keep(comm, result, GEMMAR_LOG_WARN, text);
}

gemmarResult_t gemmar_comm_refuse(struct gemmarComm *comm, gemmarResult_t result,
                                  const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(comm->last.text, sizeof(comm->last.text), format, args);
    va_end(args);
    comm->last.result = result;
    gemmar_warn(&comm->log, "launch: rank %u: %s", comm->place.rank, comm->last.text);
    return result;
}

/* "rank 3 qp 0x1a stage rdma_write: ..."; "" when the transport has no error. */
static void say_transport(const struct gemmar_transport_error *e, char *out, size_t bytes)
{
    char peer[32] = "no single peer", qp[32] = "no qp";

    out[0] = '\0';
    if (e->code == 0) {
        return;
    }
    if (e->peer_rank != UINT32_MAX) {
        (void)snprintf(peer, sizeof(peer), "rank %u", e->peer_rank);
    }
    if (e->qp_number != 0) {
        (void)snprintf(qp, sizeof(qp), "qp 0x%x", e->qp_number);
    }
    (void)snprintf(out, bytes, "to %s %s stage %.31s: %.400s", peer, qp, e->stage, e->text);
}

/* The transport has logged it already. */
static gemmarResult_t break_with(struct gemmarComm *comm, const struct gemmar_transport_error *e)
{
    char text[GEMMAR_SENTENCE_BYTES], part[512];

    say_transport(e, part, sizeof(part));
    (void)snprintf(text, sizeof(text), "rank %u (node %u) %s", comm->place.rank, comm->place.node,
                   part);
    return keep(comm, gemmarRemoteError, GEMMAR_LOG_INFO, text);
}

/* The proxy may have broken between two calls, or an executor's wait before a call's end. */
static gemmarResult_t first_error(struct gemmarComm *comm)
{
    struct gemmar_transport_error e = {.size = sizeof(e)};
    gemmarResult_t result;

    if (gemmar_load_acquire(&comm->words->abort) == 0) {
        return gemmarSuccess;
    }
    (void)pthread_mutex_lock(&comm->lock);
    result = comm->error.result;
    if (result == gemmarSuccess) {
        gemmar_workspace_error(comm, comm->workspace, &e);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    if (e.code != 0) {
        return break_with(comm, &e);
    }
    return result == gemmarSuccess && comm->backend->asynchronous ? gemmar_comm_explain(comm)
                                                                  : result;
}

gemmarResult_t gemmar_comm_enter(struct gemmarComm *comm)
{
    gemmarResult_t result = gemmar_comm_usable(comm);

    if (result != gemmarSuccess) {
        return result;
    }
    if (gemmar_exchange_acq_rel(&comm->inside, 1) != 0) {
        return gemmar_comm_break(comm, gemmarInvalidUsage,
                                 "rank %u: two calls ran on one communicator at once",
                                 comm->place.rank);
    }
    gemmar_error_clear(&comm->last);
    result = first_error(comm);
    return result == gemmarSuccess ? result : gemmar_comm_leave(comm, result);
}

gemmarResult_t gemmar_comm_leave(struct gemmarComm *comm, gemmarResult_t result)
{
    gemmar_store_release(&comm->inside, 0);
    return result;
}

gemmarResult_t gemmarCommGetAsyncError(gemmarComm_t comm, gemmarResult_t *asyncError)
{
    gemmarResult_t result = gemmar_comm_usable(comm);

    if (result != gemmarSuccess) {
        return result;
    }
    if (asyncError == NULL) {
        return gemmar_error_set(gemmar_error_thread(), gemmarInvalidArgument, "asyncError is NULL");
    }
    *asyncError = first_error(comm);
    if (*asyncError == gemmarSuccess && comm->backend->asynchronous &&
        gemmar_comm_look(comm, UINT32_MAX) != 0) { /* no waiting thread looks for us */
        *asyncError = gemmar_comm_explain(comm);
    }
    return gemmarSuccess;
}

gemmarResult_t gemmarCommAbort(gemmarComm_t comm)
{
    gemmarResult_t result = gemmar_comm_usable(comm);

    if (result == gemmarSuccess) {
        (void)gemmar_comm_break(comm, gemmarInvalidUsage, "rank %u: gemmarCommAbort was called",
                                comm->place.rank);
    }
    return result;
}

const char *gemmarGetLastError(gemmarComm_t comm)
{
    if (comm == NULL || comm->magic != GEMMAR_COMM_MAGIC || comm->pid != getpid()) {
        return gemmar_error_thread()->text;
    }
    (void)pthread_mutex_lock(&comm->lock);
    if (comm->error.result != gemmarSuccess) {
        comm->last = comm->error;
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return comm->last.text;
}

static int look_at_nodes(struct gemmarComm *comm)
{
    uint32_t rank = comm->backend->left != NULL ? comm->backend->left(comm) : UINT32_MAX;

    if (rank == UINT32_MAX) {
        return 0;
    }
    (void)gemmar_claim(&comm->words->lost, 0, GEMMAR_MAX_LOCAL_RANKS + 1 + (uint64_t)rank);
    return 1;
}

int gemmar_comm_look(void *context, uint32_t waited_for)
{
    struct gemmarComm *comm = context;
    const struct gemmar_local_peers *peers = comm->peers;
    uint64_t now = gemmar_now_ns(), next = gemmar_load_relaxed(&comm->words->next_look_ns);

    (void)waited_for; /* a call needs all of them, whoever is waited for now */
    if (now < next || !gemmar_claim(&comm->words->next_look_ns, next, now + LOOK_EVERY_NS)) {
        return 0;
    }
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        if (g != comm->place.local &&
            (gemmar_load_acquire(&peers->controls[g]->broken) != 0 ||
             (peers->visible[g] && gemmar_process_gone(&peers->controls[g]->process)))) {
            (void)gemmar_claim(&comm->words->lost, 0, g + 1);
            return 1;
        }
    }
    return look_at_nodes(comm);
}

static const char *stage_name(uint32_t stage)
{
    static const char *const names[] = {"no stage",  "gemm_tile", "intra_reduce",
                                        "fifo_push", "arrival",   "inter_reduce",
                                        "publish",   "told",      "busy"};

    return stage < sizeof(names) / sizeof(names[0]) ? names[stage] : "an unknown stage";
}

static uint32_t node_of(const struct gemmarComm *comm, uint32_t rank)
{
    uint32_t i = 0;

    while (i + 1 < comm->place.ranks && comm->rank_of[i] != rank) {
        i++;
    }
    return i / comm->place.locals;
}

/* Over which path the waited-for rank would have answered. */
static void say_path(struct gemmarComm *comm, const struct gemmar_trouble *t, char *out,
                     size_t bytes)
{
    uint32_t node = node_of(comm, t->rank);

    if (node != comm->place.node) {
        uint32_t qp = comm->library.table->channel_qp(
            comm->workspace->channel, gemmar_network_peer(comm, node), (uint32_t)t->slot);

        (void)snprintf(out, bytes, "rank %u (node %u) qp 0x%x", t->rank, node, qp);
    } else if (t->rank == comm->place.rank) {
        (void)snprintf(out, bytes, "its own %s",
                       t->stage == GEMMAR_STAGE_FIFO_PUSH      ? "proxy"
                       : t->stage == GEMMAR_STAGE_INTER_REDUCE ? "intra_reduce"
                                                               : "stages");
    } else {
        (void)snprintf(out, bytes, "rank %u (same node, %s, no qp)", t->rank,
                       comm->backend->local_path);
    }
}

/* Which local peer ended the wait, and its own sentence if it had one. */
static void say_lost(struct gemmarComm *comm, char *out, size_t bytes)
{
    uint64_t lost = gemmar_load_acquire(&comm->words->lost);
    const struct gemmar_control *control;

    out[0] = '\0';
    if (lost == 0) {
        return;
    }
    if (lost > GEMMAR_MAX_LOCAL_RANKS) {
        uint32_t rank = (uint32_t)(lost - GEMMAR_MAX_LOCAL_RANKS - 1);

        (void)snprintf(out, bytes, "; rank %u (node %u) is gone or left first", rank,
                       node_of(comm, rank));
        return;
    }
    control = comm->peers->controls[lost - 1];
    if (gemmar_load_acquire(&control->broken) != 0) {
        (void)snprintf(out, bytes, "; rank %" PRIu64 " left first: %.400s", control->rank,
                       control->text);
    } else {
        (void)snprintf(out, bytes, "; rank %" PRIu64 " (process %" PRIu64 ") is gone",
                       control->rank, control->process.pid);
    }
}

/* The abort word may be seen a moment before the record of another CTA of the kernel is written. */
static void wait_for_record(const struct gemmar_trouble *t)
{
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, RECORD_NS);
    while (gemmar_load_acquire(&t->claimed) != 0 && gemmar_load_acquire(&t->complete) == 0 &&
           gemmar_wait_step(&wait)) {
    }
}

static gemmarResult_t left_without_record(struct gemmarComm *comm, const char *lost)
{
    if (lost[0] != '\0') {
        return gemmar_comm_break(comm, gemmarRemoteError,
                                 "rank %u (node %u) stage health: left the call%s",
                                 comm->place.rank, comm->place.node, lost);
    }
    return gemmar_comm_break(comm, gemmarInternalError, "rank %u left the call without a reason",
                             comm->place.rank);
}

gemmarResult_t gemmar_comm_explain(struct gemmarComm *comm)
{
    const struct gemmar_trouble *t = comm->trouble;
    struct gemmar_transport_error e = {.size = sizeof(e)};
    char path[96], lost[480], transport[512];

    gemmar_workspace_error(comm, comm->workspace, &e);
    if (comm->backend->asynchronous) {
        wait_for_record(t);
        gemmar_store_relaxed(&comm->words->next_look_ns, 0);
        (void)gemmar_comm_look(comm, UINT32_MAX);
    }
    say_lost(comm, lost, sizeof(lost));
    if (gemmar_load_acquire(&t->complete) == 0) { /* no wait of ours gave up: somebody else did */
        return e.code != 0 ? break_with(comm, &e) : left_without_record(comm, lost);
    }
    if (t->stage == GEMMAR_STAGE_TOLD && t->seen >> 16 == t->expected >> 16) {
        return gemmar_comm_break(comm, gemmarInvalidUsage,
                                 "rank %u calls with other arguments than rank %u: M, N, K, "
                                 "datatype, alpha, beta, bias and the place of C in registered "
                                 "memory must be equal on all ranks",
                                 t->rank, comm->place.rank);
    }
    if (t->stage == GEMMAR_STAGE_BUSY) {
        return gemmar_comm_break(comm, gemmarInvalidUsage,
                                 "rank %u: two calls ran at once: graphs of calls must not run "
                                 "beside each other or beside a call",
                                 comm->place.rank);
    }
    say_path(comm, t, path, sizeof(path));
    say_transport(&e, transport, sizeof(transport));
    return gemmar_comm_break(comm, gemmarRemoteError,
                             "rank %u (node %u) stage %s: waited %.3f s for %s, slot %" PRIu64
                             ": expected %" PRIu64 ", saw %" PRIu64 "%s%s%s",
                             comm->place.rank, comm->place.node, stage_name(t->stage),
                             (double)t->waited_ns * 1e-9, path, t->slot, t->expected, t->seen, lost,
                             e.code != 0 ? "; transport: " : "", transport);
}
