// SPDX-License-Identifier: Apache-2.0
// The GPUs of a simulated node: clusters that go through their lists, and NVLink between them.
//
// A tile is the grain. A cluster's consumers multiply the next tile while its courier stores the
// last one; there is one staging buffer, and a courier takes the next tile when its stores are
// complete. Each direction of a GPU's links is a queue.
#include "tools/gemmar_perf/simulate_node.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define EXCHANGE_SHARE 0.915 /* of the link: its stores go by lanes, with tiles of any size */

static double max(double a, double b)
{
    return a > b ? a : b;
}

void gemmar_sim_put(struct gemmar_sim_node *s, double at, enum gemmar_sim_kind kind, uint32_t g,
                    uint32_t index)
{
    if (s->rc == 0) {
        s->rc = gemmar_sim_events_put(&s->events, at, kind, g, index);
    }
}

/* What a result has of C. */
static double valid_bytes(const struct gemmar_sim_node *s, uint32_t g, uint32_t slot)
{
    struct gemmar_chunk c =
        gemmar_map_chunk(&s->plan.map, (int64_t)gemmar_visit_first(&s->plan.map, g) + slot);

    return (double)gemmar_chunk_bytes(&s->plan.map, &c);
}

/* ---- items ---------------------------------------------------------------------------------- */

/* The item at hand lies in staging at `staged`. */
static void stage(struct gemmar_sim_node *s, uint32_t g, uint32_t cluster, double staged)
{
    struct gemmar_sim_cluster *c = &s->ranks[g].clusters[cluster];

    c->staged = staged;
    c->consumer = staged;
    gemmar_sim_put(s, max(staged, c->courier), GEMMAR_SIM_DELIVER, g, cluster);
}

static double multiply(struct gemmar_sim_node *s, const struct gemmar_sim_cluster *c)
{
    double done = c->consumer + s->product_us;

    s->result->product_us = max(s->result->product_us, done);
    return done;
}

/* All parts have been sent: the first one is brought while the product goes on, the others after
 * the one before has been added. */
static void sum(struct gemmar_sim_node *s, uint32_t g, uint32_t cluster)
{
    struct gemmar_sim_rank *r = &s->ranks[g];
    struct gemmar_sim_cluster *c = &r->clusters[cluster];
    double at = max(c->courier, c->freed);
    double product = s->exchange ? c->consumer : multiply(s, c); /* there it was made before */
    /* Words of an exchange say themselves that they are there, and go straight into registers. */
    double source_us = s->exchange ? 0 : s->machine->source_us;
    bool first = true;

    for (uint32_t from = 0; from < s->plan.map.locals; from++) {
        if (from != g) {
            at = max(at, r->part_at[(size_t)c->item.slot * s->plan.map.locals + from]) + source_us;
            at = first ? max(at, product) : at;
            first = false;
        }
    }
    stage(s, g, cluster, max(at, product) + s->machine->tile_us);
}

/* Everything from other nodes is on its way: sources that came first have been added meanwhile. */
static void reduce(struct gemmar_sim_node *s, uint32_t g, uint32_t cluster)
{
    struct gemmar_sim_cluster *c = &s->ranks[g].clusters[cluster];
    uint32_t sources = c->item.work == GEMMAR_SIM_GATHER ? 1 : s->plan.map.nodes;
    double begin = max(max(c->courier, c->freed), c->consumer);

    begin += (sources - 1) * s->machine->source_us;
    begin = max(begin, s->ranks[g].inter[c->item.slot].last) + s->machine->source_us;
    stage(s, g, cluster, begin + s->machine->tile_us);
}

static void begin_item(struct gemmar_sim_node *s, uint32_t g, uint32_t cluster)
{
    struct gemmar_sim_rank *r = &s->ranks[g];
    struct gemmar_sim_cluster *c = &r->clusters[cluster];
    struct gemmar_sim_wait *wait;

    if (c->next == c->items) {
        return;
    }
    c->item = gemmar_sim_item_at(s, g, cluster, c->next++);
    if (c->item.work == GEMMAR_SIM_PART) {
        stage(s, g, cluster, max(multiply(s, c), c->freed) + s->machine->tile_us);
        return;
    }
    wait = c->item.work == GEMMAR_SIM_SUM ? &r->parts[c->item.slot] : &r->inter[c->item.slot];
    if (wait->missing != 0) {
        wait->waiter = cluster + 1;
    } else {
        c->item.work == GEMMAR_SIM_SUM ? sum(s, g, cluster) : reduce(s, g, cluster);
    }
}

