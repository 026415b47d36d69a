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

static int all_carry(struct world *w, const uint64_t *before)
{
    for (int i = 0; i < w->devices; i++) {
        struct net_props props;
        must(net_properties(&w->net, i, &props), "getProperties");
        if (probe_sent_bytes(props.name) < before[i] + MORE) {
            return 0;
        }
    }
    return 1;
}

static void look(struct world *w, uint64_t *sent)
{
    for (int i = 0; i < w->devices; i++) {
        struct net_props props;
        must(net_properties(&w->net, i, &props), "getProperties");
        sent[i] = probe_sent_bytes(props.name);
    }
}

void case_disturbed(struct world *w)
{
    struct plan plan;
    struct pair p;
    uint64_t sent[RAILS];
    unsigned rounds = 0, healed = 0;
    pid_t command = 0;
    int dev = rails_open(w);
    if (!w->o->disturbance) {
        skip(w, "needs --while");
    }
    CHECK(w->devices <= RAILS, "%d devices", w->devices);
    plan_mix(w, &plan, w->o->transfers);
    pair_open(w, &p, dev);
    if (w->roles & SENDER) {
        command = command_start(w);
    }
    do {
        plan_run(w, &p, &plan);
        rounds++;
    } while (agree(w, command && runs(command)));
    look(w, sent);
    do { // the last one may still be healing
        nap_ms(20);
        plan_run(w, &p, &plan);
        healed++;
    } while (agree(w, healed < HEAL_ROUNDS && !all_carry(w, sent)));
    if (w->roles & SENDER) {
        CHECK(all_carry(w, sent), "a rail carries nothing after %u rounds", healed);
    }
    note("%u rounds of %u transfers, %u until all rails carried data", rounds, w->o->transfers,
         healed);
    pair_close(w, &p);
    plan_release(&plan);
    w->warnings = net_warnings(); // a path that fails is told
}
