// SPDX-License-Identifier: Apache-2.0
// Reads fault rules and decides which event they hit.
#include "tools/softhca/fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/softhca/config.h"
#include "tools/softhca/fabric.h"
#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

static const char *const call_names[SOFTHCA_CALLS] = {
    [SOFTHCA_CALL_OPEN_DEVICE] = "open_device",
    [SOFTHCA_CALL_QUERY_DEVICE] = "query_device",
    [SOFTHCA_CALL_QUERY_PORT] = "query_port",
    [SOFTHCA_CALL_QUERY_GID] = "query_gid",
    [SOFTHCA_CALL_ALLOC_PD] = "alloc_pd",
    [SOFTHCA_CALL_REG_MR] = "reg_mr",
    [SOFTHCA_CALL_CREATE_CHANNEL] = "create_comp_channel",
    [SOFTHCA_CALL_CREATE_CQ] = "create_cq",
    [SOFTHCA_CALL_CREATE_SRQ] = "create_srq",
    [SOFTHCA_CALL_CREATE_QP] = "create_qp",
    [SOFTHCA_CALL_MODIFY_QP] = "modify_qp",
    [SOFTHCA_CALL_POST_SEND] = "post_send",
    [SOFTHCA_CALL_POST_RECV] = "post_recv",
    [SOFTHCA_CALL_POLL_CQ] = "poll_cq",
    [SOFTHCA_CALL_REQ_NOTIFY] = "req_notify_cq",
};

static int parse_name(const char *text, struct softhca_rule *r)
{
    for (unsigned c = 0; c < SOFTHCA_CALLS; c++) {
        if (strcmp(text, call_names[c]) == 0) {
            r->call = (enum softhca_call)c;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_pair(const char *key, const char *value, struct softhca_rule *r)
{
    if (strcmp(key, "node") == 0) {
        if (strlen(value) >= sizeof r->node) {
            return -EINVAL;
        }
        strcpy(r->node, value);
        return 0;
    }
    if (strcmp(key, "name") == 0) {
        return parse_name(value, r);
    }
    char *end;
    uint64_t v = strtoull(value, &end, strcmp(key, "qp") == 0 ? 16 : 10);
    if (end == value || *end) {
        return -EINVAL;
    }
    if (strcmp(key, "every") == 0) {
        r->every = v;
    } else if (strcmp(key, "nth") == 0) {
        r->nth = v;
    } else if (strcmp(key, "count") == 0) {
        r->count = v;
    } else if (strcmp(key, "us") == 0) {
        r->us = v;
    } else if (strcmp(key, "qp") == 0) {
        r->qp = (uint32_t)v;
    } else if (strcmp(key, "status") == 0) {
        r->status = (uint32_t)v;
    } else if (strcmp(key, "errno") == 0) {
        r->err = (int)v;
    } else {
        return -EINVAL;
    }
    return 0;
}

static int check_rule(const struct softhca_rule *r)
{
    switch (r->what) {
    case SOFTHCA_FAULT_DROP: return r->nth == 0 ? 0 : -EINVAL;
    case SOFTHCA_FAULT_DELAY: return r->us && r->nth == 0 ? 0 : -EINVAL;
    case SOFTHCA_FAULT_COMPLETE: return r->nth && r->status ? 0 : -EINVAL;
    case SOFTHCA_FAULT_CALL: return r->nth && r->err && r->call < SOFTHCA_CALLS ? 0 : -EINVAL;
    default: return -EINVAL;
    }
}

int softhca_rule_parse(const char *text, struct softhca_rule *out_rule)
{
    struct softhca_rule r = {.call = SOFTHCA_CALLS};
    char copy[sizeof r.text];
    char *save = NULL;
    int err = strlen(text) >= sizeof copy ? -EINVAL : 0;
    if (!err) {
        strcpy(copy, text);
        strcpy(r.text, text);
        const char *what = strtok_r(copy, " ", &save);
        r.what = !what                           ? SOFTHCA_FAULT_NONE
                 : strcmp(what, "drop") == 0     ? SOFTHCA_FAULT_DROP
                 : strcmp(what, "delay") == 0    ? SOFTHCA_FAULT_DELAY
                 : strcmp(what, "complete") == 0 ? SOFTHCA_FAULT_COMPLETE
                 : strcmp(what, "call") == 0     ? SOFTHCA_FAULT_CALL
                                                 : SOFTHCA_FAULT_NONE;
    }
    char *pair;
    while (!err && (pair = strtok_r(NULL, " ", &save))) {
        char *equals = strchr(pair, '=');
        if (!equals) {
            err = -EINVAL;
            break;
        }
        *equals = 0;
        err = parse_pair(pair, equals + 1, &r);
    }
    if (err || check_rule(&r)) {
        softhca_log("softhca: fault: '%s' is not a rule", text);
        return -EINVAL;
    }
    if (r.count == 0) {
        r.count = r.nth ? 1 : UINT64_MAX;
    }
    r.every = r.every ? r.every : 1;
    *out_rule = r;
    return 0;
}

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
    return 1;
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
