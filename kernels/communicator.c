// SPDX-License-Identifier: Apache-2.0
// The communicator: creation, destruction, information.
#include "kernels/communicator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "kernels/layout.h"
#include "kernels/workspace.h"
#include "transport/order.h"

/* Lines of ours and of the transport: kept for the sentence, then to the user or standard error if
 * GEMMAR_DEBUG has them. */
static void log_line(void *user, enum gemmar_log_level level, const char *text)
{
    static const struct gemmar_logger plain = {.level = GEMMAR_LOG_TRACE};
    const struct gemmarComm *comm = user;

    if (level == GEMMAR_LOG_WARN) {
        gemmar_error_note(text);
    }
    if (level > comm->showing) {
        return;
    }
    if (comm->user_log != NULL) {
        comm->user_log(comm->user_log_context, (int)level, text);
    } else {
        gemmar_log(&plain, level, "%s", text);
    }
}

static gemmarResult_t check_bootstrap(const gemmarHostBootstrap_t *b, struct gemmar_error *error)
{
    if (b == NULL || b->size < sizeof(*b)) {
        return gemmar_error_set(error, gemmarInvalidArgument, "bootstrap is NULL or has size %zu",
                                b != NULL ? b->size : 0);
    }
    if (b->nranks < 1 || b->rank < 0 || b->rank >= b->nranks || b->allGather == NULL) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "bootstrap: rank %d of %d ranks, allGather %s", b->rank, b->nranks,
                                b->allGather != NULL ? "given" : "NULL");
    }
    if (b->nranks > GEMMAR_MAX_NODES * GEMMAR_MAX_LOCAL_RANKS) {
        return gemmar_error_set(error, gemmarInvalidArgument, "bootstrap: %d ranks: at most %d",
                                b->nranks, GEMMAR_MAX_NODES * GEMMAR_MAX_LOCAL_RANKS);
    }
    return gemmarSuccess;
}

/* Releases whatever there is; never waits for a peer. What a channel that stays may still call or
 * write stays with it. */
static void release(struct gemmarComm *comm)
{
    bool closed = gemmar_workspace_close(comm, comm->workspace) || comm->transport == NULL;

    comm->backend->release(comm);
    if (!closed) {
        comm->magic = 0;
        return;
    }
    if (comm->transport != NULL) {
        comm->library.table->release(comm->transport);
    }
    gemmar_transport_library_close(&comm->library);
    (void)pthread_mutex_destroy(&comm->lock);
    free(comm->rank_of);
    free(comm->tuning);
    free(comm->host_words);
    comm->magic = 0;
    free(comm);
}

static gemmarResult_t allocate(const struct gemmar_backend *backend, struct gemmar_gpu **gpu,
                               const gemmarHostBootstrap_t *bootstrap, const gemmarConfig_t *config,
                               struct gemmarComm **out, struct gemmar_error *error)
{
    struct gemmarComm *comm = calloc(1, sizeof(*comm));

