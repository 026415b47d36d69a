// SPDX-License-Identifier: Apache-2.0
// A generation's channel to the same local rank of every other node: routes, blobs, views.
#include "kernels/workspace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/backend.h"

uint32_t gemmar_network_peer(const struct gemmarComm *comm, uint32_t node)
{
    return node < comm->place.node ? node : node - 1;
}

static uint32_t peer_node(const struct gemmarComm *comm, uint32_t peer)
{
    return peer < comm->place.node ? peer : peer + 1;
}

static uint32_t rank_at(const struct gemmarComm *comm, uint32_t node)
{
    return comm->rank_of[node * comm->place.locals + comm->place.local];
}

static void make_route(const struct gemmarComm *comm, const struct gemmar_layout *layout,
                       uint32_t kind, uint32_t node, struct gemmar_route_settings *route)
{
    uint32_t me = comm->place.node;

    *route = (struct gemmar_route_settings){.peer = GEMMAR_ROUTE_UNUSED};
    if (node == me || gemmar_layout_window(layout, kind) == 0) {
        return;
    }
    route->peer = gemmar_network_peer(comm, node);
    route->peer_route = kind * comm->place.nodes + me;
    route->window_bytes = gemmar_layout_window(layout, kind);
    route->slots = gemmar_layout_slots(layout, kind);
    for (uint32_t parity = 0; parity < 2; parity++) {
        route->source_offset[parity] = kind == GEMMAR_ROUTE_GATHER ? layout->result[parity]
                                       : kind == GEMMAR_ROUTE_SCATTER
                                           ? layout->staging[parity] + node * layout->staging_stride
                                           : layout->staging[parity];
        route->sink_offset[parity] = gemmar_layout_sink(layout, parity, kind, me, node);
        route->stamp_offset[parity] = gemmar_layout_stamps(layout, parity, kind, me, node);
    }
}

/* What the NIC reads and writes. */
struct net_memory {
    struct gemmar_memory data, stamps;
    char *stamps_seen; /* by the executor */
};

/* Stamps that the proxy writes lie in the host's memory. */
static int open_stamps(struct gemmarComm *comm, struct gemmar_workspace *w, struct net_memory *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (w->layout.stamps_bytes + page - 1) / page * page;
    void *seen = NULL;
    int rc;

    w->stamps = aligned_alloc(page, bytes);
    if (w->stamps == NULL) {
        return -ENOMEM;
    }
    memset(w->stamps, 0, bytes);
    rc = comm->backend->map(comm, w->stamps, bytes, &seen);
    w->stamps_mapped = rc == 0;
    out->stamps = (struct gemmar_memory){.address = w->stamps, .length = bytes, .dmabuf_fd = -1};
    out->stamps_seen = seen;
    return rc;
}

static struct gemmar_memory part_of(const struct gemmar_memory *whole, uint64_t offset,
                                    uint64_t bytes)
{
    struct gemmar_memory part = *whole;

    part.address = (char *)whole->address + offset;
    part.length = bytes;
    part.dmabuf_offset = whole->dmabuf_offset + offset;
    return part;
}

static int open_memory(struct gemmarComm *comm, struct gemmar_workspace *w, struct net_memory *out)
{
    const struct gemmar_layout *l = &w->layout;
    struct gemmar_memory whole = {.address = w->bases[comm->place.local], .dmabuf_fd = -1};
    int rc = comm->backend->net_memory == NULL ? 0 : comm->backend->net_memory(comm, w, &whole);

    out->data = part_of(&whole, l->data, l->data_bytes);
    out->stamps = part_of(&whole, l->stamps, l->stamps_bytes);
    out->stamps_seen = out->stamps.address;
    if (rc == 0 && whole.is_gpu && comm->settings.signal == GEMMAR_SIGNAL_IMM) {
        rc = open_stamps(comm, w, out);
    }
    return rc;
}

/* Addresses of the windows that the routes end in, as the executor sees them. */
static int make_views(struct gemmarComm *comm, struct gemmar_workspace *w,
                      const struct net_memory *memory)
{
    const struct gemmar_layout *l = &w->layout;
    uint32_t nodes = comm->place.nodes, me = comm->place.node, routes = GEMMAR_ROUTE_KINDS * nodes;
    size_t bytes = 4 * (size_t)routes * sizeof(*w->views);
    void **views = calloc(1, bytes), *seen = views;
    int rc = views != NULL ? 0 : -ENOMEM;

    for (uint32_t i = 0; rc == 0 && i < 2 * routes; i++) {
        uint32_t parity = i / routes, route = i % routes, kind = route / nodes;
        uint32_t node = route % nodes;

        if (node != me) {
            views[2 * parity * routes + route] =
                (char *)memory->data.address + gemmar_layout_sink(l, parity, kind, me, node);
            views[(2 * parity + 1) * routes + route] =
                memory->stamps_seen + gemmar_layout_stamps(l, parity, kind, me, node);
        }
    }
    if (rc == 0 && comm->backend->upload != NULL) {
        rc = comm->backend->upload(comm, views, bytes, &seen);
        free(views);
    }
    w->views = rc == 0 ? seen : NULL;
    return rc;
}

