// SPDX-License-Identifier: Apache-2.0
// Step 4, proxy: the thread that turns commands into work requests and completions into `retired`.
//
// Input: the ring. Output: posts on the send queues, `tail`, `retired`. It waits for nobody: what
// cannot be done in one turn is tried again in the next. Idle it spins briefly, yields, then
// sleeps.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "transport/advice.h"
#include "transport/channel.h"
#include "transport/ib_gid.h"
#include "transport/order.h"
#include "transport/signals.h"
#include "transport/wait.h"

#define POLL_BATCH  16
#define CHECK_EVERY 256 /* turns between two looks at clocks and events */
#define IDLE_NAP_NS 20000

/* Commands of the ring into the batch, behind those that were set aside, until it is full. One
 * whose send queue is full is set aside; the others pass it. */
static bool take_commands(struct gemmar_channel *c)
{
    uint32_t taken = 0, most = GEMMAR_BATCH;

    c->batch.began_ns = 0;
    if (c->aside_count > 0) {
        int built = gemmar_aside_take(c, most);

        if (built < 0) {
            return false;
        }
        most -= (uint32_t)built;
    }
    while (taken < most && taken < c->fifo.ring.entries) {
        struct gemmar_fifo_request request;
        int rc;

        if (!gemmar_fifo_peek(&c->fifo, taken, &request)) {
            break;
        }
        rc = gemmar_rdma_write_build(c, &request, c->fifo.head + taken);
        if (rc != 0) {
            if (rc == -EAGAIN) {
                gemmar_count(&c->counters.send_queue_full, 1);
            }
            if (rc == -EAGAIN && gemmar_aside_put(c, &request, c->fifo.head + taken)) {
                taken++;
                continue;
            }
            if (rc != -EAGAIN && rc != -ENOSPC) {
                return false;
            }
            break;
        }
        taken++;
    }
    if (taken > 0) {
        gemmar_fifo_advance(&c->fifo, taken);
    }
    return taken > 0 || most < GEMMAR_BATCH;
}

static const char *hint(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
        return "the peer does not answer: is it alive and reachable, do GIDs and NCCL_IB_TIMEOUT "
               "fit the fabric";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "the peer posts no receives";
    case IBV_WC_LOC_PROT_ERR:
        return "local memory is not accessible: with GPU memory check PCI access control (ACS) and "
               "IOMMU";
    case IBV_WC_REM_ACCESS_ERR: return "remote key or bounds are wrong";
    case IBV_WC_WR_FLUSH_ERR: return "the queue pair was in error already";
    default: return "see the status in the InfiniBand specification";
    }
}

/* The first failed completion names the link; opcode and length of a failed one mean nothing. */
static void fail(struct gemmar_channel *c, const struct gemmar_channel_qp *q,
                 const struct ibv_wc *wc)
{
    const struct gemmar_ib_device *d = c->rails[q->rail].device;
    char mine[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];
    union ibv_gid gid;

    memcpy(gid.raw, q->other.gid, sizeof(gid.raw));
    gemmar_ib_gid_text(&d->gid, mine);
    gemmar_ib_gid_text(&gid, theirs);
    gemmar_channel_break(c, -EIO, q->peer, q, "rdma_write",
                         "completion failed: device %s port %d%s gid %s peer qp 0x%x gid %s status "
                         "%d (%s) vendor 0x%x; %s",
                         d->name, d->port, gemmar_load_acquire(&d->port_down) != 0 ? " (down)" : "",
                         mine, q->other.qp_number, theirs, (int)wc->status,
                         c->verbs->wc_status_str(wc->status), wc->vendor_err, hint(wc->status));
}

static struct gemmar_channel_qp *find_qp(struct gemmar_channel *c, uint32_t number, uint32_t rail)
{
    for (uint32_t i = 0; i < c->qp_count; i++) {
        if (c->qps[i].qp->qp_num == number && c->qps[i].rail == rail) {
            return &c->qps[i];
        }
    }
    return NULL;
}

static bool complete(struct gemmar_channel *c, uint32_t rail, const struct ibv_wc *wc,
                     uint64_t now_ns)
{
    struct gemmar_channel_qp *q = find_qp(c, wc->qp_num, rail);
    struct gemmar_channel_rail *r = &c->rails[rail];

    if (q == NULL && r->flush != NULL && wc->qp_num == gemmar_ib_flush_qp(r->flush)) {
        return gemmar_arrival_flushed(c, r, wc);
    }
    if (q == NULL) {
        gemmar_channel_break(c, -EIO, UINT32_MAX, NULL, "proxy", "completion of unknown qp 0x%x",
                             wc->qp_num);
        return false;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        fail(c, q, wc);
        return false;
    }
    gemmar_count(&c->counters.completions, 1);
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        return gemmar_arrival_take(c, q, be32toh(wc->imm_data), wc->byte_len);
    }
    gemmar_rdma_write_done(q, wc->wr_id, now_ns);
    return true;
}

/* True when something had completed. */
static bool poll_completions(struct gemmar_channel *c)
{
    bool busy = false;

    for (uint32_t rail = 0; rail < c->rail_count; rail++) {
        struct ibv_wc wc[POLL_BATCH];
        int n = ibv_poll_cq(c->rails[rail].cq, POLL_BATCH, wc);
        uint64_t now = n > 0 ? gemmar_now_ns() : 0;

        if (n < 0) {
            gemmar_channel_break(c, -EIO, UINT32_MAX, NULL, "proxy",
                                 "device %s: polling the completion queue failed",
                                 c->rails[rail].device->name);
            return false;
        }
        for (int i = 0; i < n; i++) {
            if (!complete(c, rail, &wc[i], now)) {
                return false;
            }
        }
        if (c->rails[rail].flush != NULL && !gemmar_arrival_flush(c, &c->rails[rail])) {
            return false;
        }
        busy |= n > 0;
    }
    if (busy) {
        gemmar_rdma_write_retire(c);
    }
    return busy;
}

