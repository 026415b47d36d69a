// SPDX-License-Identifier: Apache-2.0
// Who is who: the first collective steps of a communicator's creation.
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/communicator.h"
#include "kernels/rails.h"
#include "transport/build_id.h"

struct hello {
    uint32_t rank;
    uint32_t ranks;
    uint64_t tuned; /* GPU: this rank was given a tuning table; rank 0's counts */
    char build[64];
    char node[256];
    struct {
#define MEMBER(member, name) uint64_t member;
        GEMMAR_SETTINGS_AGREED(MEMBER)
#undef MEMBER
    } agreed;
};

static struct hello make_hello(const struct gemmarComm *comm)
{
    struct hello hello;

    memset(&hello, 0, sizeof(hello));
    hello.rank = comm->place.rank;
    hello.ranks = comm->place.ranks;
    hello.tuned = comm->gpu != NULL && comm->settings.tuning[0] != '\0';
    (void)snprintf(hello.build, sizeof(hello.build), "%s", gemmar_build_id);
    (void)snprintf(hello.node, sizeof(hello.node), "%s", comm->settings.node);
#define COPY(member, name) hello.agreed.member = comm->settings.member;
    GEMMAR_SETTINGS_AGREED(COPY)
#undef COPY
    return hello;
}

/* Everything a rank must have as rank 0 has it. */
static gemmarResult_t compare(const struct hello *all, uint32_t ranks, struct gemmar_error *error)
{
    for (uint32_t r = 0; r < ranks; r++) {
        if (all[r].rank != r || all[r].ranks != all[0].ranks) {
            return gemmar_error_set(error, gemmarInvalidUsage,
                                    "the all-gather gave rank %u of %u in place %u of %u",
                                    all[r].rank, all[r].ranks, r, all[0].ranks);
        }
        if (memcmp(all[r].build, all[0].build, sizeof(all[r].build)) != 0) {
            return gemmar_error_set(error, gemmarInvalidUsage,
                                    "rank %u has libgemmar of build %.63s, rank 0 of %.63s", r,
                                    all[r].build, all[0].build);
        }
#define COMPARE(member, name)                                                                      \
    if (all[r].agreed.member != all[0].agreed.member) {                                            \
        return gemmar_error_set(error, gemmarInvalidUsage,                                         \
                                "rank %u has %s %llu, rank 0 has %llu: it must be equal on all "   \
                                "ranks",                                                           \
                                r, name, (unsigned long long)all[r].agreed.member,                 \
                                (unsigned long long)all[0].agreed.member);                         \
    }
        GEMMAR_SETTINGS_AGREED(COMPARE)
#undef COMPARE
    }
    return gemmarSuccess;
}

static bool same_node(const struct hello *a, const struct hello *b)
{
    return memcmp(a->node, b->node, sizeof(a->node)) == 0;
}

/* Nodes are numbered by their lowest rank, local ranks by rank. node_of: [ranks]. */
static uint32_t number_nodes(const struct hello *all, uint32_t ranks, uint32_t *node_of)
{
    uint32_t nodes = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t first = 0;

        while (!same_node(&all[first], &all[r])) {
            first++;
        }
        node_of[r] = first == r ? nodes++ : node_of[first];
    }
    return nodes;
}

static uint32_t count_node(const uint32_t *node_of, uint32_t ranks, uint32_t node)
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        count += node_of[r] == node;
    }
    return count;
}

static gemmarResult_t fill_place(struct gemmarComm *comm, const uint32_t *node_of, uint32_t nodes,
                                 struct gemmar_error *error)
{
    struct gemmar_place *place = &comm->place;
    uint32_t locals = count_node(node_of, place->ranks, 0);

    for (uint32_t n = 1; n < nodes; n++) {
        uint32_t count = count_node(node_of, place->ranks, n);

        if (count != locals) {
            return gemmar_error_set(error, gemmarInvalidUsage,
                                    "node 0 holds %u ranks, node %u holds %u: nodes must hold the "
                                    "same number of ranks",
                                    locals, n, count);
        }
    }
    if (locals > GEMMAR_MAX_LOCAL_RANKS || nodes > GEMMAR_MAX_NODES) {
        return gemmar_error_set(error, gemmarInvalidUsage,
                                "%u nodes of %u ranks: at most %d nodes of %d ranks", nodes, locals,
                                GEMMAR_MAX_NODES, GEMMAR_MAX_LOCAL_RANKS);
    }
    place->nodes = nodes;
    place->locals = locals;
    place->node = node_of[place->rank];
    for (uint32_t r = 0; r < place->ranks; r++) {
        uint32_t local = count_node(node_of, r, node_of[r]);

        comm->rank_of[node_of[r] * locals + local] = r;
        if (r == place->rank) {
            place->local = local;
        }
    }
    return gemmarSuccess;
}

gemmarResult_t gemmar_comm_meet(struct gemmarComm *comm, struct gemmar_error *error)
{
    uint32_t ranks = comm->place.ranks;
    struct hello mine = make_hello(comm), *all = calloc(ranks, sizeof(*all));
    uint32_t *node_of = calloc(ranks, sizeof(*node_of));
    gemmarResult_t result;

    comm->rank_of = calloc(ranks, sizeof(*comm->rank_of));
    if (all == NULL || node_of == NULL || comm->rank_of == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory for %u ranks", ranks);
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_HELLO, error, &mine, sizeof(mine), all);
    if (result == gemmarSuccess) {
        result = compare(all, ranks, error);
    }
    if (result == gemmarSuccess) {
        comm->tuned = all[0].tuned != 0;
        result = fill_place(comm, node_of, number_nodes(all, ranks, node_of), error);
    }
    free(node_of);
    free(all);
    return result;
}

