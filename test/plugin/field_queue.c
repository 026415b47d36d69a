// SPDX-License-Identifier: Apache-2.0
// Order, access rights and room: queue pairs that are late, words that must not be relaxed, posts
// that are refused, short queues.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/plugin/field.h"
#include "test/plugin/line.h"
#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

static void run_plan(struct world *w, const struct plan *plan)
{
    struct pair p;
    world_open(w);
    pair_open(w, &p, w->o->dev);
    plan_run(w, &p, plan);
    pair_close(w, &p);
    world_close(w);
    CHECK(net_warnings() == 0, "%u warnings", net_warnings());
}

// Long and short messages, alone and in groups.
static void plan_sizes(struct plan *plan, unsigned groups, uint64_t seed)
{
    static const size_t sizes[] = {0, 8, 4096, 8192, 8193, 65536, 300000, 1 << 20};
    uint64_t state = seed;
    plan_init(plan, groups, 8, seed);
    for (unsigned k = 0; k < groups; k++) {
        struct group *g = &plan->groups[k];
        group_fill(g, k % 4 == 3 ? 8 : 1, 0, 0);
        for (int i = 0; i < g->n; i++) {
            size_t bytes = sizes[random_below(&state, 8)];
            g->part[i].bytes = g->part[i].room = bytes;
        }
    }
}

struct spread {
    const char *qps, *split, *threshold;
};

static int late_queue_pair(struct world *w, const void *arg)
{
    const struct spread *s = arg;
    struct plan plan;
    (void)setenv("NCCL_IB_QPS_PER_CONNECTION", s->qps, 1);
    (void)setenv("NCCL_IB_SPLIT_DATA_ON_QPS", s->split, 1);
    (void)setenv("NCCL_IB_ADAPTIVE_ROUTING", "1", 1);
    (void)setenv("NCCL_IB_AR_THRESHOLD", s->threshold, 1);
    (void)setenv("SOFTHCA_FAULTS", "delay every=5 us=10000", 1);
    plan_sizes(&plan, 40, w->o->seed);
    run_plan(w, &plan); // compares what is there when a receive is done
    plan_release(&plan);
    return 0;
}

void case_o03_late_queue_pair(struct world *w)
{
    static const char *const qps[] = {"1", "2", "4", "8"}, *const split[] = {"0", "1"},
                             *const threshold[] = {"0", "8192", "1099511627776"};
    for (unsigned q = 0; q < 4; q++) {
        for (unsigned i = 0; i < 6; i++) {
            const struct spread s = {qps[q], split[i % 2], threshold[i / 2]};
            (void)field_child(w, late_queue_pair, &s);
        }
    }
}

struct regions {
    const struct line *l;
    unsigned data, relaxed_data, words, relaxed_words;
};

static void look_at_mr(void *user, const struct ibv_mr *mr, uint32_t access)
{
    struct regions *r = user;
    const char *at = mr->addr;
    int is_data = at == r->l->from || at == r->l->to;
    int relaxed = (access & IBV_ACCESS_RELAXED_ORDERING) != 0;
    r->data += (unsigned)is_data;
    r->relaxed_data += (unsigned)(is_data && relaxed);
    r->words += (unsigned)!is_data;
    r->relaxed_words += (unsigned)(!is_data && relaxed);
}

static int strict_words(struct world *w, const void *arg)
{
    const char *value = arg;
    struct line l;
    (void)setenv("NCCL_IB_PCI_RELAXED_ORDERING", value, 1);
    world_open(w);
    must(line_open(w, &l, 4096, 0), "the set-up");
    must(line_run(w, &l, 1), "transfers");
    struct regions r = {.l = &l};
    if (!probe_visit_mrs(look_at_mr, &r)) {
        skip(w, "not softhca");
    }
    CHECK(r.data == 2 && r.relaxed_data == (*value == '0' ? 0 : 2),
          "mode %s: %u of %u data regions are relaxed", value, r.relaxed_data, r.data);
    CHECK(r.words >= 2 && r.relaxed_words == 0, "mode %s: %u of %u regions of words are relaxed",
          value, r.relaxed_words, r.words);
    must(line_close(w, &l), "the close");
    world_close(w);
    return 0;
}

