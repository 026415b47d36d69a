// SPDX-License-Identifier: Apache-2.0
// A workspace generation: opening, growing, closing.
#include "kernels/workspace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "transport/order.h"

/* The shape that fits without growth. */
#define FIRST_M 64
#define FIRST_N 1024

gemmarResult_t gemmar_workspace_first(const struct gemmar_settings *settings, uint32_t nodes,
                                      uint32_t locals, struct gemmar_capacity *out,
                                      struct gemmar_error *error)
{
    struct gemmar_plan_facts facts = gemmar_settings_facts(settings, nodes, locals);
    struct gemmar_plan plan;
    char why[256];
    int rc =
        gemmar_plan_make(FIRST_M, FIRST_N, 0, GEMMAR_DTYPE_FP32, &facts, &plan, why, sizeof(why));

    if (rc != 0) {
        return gemmar_error_set(error, gemmarInvalidArgument, "config: %s", why);
    }
    *out = gemmar_plan_capacity(&plan);
    return gemmarSuccess;
}

static void network_failed(struct gemmar_error *error, const char *step, int rc)
{
    const char *noted = gemmar_error_noted();

    (void)gemmar_error_set(error, gemmar_error_result(rc), "%s: %s", step,
                           noted[0] != '\0' ? noted : strerror(-rc));
}

/* Blobs of all ranks are gathered by all, though each needs only those of its peers: one step
 * instead of one for each pair. */
static gemmarResult_t open_network(struct gemmarComm *comm, struct gemmar_workspace *w,
                                   uint64_t epoch, struct gemmar_error *error)
{
    size_t bytes = (size_t)(comm->place.nodes - 1) * GEMMAR_CONNECT_BLOB_BYTES;
    char *mine = calloc(comm->place.ranks + 1u, bytes), *all = mine != NULL ? mine + bytes : NULL;
    gemmarResult_t result;
    int rc = mine != NULL ? 0 : -ENOMEM;

    gemmar_error_note("");
    if (rc == 0) {
        rc = gemmar_network_open(comm, w, epoch);
    }
    if (rc == 0) {
        rc = gemmar_network_blobs(comm, w, mine);
    }
    if (rc != 0) {
        network_failed(error, "opening the channel failed", rc);
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_BLOBS, error, mine, bytes, all);
    if (result == gemmarSuccess) {
        rc = gemmar_network_connect(comm, w, all);
        if (rc != 0) {
            network_failed(error, "connecting the channel failed", rc);
        }
    }
    free(mine);
    return result;
}

gemmarResult_t gemmar_workspace_open(struct gemmarComm *comm,
                                     const struct gemmar_capacity *capacity, uint64_t epoch,
                                     struct gemmar_workspace *old, struct gemmar_workspace **out,
                                     struct gemmar_error *error)
{
    struct gemmar_workspace none = {0}, *w = calloc(1, sizeof(*w));
    gemmarResult_t result;

    if (w == NULL) { /* take part in the first step, so that all ranks leave it */
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
        return comm->backend->open_memory(comm, &none, epoch, error);
    }
    w->layout = gemmar_layout_make(capacity, comm->place.nodes, comm->place.locals);
    result = comm->backend->open_memory(comm, w, epoch, error);
    if (result == gemmarSuccess && comm->place.nodes > 1) {
        result = open_network(comm, w, epoch, error);
    }
    if (result == gemmarSuccess) {
        if (error->result == gemmarSuccess && old != NULL) {
            (void)gemmar_workspace_drain(comm, old, error);
        }
        result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_STARTED, error, NULL, 0, NULL);
    }
    if (result != gemmarSuccess) {
        (void)gemmar_workspace_close(comm, w); /* if a call still runs it stays, unused */
        return result;
    }
    gemmar_info(&comm->log, "workspace: rank %u opened %" PRIu64 " bytes at epoch %" PRIu64,
                comm->place.rank, w->layout.bytes, epoch);
    *out = w;
    return gemmarSuccess;
}

bool gemmar_workspace_close(struct gemmarComm *comm, struct gemmar_workspace *w)
{
    if (w == NULL) {
        return true;
    }
    if (!comm->backend->quiet(comm)) {
        return false;
    }
    (void)gemmar_workspace_close(comm, w->older); /* quiet, too */
    gemmar_network_close(comm, w);
    comm->backend->close_memory(comm, w);
    free(w);
    return true;
}

static int pushed(struct gemmarComm *comm, const struct gemmar_workspace *w, uint64_t *out)
{
    if (comm->backend->pushed != NULL) {
        return comm->backend->pushed(comm, w, out);
    }
    *out = gemmar_load_acquire(&w->words->ticket);
    return 0;
}

gemmarResult_t gemmar_workspace_drain(struct gemmarComm *comm, struct gemmar_workspace *w,
                                      struct gemmar_error *error)
{
    struct gemmar_transport_error e = {.size = sizeof(e)};
    uint64_t ticket = 0;
    int rc = 0;

    for (; w != NULL && w->channel != NULL && rc == 0; w = w->older) {
        rc = pushed(comm, w, &ticket);
        if (rc == 0) {
            rc = comm->library.table->channel_drain(w->channel, ticket, comm->settings.timeout_ns);
        }
        if (rc != 0) {
            comm->library.table->channel_error(w->channel, &e);
        }
    }
    return rc == 0 ? gemmarSuccess
                   : gemmar_error_set(error, gemmarRemoteError, "draining the sends failed: %s",
                                      e.code != 0 ? e.text : strerror(-rc));
}

void gemmar_workspace_error(const struct gemmarComm *comm, const struct gemmar_workspace *w,
                            struct gemmar_transport_error *out)
{
    out->code = 0;
    for (; w != NULL && w->channel != NULL && out->code == 0; w = w->older) {
        comm->library.table->channel_error(w->channel, out);
    }
}