static const void *moved(const void *pointer, const void *from, const void *to)
{
    return (const char *)to + ((const char *)pointer - (const char *)from);
}

/* The ring as the executor sees it. */
static int open_ring(struct gemmarComm *comm, struct gemmar_workspace *w)
{
    struct gemmar_fifo_ring *ring = &w->ring;
    int rc = comm->library.table->channel_ring(w->channel, ring);
    void *seen = NULL;

    if (rc != 0 || comm->backend->map == NULL) {
        return rc;
    }
    rc = comm->backend->map(comm, ring->base, ring->bytes, &seen);
    if (rc == 0) {
        w->ring_memory = ring->base;
        ring->commands = (void *)moved(ring->commands, ring->base, seen);
        ring->tail = moved(ring->tail, ring->base, seen);
        ring->retired = moved(ring->retired, ring->base, seen);
        ring->base = seen;
    }
    return rc;
}

int gemmar_network_open(struct gemmarComm *comm, struct gemmar_workspace *w, uint64_t epoch)
{
    const struct gemmar_transport_table *table = comm->library.table;
    uint32_t nodes = comm->place.nodes, route_count = GEMMAR_ROUTE_KINDS * nodes;
    struct gemmar_route_settings *routes = calloc(route_count, sizeof(*routes));
    uint32_t *peers = calloc(nodes, sizeof(*peers));
    struct net_memory memory;
    struct gemmar_channel_settings s = {
        .size = sizeof(s),
        .rank = comm->place.rank,
        .peer_count = nodes - 1,
        .peer_ranks = peers,
        .route_count = route_count,
        .device_count = comm->rails,
        .routes = routes,
        .devices = comm->devices,
        .ring_entries = comm->settings.ring_entries,
        .signal = (uint32_t)comm->settings.signal,
        .numa_node = comm->numa_node,
        .first_epoch = epoch,
        .timeout_ns = comm->settings.timeout_ns,
        .abort_word = &comm->words->abort,
    };
    int rc = open_memory(comm, w, &memory);

    s.data = memory.data;
    s.stamps = memory.stamps;
    if (rc == 0 && (routes == NULL || peers == NULL)) {
        rc = -ENOMEM;
    }
    if (rc != 0) {
        goto free_tables;
    }
    for (uint32_t peer = 0; peer + 1 < nodes; peer++) {
        peers[peer] = rank_at(comm, peer_node(comm, peer));
    }
    for (uint32_t i = 0; i < route_count; i++) {
        make_route(comm, &w->layout, i / nodes, i % nodes, &routes[i]);
    }
    rc = make_views(comm, w, &memory);
    if (rc == 0) {
        rc = table->channel_open(comm->transport, &s, &w->channel);
    }
    if (rc == 0) {
        rc = open_ring(comm, w);
    }
free_tables:
    if (memory.data.dmabuf_fd >= 0) {
        (void)close(memory.data.dmabuf_fd); /* the registrations hold the memory */
    }
    free(routes);
    free(peers);
    return rc;
}

int gemmar_network_blobs(struct gemmarComm *comm, struct gemmar_workspace *w, char *blobs)
{
    int rc = 0;

    for (uint32_t peer = 0; rc == 0 && peer + 1 < comm->place.nodes; peer++) {
        rc = comm->library.table->channel_blob(w->channel, peer,
                                               blobs + (size_t)peer * GEMMAR_CONNECT_BLOB_BYTES);
    }
    return rc;
}

int gemmar_network_connect(struct gemmarComm *comm, struct gemmar_workspace *w, const char *blobs)
{
    const struct gemmar_transport_table *table = comm->library.table;
    uint32_t peers = comm->place.nodes - 1, me = comm->place.node;
    int rc = 0;

    for (uint32_t peer = 0; rc == 0 && peer < peers; peer++) {
        uint32_t node = peer_node(comm, peer);
        size_t theirs = me < node ? me : me - 1; /* my place among that node's peers */
        size_t blob = (size_t)rank_at(comm, node) * peers + theirs;

        rc = table->channel_connect(w->channel, peer, blobs + blob * GEMMAR_CONNECT_BLOB_BYTES);
    }
    return rc == 0 ? table->channel_start(w->channel) : rc;
}

void gemmar_network_close(struct gemmarComm *comm, struct gemmar_workspace *w)
{
    const struct gemmar_backend *backend = comm->backend;

    if (w->ring_memory != NULL) {
        backend->unmap(comm, w->ring_memory);
        w->ring_memory = NULL;
    }
    if (w->channel != NULL) {
        comm->library.table->channel_close(w->channel);
        w->channel = NULL;
    }
    if (w->stamps_mapped) {
        backend->unmap(comm, w->stamps);
    }
    free(w->stamps);
    w->stamps = NULL;
    if (backend->discard == NULL) {
        free(w->views);
    } else if (w->views != NULL) {
        backend->discard(comm, w->views);
    }
    w->views = NULL;
}