void gemmar_sim_arrive(struct gemmar_sim_node *s, uint32_t g, uint32_t slot, double at)
{
    struct gemmar_sim_wait *wait = &s->ranks[g].inter[slot];

    wait->last = max(wait->last, at);
    wait->missing--;
    if (wait->missing == 0 && wait->waiter != 0) {
        reduce(s, g, wait->waiter - 1);
    }
}

/* ---- deliveries ----------------------------------------------------------------------------- */

/* Bytes from rank g to each of `count` ranks from `to` on, which the courier of a cluster begins to
 * store at `now`. When all are complete; *out_read: when staging has been read. */
static double store(struct gemmar_sim_node *s, uint32_t g, uint32_t to, uint32_t count,
                    double bytes, double now, double *out_read)
{
    struct gemmar_sim_rank *r = &s->ranks[g];
    double start = max(now, r->nvlink_out), complete;

    r->nvlink_bytes += count * bytes;
    complete = start + count * bytes / (2e3 * s->machine->sm_store_gbs);
    for (uint32_t j = 0; j < count; j++) {
        struct gemmar_sim_rank *peer = &s->ranks[(to + j) % s->plan.map.locals];

        peer->nvlink_in = max(peer->nvlink_in, now) + bytes / (1e3 * s->machine->nvlink_gbs);
        r->nvlink_out = max(now, r->nvlink_out) + bytes / s->link_rate;
        complete = max(complete, max(r->nvlink_out, peer->nvlink_in));
    }
    *out_read = complete;
    return complete + s->machine->nvlink_us;
}

static void deliver_part(struct gemmar_sim_node *s, uint32_t g, struct gemmar_sim_cluster *c,
                         double now)
{
    struct gemmar_sim_rank *owner = &s->ranks[c->item.owner];
    struct gemmar_sim_wait *wait = &owner->parts[c->item.slot];

    c->courier = store(s, g, c->item.owner, 1, s->tile_bytes, now, &c->freed);
    c->courier = s->exchange ? c->freed : c->courier; /* without a stamp behind them */
    owner->part_at[(size_t)c->item.slot * s->plan.map.locals + g] = c->courier;
    wait->missing--;
    if (wait->missing == 0 && wait->waiter != 0) {
        sum(s, c->item.owner, wait->waiter - 1);
    }
}

/* To all local ranks, the own copy meanwhile. */
static void publish(struct gemmar_sim_node *s, uint32_t g, struct gemmar_sim_cluster *c, double now)
{
    double stored = now + s->machine->store_us;
    uint32_t locals = s->plan.map.locals;

    c->courier = c->freed = stored;
    if (locals > 1 && !s->exchange) {
        double bytes = valid_bytes(s, g, c->item.slot);

        c->courier = max(store(s, g, (g + 1) % locals, locals - 1, bytes, now, &c->freed), stored);
    }
    s->published = max(s->published, c->courier);
}

static void deliver(struct gemmar_sim_node *s, uint32_t g, uint32_t cluster, double now)
{
    struct gemmar_sim_cluster *c = &s->ranks[g].clusters[cluster];
    double stored = now + s->machine->store_us;

    s->open--;
    if (c->item.work == GEMMAR_SIM_PART) {
        deliver_part(s, g, c, now);
    } else if (c->item.work == GEMMAR_SIM_SUM && s->plan.algo != GEMMAR_ALGO_LOCAL) {
        c->courier = c->freed = stored;
        s->result->sums_us = max(s->result->sums_us, stored);
        gemmar_sim_put(s, stored + s->machine->handover_us, GEMMAR_SIM_NODE_SUM, g, c->item.place);
        if (!s->two_shot || s->ranks[g].reducer[c->item.slot] == s->node) {
            gemmar_sim_arrive(s, g, c->item.slot, stored);
        }
    } else {
        if (c->item.work == GEMMAR_SIM_REDUCE && s->two_shot) {
            gemmar_sim_put(s, stored + s->machine->handover_us, GEMMAR_SIM_RESULT, g,
                           c->item.place);
        }
        publish(s, g, c, now);
    }
    begin_item(s, g, cluster);
}

