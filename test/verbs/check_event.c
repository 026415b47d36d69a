// SPDX-License-Identifier: Apache-2.0
// Checks: completion channels and asynchronous events.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { QUIET_MS = 150, EVENT_MS = 3000 };

static bool readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) == 1 && (p.revents & POLLIN);
}

static void event_expect(struct side *s, struct ibv_cq *cq)
{
    struct ibv_cq *got = NULL;
    void *context = NULL;
    MUST(readable(s->channel->fd, WAIT_MS), "an event");
    MUST(ibv_get_cq_event(s->channel, &got, &context) == 0, "ibv_get_cq_event");
    MUST(got == cq && context == s, "the event names its completion queue");
    ibv_ack_cq_events(cq, 1);
}

static void event_none(struct side *s)
{
    MUST(!readable(s->channel->fd, QUIET_MS), "no event");
}

static void write_once(struct pair *p, uint64_t id)
{
    struct job j;
    job_post(p->a.qp, job_fill(&j, IBV_WR_RDMA_WRITE, id, &p->a, 0, &p->b, 0, 8));
}

static void one_event_per_request(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.channel = true});
    write_once(&p, 1);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    event_none(&p.a); // nobody asked

    MUST(ibv_req_notify_cq(p.a.send_cq, 0) == 0, "ibv_req_notify_cq");
    event_none(&p.a); // nothing happened
    write_once(&p, 2);
    event_expect(&p.a, p.a.send_cq);
    write_once(&p, 3);
    event_none(&p.a); // one request, one event
    wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);
    wc_expect(p.a.send_cq, 3, IBV_WC_SUCCESS);
    pair_close(&p);
}

static void solicited(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.channel = true});
    recv_post(&p.b, 1, 0, 8);
    recv_post(&p.b, 2, 0, 8);
    recv_post(&p.b, 3, 0, 8);
    MUST(ibv_req_notify_cq(p.b.recv_cq, 1) == 0, "ibv_req_notify_cq");
    job_fill(&j, IBV_WR_SEND, 11, &p.a, 0, NULL, 0, 8);
    job_post(p.a.qp, &j);
    wc_expect(p.b.recv_cq, 1, IBV_WC_SUCCESS);
    event_none(&p.b);
    j.wr.send_flags |= IBV_SEND_SOLICITED;
    job_post(p.a.qp, &j);
    event_expect(&p.b, p.b.recv_cq);
    wc_expect(p.b.recv_cq, 2, IBV_WC_SUCCESS);

    MUST(ibv_req_notify_cq(p.b.recv_cq, 1) == 0, "ibv_req_notify_cq");
    job_fill(&j, IBV_WR_RDMA_WRITE_WITH_IMM, 11, &p.a, 0, &p.b, 0, 8);
    j.wr.send_flags |= IBV_SEND_SOLICITED;
    job_post(p.a.qp, &j);
    event_expect(&p.b, p.b.recv_cq);
    wc_expect(p.b.recv_cq, 3, IBV_WC_SUCCESS);
    for (int i = 0; i < 3; i++) {
        wc_expect(p.a.send_cq, 11, IBV_WC_SUCCESS);
    }
    pair_close(&p);
}

