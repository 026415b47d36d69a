// SPDX-License-Identifier: Apache-2.0
// A verbs provider inside the test.
#include "test/unit/transport/fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CQ_ENTRIES 4096
#define SQ_ENTRIES 1024

/* What a caller of verbs must keep to; also for programs without Check. */
#define MUST(condition) ((condition) ? (void)0 : broken_rule(#condition, __LINE__))

static void broken_rule(const char *condition, int line)
{
    (void)fprintf(stderr, "fake_verbs.c:%d: not so: %s\n", line, condition);
    abort();
}

struct fake_context {
    struct ibv_context context;
    int events[2]; /* pipe */
};

struct fake_cq {
    struct ibv_cq cq;
    struct ibv_wc wc[CQ_ENTRIES];
    uint32_t head, tail;
};

struct fake_wr {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    uint64_t data; /* inline */
};

struct fake_qp {
    struct ibv_qp qp;
    struct fake_qp *next;
    uint32_t peer; /* number of the other end */
    uint32_t depth;
    uint32_t receives;
    uint32_t reported; /* events that are not acknowledged yet */
    struct fake_wr queue[SQ_ENTRIES];
    uint32_t head, tail;
};

struct fake_mr {
    struct ibv_mr mr;
    struct fake_mr *next;
};

struct fake_verbs fake;
static struct fake_qp *qps;
static struct fake_mr *mrs;
static uint32_t next_number;
static char log_text[16384];
static size_t log_used;
static int warnings;
/* A proxy posts and polls while the test executes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;

/* True when this call is the one that must fail. */
static bool fails(void)
{
    fake.calls++;
    if (fake.calls == fake.fail_call ||
        (fake.calls > fake.fail_call && fake.calls <= fake.fail_last)) {
        errno = fake.fail_errno;
        return true;
    }
    return false;
}

static void *make(size_t bytes)
{
    void *object = calloc(1, bytes);

    MUST(object != NULL);
    fake.live++;
    return object;
}

static void unmake(void *object)
{
    fake.live--;
    free(object);
}

static struct ibv_device **get_device_list(int *count)
{
    struct ibv_device **list;

    if (fails()) {
        return NULL;
    }
    list = make((size_t)(fake.devices + 1) * sizeof(*list));
    for (int i = 0; i < fake.devices; i++) {
        list[i] = &fake.device[i].device;
    }
    *count = fake.devices;
    return list;
}

static void free_device_list(struct ibv_device **list)
{
    unmake(list);
}

static const char *get_device_name(struct ibv_device *device)
{
    return ((struct fake_device *)device)->name;
}

static int post_send(struct ibv_qp *at, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int post_recv(struct ibv_qp *at, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static int poll_cq(struct ibv_cq *at, int count, struct ibv_wc *wc);

static struct fake_context *last_context;

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct fake_context *c;

    if (fails()) {
        return NULL;
    }
    c = make(sizeof(*c));
    MUST(pipe(c->events) == 0);
    c->context.device = device;
    c->context.async_fd = c->events[0];
    c->context.ops.post_send = post_send;
    c->context.ops.post_recv = post_recv;
    c->context.ops.poll_cq = poll_cq;
    last_context = c;
    return &c->context;
}

static int close_device(struct ibv_context *context)
{
    struct fake_context *c = (struct fake_context *)context;

    (void)close(c->events[0]);
    if (c->events[1] >= 0) {
        (void)close(c->events[1]);
    }
    unmake(c);
    return 0;
}

static struct fake_device *device_of(struct ibv_context *context)
{
    return (struct fake_device *)context->device;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    if (fails()) {
        return fake.fail_errno;
    }
    memset(attr, 0, sizeof(*attr));
    attr->phys_port_cnt = (uint8_t)device_of(context)->ports;
    attr->node_guid = htobe64(0x1000u + 16u * (uint64_t)(device_of(context) - fake.device));
    attr->max_qp_wr = SQ_ENTRIES;
    attr->max_cqe = CQ_ENTRIES;
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
    if (fails()) {
        return fake.fail_errno;
    }
    *attr = device_of(context)->port[port - 1].attr;
    return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    if (index < 0 || index >= FAKE_GIDS) {
        return EINVAL;
    }
    *gid = device_of(context)->port[port - 1].gid[index].gid;
    return 0;
}

static int query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
    (void)flags;
    MUST(entry_size == sizeof(*entry));
    if (index >= FAKE_GIDS) {
        return EINVAL;
    }
    *entry = device_of(context)->port[port - 1].gid[index];
    return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd;

    if (fails()) {
        return NULL;
    }
    pd = make(sizeof(*pd));
    pd->context = context;
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    unmake(pd);
    return 0;
}

