// SPDX-License-Identifier: Apache-2.0
// Reliable-connection queue pairs.
#include "transport/ib_qp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "transport/advice.h"
#include "transport/ib_gid.h"
#include "transport/wait.h"

#define MIN_RNR_TIMER  12 /* 0.64 ms */
#define RNR_RETRIES    7  /* for ever: the receiver posts again as soon as it runs */
#define READS_IN_QUEUE 1  /* outstanding reads and atomics: flushes only */
#define HOP_LIMIT      255
#define MAX_SL         15

/* Address resolution inside the move may time out while a fabric settles. */
static bool is_worth_retry(const struct gemmar_knobs *knobs, int rc)
{
    return rc == ETIMEDOUT || rc == -ETIMEDOUT || (rc != 0 && knobs->ib_mqp_retry_all != 0);
}

/* A move is tried again with longer and longer naps, not beyond the time a peer is waited for. */
static int modify(struct gemmar_ib_device *d, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                  int64_t retries)
{
    uint64_t begin = gemmar_now_ns();
    int rc = d->verbs->modify_qp(qp, attr, mask);

    for (int64_t retry = 1; is_worth_retry(d->knobs, rc) && retry <= retries; retry++) {
        int64_t ms = d->knobs->ib_mqp_sleep_ms * retry;
        struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

        if (gemmar_now_ns() - begin + (uint64_t)ms * 1000000u > (uint64_t)d->knobs->timeout) {
            break;
        }
        (void)nanosleep(&nap, NULL); /* a signal only makes the nap shorter */
        rc = d->verbs->modify_qp(qp, attr, mask);
    }
    return rc > 0 ? -rc : rc;
}

static struct ibv_qp *create(struct gemmar_ib_device *d, struct ibv_cq *cq,
                             const struct gemmar_ib_qp_options *options, uint32_t *inline_bytes)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = options->send_depth,
                .max_recv_wr = options->recv_depth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = *inline_bytes},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp;

    errno = 0;
    qp = d->verbs->create_qp(d->pd, &init);
    *inline_bytes = init.cap.max_inline_data;
    return qp;
}

static int to_init(struct gemmar_ib_device *d, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = (uint16_t)d->knobs->ib_pkey,
        .port_num = d->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    int rc =
        modify(d, qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
               d->knobs->ib_mqp_retries);

    if (rc != 0) {
        gemmar_warn(d->log, "ib_qp: device %s port %d qp 0x%x pkey index %d: INIT failed: %s",
                    d->name, d->port, qp->qp_num, (int)d->knobs->ib_pkey, strerror(-rc));
    }
    return rc;
}

static int to_state(struct gemmar_ib_device *d, struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    int rc = modify(d, qp, &attr, IBV_QP_STATE, d->knobs->ib_mqp_retries);

    if (rc != 0) {
        gemmar_warn(d->log, "ib_qp: device %s port %d qp 0x%x: %s failed: %s", d->name, d->port,
                    qp->qp_num, state == IBV_QPS_ERR ? "ERR" : "RESET", strerror(-rc));
    }
    return rc;
}

int gemmar_ib_qp_stop(struct gemmar_ib_device *d, struct ibv_qp *qp)
{
    return to_state(d, qp, IBV_QPS_ERR);
}

int gemmar_ib_qp_restart(struct gemmar_ib_device *d, struct ibv_qp *qp)
{
    int rc = to_state(d, qp, IBV_QPS_RESET);

    return rc != 0 ? rc : to_init(d, qp);
}

int gemmar_ib_qp_create(struct gemmar_ib_device *d, struct ibv_cq *cq,
                        const struct gemmar_ib_qp_options *options, struct ibv_qp **out,
                        uint32_t *out_inline)
{
    char advice[GEMMAR_ADVICE_BYTES];
    uint32_t inline_bytes = options->inline_bytes;
    struct ibv_qp *qp = create(d, cq, options, &inline_bytes);
    int rc;

    if (qp == NULL && options->inline_least < options->inline_bytes) {
        inline_bytes = options->inline_least;
        qp = create(d, cq, options, &inline_bytes);
    }
    if (qp == NULL) {
        rc = errno != 0 ? -errno : -EIO;
        gemmar_warn(d->log, "ib_qp: device %s: cannot create a queue pair: %s%s", d->name,
                    strerror(-rc), gemmar_advice_limit(-rc, 0, advice, sizeof(advice)));
        return rc;
    }
    rc = to_init(d, qp);
    if (rc != 0) {
        (void)d->verbs->destroy_qp(qp); /* nothing was posted to it */
        return rc;
    }
    *out = qp;
    if (out_inline != NULL) {
        *out_inline = inline_bytes;
    }
    return 0;
}

void gemmar_ib_qp_describe(const struct gemmar_ib_device *d, struct ibv_qp *qp,
                           uint32_t packet_number, struct gemmar_wire_qp *out)
{
    struct ibv_ece ece = {0};

    memset(out, 0, sizeof(*out));
    out->qp_number = qp->qp_num;
    out->packet_number = packet_number;
    out->lid = d->port_attr.lid;
    out->port = d->port;
    out->mtu = (uint8_t)d->port_attr.active_mtu;
    memcpy(out->gid, d->gid.raw, sizeof(out->gid));
    out->link_layer = d->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ? GEMMAR_LINK_ETHERNET
                                                                         : GEMMAR_LINK_INFINIBAND;
    out->grh = d->gid_index >= 0;
    /* Told only by an end that could take the other's as well. */
    if (d->knobs->ib_ece && d->verbs->query_ece != NULL && d->verbs->set_ece != NULL &&
        d->verbs->query_ece(qp, &ece) == 0) {
        out->ece_vendor = ece.vendor_id;
        out->ece_options = ece.options;
        out->ece_mask = ece.comp_mask;
        out->ece_valid = 1;
    }
}