// A failed completion counts as solicited.
static void failure_is_solicited(void)
{
    struct pair p;
    pair_open(&p, &(struct setup){.channel = true});
    recv_post(&p.b, 1, 0, 8);
    MUST(ibv_req_notify_cq(p.b.recv_cq, 1) == 0, "ibv_req_notify_cq");
    qp_move(p.b.qp, IBV_QPS_ERR);
    event_expect(&p.b, p.b.recv_cq);
    wc_expect(p.b.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
    pair_close(&p);
}

// Ask, poll until empty, sleep on the channel: no completion may be slept through.
static void none_is_missed(void)
{
    enum { N = 300 };
    struct pair p;
    pair_open(&p, &(struct setup){.channel = true});
    MUST(ibv_req_notify_cq(p.a.send_cq, 0) == 0, "ibv_req_notify_cq");
    for (unsigned i = 0; i < N; i++) {
        struct ibv_wc wc;
        write_once(&p, i);
        for (;;) {
            int n = ibv_poll_cq(p.a.send_cq, 1, &wc);
            MUST(n >= 0, "ibv_poll_cq");
            if (n) {
                break;
            }
            event_expect(&p.a, p.a.send_cq);
            MUST(ibv_req_notify_cq(p.a.send_cq, 0) == 0, "ibv_req_notify_cq");
        }
        MUST(wc.wr_id == i && wc.status == IBV_WC_SUCCESS, "write %u", i);
    }
    // drain the channel: its last event may be one that nobody slept on
    while (readable(p.a.channel->fd, 0)) {
        event_expect(&p.a, p.a.send_cq);
    }
    pair_close(&p);
}

static void channel_not_blocking(void)
{
    struct pair p;
    struct ibv_cq *cq;
    void *context;
    pair_open(&p, &(struct setup){.channel = true});
    int flags = fcntl(p.a.channel->fd, F_GETFL);
    MUST(flags >= 0 && fcntl(p.a.channel->fd, F_SETFL, flags | O_NONBLOCK) == 0, "O_NONBLOCK");
    errno = 0;
    MUST(ibv_get_cq_event(p.a.channel, &cq, &context) == -1 && errno == EAGAIN, "EAGAIN");
    MUST(ibv_req_notify_cq(p.a.send_cq, 0) == 0, "ibv_req_notify_cq");
    write_once(&p, 1);
    event_expect(&p.a, p.a.send_cq);
    wc_expect(p.a.send_cq, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}

// Two queues on one channel: each event names the right one; several are acknowledged at once.
static void two_queues_one_channel(void)
{
    struct pair p;
    struct job j;
    pair_open(&p, &(struct setup){.channel = true});
    struct address self = side_address(&p.a);
    qp_move(p.a.qp, IBV_QPS_RESET);
    qp_connect(&p.a, p.a.qp, &self);
    unsigned seen[2] = {0, 0};
    for (unsigned i = 0; i < 3; i++) {
        MUST(ibv_req_notify_cq(p.a.send_cq, 0) == 0, "ibv_req_notify_cq");
        MUST(ibv_req_notify_cq(p.a.recv_cq, 0) == 0, "ibv_req_notify_cq");
        recv_post(&p.a, 1, 100, 8);
        job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 2, &p.a, 0, NULL, 0, 8));
        for (unsigned k = 0; k < 2; k++) {
            struct ibv_cq *cq = NULL;
            void *context;
            MUST(readable(p.a.channel->fd, WAIT_MS), "an event");
            MUST(ibv_get_cq_event(p.a.channel, &cq, &context) == 0, "ibv_get_cq_event");
            MUST(cq == p.a.send_cq || cq == p.a.recv_cq, "one of the two queues");
            seen[cq == p.a.recv_cq]++;
        }
        wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);
        wc_expect(p.a.recv_cq, 1, IBV_WC_SUCCESS);
    }
    MUST(seen[0] == 3 && seen[1] == 3, "three events of each");
    ibv_ack_cq_events(p.a.send_cq, 3);
    ibv_ack_cq_events(p.a.recv_cq, 3);
    pair_close(&p);
}

struct destroyer {
    struct ibv_cq *cq;
    int done; // writer: the destroying thread; reader: the check; release and acquire
};

static void *destroy(void *arg)
{
    struct destroyer *d = arg;
    int rc = ibv_destroy_cq(d->cq);
    __atomic_store_n(&d->done, rc == 0 ? 1 : -1, __ATOMIC_RELEASE);
    return NULL;
}

