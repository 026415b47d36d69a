// SPDX-License-Identifier: Apache-2.0
// The host's side of nodes for an executor with memory of its own: routes and windows of two ranks
// fit together, and whatever step fails, nothing stays mapped or open.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "kernels/backend.h"
#include "kernels/workspace.h"

#define NODES  3
#define ROUTES (GEMMAR_ROUTE_KINDS * NODES)
#define FAR    ((uintptr_t)1 << 40) /* where the executor sees the host's memory */
#define DATA   ((uintptr_t)1 << 44) /* its own memory */
#define EPOCH  7

/* What is open or mapped, and the step that fails: the `fail`-th that can; 0: none. */
static int maps, tables, channels, fail;
static int last_fd;
static struct gemmar_route_settings routes[NODES][ROUTES];
static struct gemmar_channel_settings settings;
static uint32_t peers[NODES];
static char page[4096] __attribute__((aligned(4096)));

static int step(void)
{
    return fail > 0 && --fail == 0 ? -ENOMEM : 0;
}

static int net_memory(struct gemmarComm *comm, struct gemmar_workspace *w,
                      struct gemmar_memory *out)
{
    (void)comm;
    last_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *out = (struct gemmar_memory){
        .address = w->bases[0], .length = w->layout.bytes, .dmabuf_fd = last_fd, .is_gpu = 1};
    return step();
}

static int map(struct gemmarComm *comm, void *host, uint64_t bytes, void **out_seen)
{
    int rc = step();

    (void)comm;
    ck_assert_uint_eq(((uintptr_t)host | bytes) % (uint64_t)sysconf(_SC_PAGESIZE), 0);
    maps += rc == 0;
    *out_seen = rc == 0 ? (char *)host + FAR : NULL;
    return rc;
}

static void unmap(struct gemmarComm *comm, void *host)
{
    (void)comm;
    ck_assert_ptr_nonnull(host);
    maps--;
}

static int upload(struct gemmarComm *comm, const void *table, uint64_t bytes, void **out_seen)
{
    int rc = step();

    (void)comm;
    *out_seen = rc == 0 ? malloc(bytes) : NULL;
    if (rc == 0) {
        memcpy(*out_seen, table, bytes);
        tables++;
    }
    return rc;
}

static void discard(struct gemmarComm *comm, void *seen)
{
    (void)comm;
    free(seen);
    tables--;
}

static int channel_open(struct gemmar_transport *transport, const struct gemmar_channel_settings *s,
                        struct gemmar_channel **out)
{
    int rc = step();

    (void)transport;
    settings = *s;
    memcpy(routes[s->rank], s->routes, sizeof(routes[0]));
    memcpy(peers, s->peer_ranks, s->peer_count * sizeof(*peers));
    *out = rc == 0 ? (void *)page : NULL;
    channels += rc == 0;
    return rc;
}

static int channel_ring(struct gemmar_channel *channel, struct gemmar_fifo_ring *out)
{
    (void)channel;
    *out = (struct gemmar_fifo_ring){.commands = (void *)page,
                                     .tail = (void *)(page + 1024),
                                     .retired = (void *)(page + 2048),
                                     .entries = 64,
                                     .base = page,
                                     .bytes = sizeof(page)};
    return step();
}

static void channel_close(struct gemmar_channel *channel)
{
    ck_assert_ptr_eq(channel, (void *)page);
    channels--;
}

static const struct gemmar_transport_table table = {
    .channel_open = channel_open, .channel_ring = channel_ring, .channel_close = channel_close};
static const struct gemmar_backend backend = {
    .net_memory = net_memory, .map = map, .unmap = unmap, .upload = upload, .discard = discard};
static uint32_t rank_of[NODES] = {0, 1, 2};
static struct gemmar_comm_words words;

