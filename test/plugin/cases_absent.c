// SPDX-License-Identifier: Apache-2.0
// A port of a virtual NIC that is not active when a connection is made: --while is a shell command
// that takes it down or up, as $0 says. The connection uses the other ports, indices stay as they
// are, and the next one made when the port is back uses it again.
#include "test/plugin/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

#define CARRIES 100000u // bytes of a rail that is in use
#define ABSENT  "is not active any more"

static void set_port(struct world *w, const char *state)
{
    int status = 0;
    world_meet(w); // nobody is in a call
    if (w->roles & SENDER) {
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            (void)execl("/bin/sh", "sh", "-c", w->o->disturbance, state, (char *)NULL);
            _exit(127);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0,
              "the command failed: status %d", status);
    }
    world_meet(w);
}

static int carrying(struct world *w, int dev)
{
    struct net_props all, rail;
    int count = 0;
    must(net_properties(&w->net, dev, &all), "getProperties");
    for (int i = 0; i < all.vdevs; i++) {
        must(net_properties(&w->net, all.vdev[i], &rail), "getProperties");
        count += probe_sent_bytes(rail.name) > CARRIES;
    }
    return count;
}

// Exact traffic over a new connection; returns the rails that this end has sent data over.
static int use(struct world *w, int dev)
{
    struct plan plan;
    struct pair p;
    plan_mix(w, &plan, w->o->transfers);
    pair_open(w, &p, dev);
    plan_run(w, &p, &plan);
    int count = carrying(w, dev);
    pair_close(w, &p);
    plan_release(&plan);
    return count;
}

static void init_again(struct world *w)
{
    must(net_finalize(&w->net, w->ctx), "finalize");
    must(net_init(&w->net, 2, NET_NO_TC, &w->ctx), "init");
}

void case_absent_port(struct world *w)
{
    int dev = rails_open(w), count, rails = w->devices;
    if (!w->o->disturbance || rails < 2) {
        skip(w, "needs --while and two devices");
    }
    set_port(w, "down");
    count = use(w, dev);
    CHECK(w->roles == RECEIVER || count < rails || !net_logged(ABSENT), "%d rails in use", count);
    int mine = net_logged(ABSENT); // it is a port of this end
    CHECK(count > 0 || w->roles == RECEIVER, "no rail carries data");
    init_again(w); // as an NCCL that has kept the library loaded
    (void)use(w, dev);
    set_port(w, "up");
    init_again(w);
    count = use(w, dev);
    CHECK(w->roles == RECEIVER || count == rails, "%d of %d rails after the port came back", count,
          rails);
    set_port(w, "down");
    init_again(w);
    must(net_devices(&w->net, &count), "devices"); // as one that has loaded it anew
    CHECK(count == rails - mine, "%d devices of %d, one port is down", count, rails);
    set_port(w, "up");
    w->warnings = net_warnings(); // the absent port is told
    note("the port was %s", mine ? "this end's" : "the other end's");
}
