// SPDX-License-Identifier: Apache-2.0
// What goes wrong on a communicator: the first error is kept and told once, with both ends, the
// queue pair, the status and what to look at.
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plugin/net_comm.h"
#include "transport/ib_gid.h"
#include "transport/order.h"
#include "transport/wait.h"

#define CHECK_NS 100000000u /* between two looks at the peer's process */

int net_result(int rc)
{
    switch (rc) {
    case 0: return GEMMAR_NCCL_SUCCESS;
    case -EINVAL: return GEMMAR_NCCL_INVALID_ARGUMENT;
    case -EPROTO: return GEMMAR_NCCL_INVALID_USAGE;
    case -ECONNRESET:
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ETIMEDOUT: return GEMMAR_NCCL_REMOTE_ERROR;
    default: return GEMMAR_NCCL_SYSTEM_ERROR;
    }
}

int net_comm_fail(struct net_comm *c, int result, const char *format, ...)
{
    char text[768];
    va_list args;

    if (c->failed != 0) {
        return c->failed;
    }
    c->failed = result;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    gemmar_warn(&c->hold.log, "net: %s peer %s: %s", c->sends ? "to" : "from", c->peer_text, text);
    net_comm_report(c);
    return result;
}

/* How the memory of a failed work request was registered, 0 where that is not known. */
static int memory_of(const struct net_comm *c, uint64_t wr_id)
{
    const struct net_send *s = (const struct net_send *)c;
    enum net_work work = (enum net_work)(wr_id & 0xff);
    uint32_t request = (uint32_t)(wr_id >> 32);

    if (!c->sends || (work != NET_WORK_DATA && work != NET_WORK_PIECE)) {
        return GEMMAR_NET_PTR_HOST; /* words of ours */
    }
    return s->request[request].mr != NULL ? s->request[request].mr->type : 0;
}

static const char *protection_hint(int memory)
{
    switch (memory) {
    case GEMMAR_NET_PTR_CUDA:
        return "the device may not read the GPU's memory: look at PCI access control (ACS) and the "
               "IOMMU, and try NCCL_NET_GDR_LEVEL=LOC";
    case GEMMAR_NET_PTR_HOST:
        return "the device may not read its own host's memory; this is a bug, please report it";
    default:
        return "the device may not read its own host's memory: with GPU memory look at PCI access "
               "control (ACS) and the IOMMU, and try NCCL_NET_GDR_LEVEL=LOC; with host memory this "
               "is a bug";
    }
}

/* What a user should look at; the opcode and length of a failed completion are undefined. */
static const char *hint(enum ibv_wc_status status, int memory)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
        return "the peer cannot be reached: is it alive, are cables, routes and GIDs right; "
               "NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT say how long to try";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "the peer posts no receives any more";
    case IBV_WC_LOC_PROT_ERR: return protection_hint(memory);
    case IBV_WC_REM_ACCESS_ERR:
        return "the peer's memory is not registered as both ends believe, or its PCI access "
               "control (ACS) forbids it";
    case IBV_WC_LOC_LEN_ERR: return "a message was longer than the device takes";
    case IBV_WC_LOC_QP_OP_ERR: return "the device did not execute it; is its port up?";
    case IBV_WC_REM_INV_REQ_ERR:
        return "the peer's device refused it; do both ends run the same version with the same "
               "settings?";
    case IBV_WC_REM_OP_ERR: return "the peer's device could not carry it out";
    default: return "see the status";
    }
}

static const char *work_name(uint64_t wr_id)
{
    switch ((enum net_work)(wr_id & 0xff)) {
    case NET_WORK_DATA: return "send";
    case NET_WORK_CTS: return "clear to send";
    case NET_WORK_FLUSH: return "flush";
    case NET_WORK_RECV: return "receive";
    case NET_WORK_PIECE: return "send";
    case NET_WORK_DRAIN: return "drain";
    case NET_WORK_TRIAL: return "trial";
    case NET_WORK_LOOK: return "look at the receiver";
    }
    return "work request";
}

static bool is_remote(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ||
           status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
           status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ABORT_ERR;
}

static void gid_text(const uint8_t *raw, char *out)
{
    union ibv_gid gid;

    memcpy(gid.raw, raw, sizeof(gid.raw));
    gemmar_ib_gid_text(&gid, out);
}

int net_comm_bad_completion(struct net_comm *c, const struct ibv_wc *wc)
{
    uint32_t lane = (uint32_t)(wc->wr_id >> 8 & 0xff);
    const struct net_lane *l = &c->lane[lane < c->lanes ? lane : 0];
    const struct gemmar_ib_device *d = c->rail[l->rail].device;
    char mine[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];

    if (c->failed == 0 && net_failover_takes(c, wc)) {
        return 0;
    }
    if (wc->status == IBV_WC_WR_FLUSH_ERR || c->failed != 0) {
        c->flushed++; /* follows from an error that came before, or will: net_comm_check waits */
        return c->failed;
    }
    gid_text(l->own.gid, mine);
    gid_text(l->peer.gid, theirs);
    return net_comm_fail(
        c, is_remote(wc->status) ? GEMMAR_NCCL_REMOTE_ERROR : GEMMAR_NCCL_SYSTEM_ERROR,
        "%s failed: %s (status %d, vendor error 0x%x) on device %s:%d qp 0x%x gid %s, peer's "
        "device %s qp 0x%x gid %s: %s",
        work_name(wc->wr_id), d->verbs->wc_status_str(wc->status), (int)wc->status, wc->vendor_err,
        d->name, d->port, wc->qp_num, mine, c->peer_device[l->peer_rail], l->peer.qp_number, theirs,
        hint(wc->status, memory_of(c, wc->wr_id)));
}

int net_comm_check(struct net_comm *c)
{
    const struct gemmar_ib_verbs *verbs = c->rail[0].device->verbs;
    bool returned = c->hold.core->knobs.ib_async_events != 0;
    uint64_t now = gemmar_now_ns(), event;

    if (now - c->checked_ns < CHECK_NS) {
        return c->failed;
    }
    c->checked_ns = now;
    for (uint32_t i = 0; returned && i < c->rails; i++) {
        struct gemmar_ib_device *d = c->rail[i].device;

        event = gemmar_load_acquire(&d->fatal);
        if (event != 0) {
            return net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR, "device %s:%d: %s", d->name, d->port,
                                 verbs->event_type_str((enum ibv_event_type)(event - 1)));
        }
    }
    event = returned ? gemmar_load_acquire(&c->qp_event) : 0;
    if ((event != 0 || c->flushed != 0) && !c->failover.possible) {
        return net_comm_fail(c, GEMMAR_NCCL_SYSTEM_ERROR, "a queue pair was stopped: qp 0x%x: %s",
                             (uint32_t)(event >> 32),
                             event != 0
                                 ? verbs->event_type_str((enum ibv_event_type)((uint32_t)event - 1))
                                 : "work requests were flushed");
    }
    if (c->failover.possible && net_failover_step(c) != 0) {
        return c->failed;
    }
    if (c->gone) { /* and what it had sent has had the time between two looks to arrive */
        return net_comm_fail(c, GEMMAR_NCCL_REMOTE_ERROR,
                             "its process has ended, or closed the connection, with %s under way",
                             c->sends ? "sends" : "receives");
    }
    /* a set-up network that is silent for a while says nothing about the peer */
    c->gone = gemmar_socket_check(c->fd) == -ECONNRESET;
    return c->failed;
}
