// SPDX-License-Identifier: Apache-2.0
// softhca-ctl: looks at a fabric and breaks it while programs run.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/softhca/config.h"
#include "tools/softhca/fabric.h"
#include "tools/softhca/fault.h"
#include "tools/softhca/sync.h"

static const char usage[] =
    "softhca-ctl [-f DIRECTORY] COMMAND\n"
    "  status                          processes, nodes and ports\n"
    "  port NODE DEVICE PORT up|down   set a port (devices from 0, ports from 1)\n"
    "  flap NODE DEVICE PORT MS        down, up again after MS milliseconds\n"
    "  silence NODE, wake NODE         stop and resume all traffic of a node, without an event\n"
    "  kill NODE [SIGNAL]              send its processes a signal (9)\n"
    "  rule 'TEXT'                     add a fault rule (see tools/softhca/README.md)\n"
    "  clear                           remove all rules that were added so\n";

static struct softhca_member member;

static int say(int err, const char *text)
{
    (void)fprintf(stderr, "softhca-ctl: %s\n", text);
    return err;
}

static int find(const char *name)
{
    int node = softhca_fabric_find_node(member.fabric, name);
    if (node < 0) {
        (void)fprintf(stderr, "softhca-ctl: no node '%s' in %s\n", name, member.dir);
    }
    return node;
}

static int number(const char *text, unsigned lo, unsigned hi, unsigned *out)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (end == text || *end || v < lo || v > hi) {
        (void)fprintf(stderr, "softhca-ctl: '%s' is not a number from %u to %u\n", text, lo, hi);
        return -EINVAL;
    }
    *out = (unsigned)v;
    return 0;
}

static int find_port(char **args, struct softhca_port_state **out)
{
    unsigned device, port;
    int node = find(args[0]);
    if (node < 0 || number(args[1], 0, SOFTHCA_MAX_DEVICES - 1, &device) ||
        number(args[2], 1, SOFTHCA_MAX_PORTS, &port)) {
        return -EINVAL;
    }
    *out = softhca_fabric_port(member.fabric, softhca_lid((uint32_t)node, device, port - 1));
    return 0;
}

static void set_port(struct softhca_port_state *s, uint32_t down)
{
    if (SOFTHCA_LOAD_ACQUIRE(&s->down) == down) {
        return;
    }
    SOFTHCA_STORE_RELEASE(&s->down, down);
    (void)SOFTHCA_ADD(&s->seq, 1);
    softhca_fabric_changed(member.fabric);
}

static int cmd_port(char **args)
{
    struct softhca_port_state *s;
    int down = strcmp(args[3], "down") == 0;
    if (!down && strcmp(args[3], "up") != 0) {
        return say(-EINVAL, "a port goes up or down");
    }
    int err = find_port(args, &s);
    if (!err) {
        set_port(s, (uint32_t)down);
    }
    return err;
}

static int cmd_flap(char **args)
{
    struct softhca_port_state *s;
    unsigned ms;
    if (find_port(args, &s) || number(args[3], 0, 3600000, &ms)) {
        return -EINVAL;
    }
    set_port(s, 1);
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t)) {
    }
    set_port(s, 0);
    return 0;
}

static int set_silent(const char *name, uint32_t silent)
{
    int node = find(name);
    if (node < 0) {
        return node;
    }
    SOFTHCA_STORE_RELEASE(&member.fabric->nodes[node].silent, silent);
    softhca_fabric_changed(member.fabric);
    return 0;
}

static int cmd_silence(char **args)
{
    return set_silent(args[0], 1);
}

static int cmd_wake(char **args)
{
    return set_silent(args[0], 0);
}

static int cmd_kill(char **args)
{
    unsigned sig = SIGKILL;
    int node = find(args[0]);
    if (node < 0 || (args[1] && number(args[1], 1, 64, &sig))) {
        return -EINVAL;
    }
    unsigned n = 0;
    for (uint32_t s = 0; s < SOFTHCA_MAX_PROCS; s++) {
        const struct softhca_proc *p = &member.fabric->procs[s];
        if (SOFTHCA_LOAD_ACQUIRE(&p->used) && p->node == (uint32_t)node &&
            softhca_fabric_alive(&member, s)) {
            n += kill(p->pid, (int)sig) == 0;
        }
    }
    return n ? 0 : say(-ESRCH, "that node has no process");
}

