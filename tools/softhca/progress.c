// SPDX-License-Identifier: Apache-2.0
// The progress thread: takes packets from the rings, steps queue pairs, sleeps when idle.
// It alone reads and writes user memory, so that a sanitizer sees the NIC as what it is: another
// party of the program.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "tools/softhca/hca.h"
#include "tools/softhca/sync.h"

#define DRAIN_BYTES  (256u * 1024u) // of one ring in one pass
#define SLEEP_NS     200000000ull   // longest sleep with nothing to do
#define RING_WAIT_NS 5000000ull     // sleep with work that waits for a full ring
#define SWEEP_NS     500000000ull   // between looks for rings of dead processes

void softhca_qp_activate(struct softhca_qp *qp)
{
    struct softhca_hca *h = softhca_hca;
    if (SOFTHCA_EXCHANGE_SC(&qp->active, 1)) {
        return; // already there: the progress thread will look after it clears the flag
    }
    struct softhca_qp *top = SOFTHCA_LOAD_RELAXED(&h->active);
    do {
        qp->next_active = top;
    } while (!SOFTHCA_CAS(&h->active, &top, qp));
    softhca_wake_sleeper(&h->member.fabric->procs[h->member.slot]);
}

void softhca_qp_make_live(struct softhca_qp *qp)
{
    struct softhca_hca *h = softhca_hca;
    if (qp->live) {
        return;
    }
    qp->live = 1;
    h->live_count++;
    if (!h->live) {
        h->live = qp->live_prev = qp->live_next = qp;
        return;
    }
    qp->live_next = h->live;
    qp->live_prev = h->live->live_prev;
    qp->live_prev->live_next = qp;
    h->live->live_prev = qp;
}

void softhca_qp_drop_live(struct softhca_qp *qp)
{
    struct softhca_hca *h = softhca_hca;
    if (!qp->live) {
        return;
    }
    qp->live = 0;
    h->live_count--;
    if (qp->live_next == qp) {
        h->live = NULL;
        return;
    }
    qp->live_prev->live_next = qp->live_next;
    qp->live_next->live_prev = qp->live_prev;
    if (h->live == qp) {
        h->live = qp->live_next;
    }
}

void softhca_wake_at(uint64_t ns)
{
    if (ns < softhca_hca->wake_ns) {
        softhca_hca->wake_ns = ns;
    }
}

// Takes over the queue pairs that posters, or a destroyer, marked.
int softhca_take_active(void)
{
    struct softhca_hca *h = softhca_hca;
    if (!SOFTHCA_LOAD_SC(&h->active)) {
        return 0;
    }
    struct softhca_qp *qp = SOFTHCA_EXCHANGE_SC(&h->active, NULL);
    while (qp) {
        struct softhca_qp *next = qp->next_active;
        (void)SOFTHCA_EXCHANGE_SC(&qp->active, 0); // before the look at its queue
        softhca_qp_make_live(qp);
        qp = next;
    }
    return 1;
}

static void open_inbound(struct softhca_hca *h)
{
    struct softhca_proc *me = &h->member.fabric->procs[h->member.slot];
    uint32_t seq = SOFTHCA_LOAD_ACQUIRE(&me->inbound_seq);
    if (seq == h->inbound_seq) {
        return;
    }
    h->inbound_seq = seq;
    for (uint32_t s = 0; s < SOFTHCA_MAX_PROCS; s++) {
        uint64_t bit = 1ull << s % 64;
        if (!(SOFTHCA_LOAD_ACQUIRE(&me->inbound[s / 64]) & bit)) {
            continue;
        }
        (void)SOFTHCA_AND(&me->inbound[s / 64], ~bit);
        struct softhca_peer *peer = &h->peers[s];
        peer->ahead = 0;
        int was_open = peer->in.control != NULL;
        softhca_ring_release(&peer->in);
        memset(&peer->in, 0, sizeof peer->in);
        if (softhca_ring_open(&h->member, s, &peer->in) == 0 && !was_open) {
            h->in_list[h->in_count++] = s;
        } else if (was_open && !peer->in.control) {
            for (uint32_t i = 0; i < h->in_count; i++) {
                if (h->in_list[i] == s) {
                    h->in_list[i--] = h->in_list[--h->in_count];
                }
            }
        }
    }
}

