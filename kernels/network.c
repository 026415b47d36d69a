// SPDX-License-Identifier: Apache-2.0
// A generation's channel to the same local rank of every other node: routes, blobs, views.
#include "kernels/workspace.h"

#include <errno.h>
#include <stdlib.h>

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

/* The views of the windows that the routes end in. */
static int make_views(const struct gemmarComm *comm, struct gemmar_workspace *w)
{
    const struct gemmar_layout *layout = &w->layout;
    uint32_t nodes = comm->place.nodes, me = comm->place.node;
    char *base = w->bases[comm->place.local];

    for (uint32_t parity = 0; parity < 2; parity++) {
        w->recv[parity] = calloc(GEMMAR_ROUTE_KINDS * nodes, sizeof(*w->recv[parity]));
        w->arrival[parity] = calloc(GEMMAR_ROUTE_KINDS * nodes, sizeof(*w->arrival[parity]));
        if (w->recv[parity] == NULL || w->arrival[parity] == NULL) {
            return -ENOMEM;
        }
        for (uint32_t kind = 0; kind < GEMMAR_ROUTE_KINDS; kind++) {
            for (uint32_t node = 0; node < nodes; node++) {
                uint32_t route = kind * nodes + node;

                if (node != me) {
                    w->recv[parity][route] =
                        base + layout->data + gemmar_layout_sink(layout, parity, kind, me, node);
                    w->arrival[parity][route] =
                        (const uint64_t *)(base + layout->stamps +
                                           gemmar_layout_stamps(layout, parity, kind, me, node));
                }
            }
        }
    }
    return 0;
}

static struct gemmar_memory memory_at(char *base, uint64_t offset, uint64_t bytes)
{
    return (struct gemmar_memory){.address = base + offset, .length = bytes, .dmabuf_fd = -1};
}

int gemmar_network_open(struct gemmarComm *comm, struct gemmar_workspace *w, uint64_t epoch)
{
    const struct gemmar_transport_table *table = comm->library.table;
    uint32_t nodes = comm->place.nodes, route_count = GEMMAR_ROUTE_KINDS * nodes;
    struct gemmar_route_settings *routes = calloc(route_count, sizeof(*routes));
    uint32_t *peers = calloc(nodes, sizeof(*peers));
    char *base = w->bases[comm->place.local];
    struct gemmar_channel_settings s = {
        .size = sizeof(s),
        .rank = comm->place.rank,
        .peer_count = nodes - 1,
        .peer_ranks = peers,
        .route_count = route_count,
        .device_count = comm->rails,
        .routes = routes,
        .devices = comm->devices,
        .data = memory_at(base, w->layout.data, w->layout.data_bytes),
        .stamps = memory_at(base, w->layout.stamps, w->layout.stamps_bytes),
        .ring_entries = comm->settings.ring_entries,
        .signal = (uint32_t)comm->settings.signal,
        .numa_node = comm->numa_node,
        .first_epoch = epoch,
        .timeout_ns = comm->settings.timeout_ns,
        .abort_word = &comm->words->abort,
    };
    int rc = -ENOMEM;

    if (routes == NULL || peers == NULL) {
        goto free_tables;
    }
    for (uint32_t peer = 0; peer + 1 < nodes; peer++) {
        peers[peer] = rank_at(comm, peer_node(comm, peer));
    }
    for (uint32_t i = 0; i < route_count; i++) {
        make_route(comm, &w->layout, i / nodes, i % nodes, &routes[i]);
    }
    rc = make_views(comm, w);
    if (rc == 0) {
        rc = table->channel_open(comm->transport, &s, &w->channel);
    }
    if (rc == 0) {
        rc = table->channel_ring(w->channel, &w->ring);
    }
free_tables:
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
    if (w->channel != NULL) {
        comm->library.table->channel_close(w->channel);
        w->channel = NULL;
    }
    for (uint32_t parity = 0; parity < 2; parity++) {
        free(w->recv[parity]);
        free(w->arrival[parity]);
        w->recv[parity] = NULL;
        w->arrival[parity] = NULL;
    }
}