static gemmarResult_t acquire(struct gemmarComm *comm, uint32_t *out_devices,
                              struct gemmar_error *error)
{
    struct gemmar_transport_settings s = {
        .size = sizeof(s), .log = comm->log.sink, .log_user = comm->log.user};
    gemmarResult_t result =
        gemmar_transport_library_open(comm->settings.transport, &comm->log, &comm->library, error);
    int rc;

    if (result != gemmarSuccess) {
        return result;
    }
    gemmar_error_note("");
    rc = comm->library.table->acquire(&s, &comm->transport);
    if (rc == 0) {
        rc = comm->library.table->device_count(comm->transport, out_devices);
    }
    if (rc == 0 && *out_devices == 0) {
        rc = -ENODEV;
    }
    if (rc != 0) {
        return gemmar_error_set(error, gemmarSystemError, "no verbs device can be used: %s",
                                gemmar_error_noted()[0] != '\0' ? gemmar_error_noted()
                                                                : strerror(-rc));
    }
    return gemmarSuccess;
}

/* What a rank has to reach the other nodes with. */
struct reach {
    uint32_t devices;
    struct gemmar_pci_place near;
};

/* As many for each rank as the node with the fewest devices has; with fewer devices than ranks they
 * share. */
static uint32_t count_rails(const struct gemmarComm *comm, const struct reach *all)
{
    uint32_t fewest = all[0].devices, rails;

    for (uint32_t r = 1; r < comm->place.ranks; r++) {
        fewest = all[r].devices < fewest ? all[r].devices : fewest;
    }
    rails = fewest / comm->place.locals;
    rails = rails < 1 ? 1 : rails;
    return rails > GEMMAR_MAX_RAILS ? GEMMAR_MAX_RAILS : rails;
}

/* Gives back what this rank's part of them can send, Mbit/s; 0: unknown. */
static uint32_t choose_rails(struct gemmarComm *comm, const struct reach *all,
                             struct gemmar_transport_device *devices)
{
    struct gemmar_pci_place places[GEMMAR_MAX_LOCAL_RANKS];
    uint32_t count = all[comm->place.rank].devices, rate;

    for (uint32_t i = 0; i < count; i++) {
        devices[i] = (struct gemmar_transport_device){.size = sizeof(*devices), .numa_node = -1};
        (void)comm->library.table->device(comm->transport, i, &devices[i]); /* else: unknown */
    }
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        places[g] = all[comm->rank_of[comm->place.node * comm->place.locals + g]].near;
    }
    comm->rails = count_rails(comm, all);
    rate = gemmar_rails_choose(devices, count, places, &comm->place, comm->rails, comm->devices);
    comm->numa_node =
        comm->near.numa_node >= 0 ? comm->near.numa_node : devices[comm->devices[0]].numa_node;
    for (uint32_t i = 0; comm->gpu != NULL && i < comm->rails; i++) {
        const struct gemmar_transport_device *d = &devices[comm->devices[i]];

        gemmar_info(&comm->log, "communicator: rank %u: rail %u is %s port %u, %s from the GPU",
                    comm->place.rank, i, d->name, d->port,
                    gemmar_pci_distance_name(gemmar_pci_distance(
                        comm->near.path, comm->near.numa_node, d->pci_path, d->numa_node)));
    }
    return rate;
}

/* What the ranks can send, for the plan of GPUs: the least of them. `mine`: Mbit/s. */
static gemmarResult_t agree_on_rate(struct gemmarComm *comm, uint32_t mine,
                                    struct gemmar_error *error)
{
    uint32_t *all = calloc(comm->place.ranks, sizeof(*all));
    gemmarResult_t result;

    if (all == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    result = gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_RATE, error, &mine, sizeof(mine), all);
    comm->settings.net_mbps = mine;
    for (uint32_t r = 0; result == gemmarSuccess && r < comm->place.ranks; r++) {
        comm->settings.net_mbps =
            all[r] < comm->settings.net_mbps ? all[r] : comm->settings.net_mbps;
    }
    free(all);
    return result;
}

gemmarResult_t gemmar_comm_attach(struct gemmarComm *comm, struct gemmar_error *error)
{
    struct reach mine, *all = calloc(comm->place.ranks, sizeof(*all));
    struct gemmar_transport_device *devices = calloc(GEMMAR_RAILS_DEVICES, sizeof(*devices));
    uint32_t rate = 0;
    gemmarResult_t result;

    memset(&mine, 0, sizeof(mine)); /* padding travels, too */
    mine.near = comm->near;
    if (all == NULL || devices == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    } else {
        (void)acquire(comm, &mine.devices, error);
    }
    mine.devices = mine.devices < GEMMAR_RAILS_DEVICES ? mine.devices : GEMMAR_RAILS_DEVICES;
    result =
        gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_TRANSPORT, error, &mine, sizeof(mine), all);
    if (result == gemmarSuccess) {
        rate = choose_rails(comm, all, devices);
        result = comm->gpu != NULL ? agree_on_rate(comm, rate, error) : gemmarSuccess;
    }
    free(devices);
    free(all);
    return result;
}