// The readers take a copy and look at the number again; odd means: being written.
static int change_rules(const char *text)
{
    struct softhca_fabric *f = member.fabric;
    int err = softhca_fabric_lock(&member);
    if (err) {
        return err;
    }
    uint32_t i = 0;
    while (text && i < SOFTHCA_MAX_RULES && f->rules[i][0]) {
        i++;
    }
    if (i == SOFTHCA_MAX_RULES) {
        err = say(-ENOSPC, "no room for another rule");
    } else {
        (void)SOFTHCA_ADD(&f->rules_seq, 1);
        if (text) {
            strcpy(f->rules[i], text);
        } else {
            memset(f->rules, 0, sizeof f->rules);
        }
        (void)SOFTHCA_ADD(&f->rules_seq, 1);
    }
    softhca_fabric_unlock(&member);
    softhca_fabric_changed(f);
    return err;
}

static int cmd_rule(char **args)
{
    struct softhca_rule r;
    if (strlen(args[0]) >= SOFTHCA_RULE_BYTES) {
        return say(-EINVAL, "the rule is too long");
    }
    int err = softhca_rule_parse(args[0], &r);
    return err ? err : change_rules(args[0]);
}

static int cmd_clear(char **args)
{
    (void)args;
    return change_rules(NULL);
}

static int cmd_status(char **args)
{
    const struct softhca_fabric *f = member.fabric;
    (void)args;
    (void)printf("fabric %s\n", member.dir);
    for (uint32_t n = 0; n < SOFTHCA_MAX_NODES; n++) {
        if (!SOFTHCA_LOAD_ACQUIRE(&f->nodes[n].used)) {
            continue;
        }
        (void)printf("node %s lid %u%s", f->nodes[n].name, softhca_lid(n, 0, 0),
                     SOFTHCA_LOAD_ACQUIRE(&f->nodes[n].silent) ? " silent" : "");
        for (uint32_t p = 0; p < SOFTHCA_PORTS_PER_NODE; p++) {
            if (SOFTHCA_LOAD_ACQUIRE(&f->nodes[n].ports[p].down)) {
                (void)printf(" down soft%u:%u", p / SOFTHCA_MAX_PORTS, p % SOFTHCA_MAX_PORTS + 1);
            }
        }
        (void)printf("\n");
    }
    for (uint32_t s = 0; s < SOFTHCA_MAX_PROCS; s++) {
        if (!SOFTHCA_LOAD_ACQUIRE(&f->procs[s].used)) {
            continue;
        }
        unsigned qps = 0;
        for (uint32_t i = 0; i < SOFTHCA_MAX_QPS; i++) {
            uint64_t r = SOFTHCA_LOAD_ACQUIRE(&f->qps[i]);
            qps += r && SOFTHCA_ROUTE_SLOT(r) == s;
        }
        (void)printf("process %d node %s qps %u %s\n", f->procs[s].pid,
                     f->nodes[f->procs[s].node].name, qps,
                     softhca_fabric_alive(&member, s) ? "alive" : "dead");
    }
    for (uint32_t i = 0; i < SOFTHCA_MAX_RULES; i++) {
        if (f->rules[i][0]) {
            (void)printf("rule %s\n", f->rules[i]);
        }
    }
    return 0;
}

static const struct {
    const char *name;
    int (*run)(char **args);
    int least, most;
} commands[] = {
    {"status", cmd_status, 0, 0},   {"port", cmd_port, 4, 4},   {"flap", cmd_flap, 4, 4},
    {"silence", cmd_silence, 1, 1}, {"wake", cmd_wake, 1, 1},   {"kill", cmd_kill, 1, 2},
    {"rule", cmd_rule, 1, 1},       {"clear", cmd_clear, 0, 0},
};

int main(int argc, char **argv)
{
    char dir[160];
    softhca_config_fabric(dir);
    int at = 1;
    if (argc > 2 && strcmp(argv[1], "-f") == 0) {
        if (strlen(argv[2]) >= sizeof dir) {
            return say(2, "the directory's name is too long");
        }
        strcpy(dir, argv[2]);
        at = 3;
    }
    for (size_t i = 0; at < argc && i < sizeof commands / sizeof *commands; i++) {
        int args = argc - at - 1;
        if (strcmp(argv[at], commands[i].name) != 0 || args < commands[i].least ||
            args > commands[i].most) {
            continue;
        }
        if (softhca_fabric_open(&member, dir, "", 0)) {
            return 1;
        }
        int err = commands[i].run(argv + at + 1);
        softhca_fabric_close(&member);
        return err ? 1 : 0;
    }
    (void)fputs(usage, stderr);
    return 2;
}