/* ---- a call --------------------------------------------------------------------------------- */

static void init_waits(struct gemmar_sim_node *s, uint32_t g)
{
    struct gemmar_sim_rank *r = &s->ranks[g];

    for (uint32_t i = 0; i < r->count; i++) {
        bool mine;

        r->reducer[i] = gemmar_part_of(r->count, s->plan.map.nodes, i);
        mine = !s->two_shot || r->reducer[i] == s->node;
        if (!s->exchange) { /* of which nothing leaves the node */
            r->place[gemmar_sim_own_slot(s, s->node, g, i)] = i;
        }
        r->parts[i].missing = s->plan.map.locals - 1;
        r->inter[i].missing = !mine ? 1 : s->two_shot ? s->plan.map.nodes : 2;
    }
}

static int init_rank(struct gemmar_sim_node *s, uint32_t g)
{
    struct gemmar_sim_rank *r = &s->ranks[g];
    size_t count;

    r->count = s->exchange
                   ? (uint32_t)s->plan.map.chunks
                   : gemmar_visit_first(&s->plan.map, g + 1) - gemmar_visit_first(&s->plan.map, g);
    r->reduces = gemmar_sim_reduces(s, s->node, g);
    count = r->count > 0 ? r->count : 1;
    r->clusters = calloc(s->clusters, sizeof(*r->clusters));
    r->place = calloc(count, sizeof(*r->place));
    r->sums = calloc(count, sizeof(*r->sums));
    r->reducer = calloc(count, sizeof(*r->reducer));
    r->parts = calloc(count, sizeof(*r->parts));
    r->inter = calloc(count, sizeof(*r->inter));
    r->part_at = calloc(count * s->plan.map.locals, sizeof(*r->part_at));
    if (r->clusters == NULL || r->place == NULL || r->sums == NULL || r->reducer == NULL ||
        r->parts == NULL || r->inter == NULL || r->part_at == NULL) {
        return -ENOMEM;
    }
    init_waits(s, g);
    return 0;
}

static void release(struct gemmar_sim_node *s)
{
    for (uint32_t g = 0; s->ranks != NULL && g < s->plan.map.locals; g++) {
        free(s->ranks[g].clusters);
        free(s->ranks[g].place);
        free(s->ranks[g].sums);
        free(s->ranks[g].reducer);
        free(s->ranks[g].parts);
        free(s->ranks[g].inter);
        free(s->ranks[g].part_at);
    }
    free(s->ranks);
    gemmar_sim_events_release(&s->events);
}

static int simulate(struct gemmar_sim_node *s)
{
    struct gemmar_sim_event e;

    for (uint32_t g = 0; g < s->plan.map.locals; g++) {
        for (uint32_t c = 0; c < s->clusters; c++) {
            struct gemmar_sim_cluster *cluster = &s->ranks[g].clusters[c];

            cluster->items = gemmar_sim_items(s, g, c);
            s->open += cluster->items;
            cluster->consumer = s->machine->start_us;
            begin_item(s, g, c);
        }
    }
    while (s->rc == 0 && gemmar_sim_events_take(&s->events, &e)) {
        switch (e.kind) {
        case GEMMAR_SIM_DELIVER: deliver(s, e.rank, e.index, e.at); break;
        case GEMMAR_SIM_NODE_SUM: gemmar_sim_send_sum(s, e.rank, e.index, e.at); break;
        default: gemmar_sim_send_result(s, e.rank, e.index, e.at); break;
        }
    }
    return s->rc != 0 ? s->rc : s->open != 0 ? -EDEADLK : 0;
}

/* The plan that all ranks of such a machine would make. */
static int make_plan(const struct gemmar_sim_machine *machine, const struct gemmar_sim_call *call,
                     struct gemmar_plan *plan, char *why, size_t why_bytes)
{
    struct gemmar_plan_facts facts = {
        .nodes = call->nodes,
        .locals = call->locals,
        .algo = call->algo,
        .tile_m = call->tile_m,
        .tile_n = call->tile_n,
        .sms = (uint32_t)machine->sms,
        .net_mbps = (uint32_t)fmin(machine->nics * machine->nic_gbits * 1e3, UINT32_MAX),
    };

