// SPDX-License-Identifier: Apache-2.0
// Sizes, groups, tags, zero bytes, mismatched sizes, capacity.
#include "test/plugin/cases.h"

#include <limits.h>
#include <string.h>

#include "test/plugin/traffic.h"

static void run_alone(struct world *w, const struct plan *plan)
{
    struct pair p;
    pair_open(w, &p, w->o->dev);
    plan_run(w, &p, plan);
    pair_close(w, &p);
}

void case_sizes(struct world *w)
{
    static const size_t sizes[] = {0,     1,      8,       127,     128,     129,     4095,
                                   4096,  4097,   8191,    8192,    8193,    65535,   65536,
                                   65537, 131073, 1 << 20, 3 << 20, 8 << 20, 64 << 20};
    unsigned n = 0;
    struct plan plan;
    plan_init(&plan, 3 * sizeof sizes / sizeof *sizes, 2, w->o->seed);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] > w->o->max_bytes) {
            continue;
        }
        group_fill(&plan.groups[n++], 1, sizes[i], sizes[i]);
        if (sizes[i] <= 1 << 20) { // more room than data
            group_fill(&plan.groups[n++], 1, sizes[i], sizes[i] + 1);
            group_fill(&plan.groups[n++], 1, sizes[i], sizes[i] + 4096);
        }
    }
    plan.count = n;
    run_alone(w, &plan);
    plan_release(&plan);
}

void case_huge(struct world *w)
{
    struct plan plan;
    if (w->o->max_bytes < (size_t)3 << 30) {
        skip(w, "needs --max-bytes of 3 GiB");
    }
    plan_init(&plan, 1, 1, w->o->seed);
    group_fill(&plan.groups[0], 1, ((size_t)3 << 30) + 4097, ((size_t)3 << 30) + 8192);
    run_alone(w, &plan);
    plan_release(&plan);
}

static void reverse(struct group *g)
{
    for (int i = 0; i < g->n; i++) {
        g->order[i] = (uint8_t)(g->n - 1 - i);
    }
}

static size_t limited(const struct world *w, size_t bytes)
{
    return bytes > w->o->max_bytes ? w->o->max_bytes : bytes;
}

enum { TAGS_DISTINCT, TAGS_EQUAL, TAGS_MIXED, TAG_KINDS };

// Groups of n with mixed sizes, a group of one behind each.
static void plan_groups(struct world *w, struct plan *plan, int kind, int flush)
{
    static const size_t sizes[] = {0, 1, 65536, 3 << 20, 4096, 100, 8193, 64};
    static const int counts[] = {8, 1, 2, 7, 8, 1, 8, 3};
    uint64_t state = w->o->seed + (unsigned)kind;
    plan_init(plan, 24, 4, w->o->seed ^ (unsigned)kind);
    for (unsigned k = 0; k < plan->count; k++) {
        struct group *g = &plan->groups[k];
        group_fill(g, counts[k % 8], 0, 0);
        for (int i = 0; i < g->n; i++) {
            size_t bytes = limited(w, sizes[random_below(&state, 8)]);
            int tag = kind == TAGS_DISTINCT ? 100 + i
                      : kind == TAGS_EQUAL  ? 7
                                            : 3 + (int)random_below(&state, 3);
            g->part[i] = (struct part){
                .bytes = bytes, .room = bytes + random_below(&state, 100), .tag = tag};
        }
        g->flush = flush;
        if (kind == TAGS_DISTINCT && k % 2 == 0) {
            reverse(g);
        } else {
            plan_permute(g, &state);
        }
    }
}

// every part of a group gets its own data and size.
void case_groups(struct world *w)
{
    struct pair p;
    pair_open(w, &p, w->o->dev);
    for (int kind = 0; kind < TAG_KINDS; kind++) {
        struct plan plan;
        plan_groups(w, &plan, kind, kind == TAGS_MIXED);
        plan_run(w, &p, &plan);
        plan_release(&plan);
        world_meet(w);
    }
    pair_close(w, &p);
}

// empty messages.
void case_zero(struct world *w)
{
    struct plan plan;
    plan_init(&plan, 1000, 8, w->o->seed);
    for (unsigned k = 0; k < plan.count; k++) {
        struct group *g = &plan.groups[k];
        group_fill(g, k % 3 == 2 ? 8 : 1, 0, 0);
        for (int i = 0; i < g->n; i++) {
            struct part *part = &g->part[i];
            part->null = k % 2;
            if (k % 3 == 2 && i == (int)(k % 8)) { // among parts that have data
                *part = (struct part){.bytes = 100, .room = 128, .tag = part->tag};
            }
        }
        g->flush = k % 2 == 0 || k % 3 == 2;
    }
    run_alone(w, &plan);
    plan_release(&plan);
}

void case_optional(struct world *w)
{
    struct plan plan;
    plan_init(&plan, 200, 8, w->o->seed);
    for (unsigned k = 0; k < plan.count; k++) {
        size_t bytes = k % 5 == 4 ? limited(w, 1 << 20) : 16 + k * 64;
        group_fill(&plan.groups[k], 1, bytes, bytes);
        plan.groups[k].optional = k % 4 != 3;
    }
    run_alone(w, &plan);
    plan_release(&plan);
}
