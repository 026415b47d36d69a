// SPDX-License-Identifier: Apache-2.0
// Reads fault rules; shared with softhca-ctl, which refuses bad ones before they are stored.
#include "tools/softhca/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/softhca/config.h"

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
    case SOFTHCA_FAULT_DELAY:
    case SOFTHCA_FAULT_LATE: return r->us && r->nth == 0 ? 0 : -EINVAL;
    case SOFTHCA_FAULT_KEY: return r->nth ? 0 : -EINVAL;
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
                 : strcmp(what, "late") == 0     ? SOFTHCA_FAULT_LATE
                 : strcmp(what, "key") == 0      ? SOFTHCA_FAULT_KEY
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
