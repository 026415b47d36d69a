// SPDX-License-Identifier: Apache-2.0
// Loading, init and unloading; traffic classes of communicators.
#include "test/plugin/cases.h"

#include <stdlib.h>
#include <string.h>

#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

static void open_library(struct world *w)
{
    const char *error;
    int absent;
    if (net_open(&w->net, w->o->library, w->o->api, &error, &absent)) {
        if (absent) {
            skip(w, error);
        }
        fail("%s", error);
    }
}

static void use_device(struct world *w, int dev)
{
    struct pair p;
    struct plan plan;
    plan_init(&plan, 4, 2, 1);
    for (unsigned k = 0; k < 4; k++) {
        group_fill(&plan.groups[k], 1, 4096, 4096);
    }
    pair_open(w, &p, dev);
    plan_run(w, &p, &plan);
    pair_close(w, &p);
    plan_release(&plan);
}

static void use(struct world *w)
{
    use_device(w, w->o->dev);
}

// L-04, with init and no-device; E-07.
// Nothing stays, round after round; before v11 there is no finalize.
void case_load(struct world *w)
{
    struct held before;
    for (unsigned round = 0; round < w->o->rounds; round++) {
        world_open(w);
        use(w);
        world_close(w);
        if (round == 0) {
            held_take(&before); // libraries that stay loaded have made what they make once
        } else {
            held_check(&before, "after unloading");
        }
    }
    note("%u rounds", w->o->rounds);
}

// init twice with the same number, as for a communicator that was split.
void case_init(struct world *w)
{
    struct held before;
    void *first, *second;
    int devices;
    world_open(w);
    use(w);
    world_close(w);
    held_take(&before);
    open_library(w);
    must(net_init(&w->net, 7, NET_NO_TC, &first), "init");
    must(net_init(&w->net, 7, NET_NO_TC, &second), "init");
    CHECK(w->o->api < 11 || w->net.reference || (first && second && first != second),
          "one context for two communicators");
    must(net_devices(&w->net, &devices), "devices");
    w->ctx = first;
    use(w);
    must(net_finalize(&w->net, first), "finalize");
    w->ctx = second;
    use(w);
    must(net_finalize(&w->net, second), "finalize");
    if (!w->net.reference) {
        must(net_finalize(&w->net, NULL), "finalize(NULL)");
    }
    net_close(&w->net);
    held_check(&before, "after two inits");
}

// NCCL makes virtual NICs once for as long as it keeps the library loaded
// (NCCL_NET_PLUGIN_REF_COUNT=1): the index must outlive its communicators. When it has loaded the
// library again it asks for the number of devices first, and takes all that there are for ports.
void case_virtual_again(struct world *w)
{
    struct net_props props;
    int devices, dev;
    world_open(w);
    dev = rails_open(w);
    if (dev < w->devices) {
        skip(w, "fewer than two devices");
    }
    must(net_finalize(&w->net, w->ctx), "finalize");
    must(net_init(&w->net, 2, NET_NO_TC, &w->ctx), "init");
    must(net_properties(&w->net, dev, &props), "getProperties of the virtual NIC");
    CHECK(props.vdevs >= 2, "a virtual NIC of %d devices", props.vdevs);
    use_device(w, dev);
    world_close(w);
    devices = w->devices;
    world_open(w);
    CHECK(w->devices == devices, "%d devices, after loading again %d", devices, w->devices);
    CHECK(rails_open(w) == dev, "another index after loading again");
    use_device(w, dev);
    world_close(w);
}

void case_no_device(struct world *w)
{
    struct held before;
    void *ctx;
    (void)setenv("NCCL_IB_HCA", "=nosuch0", 1);
    for (int round = 0; round < 3; round++) {
        open_library(w);
        CHECK(net_init(&w->net, 1, NET_NO_TC, &ctx) != 0, "init finds a device");
        CHECK(net_lines() > 0, "init fails without a word");
        must(net_finalize(&w->net, NULL), "finalize(NULL)");
        net_close(&w->net);
        if (round == 0) {
            held_take(&before);
        }
        held_check(&before, "after init has failed");
    }
    w->warnings = net_warnings(); // the failure is worth one, but may be information
}

struct classes {
    unsigned known, count; // queue pairs of before
    uint32_t numbers[256];
    int want, global;
};

static void remember(void *user, const struct ibv_qp *qp, const struct ibv_qp_attr *attr)
{
    struct classes *c = user;
    (void)attr;
    if (c->known < 256) {
        c->numbers[c->known++] = qp->qp_num;
    }
}

static void check_class(void *user, const struct ibv_qp *qp, const struct ibv_qp_attr *attr)
{
    struct classes *c = user;
    for (unsigned i = 0; i < c->known; i++) {
        if (c->numbers[i] == qp->qp_num) {
            return;
        }
    }
    c->count++;
    c->global |= attr->ah_attr.is_global;
    CHECK(!attr->ah_attr.is_global || attr->ah_attr.grh.traffic_class == c->want,
          "queue pair %u has traffic class %u, not %d", qp->qp_num, attr->ah_attr.grh.traffic_class,
          c->want);
}

static void open_class(struct world *w, struct pair *p, void *ctx, int traffic_class, int want)
{
    struct classes c = {.want = want};
    char *handle = guard_alloc(NET_HANDLE_BYTES);
    if (!probe_visit_qps(remember, &c)) {
        skip(w, "not softhca");
    }
    memset(p, 0, sizeof *p);
    must(net_listen(&w->net, ctx, w->o->dev, handle, &p->listener), "listen");
    while (!p->send || !p->recv) {
        if (!p->send) {
            must(net_connect(&w->net, ctx, w->o->dev, traffic_class, handle, &p->send), "connect");
        }
        if (!p->recv) {
            must(net_accept(&w->net, p->listener, &p->recv), "accept");
        }
        breathe();
    }
    (void)probe_visit_qps(check_class, &c);
    CHECK(c.count >= 2, "%u new queue pairs", c.count);
    if (!c.global) {
        skip(w, "InfiniBand without a global header has no traffic class");
    }
    guard_free(handle, NET_HANDLE_BYTES);
}

static void exchange(struct world *w, const struct pair *p)
{
    struct plan plan;
    plan_init(&plan, 4, 2, 1);
    for (unsigned k = 0; k < 4; k++) {
        group_fill(&plan.groups[k], 1, 4096, 4096);
    }
    plan_run(w, p, &plan);
    plan_release(&plan);
}

// L-05: two communicators of one number share nothing.
void case_traffic_class(struct world *w)
{
    struct pair marked, plain;
    void *first, *second;
    int devices;
    open_library(w);
    must(net_init(&w->net, 7, 106, &first), "init");
    must(net_init(&w->net, 7, NET_NO_TC, &second), "init");
    must(net_devices(&w->net, &devices), "devices");
    open_class(w, &marked, first, 106, 106);
    open_class(w, &plain, second, NET_NO_TC, 0);
    exchange(w, &marked);
    pair_close(w, &marked);
    must(net_finalize(&w->net, first), "finalize");
    exchange(w, &plain);
    if (w->o->api >= 11 && !w->net.reference) {
        CHECK(net_init(&w->net, 8, 256, &first), "traffic class 256 is taken");
        CHECK(net_init(&w->net, 8, -2, &first), "traffic class -2 is taken");
        CHECK(net_warnings() == 2, "%u warnings for two bad traffic classes", net_warnings());
        w->warnings = 2;
    }
    pair_close(w, &plain);
    must(net_finalize(&w->net, second), "finalize");
    net_close(&w->net);
}