// A queue does not go while one of its events is not acknowledged.
static void destroy_waits_for_ack(void)
{
    struct pair p;
    pthread_t thread;
    pair_open(&p, &(struct setup){.channel = true});
    MUST(ibv_req_notify_cq(p.a.send_cq, 0) == 0, "ibv_req_notify_cq");
    write_once(&p, 1);
    struct ibv_cq *cq = NULL;
    void *context;
    MUST(readable(p.a.channel->fd, WAIT_MS), "an event");
    MUST(ibv_get_cq_event(p.a.channel, &cq, &context) == 0, "ibv_get_cq_event");
    MUST(ibv_destroy_qp(p.a.qp) == 0, "ibv_destroy_qp");
    struct destroyer d = {.cq = cq};
    MUST(pthread_create(&thread, NULL, destroy, &d) == 0, "pthread_create");
    nap(QUIET_MS / 1e3);
    MUST(__atomic_load_n(&d.done, __ATOMIC_ACQUIRE) == 0, "ibv_destroy_cq waits");
    ibv_ack_cq_events(cq, 1);
    MUST(pthread_join(thread, NULL) == 0 && d.done == 1, "then it goes");
    p.a.send_cq = ibv_create_cq(p.a.ctx, 16, &p.a, p.a.channel, 0);
    MUST(p.a.send_cq, "ibv_create_cq");
    p.a.qp = side_create_qp(&p.a);
    pair_close(&p);
}

// ---- asynchronous events

// Waits for one kind of event and acknowledges all that come before it.
static bool async_wait(struct ibv_context *ctx, enum ibv_event_type type, int ms,
                       struct ibv_async_event *out)
{
    double end = now() + ms / 1e3;
    while (now() < end) {
        struct ibv_async_event event;
        if (!readable(ctx->async_fd, 50)) {
            continue;
        }
        MUST(ibv_get_async_event(ctx, &event) == 0, "ibv_get_async_event");
        ibv_ack_async_event(&event);
        if (event.event_type == type) {
            *out = event;
            return true;
        }
    }
    return false;
}

// The first packet at a responder in RTR tells it that the connection is up.
static void communication_established(void)
{
    struct pair p;
    struct job j;
    struct ibv_async_event event;
    side_open(&p.a, 0, NULL);
    side_open(&p.b, 1, NULL);
    struct address a = side_address(&p.a), b = side_address(&p.b);
    qp_init(&p.b, p.b.qp);
    qp_rtr(&p.b, p.b.qp, &a);
    qp_connect(&p.a, p.a.qp, &b);
    MUST(!async_wait(p.b.ctx, IBV_EVENT_COMM_EST, QUIET_MS, &event), "no event before a packet");
    recv_post(&p.b, 1, 0, 8);
    job_post(p.a.qp, job_fill(&j, IBV_WR_SEND, 2, &p.a, 0, NULL, 0, 8));
    wc_expect(p.a.send_cq, 2, IBV_WC_SUCCESS);
    wc_expect(p.b.recv_cq, 1, IBV_WC_SUCCESS);
    if (async_wait(p.b.ctx, IBV_EVENT_COMM_EST, EVENT_MS, &event)) {
        MUST(event.element.qp == p.b.qp, "it names the queue pair");
    } else {
        MUST(allowed(DIFF_NO_COMM_EST_EVENT), "IBV_EVENT_COMM_EST");
    }
    qp_rts(&p.b, p.b.qp);
    pair_close(&p);
}