/* What of a generation the ranks must have alike before they open the next one. */
struct growth {
    uint64_t history;
    struct gemmar_capacity capacity;
};

static gemmarResult_t same_growth(struct gemmarComm *comm, const struct growth *mine,
                                  struct gemmar_error *error)
{
    struct growth *all = calloc(comm->place.ranks, sizeof(*all));
    gemmarResult_t result;

    if (all == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_GROW, error, mine, sizeof(*mine), all);
    for (uint32_t r = 1; result == gemmarSuccess && r < comm->place.ranks; r++) {
        if (memcmp(&all[r], &all[0], sizeof(*all)) != 0) {
            result = gemmar_error_set(
                error, gemmarInvalidUsage,
                "rank %u calls with another shape, type or history than rank "
                "0: output of %" PRIu64 " and %" PRIu64 " bytes, call %" PRIu64 " and %" PRIu64,
                r, all[r].capacity.partial_bytes, all[0].capacity.partial_bytes, all[r].history,
                all[0].history);
        }
    }
    free(all);
    return result;
}

/* Nothing on a CPU can hold a drained generation; on a GPU graphs may. */
static void replace(struct gemmarComm *comm, struct gemmar_workspace *old,
                    struct gemmar_workspace *grown)
{
    bool keep = comm->backend->asynchronous;

    (void)pthread_mutex_lock(&comm->lock);
    comm->workspace = grown;
    comm->peers = keep ? comm->peers : &grown->peers;
    (void)pthread_mutex_unlock(&comm->lock);
    if (old->channel != NULL && !keep) {
        struct gemmar_channel_counters c = {.size = sizeof(c)};

        comm->library.table->channel_counters(old->channel, &c);
        comm->wire_bytes += c.data_bytes;
        comm->stamp_bytes += c.stamp_bytes;
    }
    if (keep) {
        grown->older = old;
    } else {
        (void)gemmar_workspace_close(comm, old); /* a CPU's calls have ended */
    }
}

gemmarResult_t gemmar_workspace_grow(struct gemmarComm *comm, const struct gemmar_capacity *need,
                                     struct gemmar_error *error)
{
    struct gemmar_workspace *old = comm->workspace, *grown = NULL;
    const struct gemmar_capacity *have = &old->layout.capacity;
    bool keep = comm->backend->asynchronous;
    struct growth mine;
    gemmarResult_t result;

    memset(&mine, 0, sizeof(mine)); /* compared as bytes */
    mine.history = comm->backend->history(comm);
    mine.capacity = keep ? gemmar_capacity_grown(have, need) : gemmar_capacity_max(have, need);
    (void)comm->backend->settle(comm, error);
    result = same_growth(comm, &mine, error);
    if (result == gemmarSuccess) {
        /* A generation that graphs may still move on has an epoch that this rank cannot know. */
        uint64_t epoch = keep ? comm->settings.epoch_start : old->words->epoch;

        result = gemmar_workspace_open(comm, &mine.capacity, epoch, old, &grown, error);
        if (result == gemmarSystemError && !error->fatal && keep) { /* on all ranks alike */
            mine.capacity = gemmar_capacity_max(have, need);
            gemmar_error_clear(error);
            result = gemmar_workspace_open(comm, &mine.capacity, epoch, old, &grown, error);
        }
    }
    if (result == gemmarSuccess) {
        replace(comm, old, grown);
    }
    return result;
}

void gemmar_workspace_fill(const struct gemmarComm *comm, const struct gemmar_workspace *w,
                           struct gemmar_call *call)
{
    const struct gemmar_layout *l = &w->layout;
    char *own = w->bases[comm->place.local];

    for (uint32_t g = 0; g < comm->place.locals; g++) {
        char *base = w->bases[g];

        call->locals[g] = (struct gemmar_local_view){
            .partial = base + l->partial,
            .out = base + l->out,
            .ready = (uint64_t *)(base + l->ready),
            .published = (uint64_t *)(base + l->published),
            .told = (uint64_t *)(base + l->told),
        };
    }
    if (comm->place.locals == 2) {
        char *other = w->bases[1 - comm->place.local];

        call->exchange = (struct gemmar_exchange_view){
            .mine = own + l->exchange,
            .peers = other + l->exchange,
            .bytes = l->capacity.exchange_bytes,
        };
    }
    call->words = (struct gemmar_rank_words){
        .epoch = &w->words->epoch,
        .busy = &w->words->busy,
        .tiles_done = (uint64_t *)(own + l->tiles_done),
        .staged = (uint64_t *)(own + l->staged),
        .ctas_done = &w->words->ctas_done,
        .turn_next = &w->words->turn_next,
        .turn_done = &w->words->turn_done,
        .copy_next = w->words->copy_next,
        .left = &w->words->left,
    };
    call->net.ticket = &w->words->ticket;
    call->net.heads = w->words->heads;
    call->net.room = w->words->room;
    call->net.tail_seen = &w->words->tail_seen;
    call->net.stamps_on_host = w->stamps != NULL;
    if (comm->place.nodes <= 1) {
        return;
    }
    for (uint32_t parity = 0; parity < 2; parity++) {
        void **views = w->views + (size_t)parity * 2 * GEMMAR_ROUTE_KINDS * comm->place.nodes;

        call->net.staging[parity] = own + l->data + l->staging[parity];
        call->net.result[parity] = own + l->data + l->result[parity];
        call->net.recv[parity] = (const void *const *)views;
        call->net.arrival[parity] =
            (const uint64_t *const *)(views + GEMMAR_ROUTE_KINDS * comm->place.nodes);
    }
    call->net.staging_stride = l->staging_stride;
    call->net.ring = w->ring;
}