    return gemmar_plan_make(call->m, call->n, call->k, call->dtype, &facts, plan, why, why_bytes);
}

uint32_t gemmar_sim_choice(const struct gemmar_sim_machine *machine,
                           const struct gemmar_sim_call *call)
{
    struct gemmar_sim_call open = *call;
    struct gemmar_plan plan;
    char why[256];

    open.algo = GEMMAR_ALGO_LOCAL;
    return make_plan(machine, &open, &plan, why, sizeof(why)) == 0 ? plan.algo : GEMMAR_ALGO_LOCAL;
}

/* Of one tile, when all clusters work: by the rate of its product, or of memory when the operands
 * and C are read and written once. */
static double product_us(const struct gemmar_sim_machine *machine,
                         const struct gemmar_sim_call *call, const struct gemmar_sim_node *s)
{
    const struct gemmar_tile_map *map = &s->plan.map;
    double flop_per_us, share, memory, waves, flop;

    gemmar_plan_tile_rates(s->plan.tensor.shape, &flop_per_us, &share);
    flop = 2.0 * map->tile_m * map->tile_n * (double)call->k / (flop_per_us * machine->product);
    memory = 2.0 * ((double)call->m * (double)call->k + (double)call->k * (double)call->n +
                    (double)call->m * (double)call->n);
    waves = (double)gemmar_div_up(map->chunks, s->clusters);
    return max(flop, memory / (machine->hbm_gbs * 1e3 * waves));
}

static void finish(const struct gemmar_sim_node *s, struct gemmar_sim_result *out)
{
    for (uint32_t g = 0; g < s->plan.map.locals; g++) {
        const struct gemmar_sim_rank *r = &s->ranks[g];

        out->nvlink_bytes = max(out->nvlink_bytes, r->nvlink_bytes);
        if (r->wire_bytes >= out->wire_bytes) {
            out->wire_bytes = r->wire_bytes;
            out->wire_formula = gemmar_parts_wire_bytes(&s->plan.map, s->two_shot, s->node, g);
        }
    }
    out->time_us = s->published + s->machine->end_us;
}

int gemmar_sim_run(const struct gemmar_sim_machine *machine, const struct gemmar_sim_call *call,
                   struct gemmar_sim_result *out, char *why, size_t why_bytes)
{
    struct gemmar_sim_result result = {.time_us = 0};
    /* The last part of an owner's range is one of the largest: the last node has the most to do. */
    struct gemmar_sim_node s = {.machine = machine, .result = &result, .node = call->nodes - 1};
    double flop_per_us, share;
    int rc = make_plan(machine, call, &s.plan, why, why_bytes);

    if (rc != 0 || s.plan.map.chunks == 0) {
        result.plan = s.plan;
        if (rc == 0) {
            *out = result;
        }
        return rc;
    }
    result.plan = s.plan;
    s.two_shot = s.plan.algo == GEMMAR_ALGO_TWO_SHOT;
    s.exchange = s.plan.tensor.strategy == GEMMAR_STRATEGY_EXCHANGE;
    s.clusters = gemmar_plan_local_gpu(&s.plan, (uint32_t)machine->sms, 0).compute.count / 2;
    gemmar_plan_tile_rates(s.plan.tensor.shape, &flop_per_us, &share);
    s.link_rate = machine->nvlink_gbs * 1e3 * (s.exchange ? EXCHANGE_SHARE : share);
    s.tile_bytes = (double)s.plan.map.tile_m * s.plan.map.tile_n * s.plan.map.element_bytes;
    s.product_us = product_us(machine, call, &s);
    s.ranks = calloc(call->locals, sizeof(*s.ranks));
    rc = s.ranks == NULL ? -ENOMEM : 0;
    for (uint32_t g = 0; rc == 0 && g < call->locals; g++) {
        rc = init_rank(&s, g);
    }
    rc = rc == 0 ? simulate(&s) : rc;
    if (rc == 0) {
        finish(&s, &result);
        *out = result;
    } else {
        (void)snprintf(why, why_bytes, "%s",
                       rc == -EDEADLK ? "the order of the visits is a deadlock"
                                      : "no memory for the simulation");
    }
    release(&s);
    return rc;
}