static struct ibv_mr *reg(struct ibv_pd *pd, uint64_t address, size_t length, int access, int fd)
{
    struct fake_mr *m;

    if (fake.registrations < FAKE_RECORDS) {
        fake.registered[fake.registrations++] =
            (struct fake_registration){address, length, access, fd};
    }
    if (fails()) {
        return NULL;
    }
    m = make(sizeof(*m));
    m->mr.pd = pd;
    m->mr.addr = (void *)(uintptr_t)address;
    m->mr.length = length;
    m->mr.lkey = m->mr.rkey = ++next_number;
    m->next = mrs;
    mrs = m;
    return &m->mr;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    if (fake.host_errno != 0) {
        errno = fake.host_errno;
        return NULL;
    }
    return reg(pd, (uintptr_t)address, length, access, -1);
}

static struct ibv_mr *reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                   unsigned int access)
{
    MUST(iova == (uintptr_t)address);
    return reg_mr(pd, address, length, (int)access);
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                    uint64_t iova, int fd, int access)
{
    MUST(offset % 4096 == 0 && length % 4096 == 0 && iova % 4096 == 0);
    fake.dmabuf_offset = offset;
    errno = fake.dmabuf_errno != 0 ? fake.dmabuf_errno : EBADF;
    if (fd < 0 || fake.dmabuf_errno != 0) {
        return NULL;
    }
    return reg(pd, iova, length, access, fd);
}

static int dereg_mr(struct ibv_mr *mr)
{
    struct fake_mr **at = &mrs;

    while (&(*at)->mr != mr) {
        at = &(*at)->next;
        MUST(*at != NULL);
    }
    *at = (*at)->next;
    unmake(mr);
    return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int entries, void *user,
                                struct ibv_comp_channel *channel, int vector)
{
    struct fake_cq *cq;

    (void)user;
    (void)channel;
    (void)vector;
    if (fails()) {
        return NULL;
    }
    cq = make(sizeof(*cq));
    cq->cq.context = context;
    cq->cq.cqe = entries;
    return &cq->cq;
}

static int destroy_cq(struct ibv_cq *cq)
{
    for (struct fake_qp *q = qps; q != NULL; q = q->next) {
        if (q->qp.send_cq == cq || q->qp.recv_cq == cq) {
            return EBUSY;
        }
    }
    unmake(cq);
    return 0;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct fake_qp *q;

    if (fails()) {
        return NULL;
    }
    if (attr->cap.max_inline_data > FAKE_INLINE) {
        errno = EINVAL;
        return NULL;
    }
    MUST(attr->cap.max_send_wr <= SQ_ENTRIES);
    q = make(sizeof(*q));
    q->qp.context = pd->context;
    q->qp.pd = pd;
    q->qp.send_cq = attr->send_cq;
    q->qp.recv_cq = attr->recv_cq;
    q->qp.qp_num = ++next_number;
    q->depth = attr->cap.max_send_wr;
    q->next = qps;
    qps = q;
    return &q->qp;
}

static int modify_qp(struct ibv_qp *at, struct ibv_qp_attr *attr, int mask)
{
    struct fake_qp *q = (struct fake_qp *)at;

    if (fails()) {
        return fake.fail_errno;
    }
    if (fake.modifications < FAKE_RECORDS) {
        fake.modified[fake.modifications].attr = *attr;
        fake.modified[fake.modifications++].mask = mask;
    }
    if (mask & IBV_QP_DEST_QPN) {
        q->peer = attr->dest_qp_num;
    }
    q->qp.state = attr->qp_state;
    return 0;
}