static void access_event(void)
{
    struct pair p;
    struct job j;
    struct ibv_async_event event;
    pair_open(&p, NULL);
    job_fill(&j, IBV_WR_RDMA_WRITE, 1, &p.a, 0, &p.b, 0, 8);
    j.wr.wr.rdma.rkey ^= 0x5500;
    job_post(p.a.qp, &j);
    wc_expect(p.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
    if (async_wait(p.b.ctx, IBV_EVENT_QP_ACCESS_ERR, EVENT_MS, &event)) {
        MUST(event.element.qp == p.b.qp, "it names the responder's queue pair");
    } else {
        MUST(allowed(DIFF_NO_ACCESS_EVENT), "IBV_EVENT_QP_ACCESS_ERR");
    }
    pair_close(&p);
}

static void last_request_reached(void)
{
    struct pair p;
    struct ibv_async_event event;
    struct ibv_device_attr attr;
    struct ibv_context *ctx = device_open(0);
    MUST(ibv_query_device(ctx, &attr) == 0 && ibv_close_device(ctx) == 0, "ibv_query_device");
    if (attr.max_srq == 0) {
        check_skipped("the device says that it has no shared receive queues");
    }
    pair_open(&p, &(struct setup){.srq = true});
    qp_move(p.b.qp, IBV_QPS_ERR);
    if (async_wait(p.b.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, EVENT_MS, &event)) {
        MUST(event.element.qp == p.b.qp, "it names the queue pair");
    } else {
        MUST(allowed(DIFF_NO_LAST_WQE_EVENT), "IBV_EVENT_QP_LAST_WQE_REACHED");
    }
    pair_close(&p);
}

static void completion_queue_overrun(void)
{
    struct pair p;
    struct job j;
    struct ibv_async_event event;
    pair_open(&p, &(struct setup){.cqe = 4, .send_wr = 64});
    unsigned n = (unsigned)p.a.send_cq->cqe + 8;
    MUST(n < 4096, "a small completion queue");
    for (unsigned i = 0; i < n; i++) {
        double end = now() + 1;
        job_fill(&j, IBV_WR_RDMA_WRITE, i, &p.a, 0, &p.b, 0, 8);
        while (job_try(p.a.qp, &j) != 0 && now() < end) {
            nap(1e-3);
        }
    }
    MUST(async_wait(p.a.ctx, IBV_EVENT_CQ_ERR, WAIT_MS, &event), "IBV_EVENT_CQ_ERR");
    MUST(event.element.cq == p.a.send_cq, "it names the completion queue");
    pair_close(&p);
}

static void command(const char *text)
{
    MUST(system(text) == 0, "status 0 of: %s", text);
}

static enum ibv_port_state port_state(struct ibv_context *ctx)
{
    struct ibv_port_attr attr;
    MUST(ibv_query_port(ctx, (uint8_t)options.port, &attr) == 0, "ibv_query_port");
    return attr.state;
}

static void port_down_and_up(void)
{
    struct pair p;
    struct ibv_async_event event;
    if (!options.port_down || !options.port_up) {
        check_skipped("no --port-down and --port-up");
    }
    pair_open(&p, NULL);
    command(options.port_down);
    MUST(async_wait(p.a.ctx, IBV_EVENT_PORT_ERR, WAIT_MS, &event), "IBV_EVENT_PORT_ERR");
    MUST(event.element.port_num == options.port, "it names the port");
    MUST(port_state(p.a.ctx) != IBV_PORT_ACTIVE, "the port is not active");
    command(options.port_up);
    MUST(async_wait(p.a.ctx, IBV_EVENT_PORT_ACTIVE, WAIT_MS, &event), "IBV_EVENT_PORT_ACTIVE");
    MUST(port_state(p.a.ctx) == IBV_PORT_ACTIVE, "the port is active");
    pair_works(&p);
    pair_close(&p);
}

const struct check event_checks[] = {
    {"event.one_for_each_request", one_event_per_request, 0},
    {"event.solicited_only", solicited, 0},
    {"event.failure_is_solicited", failure_is_solicited, 0},
    {"event.none_is_missed", none_is_missed, 0},
    {"event.channel_that_does_not_block", channel_not_blocking, 0},
    {"event.two_queues_on_one_channel", two_queues_one_channel, 0},
    {"event.destroy_waits_for_the_acknowledgement", destroy_waits_for_ack, 0},
    {"event.communication_established", communication_established, 0},
    {"event.access_error_at_the_responder", access_event, 0},
    {"event.last_request_reached", last_request_reached, 0},
    {"event.completion_queue_overrun", completion_queue_overrun, 0},
    {"event.port_down_and_up", port_down_and_up, 0},
    {0},
};
