// SPDX-License-Identifier: Apache-2.0
// Traffic over several rails while a command (--while) breaks and mends them: nothing is wrong,
// nothing fails, and in the end all rails carry data again.
#include "test/plugin/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/plugin/probe.h"
#include "test/plugin/traffic.h"

#define RAILS       8
#define MORE        200 // bytes or packets that are more than a trial of a rail
#define HEAL_ROUNDS 400 // of one plan and a nap, until all rails are back
#define IDLE_MS     3000

pid_t command_start(struct world *w)
{
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)execl("/bin/sh", "sh", "-c", w->o->disturbance, (char *)NULL);
        _exit(127);
    }
    CHECK(child > 0, "the command cannot be started");
    return child;
}

// 1 while it runs; a failure of it is one of the case.
static int runs(pid_t command)
{
    int status;
    if (waitpid(command, &status, WNOHANG) == 0) {
        return 1;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the command failed");
    return 0;
}

// The sender decides, the receiver hears of it.
static int agree(struct world *w, int go_on)
{
    if (w->roles & SENDER) {
        w->shared->word = (uint64_t)go_on;
    }
    world_meet(w);
    go_on = (int)w->shared->word;
    world_meet(w); // before the word is written again
    return go_on;
}

static int all_carry(struct world *w, int rails, const uint64_t *before)
{
    for (int i = 0; i < rails; i++) {
        struct net_props props;
        must(net_properties(&w->net, i, &props), "getProperties");
        if (probe_sent_bytes(props.name) < before[i] + MORE) {
            return 0;
        }
    }
    return 1;
}

static void look(struct world *w, int rails, uint64_t *sent)
{
    for (int i = 0; i < rails; i++) {
        struct net_props props;
        must(net_properties(&w->net, i, &props), "getProperties");
        sent[i] = probe_sent_bytes(props.name);
    }
}

// The first `rails` devices are the sending end's.
static void disturb(struct world *w, int send_dev, int recv_dev, int rails)
{
    struct plan plan;
    struct pair p;
    uint64_t sent[RAILS];
    unsigned rounds = 0, healed = 0;
    pid_t command = 0;
    if (!w->o->disturbance) {
        skip(w, "needs --while");
    }
    CHECK(rails <= RAILS, "%d devices", rails);
    plan_mix(w, &plan, w->o->transfers);
    pair_open_on(w, &p, send_dev, recv_dev);
    if (w->roles & SENDER) {
        command = command_start(w);
    }
    do {
        plan_run(w, &p, &plan);
        rounds++;
    } while (agree(w, command && runs(command)));
    look(w, rails, sent);
    do { // the last one may still be healing
        nap_ms(20);
        plan_run(w, &p, &plan);
        healed++;
    } while (agree(w, healed < HEAL_ROUNDS && !all_carry(w, rails, sent)));
    if (w->roles & SENDER) {
        CHECK(all_carry(w, rails, sent), "a rail carries nothing after %u rounds", healed);
    }
    note("%u rounds of %u transfers, %u until all rails carried data", rounds, w->o->transfers,
         healed);
    pair_close(w, &p);
    plan_release(&plan);
    w->warnings = net_warnings(); // a path that fails is told
}

void case_disturbed(struct world *w)
{
    int dev = rails_open(w);
    disturb(w, dev, dev, w->devices);
}

// The numbers of rails do not divide each other, so that a rail's place in the first round of queue
// pairs is not its place in the second.
void case_disturbed_uneven(struct world *w)
{
    static const int two[] = {0, 1}, three[] = {1, 2, 3};
    int from, to;
    if (w->devices < 4) {
        skip(w, "fewer than four devices");
    }
    must(net_make_vdevice(&w->net, 2, two, &from), "makeVDevice");
    must(net_make_vdevice(&w->net, 3, three, &to), "makeVDevice");
    disturb(w, from, to, 2);
}

static void small_plan(struct plan *plan, unsigned count)
{
    plan_init(plan, count, 4, 5);
    for (unsigned k = 0; k < count; k++) {
        group_fill(&plan->groups[k], 1, 4096, 4096);
    }
}

// A fault rule makes the sender's last completion an error, so that it cannot know whether the
// message has come. The receiver has all it waits for and does nothing, as NCCL between two
// collectives: the sender's request must complete all the same, and the next one must wait for the
// receiver, longer than GEMMAR_TIMEOUT if need be.
void case_idle_receiver(struct world *w)
{
    struct plan plan;
    struct pair p;
    if (!getenv("SOFTHCA_FAULTS")) {
        skip(w, "needs a fault rule");
    }
    pair_open(w, &p, rails_open(w));
    small_plan(&plan, 8);
    plan_run(w, &p, &plan);
    world_meet(w); // the receiver makes no call until then
    if (w->roles & SENDER) {
        CHECK(net_logged("paths left"), "the rule has not hit the last completion");
    } else {
        nap_ms(IDLE_MS);
    }
    plan_run(w, &p, &plan);
    pair_close(w, &p);
    plan_release(&plan);
    w->warnings = net_warnings(); // a path that fails is told
}