/* Rank n is node n. */
static void make(uint32_t node, int signal, struct gemmarComm *comm, struct gemmar_workspace *w)
{
    const struct gemmar_capacity capacity = {.partial_bytes = 131072 * 5,
                                             .out_bytes = 131072 * 5,
                                             .slice_bytes = 131072 * 5,
                                             .sub_bytes = 131072 * 2,
                                             .chunks = 5,
                                             .slots = 5,
                                             .sub_slots = 2,
                                             .direct = 1,
                                             .parts = 4};

    memset(comm, 0, sizeof(*comm));
    memset(w, 0, sizeof(*w));
    comm->backend = &backend;
    comm->library.table = &table;
    comm->place = (struct gemmar_place){
        .rank = node, .ranks = NODES, .node = node, .nodes = NODES, .locals = 1};
    comm->rank_of = rank_of;
    comm->words = &words;
    comm->rails = 1;
    comm->settings.signal = signal;
    w->layout = gemmar_layout_make(&capacity, NODES, 1);
    w->bases[0] = (char *)DATA;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void nothing_left(void)
{
    ck_assert_int_eq(maps, 0);
    ck_assert_int_eq(tables, 0);
    ck_assert_int_eq(channels, 0);
    ck_assert(!is_open(last_fd));
}

START_TEST(any_step_fails)
{
    struct gemmarComm comm;
    struct gemmar_workspace w;
    int at = 0, rc = -1;

    while (rc != 0) {
        make(1, _i, &comm, &w);
        fail = ++at;
        rc = gemmar_network_open(&comm, &w, EPOCH);
        ck_assert(rc == 0 || rc == -ENOMEM);
        ck_assert(!is_open(last_fd)); /* the registrations hold the memory */
        gemmar_network_close(&comm, &w);
        nothing_left();
    }
    ck_assert_int_eq(at, _i == GEMMAR_SIGNAL_IMM ? 7 : 6); /* all of them, and none */
}
END_TEST

/* views of recv or arrival, by route */
static char *const *view(const struct gemmar_workspace *w, uint32_t parity, uint32_t what)
{
    return (char *const *)(void *)(w->views + (2 * (size_t)parity + what) * ROUTES);
}

/* What node `from` sends to node `to` arrives where that one waits for it. */
static void windows_meet(const struct gemmar_workspace *at, uint32_t from, uint32_t to,
                         uint32_t kind, const char *data, const char *stamps)
{
    const struct gemmar_route_settings *out = &routes[from][kind * NODES + to];
    const struct gemmar_route_settings *back = &routes[to][out->peer_route];

    ck_assert_uint_eq(out->peer, to < from ? to : to - 1);
    ck_assert_uint_eq(out->peer_route, kind * NODES + from);
    ck_assert_uint_eq(out->window_bytes, back->window_bytes);
    ck_assert_uint_eq(out->slots, back->slots);
    for (uint32_t parity = 0; parity < 2; parity++) {
        ck_assert_ptr_eq(view(at, parity, 0)[kind * NODES + from],
                         data + back->sink_offset[parity]);
        ck_assert_ptr_eq(view(at, parity, 1)[kind * NODES + from],
                         stamps + back->stamp_offset[parity]);
    }
}

START_TEST(routes_and_windows)
{
    struct gemmarComm comm[NODES];
    struct gemmar_workspace w[NODES];
    const char *stamps[NODES];

    fail = 0;
    for (uint32_t n = 0; n < NODES; n++) {
        make(n, _i, &comm[n], &w[n]);
        ck_assert_int_eq(gemmar_network_open(&comm[n], &w[n], EPOCH), 0);
        ck_assert_uint_eq(settings.first_epoch, EPOCH);
        ck_assert_ptr_eq(settings.data.address, (char *)DATA + w[n].layout.data);
        ck_assert_uint_eq(settings.data.dmabuf_offset, w[n].layout.data);
        ck_assert_uint_eq(settings.stamps.is_gpu, _i == GEMMAR_SIGNAL_STAMP);
        ck_assert_uint_eq(peers[0], n == 0 ? 1 : 0);
        ck_assert_uint_eq(peers[1], n == 2 ? 1 : 2);
        ck_assert_ptr_eq(w[n].ring.commands, (void *)(page + FAR));
        ck_assert_ptr_eq(w[n].ring.retired, (void *)(page + FAR + 2048));
        /* In imm mode they are the host's, and the executor sees them elsewhere. */
        stamps[n] = (const char *)settings.stamps.address + (_i == GEMMAR_SIGNAL_IMM ? FAR : 0);
    }
    for (uint32_t i = 0; i < NODES * ROUTES; i++) {
        uint32_t from = i / ROUTES, to = i % NODES, kind = i % ROUTES / NODES;

        if (from == to) {
            ck_assert_uint_eq(routes[from][i % ROUTES].peer, GEMMAR_ROUTE_UNUSED);
            continue;
        }
        windows_meet(&w[to], from, to, kind, (char *)DATA + w[to].layout.data, stamps[to]);
    }
    for (uint32_t n = 0; n < NODES; n++) {
        gemmar_network_close(&comm[n], &w[n]);
    }
    nothing_left();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network");
    TCase *all = tcase_create("network");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(all, any_step_fails, GEMMAR_SIGNAL_STAMP, GEMMAR_SIGNAL_IMM + 1);
    tcase_add_loop_test(all, routes_and_windows, GEMMAR_SIGNAL_STAMP, GEMMAR_SIGNAL_IMM + 1);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
