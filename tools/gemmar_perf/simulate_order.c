// SPDX-License-Identifier: Apache-2.0
// What the clusters of a simulated node do, in which order: that of the kernel (item_sm90.cuh), by
// its functions.
#include "tools/gemmar_perf/simulate_node.h"

/* As launch_gpu.c makes it. */
static struct gemmar_visit_order order_of(const struct gemmar_sim_node *s, uint32_t node)
{
    struct gemmar_visit_order order = s->plan.tensor.order;

    order.first_node = s->two_shot ? (node + 1) % s->plan.map.nodes : 0;
    return order;
}

uint32_t gemmar_sim_items(const struct gemmar_sim_node *s, uint32_t g, uint32_t cluster)
{
    const struct gemmar_sim_rank *r = &s->ranks[g];
    uint32_t items = gemmar_visit_share((uint32_t)s->plan.map.chunks, cluster, s->clusters);

    if (s->plan.algo == GEMMAR_ALGO_LOCAL) {
        return s->exchange ? 2 * items : items;
    }
    items += gemmar_visit_share(r->reduces, cluster, s->clusters);
    return s->two_shot
               ? items + gemmar_visit_gathers(&s->plan.map, s->node, g, cluster, s->clusters)
               : items;
}

uint32_t gemmar_sim_own_slot(const struct gemmar_sim_node *s, uint32_t node, uint32_t g, uint32_t i)
{
    struct gemmar_visit_order order = order_of(s, node);

    return gemmar_visit_of(&s->plan.map, g, &order, i).slot;
}

uint32_t gemmar_sim_reduces(const struct gemmar_sim_node *s, uint32_t node, uint32_t g)
{
    return gemmar_visit_reduces(&s->plan.map, s->two_shot, node, g);
}

uint32_t gemmar_sim_reduce_slot(const struct gemmar_sim_node *s, uint32_t node, uint32_t g,
                                uint32_t i)
{
    struct gemmar_visit_order order = order_of(s, node);

    return gemmar_visit_reduce(&s->plan.map, s->two_shot, node, g, &order, i).slot;
}

static struct gemmar_sim_item exchange_item(const struct gemmar_sim_node *s, uint32_t g,
                                            uint32_t cluster, uint32_t i)
{
    const struct gemmar_visit_order *order = &s->plan.tensor.order;
    uint32_t work = gemmar_visit_share((uint32_t)s->plan.map.chunks, cluster, s->clusters);
    struct gemmar_visit_step step = gemmar_visit_step_at(work, order->lead, i);
    struct gemmar_visit v =
        gemmar_visit_exchange(&s->plan.map, g, order, cluster + step.index * s->clusters);

    return (struct gemmar_sim_item){.work = step.adds ? GEMMAR_SIM_SUM : GEMMAR_SIM_PART,
                                    .owner = step.adds ? g : 1 - g,
                                    .slot = v.slot};
}

struct gemmar_sim_item gemmar_sim_item_at(const struct gemmar_sim_node *s, uint32_t g,
                                          uint32_t cluster, uint32_t i)
{
    const struct gemmar_sim_rank *r = &s->ranks[g];
    struct gemmar_visit_order order = order_of(s, s->node);
    uint32_t firsts = gemmar_visit_share((uint32_t)s->plan.map.chunks, cluster, s->clusters);
    uint32_t reduces = gemmar_visit_share(r->reduces, cluster, s->clusters);
    uint32_t at = cluster + i * s->clusters;
    struct gemmar_sim_item item = {.work = GEMMAR_SIM_PART};
    struct gemmar_visit v;

    if (s->exchange) {
        return exchange_item(s, g, cluster, i);
    }
    if (i < firsts) {
        v = gemmar_visit_at(&s->plan.map, g, &order, at);
        if (v.owner == g) {
            item.work = GEMMAR_SIM_SUM;
            item.place = r->place[v.slot];
        }
    } else if (i < firsts + reduces) {
        at -= firsts * s->clusters;
        v = gemmar_visit_reduce(&s->plan.map, s->two_shot, s->node, g, &order, at);
        item.work = GEMMAR_SIM_REDUCE;
        item.place = at;
    } else {
        v = gemmar_visit_gather(&s->plan.map, s->node, g, cluster, s->clusters,
                                i - firsts - reduces);
        item.work = GEMMAR_SIM_GATHER;
    }
    item.owner = v.owner;
    item.slot = v.slot;
    return item;
}
