// SPDX-License-Identifier: Apache-2.0
// The two ends of a plan, as state machines that never wait.
#include "test/plugin/traffic.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CANARY 64u // poison before and behind each receive buffer

struct slot {     // a group in flight
    int issued;   // sends; receives: 1 when posted
    int done;     // sends; receives: 1 when the data is here
    int flushing; // 1 while its flush is on the way
    void *request[NET_MAX_RECVS];
    char *data; // of the group; parts follow each other
};

struct flow {
    struct world *w;
    const struct plan *plan;
    struct slot *slots;
    void *comm;
    int sending;
    unsigned first, next; // groups in flight: [first, next)
    uint64_t random;      // of lateness
    char *arena;
    size_t arena_bytes, slot_bytes;
    void *mh;
};

void plan_init(struct plan *plan, unsigned count, unsigned window, uint64_t seed)
{
    plan->groups = calloc(count, sizeof *plan->groups);
    CHECK(plan->groups, "no memory");
    plan->count = count;
    plan->window = window;
    plan->seed = seed;
    plan->lazy = 0;
}

void plan_release(struct plan *plan)
{
    free(plan->groups);
}

void group_fill(struct group *g, int n, size_t bytes, size_t room)
{
    memset(g, 0, sizeof *g);
    g->n = n;
    for (int i = 0; i < n; i++) {
        g->part[i] = (struct part){.bytes = bytes, .room = room, .tag = 100 + i};
        g->order[i] = (uint8_t)i;
    }
}

void plan_permute(struct group *g, uint64_t *state)
{
    int left[NET_MAX_RECVS], n = g->n;
    for (int i = 0; i < n; i++) {
        left[i] = i;
    }
    for (int k = 0; k < g->n; k++) {
        int pick = (int)random_below(state, (uint64_t)n);
        for (int i = 0; i < pick; i++) { // the first of this tag
            if (g->part[left[i]].tag == g->part[left[pick]].tag) {
                pick = i;
            }
        }
        g->order[k] = (uint8_t)left[pick];
        memmove(&left[pick], &left[pick + 1], (size_t)(n - 1 - pick) * sizeof *left);
        n--;
    }
}

static uint64_t pattern_word(uint64_t key, uint64_t i)
{
    uint64_t x = (key + i) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

void pattern_fill(void *to, size_t bytes, uint64_t key)
{
    char *p = to;
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t x = pattern_word(key, i);
        memcpy(p + 8 * i, &x, 8);
    }
    uint64_t x = pattern_word(key, bytes / 8);
    memcpy(p + bytes / 8 * 8, &x, bytes % 8);
}

size_t pattern_check(const void *at, size_t bytes, uint64_t key)
{
    const char *p = at;
    for (size_t i = 0; i < (bytes + 7) / 8; i++) {
        uint64_t x = pattern_word(key, i);
        size_t n = bytes - 8 * i < 8 ? bytes - 8 * i : 8;
        if (memcmp(p + 8 * i, &x, n) != 0) {
            return 8 * i;
        }
    }
    return bytes;
}

static uint64_t key_of(const struct plan *plan, unsigned group, int part)
{
    uint64_t state = plan->seed ^ (uint64_t)group << 8 ^ (unsigned)part;
    return random_next(&state);
}

static size_t part_bytes(const struct part *p) // in the arena
{
    return (p->room + 2 * CANARY + 63) / 64 * 64;
}

static char *part_data(const struct slot *s, const struct group *g, int i)
{
    size_t at = CANARY;
    for (int k = 0; k < i; k++) {
        at += part_bytes(&g->part[k]);
    }
    return s->data + at;
}

static size_t group_bytes(const struct group *g)
{
    size_t sum = 0;
    for (int i = 0; i < g->n; i++) {
        sum += part_bytes(&g->part[i]);
    }
    return sum;
}