// Rings from processes that are gone.
static void sweep(struct softhca_hca *h)
{
    if (h->now_ns < h->sweep_ns) {
        return;
    }
    h->sweep_ns = h->now_ns + SWEEP_NS;
    for (uint32_t i = 0; i < h->in_count; i++) {
        struct softhca_peer *peer = &h->peers[h->in_list[i]];
        const struct softhca_proc *p = &h->member.fabric->procs[peer->in.slot];
        int same = SOFTHCA_LOAD_ACQUIRE(&p->used) && SOFTHCA_LOAD_ACQUIRE(&p->gen) == peer->in.gen;
        if (!same && !softhca_ring_peek(&peer->in)) {
            softhca_ring_release(&peer->in);
            h->in_list[i--] = h->in_list[--h->in_count];
        }
    }
}

static void read_epoch(struct softhca_hca *h)
{
    struct softhca_fabric *f = h->member.fabric;
    uint32_t epoch = SOFTHCA_LOAD_ACQUIRE(&f->epoch);
    if (epoch == h->epoch) {
        return;
    }
    h->epoch = epoch;
    h->silent = SOFTHCA_LOAD_ACQUIRE(&f->nodes[h->member.node].silent);
    softhca_fault_reload(&h->faults, f, h->config.node);
    softhca_ports_report();
}

// NULL: as on a wire, not for anybody here.
struct softhca_qp *softhca_addressee(const struct softhca_hca *h, const struct softhca_packet *p)
{
    struct softhca_qp *qp = h->qps[SOFTHCA_QP_INDEX(p->dst_qpn)];
    if (!qp || qp->ex.qp_base.qp_num != p->dst_qpn || qp->lid != p->dst_lid ||
        qp->dlid != p->src_lid || qp->attr.dest_qp_num != p->src_qpn ||
        SOFTHCA_LOAD_ACQUIRE(&softhca_fabric_port(h->member.fabric, qp->lid)->down)) {
        return NULL;
    }
    return qp;
}

int softhca_deliver(struct softhca_hca *h, const struct softhca_packet *p)
{
    int err = 0;
    struct softhca_qp *qp = softhca_addressee(h, p);
    if (!qp) {
        return 0;
    }
    softhca_sync_with_peers();
    if (p->kind <= SOFTHCA_FETCH_ADD) {
        err = softhca_responder_receive(qp, p);
    } else {
        softhca_requester_receive(qp, p);
    }
    softhca_qp_make_live(qp);
    return err;
}

// From the ring: to the queue pair, or to those that come late.
static int arrive(struct softhca_hca *h, const struct softhca_packet *p)
{
    struct softhca_qp *qp = softhca_addressee(h, p);
    if (qp && softhca_late_takes(h, qp, p)) {
        return 0;
    }
    return softhca_deliver(h, p);
}

// When to execute a packet, so that nothing is seen of it before it is ready.
static uint64_t due_ns(const struct softhca_hca *h, const struct softhca_packet *p)
{
    uint64_t early = p->flags & SOFTHCA_FLAG_EARLY ? h->config.word_ns : 0;
    return p->ready_ns > early ? p->ready_ns - early : 0;
}

static int drain(struct softhca_hca *h, struct softhca_ring *in)
{
    int did = 0;
    struct softhca_packet *p;
    uint64_t start = in->pos;
    while (in->pos - start < DRAIN_BYTES && (p = softhca_ring_peek(in))) {
        uint64_t due = due_ns(h, p);
        if (due > h->now_ns) {
            h->now_ns = softhca_now_ns();
            if (due > h->now_ns) {
                softhca_wake_at(due);
                break;
            }
        }
        if (arrive(h, p)) {
            break; // after copies that are under way
        }
        if (softhca_ring_pop(in, p)) {
            softhca_wake_sleeper(&h->member.fabric->procs[in->slot]);
        }
        did = 1;
    }
    return did;
}

static void look_ahead(struct softhca_hca *h)
{
    int idle = h->pull_head == h->pull_tail;
    for (uint32_t i = 0; i < h->in_count; i++) {
        struct softhca_peer *peer = &h->peers[h->in_list[i]];
        softhca_ahead(h, peer);
        idle &= peer->ahead == peer->in.pos;
    }
    if (idle) {
        softhca_cuda_no_words();
    }
}

static int step_live(struct softhca_hca *h)
{
    int did = 0;
    uint32_t n = h->live_count;
    struct softhca_qp *qp = h->live;
    while (n-- > 0) {
        struct softhca_qp *next = qp->live_next;
        uint64_t before = qp->tx_bytes + qp->tx_msgs;
        softhca_responder_step(qp);
        softhca_requester_step(qp);
        did |= qp->tx_bytes + qp->tx_msgs != before;
        if (!softhca_qp_has_work(qp)) {
            softhca_qp_drop_live(qp);
        }
        qp = next;
    }
    if (h->live) {
        h->live = h->live->live_next; // another one goes first in the next pass
    }
    return did;
}

