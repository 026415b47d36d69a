// SPDX-License-Identifier: Apache-2.0
// A long random mix, over a virtual NIC of up to four devices where the version has that; counters
// that wrap.
#include "test/plugin/cases.h"

#include <stdlib.h>
#include <string.h>

#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

static size_t random_size(struct world *w, uint64_t *state)
{
    uint64_t kind = random_below(state, 100), limit = kind < 40   ? 257
                                                      : kind < 70 ? 8192
                                                      : kind < 95 ? 65536
                                                                  : 1048576;
    size_t bytes = random_below(state, limit + 1);
    return bytes < w->o->max_bytes ? bytes : w->o->max_bytes;
}

void plan_mix(struct world *w, struct plan *plan, unsigned transfers)
{
    uint64_t state = w->o->seed;
    unsigned sum = 0;
    plan_init(plan, transfers, 8, w->o->seed);
    plan->lazy = 1;
    plan->count = 0;
    while (sum < transfers) {
        struct group *g = &plan->groups[plan->count++];
        int n = 1 + (int)(random_below(&state, 2) ? random_below(&state, NET_MAX_RECVS) : 0);
        n = (unsigned)n > transfers - sum ? (int)(transfers - sum) : n;
        group_fill(g, n, 0, 0);
        for (int i = 0; i < n; i++) {
            size_t bytes = random_size(w, &state);
            size_t more = random_below(&state, 4) ? 0 : random_below(&state, 1000);
            g->part[i] = (struct part){
                .bytes = bytes, .room = bytes + more, .tag = (int)random_below(&state, 5)};
        }
        plan_permute(g, &state);
        g->flush = random_below(&state, 10) == 0;
        sum += (unsigned)n;
    }
}

int rails_open(struct world *w)
{
    int dev, devs[8] = {0, 1, 2, 3, 4, 5, 6, 7}, most = w->o->api < 12 ? 4 : 8;
    int n = w->devices < most ? w->devices : most;
    if (w->o->rails > 1 || w->o->api < 9 || n < 2) {
        return w->o->dev;
    }
    must(net_make_vdevice(&w->net, n, devs, &dev), "makeVDevice");
    struct net_props p;
    int count, again;
    must(net_devices(&w->net, &count), "devices");
    CHECK(count == w->devices + 1 && dev == w->devices, "device %d of %d after makeVDevice", dev,
          count);
    must(net_properties(&w->net, dev, &p), "getProperties");
    CHECK(p.vdevs == n && p.vdev[0] == 0 && p.vdev[n - 1] == n - 1, "a virtual NIC of %d devices",
          p.vdevs);
    note("device %d: %s speed %d", dev, p.name, p.speed);
    if (!w->net.reference) { // NCCL 2.28.9 makes another one
        must(net_make_vdevice(&w->net, n, devs, &again), "makeVDevice");
        CHECK(again == dev, "the same devices again: device %d, then %d", dev, again);
    }
    return dev;
}

// Each rail has carried what is its part by speed, or so.
static void check_shares(struct world *w, int dev)
{
    struct net_props all, rail;
    uint64_t sent[8] = {0}, sum = 0;
    must(net_properties(&w->net, dev, &all), "getProperties");
    for (int i = 0; i < all.vdevs; i++) {
        must(net_properties(&w->net, all.vdev[i], &rail), "getProperties");
        sent[i] = probe_sent_bytes(rail.name);
        sum += sent[i];
    }
    for (int i = 0; i < all.vdevs && sum > 64u << 20; i++) {
        must(net_properties(&w->net, all.vdev[i], &rail), "getProperties");
        double part = (double)sent[i] / (double)sum, fair = (double)rail.speed / all.speed;
        note("%s speed %d: %.3f of all bytes, %.3f of all speed", rail.name, rail.speed, part,
             fair);
        CHECK(w->net.reference || (part > 0.8 * fair && part < 1.2 * fair),
              "%s carries %.3f of the bytes with %.3f of the speed", rail.name, part, fair);
    }
}

void case_rails(struct world *w)
{
    struct plan plan;
    struct pair p;
    int dev = rails_open(w);
    note("%u transfers, seed %llu", w->o->transfers, (unsigned long long)w->o->seed);
    plan_mix(w, &plan, w->o->transfers);
    pair_open(w, &p, dev);
    plan_run(w, &p, &plan);
    if (w->roles & SENDER && dev >= w->devices) {
        check_shares(w, dev);
    }
    pair_close(w, &p);
    plan_release(&plan);
}

// The ends have different numbers of rails, or other ones.
void case_uneven(struct world *w)
{
    static const struct {
        int send[4], recv[4], senders, receivers;
    } ends[] = {{{0}, {0, 1, 2, 3}, 1, 4},
                {{0, 1, 2, 3}, {3}, 4, 1},
                {{0, 1}, {1, 2, 3}, 2, 3},
                {{3, 2, 1}, {0, 1}, 3, 2},
                {{0, 1, 2, 3}, {3, 2, 1, 0}, 4, 4}};
    if (w->devices < 4) {
        skip(w, "fewer than four devices");
    }
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct plan plan;
        struct pair p;
        int from = ends[i].send[0], to = ends[i].recv[0];
        if (ends[i].senders > 1) {
            must(net_make_vdevice(&w->net, ends[i].senders, ends[i].send, &from), "makeVDevice");
        }
        if (ends[i].receivers > 1) {
            must(net_make_vdevice(&w->net, ends[i].receivers, ends[i].recv, &to), "makeVDevice");
        }
        plan_mix(w, &plan, w->o->transfers / 10);
        pair_open_on(w, &p, from, to);
        plan_run(w, &p, &plan);
        pair_close(w, &p);
        plan_release(&plan);
    }
}

// no counter may stop or go back where it wraps.
static void wrap_at(struct world *w, const char *start)
{
    struct plan plan;
    struct pair p;
    must(setenv("GEMMAR_EPOCH_START", start, 1), "setenv");
    world_open(w);
    plan_mix(w, &plan, 600);
    for (unsigned k = 0; k < plan.count; k++) {
        for (int i = 0; i < plan.groups[k].n; i++) {
            struct part *part = &plan.groups[k].part[i];
            part->bytes = part->bytes % 4096;
            part->room = part->bytes;
        }
    }
    pair_open(w, &p, w->o->dev);
    plan_run(w, &p, &plan);
    pair_close(w, &p);
    plan_release(&plan);
    world_close(w);
}

void case_wrap16(struct world *w)
{
    wrap_at(w, "65528");
}

void case_wrap24(struct world *w)
{
    wrap_at(w, "16777208");
}

void case_wrap31(struct world *w)
{
    wrap_at(w, "2147483640");
}

void case_wrap32(struct world *w)
{
    wrap_at(w, "4294967288");
}