static int destroy_qp(struct ibv_qp *at)
{
    struct fake_qp **link = &qps;

    (void)pthread_mutex_lock(&lock);
    while (((struct fake_qp *)at)->reported > 0) {
        (void)pthread_cond_wait(&acknowledged, &lock);
    }
    while (&(*link)->qp != at) {
        link = &(*link)->next;
        MUST(*link != NULL);
    }
    *link = (*link)->next;
    unmake(at);
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

static struct fake_qp *find(uint32_t number)
{
    for (struct fake_qp *q = qps; q != NULL; q = q->next) {
        if (q->qp.qp_num == number) {
            return q;
        }
    }
    return NULL;
}

static int post_one(struct fake_qp *q, const struct ibv_send_wr *wr)
{
    struct fake_wr *slot = &q->queue[q->tail % SQ_ENTRIES];
    uint32_t used;

    if (fake.post_fail != 0 && fake.posted + 1 == fake.post_fail) {
        fake.post_fail = 0;
        return fake.post_errno;
    }
    if (q->tail - q->head >= q->depth) {
        return ENOMEM;
    }
    slot->wr = *wr;
    if (wr->num_sge > 0) {
        MUST(wr->num_sge == 1);
        slot->sge = wr->sg_list[0];
    }
    if (wr->send_flags & IBV_SEND_INLINE) {
        MUST(slot->sge.length == 8);
        memcpy(&slot->data, (const void *)(uintptr_t)slot->sge.addr, 8);
    }
    q->tail++;
    fake.posted++;
    fake.reads += wr->opcode == IBV_WR_RDMA_READ;
    used = q->tail - q->head;
    fake.deepest = used > fake.deepest ? used : fake.deepest;
    return 0;
}

static int post_send(struct ibv_qp *at, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    int rc = 0;

    (void)pthread_mutex_lock(&lock);
    for (; wr != NULL && rc == 0; wr = rc == 0 ? wr->next : wr) {
        rc = post_one((struct fake_qp *)at, wr);
    }
    (void)pthread_mutex_unlock(&lock);
    *bad = wr;
    return rc;
}

static int post_recv(struct ibv_qp *at, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)pthread_mutex_lock(&lock);
    for (; wr != NULL; wr = wr->next) {
        if (fails()) {
            *bad = wr;
            (void)pthread_mutex_unlock(&lock);
            return fake.fail_errno;
        }
        ((struct fake_qp *)at)->receives++;
    }
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

static int poll_cq(struct ibv_cq *at, int count, struct ibv_wc *wc)
{
    struct fake_cq *cq = (struct fake_cq *)at;
    int n = 0;

    (void)pthread_mutex_lock(&lock);
    while (n < count && cq->head != cq->tail) {
        wc[n++] = cq->wc[cq->head++ % CQ_ENTRIES];
    }
    (void)pthread_mutex_unlock(&lock);
    return n;
}

static void push(struct ibv_cq *at, const struct ibv_wc *wc)
{
    struct fake_cq *cq = (struct fake_cq *)at;
    uint32_t used;

    cq->wc[cq->tail++ % CQ_ENTRIES] = *wc;
    used = cq->tail - cq->head;
    MUST(used <= (uint32_t)cq->cq.cqe);
    fake.most_completions = used > fake.most_completions ? used : fake.most_completions;
}

static bool covered(uint32_t key, uint64_t address, uint64_t length)
{
    for (struct fake_mr *m = mrs; m != NULL; m = m->next) {
        if (m->mr.rkey == key) {
            return (uintptr_t)m->mr.addr <= address &&
                   address + length <= (uintptr_t)m->mr.addr + m->mr.length;
        }
    }
    return false;
}

/* The bytes of one work request, and the receive that an immediate takes. */
static void carry_out(struct fake_qp *q, struct fake_wr *w)
{
    bool inlined = (w->wr.send_flags & IBV_SEND_INLINE) != 0;
    uint32_t length = w->wr.num_sge > 0 ? w->sge.length : 0;
    struct fake_qp *peer = find(q->peer);

    if (length > 0) {
        void *local = inlined ? &w->data : (void *)(uintptr_t)w->sge.addr;
        void *remote = (void *)(uintptr_t)w->wr.wr.rdma.remote_addr;
        bool read = w->wr.opcode == IBV_WR_RDMA_READ;

        MUST(inlined || covered(w->sge.lkey, w->sge.addr, length));
        MUST(covered(w->wr.wr.rdma.rkey, w->wr.wr.rdma.remote_addr, length));
        memcpy(read ? local : remote, read ? remote : local, length);
    }
    if (w->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        struct ibv_wc wc = {.status = IBV_WC_SUCCESS,
                            .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                            .wc_flags = IBV_WC_WITH_IMM,
                            .byte_len = length,
                            .imm_data = w->wr.imm_data};

        MUST(peer != NULL);
        MUST(peer->receives > 0);
        peer->receives--;
        wc.qp_num = peer->qp.qp_num;
        push(peer->qp.recv_cq, &wc);
    }
}

uint32_t fake_queued(uint32_t qp_number)
{
    struct fake_qp *q;
    uint32_t count;

    (void)pthread_mutex_lock(&lock);
    q = find(qp_number);
    count = q->tail - q->head;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

uint32_t fake_execute(uint32_t qp_number, uint32_t count, enum ibv_wc_status status)
{
    struct fake_qp *q;
    uint32_t done;

    (void)pthread_mutex_lock(&lock);
    q = find(qp_number);
    for (done = 0; done < count && q->head != q->tail; done++) {
        struct fake_wr *w = &q->queue[q->head % SQ_ENTRIES];

        if (status == IBV_WC_SUCCESS) {
            carry_out(q, w);
        }
        if (status != IBV_WC_SUCCESS || w->wr.send_flags & IBV_SEND_SIGNALED) {
            struct ibv_wc wc = {.wr_id = w->wr.wr_id,
                                .status = status,
                                .opcode = status != IBV_WC_SUCCESS ? (enum ibv_wc_opcode)0x55
                                          : w->wr.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ
                                                                             : IBV_WC_RDMA_WRITE,
                                .vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x81,
                                .qp_num = qp_number};

            push(q->qp.send_cq, &wc);
        }
        q->head++;
    }
    (void)pthread_mutex_unlock(&lock);
    return done;
}

static bool of_a_qp(enum ibv_event_type type)
{
    return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
           type == IBV_EVENT_QP_ACCESS_ERR;
}

/* The entry of the list, which `qp` need not be any more. */
static struct fake_qp *still_there(const struct ibv_qp *qp)
{
    struct fake_qp *q = qps;

    while (q != NULL && &q->qp != qp) {
        q = q->next;
    }
    return q;
}

/* As documented: the events of a queue pair that is gone are dropped, and it cannot go between this
 * and the acknowledgement. */
static int get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    int rc = 0;

    if (read(context->async_fd, event, sizeof(*event)) != (ssize_t)sizeof(*event)) {
        return -1;
    }
    if (of_a_qp(event->event_type)) {
        struct fake_qp *q;

        (void)pthread_mutex_lock(&lock);
        q = still_there(event->element.qp);
        rc = q != NULL ? 0 : -1;
        if (q != NULL) {
            q->reported++;
        }
        (void)pthread_mutex_unlock(&lock);
    }
    return rc;
}

static void ack_async_event(struct ibv_async_event *event)
{
    if (of_a_qp(event->event_type)) {
        (void)pthread_mutex_lock(&lock);
        ((struct fake_qp *)event->element.qp)->reported--;
        (void)pthread_cond_broadcast(&acknowledged);
        (void)pthread_mutex_unlock(&lock);
    }
}

void fake_event(enum ibv_event_type type, int port)
{
    struct ibv_async_event event = {.event_type = type, .element.port_num = port};

    MUST((int)write(last_context->events[1], &event, sizeof(event)) == sizeof(event));
}

void fake_qp_event(enum ibv_event_type type, uint32_t qp_number)
{
    struct ibv_async_event event = {.event_type = type};
    struct fake_qp *q;

    (void)pthread_mutex_lock(&lock);
    q = find(qp_number);
    if (q != NULL) {
        struct fake_context *c = (struct fake_context *)q->qp.context;

        event.element.qp = &q->qp;
        MUST((int)write(c->events[1], &event, sizeof(event)) == sizeof(event));
    }
    (void)pthread_mutex_unlock(&lock);
}

void fake_take_away(void)
{
    (void)close(last_context->events[1]);
    last_context->events[1] = -1;
}

static int fork_init(void)
{
    return 0;
}

static const char *event_type_str(enum ibv_event_type event)
{
    switch (event) {
    case IBV_EVENT_DEVICE_FATAL: return "local catastrophic error";
    case IBV_EVENT_QP_FATAL: return "local work queue catastrophic error";
    case IBV_EVENT_QP_REQ_ERR: return "invalid request local work queue error";
    case IBV_EVENT_QP_ACCESS_ERR: return "local access violation work queue error";
    default: return "some event";
    }
}

static const char *wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "some status";
}