static int pass(struct softhca_hca *h)
{
    h->now_ns = softhca_now_ns();
    h->wake_ns = UINT64_MAX;
    read_epoch(h);
    open_inbound(h);
    sweep(h);
    int did = softhca_take_active();
    if (h->silent) {
        return 0;
    }
    did |= softhca_pull_poll();
    did |= softhca_late_step(h);
    for (uint32_t i = 0; i < h->in_count; i++) {
        did |= drain(h, &h->peers[h->in_list[i]].in);
    }
    softhca_cuda_flush_all(0); // somebody waits for stamps
    did |= step_live(h);       // the wire must not idle while the driver is called
    look_ahead(h);
    softhca_wake_at(softhca_cuda_start_due(h->now_ns, h->config.copy_ns));
    softhca_cuda_flush_all(1);
    h->had_live = h->live_count != 0;
    return did;
}

// After the sleeping flag is up: is there really nothing? The partner of softhca_wake_sleeper.
static int idle(struct softhca_hca *h)
{
    struct softhca_proc *me = &h->member.fabric->procs[h->member.slot];
    if (SOFTHCA_LOAD_SC(&h->active) || SOFTHCA_LOAD_ACQUIRE(&h->stop) ||
        SOFTHCA_LOAD_SC(&me->inbound_seq) != h->inbound_seq ||
        SOFTHCA_LOAD_SC(&h->member.fabric->epoch) != h->epoch) {
        return 0;
    }
    for (uint32_t i = 0; !h->silent && i < h->in_count; i++) {
        struct softhca_packet *p = softhca_ring_peek(&h->peers[h->in_list[i]].in);
        if (p && due_ns(h, p) < h->wake_ns) {
            return 0; // due, or not seen by the pass, which has set no timer for it
        }
    }
    return 1;
}

static void sleep_until_news(struct softhca_hca *h)
{
    struct softhca_proc *me = &h->member.fabric->procs[h->member.slot];
    uint64_t ns = h->had_live ? RING_WAIT_NS : SLEEP_NS;
    uint64_t now = softhca_now_ns();
    if (h->wake_ns != UINT64_MAX) {
        uint64_t left = h->wake_ns > now ? h->wake_ns - now : 0;
        ns = left < ns || !h->had_live ? left : ns;
    }
    if (ns < 2000) {
        return; // shorter than a sleep takes
    }
    uint32_t bell = SOFTHCA_LOAD_ACQUIRE(&me->bell);
    SOFTHCA_STORE_SC(&me->sleeping, 1);
    if (idle(h)) {
        softhca_futex_wait(&me->bell, bell, ns < SLEEP_NS ? ns : SLEEP_NS);
    }
    SOFTHCA_STORE_SC(&me->sleeping, 0);
}

static void *run(void *arg)
{
    struct softhca_hca *h = arg;
    uint64_t busy_ns = 0;
    softhca_cuda_stay();
    while (!SOFTHCA_LOAD_ACQUIRE(&h->stop)) {
        (void)pthread_mutex_lock(&h->lock);
        int did = pass(h);
        int copying = h->pull_head != h->pull_tail;
        (void)pthread_mutex_unlock(&h->lock);
        while (SOFTHCA_LOAD_SC(&h->waiting)) {
            (void)sched_yield(); // a control call wants the lock
        }
        if (copying) {
            (void)sched_yield(); // nobody wakes us when they end
        } else if (did) {
            busy_ns = h->now_ns;
        } else if (softhca_now_ns() - busy_ns < h->config.spin_us * 1000) {
            softhca_pause();
        } else {
            sleep_until_news(h);
        }
    }
    return NULL;
}

int softhca_progress_start(void)
{
    struct softhca_hca *h = softhca_hca;
    if (h->running) {
        return 0;
    }
    sigset_t all, old; // signals belong to the program's threads
    (void)sigfillset(&all);
    SOFTHCA_STORE_RELEASE(&h->stop, 0);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&h->thread, NULL, run, h);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) {
        softhca_log("softhca: progress: cannot start a thread: %s", strerror(err));
        return -err;
    }
    (void)pthread_setname_np(h->thread, "softhca");
    h->running = 1;
    return 0;
}

void softhca_progress_stop(void)
{
    struct softhca_hca *h = softhca_hca;
    SOFTHCA_STORE_RELEASE(&h->stop, 1);
    softhca_fabric_wake(&h->member.fabric->procs[h->member.slot]);
    h->running = 0;
    pthread_t thread = h->thread;
    softhca_unlock(); // it may wait for the lock
    (void)pthread_join(thread, NULL);
    softhca_lock();
    softhca_late_forget(h);
}