/* The address handle, filled from zero: a global header on Ethernet, on ports that demand one, and
 * towards another subnet (different upper half of the GID). */
static void fill_address(const struct gemmar_ib_device *d, const struct gemmar_wire_qp *peer,
                         int traffic_class, struct ibv_ah_attr *ah)
{
    int tc = traffic_class >= 0 ? traffic_class : (int)d->knobs->ib_tc;
    bool ethernet = d->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    bool routed = !ethernet && memcmp(peer->gid, d->gid.raw, 8) != 0;

    memset(ah, 0, sizeof(*ah));
    ah->port_num = d->port;
    /* as in NCCL: a service level that is not given is the traffic class of the connection */
    ah->sl = d->knobs->ib_sl >= 0                            ? (uint8_t)d->knobs->ib_sl
             : traffic_class >= 0 && traffic_class <= MAX_SL ? (uint8_t)traffic_class
                                                             : 0;
    if (ethernet || d->gid_index >= 0 || peer->grh || routed) {
        ah->is_global = 1;
        memcpy(ah->grh.dgid.raw, peer->gid, sizeof(peer->gid));
        ah->grh.sgid_index = (uint8_t)(d->gid_index >= 0 ? d->gid_index : 0);
        ah->grh.hop_limit = HOP_LIMIT;
        ah->grh.traffic_class = tc >= 0 ? (uint8_t)tc : 0;
    }
    if (!ethernet) {
        ah->dlid = peer->lid;
    }
}

static void log_failure(const struct gemmar_ib_device *d, const struct ibv_qp *qp,
                        const struct gemmar_wire_qp *peer, const char *state, int rc)
{
    char mine[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];
    union ibv_gid gid;

    memcpy(gid.raw, peer->gid, sizeof(gid.raw));
    gemmar_ib_gid_text(&d->gid, mine);
    gemmar_ib_gid_text(&gid, theirs);
    gemmar_warn(
        d->log,
        "ib_qp: device %s port %d qp 0x%x gid %s lid %u to qp 0x%x gid %s lid %u: %s failed: "
        "%s",
        d->name, d->port, qp->qp_num, mine, d->port_attr.lid, peer->qp_number, theirs, peer->lid,
        state, strerror(-rc));
}

static int to_rtr(struct gemmar_ib_device *d, struct ibv_qp *qp, const struct gemmar_wire_qp *peer,
                  int traffic_class, int64_t retries)
{
    int mine = (int)d->port_attr.active_mtu;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)(mine < peer->mtu ? mine : peer->mtu),
        .dest_qp_num = peer->qp_number,
        .rq_psn = peer->packet_number,
        .max_dest_rd_atomic = READS_IN_QUEUE,
        .min_rnr_timer = MIN_RNR_TIMER,
    };

    fill_address(d, peer, traffic_class, &attr.ah_attr);
    return modify(d, qp, &attr,
                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                  retries);
}

static int to_rts(struct gemmar_ib_device *d, struct ibv_qp *qp, const struct gemmar_wire_qp *own,
                  int64_t retries)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = own->packet_number,
        .timeout = (uint8_t)d->knobs->ib_timeout,
        .retry_cnt = (uint8_t)d->knobs->ib_retry_count,
        .rnr_retry = RNR_RETRIES,
        .max_rd_atomic = READS_IN_QUEUE,
    };

    return modify(d, qp, &attr,
                  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                  retries);
}

static int connect_qp(struct gemmar_ib_device *d, struct ibv_qp *qp,
                      const struct gemmar_wire_qp *own, const struct gemmar_wire_qp *peer,
                      int traffic_class, int64_t retries)
{
    bool ethernet = d->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    int rc;

    if ((peer->link_layer == GEMMAR_LINK_ETHERNET) != ethernet) {
        log_failure(d, qp, peer, "matching InfiniBand with RoCE", -EPROTO);
        return -EPROTO;
    }
    if (!ethernet && peer->lid == 0 && !peer->grh) {
        log_failure(d, qp, peer, "addressing LID 0", -EADDRNOTAVAIL);
        return -EADDRNOTAVAIL;
    }
    if (own->ece_valid && peer->ece_valid) {
        struct ibv_ece ece = {.vendor_id = peer->ece_vendor,
                              .options = peer->ece_options,
                              .comp_mask = peer->ece_mask};

        (void)d->verbs->set_ece(qp, &ece); /* an enhancement: without it the defaults hold */
    }
    rc = to_rtr(d, qp, peer, traffic_class, retries);
    if (rc != 0) {
        log_failure(d, qp, peer, "RTR", rc);
        return rc;
    }
    rc = to_rts(d, qp, own, retries);
    if (rc != 0) {
        log_failure(d, qp, peer, "RTS", rc);
    }
    return rc;
}

int gemmar_ib_qp_connect(struct gemmar_ib_device *d, struct ibv_qp *qp,
                         const struct gemmar_wire_qp *own, const struct gemmar_wire_qp *peer,
                         int traffic_class)
{
    return connect_qp(d, qp, own, peer, traffic_class, d->knobs->ib_mqp_retries);
}

int gemmar_ib_qp_reconnect(struct gemmar_ib_device *d, struct ibv_qp *qp,
                           const struct gemmar_wire_qp *own, const struct gemmar_wire_qp *peer,
                           int traffic_class)
{
    return connect_qp(d, qp, own, peer, traffic_class, 0);
}
