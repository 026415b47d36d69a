// SPDX-License-Identifier: Apache-2.0
// Keeps the fault rules of this process and decides which event they hit.
#include "tools/softhca/fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/softhca/config.h"
#include "tools/softhca/fabric.h"
#include "tools/softhca/hca.h"
#include "tools/softhca/softhca.h"
#include "tools/softhca/sync.h"

static uint32_t fired; // hits of all rules. Any thread adds and reads

static void note_calls(struct softhca_fault_set *set)
{
    uint32_t has = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        has |= set->rules[i].what == SOFTHCA_FAULT_CALL;
    }
    SOFTHCA_STORE_RELAXED(&set->has_calls, has);
}

int softhca_fault_init(struct softhca_fault_set *set, const struct softhca_config *config)
{
    memset(set, 0, sizeof *set);
    (void)pthread_mutex_init(&set->lock, NULL); // cannot fail without attributes
    char copy[sizeof config->faults];
    strcpy(copy, config->faults);
    char *save = NULL;
    for (char *t = strtok_r(copy, ";", &save); t; t = strtok_r(NULL, ";", &save)) {
        if (set->count == SOFTHCA_FAULT_RULES - SOFTHCA_MAX_RULES) {
            softhca_log("softhca: fault: more than %u rules in SOFTHCA_FAULTS", set->count);
            return -EINVAL;
        }
        struct softhca_rule r;
        if (softhca_rule_parse(t + strspn(t, " "), &r)) {
            return -EINVAL;
        }
        if (!r.node[0] || strcmp(r.node, config->node) == 0) {
            set->rules[set->count++] = r;
        }
    }
    set->env_rules = set->count;
    note_calls(set);
    return 0;
}

// The rules as they were at one moment: they change under flock, which this thread must not wait
// for. 0, or -EAGAIN when a writer is busy.
static int copy_rules(struct softhca_fabric *f, char out[SOFTHCA_MAX_RULES][SOFTHCA_RULE_BYTES])
{
    for (int tries = 0; tries < 100; tries++) {
        uint32_t before = SOFTHCA_LOAD_ACQUIRE(&f->rules_seq);
        memcpy(out, f->rules, sizeof f->rules);
        if (!(before & 1) && SOFTHCA_LOAD_SC(&f->rules_seq) == before) {
            return 0;
        }
        softhca_pause();
    }
    return -EAGAIN;
}

void softhca_fault_reload(struct softhca_fault_set *set, struct softhca_fabric *fabric,
                          const char *node)
{
    char texts[SOFTHCA_MAX_RULES][SOFTHCA_RULE_BYTES];
    if (copy_rules(fabric, texts)) {
        return; // the writer bumps the epoch when it is done
    }
    (void)pthread_mutex_lock(&set->lock);
    struct softhca_rule old[SOFTHCA_MAX_RULES];
    uint32_t old_count = set->count - set->env_rules;
    memcpy(old, set->rules + set->env_rules, old_count * sizeof *old);
    set->count = set->env_rules;
    for (uint32_t i = 0; i < SOFTHCA_MAX_RULES; i++) {
        struct softhca_rule r;
        texts[i][SOFTHCA_RULE_BYTES - 1] = 0;
        if (!texts[i][0] || softhca_rule_parse(texts[i], &r) ||
            (r.node[0] && strcmp(r.node, node) != 0)) {
            continue;
        }
        for (uint32_t k = 0; k < old_count; k++) {
            if (strcmp(old[k].text, r.text) == 0) {
                r = old[k];
            }
        }
        set->rules[set->count++] = r;
    }
    note_calls(set);
    (void)pthread_mutex_unlock(&set->lock);
}

static int hit(struct softhca_rule *r)
{
    r->seen++;
    uint64_t n = r->nth ? r->seen >= r->nth : r->seen % r->every == 0;
    if (!n || r->fired >= r->count) {
        return 0;
    }
    r->fired++;
    (void)SOFTHCA_ADD(&fired, 1);
    return 1;
}

SOFTHCA_EXPORT uint32_t softhca_query_faults(void)
{
    return SOFTHCA_LOAD_ACQUIRE(&fired);
}

int softhca_fault_call(enum softhca_call call)
{
    struct softhca_hca *h = softhca_hca;
    if (!h || !SOFTHCA_LOAD_RELAXED(&h->faults.has_calls)) {
        return 0;
    }
    int err = 0;
    (void)pthread_mutex_lock(&h->faults.lock);
    for (uint32_t i = 0; i < h->faults.count; i++) {
        struct softhca_rule *r = &h->faults.rules[i];
        if (r->what == SOFTHCA_FAULT_CALL && r->call == call && hit(r)) {
            err = r->err;
        }
    }
    (void)pthread_mutex_unlock(&h->faults.lock);
    return err;
}

const struct softhca_rule *softhca_fault_hit(struct softhca_fault_set *set,
                                             enum softhca_fault_what what, uint32_t qpn)
{
    const struct softhca_rule *found = NULL;
    for (uint32_t i = 0; i < set->count; i++) {
        struct softhca_rule *r = &set->rules[i];
        if (r->what == what && (!r->qp || r->qp == qpn) && hit(r)) {
            found = r;
        }
    }
    return found;
}