const struct gemmar_ib_verbs *fake_table(void)
{
    static const struct gemmar_ib_verbs table = {
        .get_device_list = get_device_list,
        .free_device_list = free_device_list,
        .get_device_name = get_device_name,
        .open_device = open_device,
        .close_device = close_device,
        .query_device = query_device,
        .query_port = query_port,
        .query_gid = query_gid,
        .alloc_pd = alloc_pd,
        .dealloc_pd = dealloc_pd,
        .reg_mr = reg_mr,
        .dereg_mr = dereg_mr,
        .create_cq = create_cq,
        .destroy_cq = destroy_cq,
        .create_qp = create_qp,
        .modify_qp = modify_qp,
        .destroy_qp = destroy_qp,
        .get_async_event = get_async_event,
        .ack_async_event = ack_async_event,
        .fork_init = fork_init,
        .event_type_str = event_type_str,
        .wc_status_str = wc_status_str,
        .reg_mr_iova2 = reg_mr_iova2,
        .reg_dmabuf_mr = reg_dmabuf_mr,
        .query_gid_ex = query_gid_ex,
    };

    return &table;
}

int fake_add_device(const char *name, int ports, bool ethernet)
{
    struct fake_device *d = &fake.device[fake.devices];

    memset(d, 0, sizeof(*d));
    (void)snprintf(d->name, sizeof(d->name), "%s", name);
    d->ports = ports;
    for (int p = 0; p < ports; p++) {
        struct fake_port *port = &d->port[p];

        port->attr.state = IBV_PORT_ACTIVE;
        port->attr.max_mtu = port->attr.active_mtu = IBV_MTU_4096;
        port->attr.gid_tbl_len = FAKE_GIDS;
        port->attr.max_msg_sz = 1u << 30;
        port->attr.lid = (uint16_t)(ethernet ? 0 : 1 + 2 * fake.devices + p);
        port->attr.active_width = 2;   /* 4 lanes */
        port->attr.active_speed = 128; /* 100 Gb/s each */
        port->attr.link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
        MUST(inet_pton(AF_INET6, ethernet ? "::ffff:10.0.0.1" : "fe80::2:c903:0:1",
                       port->gid[0].gid.raw) == 1);
        port->gid[0].gid.raw[15] = (uint8_t)(1 + 2 * fake.devices + p);
        port->gid[0].gid_type = ethernet ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
    }
    return fake.devices++;
}