void case_o02_strict_words(struct world *w)
{
    (void)field_child(w, strict_words, "0");
    (void)field_child(w, strict_words, "1");
    (void)field_child(w, strict_words, "2");
}

// A provider may count the room of its queue in another way than we do.
static int refused_posts(struct world *w, const void *arg)
{
    struct plan plan;
    (void)setenv("SOFTHCA_FAULTS", arg, 1);
    (void)setenv("NCCL_IB_ADAPTIVE_ROUTING", "0", 1); // a message is one work request
    plan_sizes(&plan, 200, w->o->seed);
    run_plan(w, &plan);
    plan_release(&plan);
    return 0;
}

void case_r02_refused_posts(struct world *w)
{
    char rules[256] = "";
    (void)field_child(w, refused_posts, "call name=post_send nth=1 count=1 errno=12");
    (void)field_child(w, refused_posts, "call name=post_send nth=1 count=5000 errno=12");
    for (int i = 0, nth = 3; i < 5; i++, nth = nth * 4 + 1) {
        (void)snprintf(rules + strlen(rules), sizeof rules - strlen(rules),
                       "%scall name=post_send nth=%d count=%d errno=12", i ? ";" : "", nth,
                       1 + nth / 3);
    }
    (void)field_child(w, refused_posts, rules);
}

// Some devices take a scatter entry of length 0 for one of 2^31 bytes.
void case_r05_empty_messages(struct world *w)
{
    struct pair p;
    struct plan plan;
    world_open(w);
    pair_open(w, &p, w->o->dev);
    plan_init(&plan, 1000, 8, w->o->seed);
    for (unsigned k = 0; k < plan.count; k++) {
        struct group *g = &plan.groups[k];
        group_fill(g, k % 3 == 2 ? 8 : 1, 0, 0);
        for (int i = 0; i < g->n; i++) {
            g->part[i].null = (int)(k % 2);
        }
        g->flush = k % 4 == 0;
    }
    plan_run(w, &p, &plan);
    CHECK(probe_empty_entries() == 0, "%llu scatter entries of length 0",
          (unsigned long long)probe_empty_entries());
    plan_release(&plan);
    pair_close(w, &p);
    world_close(w);
}

#define CONNECTIONS 64u
#define SMALL       160u // on each
#define LONG        2u

static void plan_many(struct plan *plan, uint64_t seed)
{
    plan_init(plan, SMALL + LONG, 2, seed);
    for (unsigned k = 0; k < SMALL + LONG; k++) {
        size_t bytes = k % 80 == 40 ? 512 << 10 : k % 200;
        group_fill(&plan->groups[k], k % 9 == 8 && bytes < 200 ? 8 : 1, bytes, bytes);
    }
}

static void run_many(struct world *w, struct pair *pairs, const struct plan *plan)
{
    struct flow *flows[2 * CONNECTIONS];
    unsigned left = 2 * CONNECTIONS;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        flows[2 * i] = flow_open(w, pairs[i].send, 1, plan);
        flows[2 * i + 1] = flow_open(w, pairs[i].recv, 0, plan);
    }
    while (left) {
        for (unsigned i = 0; i < 2 * CONNECTIONS; i++) {
            if (flows[i] && flow_turn(flows[i])) {
                flow_close(flows[i]);
                flows[i] = NULL;
                left--;
            }
        }
        breathe();
    }
}

void case_r07_short_queues(struct world *w)
{
    static struct pair pairs[CONNECTIONS];
    struct plan plan;
    (void)setenv("SOFTHCA_MAX_QP_WR", "64", 1);
    (void)setenv("SOFTHCA_MAX_CQE", "128", 1);
    (void)setenv("SOFTHCA_FAULTS", "delay every=50 us=100000", 1);
    world_open(w);
    plan_many(&plan, w->o->seed);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        pair_open(w, &pairs[i], w->o->dev);
    }
    run_many(w, pairs, &plan);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        pair_close(w, &pairs[i]);
    }
    plan_release(&plan);
    world_close(w);
}