    if (comm == NULL) {
        return gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    comm->host_words = aligned_alloc(64, sizeof(*comm->host_words));
    if (comm->host_words == NULL) {
        free(comm);
        return gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    memset(comm->host_words, 0, sizeof(*comm->host_words));
    comm->words = comm->host_words;
    comm->trouble = &comm->host_trouble;
    comm->backend = backend;
    comm->near.numa_node = -1;
    if (gpu != NULL) {
        comm->gpu = *gpu;
        *gpu = NULL;
    }
    comm->magic = GEMMAR_COMM_MAGIC;
    comm->pid = getpid();
    comm->bootstrap = *bootstrap;
    comm->place.rank = (uint32_t)bootstrap->rank;
    comm->place.ranks = (uint32_t)bootstrap->nranks;
    comm->log = (struct gemmar_logger){.sink = log_line, .user = comm, .level = GEMMAR_LOG_WARN};
    comm->showing = GEMMAR_LOG_WARN;
    if (config != NULL && config->size >= GEMMAR_CONFIG_LEAST &&
        config->magic == GEMMAR_CONFIG_MAGIC) {
        comm->user_log = config->log;
        comm->user_log_context = config->logUser;
    }
    (void)pthread_mutex_init(&comm->lock, NULL); /* default attributes: cannot fail on Linux */
    *out = comm;
    return gemmarSuccess;
}

static gemmarResult_t create(struct gemmarComm *comm, const gemmarConfig_t *config,
                             struct gemmar_error *error)
{
    struct gemmar_capacity capacity;
    gemmarResult_t result;

    /* A rank with a bad config goes on to the first step, where all learn of it. */
    (void)gemmar_settings_make(&comm->settings, config, comm->bootstrap.node, &comm->log, error);
    comm->showing = comm->log.level;
    if (comm->log.level < GEMMAR_LOG_WARN) {
        comm->log.level = GEMMAR_LOG_WARN;
    }
    if (error->result == gemmarSuccess) {
        comm->backend->begin(comm, error);
    }
    result = gemmar_comm_meet(comm, error);
    if (result == gemmarSuccess) {
        result = comm->backend->attach(comm, error);
    }
    if (result == gemmarSuccess && comm->tuned) {
        result = gemmar_comm_tune(comm, error);
    }
    if (result == gemmarSuccess) { /* equal on all ranks */
        result = gemmar_workspace_first(&comm->settings, comm->place.nodes, comm->place.locals,
                                        &capacity, error);
    }
    if (result == gemmarSuccess) {
        result = gemmar_workspace_open(comm, &capacity, comm->settings.epoch_start, NULL,
                                       &comm->workspace, error);
    }
    if (result == gemmarSuccess && comm->peers == NULL) {
        comm->peers = &comm->workspace->peers;
    }
    return result;
}

/* Local ranks that still wait for this one in an all-gather of ours leave, too. */
static void tell_local_peers(const struct gemmarComm *comm, const struct gemmar_error *error)
{
    struct gemmar_control *mine =
        comm->peers != NULL ? comm->peers->controls[comm->place.local] : NULL;

    if (mine != NULL) {
        (void)snprintf(mine->text, sizeof(mine->text), "%s", error->text);
        gemmar_store_release(&mine->broken, 1);
    }
}

gemmarResult_t gemmar_comm_create(const struct gemmar_backend *backend, struct gemmar_gpu **gpu,
                                  const gemmarHostBootstrap_t *bootstrap,
                                  const gemmarConfig_t *config, struct gemmarComm **out,
                                  struct gemmar_error *error)
{
    struct gemmarComm *comm = NULL;
    gemmarResult_t result = allocate(backend, gpu, bootstrap, config, &comm, error);

    if (result != gemmarSuccess) {
        return result;
    }
    result = create(comm, config, error);
    if (result != gemmarSuccess) {
        gemmar_info(&comm->log, "communicator: creation failed: %s", error->text);
        tell_local_peers(comm, error);
        release(comm);
        return result;
    }
    *out = comm;
    return gemmarSuccess;
}

gemmarResult_t gemmarCommCreateHost(gemmarComm_t *out_comm, const gemmarHostBootstrap_t *bootstrap,
                                    const gemmarConfig_t *config)
{
    struct gemmar_error *error = gemmar_error_thread();
    gemmarResult_t result;

    gemmar_error_clear(error);
    if (out_comm == NULL) {
        return gemmar_error_set(error, gemmarInvalidArgument, "comm is NULL");
    }
    *out_comm = NULL;
    result = check_bootstrap(bootstrap, error);
    if (result == gemmarSuccess) {
        result = gemmar_comm_create(&gemmar_backend_cpu, NULL, bootstrap, config, out_comm, error);
    }
    return result;
}

gemmarResult_t gemmarCommDestroy(gemmarComm_t comm)
{
    struct gemmar_error *thread = gemmar_error_thread();
    gemmarResult_t result;

    gemmar_error_clear(thread);
    if (comm == NULL) {
        return gemmarSuccess;
    }
    result = gemmar_comm_usable(comm);
    if (result != gemmarSuccess) {
        return result;
    }
    gemmar_store_relaxed(&comm->words->next_look_ns, 0);
    if (gemmar_comm_enter(comm) == gemmarSuccess && gemmar_comm_look(comm, UINT32_MAX) == 0) {
        (void)comm->backend->settle(comm, thread);
        if (thread->result == gemmarSuccess) {
            (void)gemmar_workspace_drain(comm, comm->workspace, thread);
        }
        result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_END, thread, NULL, 0, NULL);
        if (result != gemmarSuccess) {
            gemmar_warn(&comm->log, "communicator: %s", thread->text);
        }
        comm->ended = result == gemmarSuccess;
    }
    release(comm);
    return result;
}

static void add_counters(struct gemmarComm *comm, gemmarCommInfo_t *info)
{
    info->wireBytes = comm->wire_bytes;
    info->stampBytes = comm->stamp_bytes;
    for (const struct gemmar_workspace *w = comm->workspace; w != NULL && w->channel != NULL;
         w = w->older) {
        struct gemmar_channel_counters c = {.size = sizeof(c)};

        comm->library.table->channel_counters(w->channel, &c);
        info->wireBytes += c.data_bytes;
        info->stampBytes += c.stamp_bytes;
    }
}

/* What this rank puts on the wire in a call of this plan. */
static uint64_t wire_bytes(const struct gemmar_plan *plan, const struct gemmar_place *place)
{
    int two_shot = plan->algo == GEMMAR_ALGO_TWO_SHOT;

    if (plan->gpu != 0 && place->nodes > 1) { /* in whole parts */
        return gemmar_parts_wire_bytes(&plan->map, two_shot, place->node, place->local);
    }
    return (uint64_t)gemmar_map_wire_bytes(&plan->map, two_shot, place->node, place->local);
}

static gemmarResult_t get_info(struct gemmarComm *comm, gemmarCommInfo_t *info)
{
    const struct gemmar_tile_map *map;
    gemmarCommInfo_t i = {.size = sizeof(i)};
    gemmarResult_t result;

    if (info == NULL || info->size < sizeof(*info)) {
        return gemmar_comm_refuse(comm, gemmarInvalidArgument, "info is NULL or has size %zu",
                                  info != NULL ? info->size : 0);
    }
    /* A finished call may still have sends on the way that are not counted yet. */
    result = comm->backend->settle(comm, &comm->last);
    if (result == gemmarSuccess) {
        result = gemmar_workspace_drain(comm, comm->workspace, &comm->last);
    }
    if (result != gemmarSuccess) {
        return gemmar_comm_break(comm, result, "%s", comm->last.text);
    }
    map = &comm->last_plan.map;
    i.rank = (int)comm->place.rank;
    i.nranks = (int)comm->place.ranks;
    i.node = (int)comm->place.node;
    i.nodes = (int)comm->place.nodes;
    i.localRank = (int)comm->place.local;
    i.localRanks = (int)comm->place.locals;
    i.epoch = comm->backend->epoch(comm);
    add_counters(comm, &i);
    i.workspaceBytes = comm->workspace->layout.bytes;
    i.chunks = (uint64_t)map->chunks;
    i.algo = map->chunks == 0 || comm->place.nodes == 1 ? gemmarAlgoNone
                                                        : (gemmarAlgo_t)comm->last_plan.algo;
    if (map->chunks > 0) {
        i.wireBytesFormula = wire_bytes(&comm->last_plan, &comm->place);
    }
    i.size = info->size;
    *info = i;
    return gemmarSuccess;
}

gemmarResult_t gemmarCommGetInfo(gemmarComm_t comm, gemmarCommInfo_t *info)
{
    gemmarResult_t result = gemmar_comm_enter(comm);

    return result == gemmarSuccess ? gemmar_comm_leave(comm, get_info(comm, info)) : result;
}