static void on_log(void *user, enum gemmar_log_level level, const char *text)
{
    (void)user;
    (void)pthread_mutex_lock(&lock);
    warnings += level == GEMMAR_LOG_WARN;
    if (log_used + strlen(text) + 2 < sizeof(log_text)) {
        log_used +=
            (size_t)snprintf(log_text + log_used, sizeof(log_text) - log_used, "%s\n", text);
    }
    (void)pthread_mutex_unlock(&lock);
}

const struct gemmar_logger *fake_logger(void)
{
    static const struct gemmar_logger logger = {.sink = on_log, .level = GEMMAR_LOG_INFO};

    return &logger;
}

int fake_warnings(void)
{
    return warnings;
}

const char *fake_log_text(void)
{
    return log_text;
}

void fake_log_clear(void)
{
    warnings = 0;
    log_used = 0;
    log_text[0] = '\0';
}

struct gemmar_knobs *fake_knobs(void)
{
    static struct gemmar_knobs knobs;
    char why[256];

    memset(&knobs, 0, sizeof(knobs));
    for (int i = 0; i < GEMMAR_KNOB_COUNT; i++) {
        const struct gemmar_knob *knob = &gemmar_knob_table()[i];

        MUST(gemmar_knob_parse(&knobs, knob, knob->standard, why, sizeof(why)) == 0);
    }
    return &knobs;
}

void fake_reset(void)
{
    memset(&fake, 0, sizeof(fake));
    fake.fail_errno = EIO;
    fake.post_errno = ENOMEM;
    fake_log_clear();
    (void)fake_add_device("fake0", 1, false);
}