struct flow *flow_open(struct world *w, void *comm, int sending, const struct plan *plan)
{
    struct flow *f = calloc(1, sizeof *f);
    CHECK(f, "no memory");
    *f = (struct flow){.w = w, .plan = plan, .comm = comm, .sending = sending};
    f->random = plan->seed + (unsigned)sending;
    for (unsigned i = 0; i < plan->count; i++) {
        size_t n = group_bytes(&plan->groups[i]);
        f->slot_bytes = n > f->slot_bytes ? n : f->slot_bytes;
    }
    f->arena_bytes = f->slot_bytes * plan->window;
    f->arena =
        mmap(NULL, f->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    f->slots = calloc(plan->window, sizeof *f->slots);
    CHECK(f->arena != MAP_FAILED && f->slots, "no memory for %zu bytes", f->arena_bytes);
    must(net_reg(&w->net, comm, f->arena, f->arena_bytes, &f->mh), "regMr");
    for (unsigned i = 0; i < plan->window; i++) {
        f->slots[i].data = f->arena + i * f->slot_bytes;
    }
    return f;
}

void flow_close(struct flow *f)
{
    must(net_dereg(&f->w->net, f->comm, f->mh), "deregMr");
    (void)munmap(f->arena, f->arena_bytes); // our own mapping
    free(f->slots);
    free(f);
}

static void send_one(struct flow *f, unsigned group, struct slot *s)
{
    const struct group *g = &f->plan->groups[group];
    int i = g->order[s->issued];
    const struct part *p = &g->part[i];
    void *request;
    char *data = p->null ? NULL : part_data(s, g, i);
    int rc =
        net_isend(&f->w->net, f->comm, data, p->bytes, p->tag, p->null ? NULL : f->mh, &request);
    CHECK(rc == 0, "isend of group %u part %d, %zu bytes, returned %d", group, i, p->bytes, rc);
    if (request) {
        s->request[i] = request;
        s->issued++;
    }
}

static void send_fill(struct flow *f, unsigned group, struct slot *s)
{
    const struct group *g = &f->plan->groups[group];
    s->issued = s->done = 0;
    memset(s->request, 0, sizeof s->request);
    for (int i = 0; i < g->n; i++) {
        pattern_fill(part_data(s, g, i), g->part[i].bytes, key_of(f->plan, group, i));
    }
}

static void send_test(struct flow *f, unsigned group, struct slot *s)
{
    const struct group *g = &f->plan->groups[group];
    for (int i = 0; i < g->n; i++) {
        int done = 0, bytes = -1;
        if (!s->request[i]) {
            continue;
        }
        int rc = net_test(&f->w->net, s->request[i], &done, 1, &bytes);
        CHECK(rc == 0, "test of send %u.%d returned %d", group, i, rc);
        CHECK(done == 0 || done == 1, "test of send %u.%d says done %d", group, i, done);
        if (done) {
            int want = g->part[i].bytes > INT_MAX ? INT_MAX : (int)g->part[i].bytes;
            // NCCL 2.28.9 cuts its own figure to an int
            CHECK(bytes == want || (f->w->net.reference && g->part[i].bytes > INT_MAX),
                  "send %u.%d says %d bytes, not %d", group, i, bytes, want);
            s->request[i] = NULL;
            s->done++;
        }
    }
}

// The group to test instead of the i-th; f->next: none now.
static unsigned pick_group(struct flow *f, unsigned i)
{
    if (!f->plan->lazy) {
        return i;
    }
    return random_below(&f->random, 4)
               ? f->next
               : f->first + (unsigned)random_below(&f->random, f->next - f->first);
}

static int send_turn(struct flow *f)
{
    if (f->next < f->plan->count && f->next - f->first < f->plan->window &&
        (f->next == f->first ||
         f->slots[(f->next - 1) % f->plan->window].issued == f->plan->groups[f->next - 1].n)) {
        send_fill(f, f->next, &f->slots[f->next % f->plan->window]);
        f->next++;
    }
    if (f->next > f->first) { // only the newest group may have parts that are not issued
        struct slot *s = &f->slots[(f->next - 1) % f->plan->window];
        if (s->issued < f->plan->groups[f->next - 1].n) {
            send_one(f, f->next - 1, s);
        }
    }
    for (unsigned i = f->first; i < f->next; i++) {
        unsigned k = pick_group(f, i);
        if (k < f->next) {
            send_test(f, k, &f->slots[k % f->plan->window]);
        }
    }
    while (f->first < f->next &&
           f->slots[f->first % f->plan->window].done == f->plan->groups[f->first].n) {
        f->first++;
    }
    return f->first == f->plan->count;
}

static void recv_post(struct flow *f, unsigned group, struct slot *s)
{
    const struct group *g = &f->plan->groups[group];
    void *data[NET_MAX_RECVS], *mhs[NET_MAX_RECVS], *request;
    size_t room[NET_MAX_RECVS];
    int tags[NET_MAX_RECVS];
    if (!s->issued) {
        memset(s->data, NET_POISON, group_bytes(g));
    }
    for (int i = 0; i < g->n; i++) {
        data[i] = g->part[i].null ? NULL : part_data(s, g, i);
        mhs[i] = g->part[i].null ? NULL : f->mh;
        room[i] = g->part[i].room;
        tags[i] = g->part[i].tag;
    }
    memset(&request, NET_POISON, sizeof request);
    if (g->optional) {
        request = NET_OPTIONAL;
    }
    int rc = net_irecv(&f->w->net, f->comm, g->n, data, room, tags, mhs, &request);
    CHECK(rc == 0, "irecv of group %u of %d returned %d", group, g->n, rc);
    CHECK(request != NET_OPTIONAL && !guard_untouched(&request, sizeof request),
          "irecv of group %u left the request as it was", group);
    s->request[0] = request;
    s->issued = request != NULL;
}

static void check_part(const struct flow *f, unsigned group, const struct slot *s, int i)
{
    const struct group *g = &f->plan->groups[group];
    const struct part *p = &g->part[i];
    const char *data = part_data(s, g, i);
    size_t good = pattern_check(data, p->bytes, key_of(f->plan, group, i));
    CHECK(good == p->bytes, "receive %u.%d of %d, %zu bytes: wrong from byte %zu", group, i, g->n,
          p->bytes, good);
    CHECK(guard_untouched(data + p->bytes, p->room - p->bytes + CANARY),
          "receive %u.%d, %zu bytes: written behind its end", group, i, p->bytes);
    CHECK(guard_untouched(data - CANARY, CANARY), "receive %u.%d: written before its start", group,
          i);
}

static int optional_is_here(const struct flow *f, unsigned group, const struct slot *s)
{
    const struct group *g = &f->plan->groups[group];
    for (int i = 0; i < g->n; i++) {
        size_t n = g->part[i].bytes;
        if (pattern_check(part_data(s, g, i), n, key_of(f->plan, group, i)) != n) {
            return 0;
        }
    }
    return 1;
}

static void recv_flush(struct flow *f, unsigned group, struct slot *s, const int *bytes)
{
    const struct group *g = &f->plan->groups[group];
    void *data[NET_MAX_RECVS], *mhs[NET_MAX_RECVS], *request = NULL;
    int sum = 0;
    for (int i = 0; i < g->n; i++) {
        data[i] = g->part[i].null ? NULL : part_data(s, g, i);
        mhs[i] = g->part[i].null ? NULL : f->mh;
        sum |= bytes[i];
    }
    if (!f->w->net.reference) { // NCCL 2.28.9 leaves the word alone when there is nothing to do
        memset(&request, NET_POISON, sizeof request);
    }
    must(net_iflush(&f->w->net, f->comm, g->n, data, bytes, mhs, &request), "iflush");
    CHECK(!guard_untouched(&request, sizeof request), "iflush left the request as it was");
    CHECK(sum || !request, "iflush of nothing gave a request");
    s->request[0] = request;
    s->flushing = request != NULL;
    s->done = !s->flushing;
}

static void recv_test(struct flow *f, unsigned group, struct slot *s)
{
    const struct group *g = &f->plan->groups[group];
    int done = 0, bytes[NET_MAX_RECVS];
    if (s->request[0]) {
        int want = s->flushing || g->optional;
        int rc = net_test(&f->w->net, s->request[0], &done, g->n, want ? NULL : bytes);
        CHECK(rc == 0, "test of receive %u returned %d", group, rc);
        CHECK(done == 0 || done == 1, "test of receive %u says done %d", group, done);
        if (!done) {
            return;
        }
        s->request[0] = NULL;
        if (s->flushing) {
            s->done = 1;
            return;
        }
    }
    if (g->optional && !optional_is_here(f, group, s)) {
        return; // completion may come before the data
    }
    for (int i = 0; i < g->n; i++) {
        int want = g->part[i].bytes > INT_MAX ? INT_MAX : (int)g->part[i].bytes;
        CHECK(g->optional || bytes[i] == want || (f->w->net.reference && want == INT_MAX),
              "receive %u.%d says %d bytes, not %d", group, i, bytes[i], want);
        check_part(f, group, s, i);
    }
    if (g->flush) {
        recv_flush(f, group, s, bytes);
    } else {
        s->done = 1;
    }
}

static int recv_turn(struct flow *f)
{
    while (f->next < f->plan->count && f->next - f->first < f->plan->window) {
        struct slot *s = &f->slots[f->next % f->plan->window];
        s->issued = s->done = s->flushing = 0;
        recv_post(f, f->next, s);
        if (!s->issued) {
            break;
        }
        f->next++;
    }
    for (unsigned i = f->first; i < f->next; i++) {
        unsigned k = pick_group(f, i);
        struct slot *s = &f->slots[k % f->plan->window];
        if (k < f->next && !s->done) {
            recv_test(f, k, s);
        }
    }
    while (f->first < f->next && f->slots[f->first % f->plan->window].done) {
        f->first++;
    }
    return f->first == f->plan->count;
}

int flow_turn(struct flow *f)
{
    return f->sending ? send_turn(f) : recv_turn(f);
}

void plan_run(struct world *w, const struct pair *p, const struct plan *plan)
{
    struct flow *send = p->send ? flow_open(w, p->send, 1, plan) : NULL;
    struct flow *recv = p->recv ? flow_open(w, p->recv, 0, plan) : NULL;
    for (;;) {
        int sent = !send || flow_turn(send);
        int received = !recv || flow_turn(recv);
        if (sent && received) {
            break;
        }
        breathe();
    }
    if (send) {
        flow_close(send);
    }
    if (recv) {
        flow_close(recv);
    }
}