/* Sends that do not complete although the queue pair reports nothing, and dead devices. */
static void check_health(struct gemmar_channel *c)
{
    uint64_t now = gemmar_now_ns();

    for (uint32_t i = 0; i < c->rail_count; i++) {
        uint64_t fatal = gemmar_load_acquire(&c->rails[i].device->fatal);

        if (fatal != 0) {
            gemmar_channel_break(c, -EIO, UINT32_MAX, NULL, "proxy", "device %s: %s",
                                 c->rails[i].device->name,
                                 c->verbs->event_type_str((enum ibv_event_type)(fatal - 1)));
            return;
        }
    }
    for (uint32_t i = 0; i < c->qp_count; i++) {
        const struct gemmar_channel_qp *q = &c->qps[i];

        if (q->built != q->completed && now > q->progress_ns + c->timeout_ns) {
            const struct gemmar_ib_device *d = c->rails[q->rail].device;

            gemmar_channel_break(
                c, -ETIMEDOUT, q->peer, q, "rdma_write",
                "no completion for %.1f s: device %s port %d%s, %llu work requests "
                "on the way",
                (double)(now - q->progress_ns) / 1e9, d->name, d->port,
                gemmar_load_acquire(&d->port_down) != 0 ? " (down)" : "",
                (unsigned long long)(q->built - q->completed));
            return;
        }
    }
    for (uint32_t i = 0; i < c->rail_count; i++) {
        gemmar_arrival_check(c, &c->rails[i], now);
    }
}

bool gemmar_proxy_turn(struct gemmar_channel *c)
{
    bool busy = false;

    if (c->batch.pending == 0) {
        busy = take_commands(c);
    }
    if (c->batch.pending > 0) {
        if (!gemmar_rdma_write_post(c)) {
            return false;
        }
        if (c->posted_word != NULL && c->batch.pending == 0) {
            gemmar_store_release(c->posted_word, gemmar_aside_frontier(c, c->fifo.head));
        }
    }
    return poll_completions(c) || busy;
}

/* CPUs of a NUMA node that the process may use anyway; empty when that cannot be known. */
static void near_cpus(int node, const cpu_set_t *allowed, cpu_set_t *out)
{
    char path[96];
    DIR *dir;
    struct dirent *entry;

    CPU_ZERO(out);
    (void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", node);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        unsigned cpu;
        char rest;

        if (sscanf(entry->d_name, "cpu%u%c", &cpu, &rest) == 1 && cpu < CPU_SETSIZE &&
            CPU_ISSET(cpu, allowed)) {
            CPU_SET(cpu, out);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* The inherited mask is the user's will; inside it the CPUs near the device are better. */
static void prefer_near(const struct gemmar_channel *c)
{
    cpu_set_t allowed, near;
    int node = c->numa_node >= 0 ? c->numa_node : c->rails[0].device->numa_node;

    if (!c->knobs->proxy_pin || node < 0 ||
        pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed) != 0) {
        return;
    }
    near_cpus(node, &allowed, &near);
    if (CPU_COUNT(&near) > 0) {
        (void)pthread_setaffinity_np(pthread_self(), sizeof(near), &near); /* only a preference */
    }
}

/* Nothing tells a proxy that a GPU pushes, so what it sleeps is what the first command of a call
 * waits; without the slack of 50 us by which Linux makes sleeps of other threads longer. */
static void idle_begin(const struct gemmar_channel *c, struct gemmar_wait *idle)
{
    gemmar_wait_init(idle, 0);
    idle->nap_ns = c->data.is_gpu ? IDLE_NAP_NS : 0; /* ranks on CPUs need the CPU more */
}

static void *proxy_loop(void *argument)
{
    struct gemmar_channel *c = argument;
    struct gemmar_wait idle;

    prefer_near(c);
    if (c->data.is_gpu) {
        (void)prctl(PR_SET_TIMERSLACK, 1UL); /* only sleeps longer where that is refused */
    }
    idle_begin(c, &idle);
    for (uint64_t turn = 1; gemmar_load_acquire(&c->stop) == 0; turn++) {
        if (gemmar_proxy_turn(c)) {
            idle_begin(c, &idle);
        } else {
            (void)gemmar_wait_step(&idle); /* without a deadline: `stop` ends it */
            gemmar_count(&c->counters.sleeps, gemmar_wait_sleeps(&idle));
        }
        if (turn % CHECK_EVERY == 0) {
            check_health(c);
        }
        if (gemmar_load_acquire(&c->broken) != 0) {
            break; /* nothing more is sent on a broken channel */
        }
    }
    return NULL;
}

int gemmar_proxy_start(struct gemmar_channel *c)
{
    int rc = gemmar_thread_start(&c->proxy, proxy_loop, c);

    if (rc != 0) {
        char advice[GEMMAR_ADVICE_BYTES];

        gemmar_warn(&c->log, "proxy: cannot start a thread: %s%s", strerror(-rc),
                    gemmar_advice_limit(-rc, 0, advice, sizeof(advice)));
    }
    return rc;
}

void gemmar_proxy_stop(struct gemmar_channel *c)
{
    gemmar_store_release(&c->stop, 1);
    (void)pthread_join(c->proxy, NULL);
}
