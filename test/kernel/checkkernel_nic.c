// SPDX-License-Identifier: Apache-2.0
// Proxy and NIC of every rank of checkkernel, in one thread: takes commands out of the ring, brings
// their bytes and then their stamp to the peer with copy engines, and counts.
//
// Of some commands the bytes are read again later, as a NIC does that repeats a message: until it
// is retired they must be what they were.
//
// The kernels fill their GPUs until the data is there, so nothing here may need a multiprocessor:
// host <-> device and GPU <-> GPU copies run on copy engines; a copy inside one GPU would be a
// kernel, so between ranks of one GPU the bytes go through pinned host memory. Everything is
// allocated before the first kernel runs, because allocating behind one can block for ever.
#include "test/kernel/checkkernel.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "transport/order.h"
#include "transport/wait.h"

#define ENTRIES     64u /* of a ring: few, so that it fills */
#define TAKEN       32u /* commands of a rank out of the ring and not retired */
#define QUEUE_PAIRS 4
#define TILE_BYTES  (256u * 256u * 2u) /* the largest that a command moves */
#define LINE        64u
#define WORK_NS     UINT64_C(8000000000) /* a copy takes no longer */
#define DELAY_NS    30000u

enum state {
    TAKEN_OUT,
    UNDER_WAY,
    STAMPED, /* the peer may read; to be read again at not_before */
    READ_AGAIN,
    ARRIVED,
};

/* A command between the ring and its end. */
struct work {
    struct gemmar_fifo_request request;
    enum state state;
    bool twice; /* is read again */
    uint32_t queue_pair;
    uint64_t epoch;
    uint64_t not_before;
    cudaEvent_t done;
    char *bounce, *again; /* TILE_BYTES each, pinned */
    uint64_t *stamp;      /* pinned; not written while its copy is under way */
    uint64_t *on_device;  /* the same on its way to another GPU */
};

struct count {
    uint64_t commands, bytes;
    uint64_t wrong; /* commands that are not what the plan says */
};

static struct nic {
    struct gemmar_fifo_ring ring;
    uint64_t *tail, *retired; /* the ring's, to be written */
    uint64_t accepted, gone;  /* their values */
    uint64_t moved_ns;        /* when something ended last */
    struct work work[TAKEN];  /* at position % TAKEN */
    cudaStream_t queues[QUEUE_PAIRS];
    struct count count;
} nics[MAX_RANKS];

static pthread_t thread;
static uint64_t stop; /* 1: the thread ends. Writer: main. Reader: the thread */
static enum nic_mode mode;
static const struct gemmar_layout *layout;
static struct gemmar_plan plan; /* of the calls under way; written while nothing is */
static uint64_t first_epoch, calls;
static uint64_t random_state;

static uint32_t node_of(uint32_t rank)
{
    return rank / (uint32_t)options.locals;
}

void nic_allocate(uint32_t rank)
{
    struct nic *n = &nics[rank];
    unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
    char *memory, *device = device_memory(TAKEN * LINE);
    size_t ring = ENTRIES * sizeof(struct gemmar_fifo_command) + 2 * LINE;

    must(cudaHostAlloc((void **)&memory, ring + TAKEN * (2 * TILE_BYTES + LINE), flags), "ring");
    n->ring = (struct gemmar_fifo_ring){
        .commands = (struct gemmar_fifo_command *)memory,
        .tail = (uint64_t *)(memory + ring - 2 * LINE),
        .retired = (uint64_t *)(memory + ring - LINE),
        .entries = ENTRIES,
        .base = memory,
        .bytes = ring,
    };
    n->tail = (uint64_t *)(memory + ring - 2 * LINE);
    n->retired = (uint64_t *)(memory + ring - LINE);
    for (uint32_t i = 0; i < TAKEN; i++) {
        n->work[i].stamp = (uint64_t *)(memory + ring + i * LINE);
        n->work[i].on_device = (uint64_t *)(device + i * LINE);
        n->work[i].bounce = memory + ring + TAKEN * LINE + (size_t)i * 2 * TILE_BYTES;
        n->work[i].again = n->work[i].bounce + TILE_BYTES;
        must(cudaEventCreateWithFlags(&n->work[i].done, cudaEventDisableTiming), "event");
    }
    for (uint32_t q = 0; q < QUEUE_PAIRS; q++) {
        must(cudaStreamCreateWithFlags(&n->queues[q], cudaStreamNonBlocking), "stream");
    }
}

struct gemmar_fifo_ring nic_ring(uint32_t rank)
{
    return nics[rank].ring;
}

/* ---- what a command must be ----------------------------------------------------------------- */

/* A whole tile, but for the last ones of its four parts that lie wholly outside of C. A part has 64
 * rows; in tiles of 128 rows two lie beside each other. */
static uint64_t chunk_bytes(int64_t index)
{
    const struct gemmar_tile_map *map = &plan.map;
    struct gemmar_chunk chunk = gemmar_map_chunk(map, index);
    int64_t across = map->tile_m == 128 ? 2 : 1, parts = 4;

    while ((parts - 1) / across * 64 >= chunk.rows ||
           (parts - 1) % across * (map->tile_n / across) >= chunk.cols) {
        parts--;
    }
    return (uint64_t)parts * map->tile_m * map->tile_n * map->element_bytes / 4;
}

/* The chunks [*first, *end) that travel on routes of a kind from `rank` to `node`. */
static void window(uint32_t rank, uint32_t kind, uint32_t node, int64_t *first, int64_t *end)
{
    uint32_t local = rank % plan.map.locals, me = node_of(rank);
    uint32_t part = kind == GEMMAR_ROUTE_GATHER ? me : node;

    if (kind == GEMMAR_ROUTE_DIRECT) {
        *first = gemmar_map_first(&plan.map, local);
        *end = gemmar_map_first(&plan.map, local + 1);
        return;
    }
    *first = gemmar_map_sub_first(&plan.map, local, part);
    *end = gemmar_map_sub_first(&plan.map, local, part + 1);
}

/* Bytes of the message of `rank` that begins with place `slot` of [0, slots): one chunk, or in one
 * shot neighbours of the walk until `together` of them or one that is short of parts. 0: none
 * begins there. *end is where it ends. */
static uint64_t message_bytes(uint32_t rank, uint32_t kind, int64_t first, int64_t slots,
                              int64_t slot, int64_t *end)
{
    const struct gemmar_visit_order *order = &plan.tensor.order;
    uint64_t stride = chunk_bytes(0), bytes;
    int64_t begin = slot / order->together * order->together, last = begin + order->together;

    *end = slot + 1;
    if (kind != GEMMAR_ROUTE_DIRECT) {
        return chunk_bytes(first + slot);
    }
    last = last < slots ? last : slots;
    for (int64_t at = begin; at < last; at++) {
        bytes = chunk_bytes(
            gemmar_visit_of(&plan.map, rank % plan.map.locals, order, (uint32_t)at).chunk);
        *end = at + 1;
        if (at + 1 == last || bytes != stride) {
            if (at >= slot) {
                return begin == slot ? (uint64_t)(at - begin) * stride + bytes : 0;
            }
            begin = at + 1;
        }
    }
    return 0;
}

static const char *judge(uint32_t rank, const struct work *w)
{
    const struct gemmar_tile_map *map = &plan.map;
    const struct gemmar_fifo_request *r = &w->request;
    uint32_t kind = r->route / map->nodes, node = r->route % map->nodes;
    bool direct = plan.algo == GEMMAR_ALGO_DIRECT;
    int64_t first, end, next;

    if (kind >= GEMMAR_ROUTE_KINDS || direct != (kind == GEMMAR_ROUTE_DIRECT)) {
        return "a route of another kind";
    }
    if (node == node_of(rank)) {
        return "a route to its own node";
    }
    window(rank, kind, node, &first, &end);
    if (r->slot >= end - first) {
        return "a slot behind the window";
    }
    if (r->offset != r->slot * chunk_bytes(0)) {
        return "another offset than the slot's";
    }
    if (r->length != message_bytes(rank, kind, first, end - first, r->slot, &next)) {
        return "another length than the message's";
    }
    return w->epoch - first_epoch >= calls ? "the epoch of no call under way" : NULL;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void note(uint32_t rank, const struct work *w, const char *what)
{
    const struct gemmar_fifo_request *r = &w->request;

    if (nics[rank].count.wrong++ < 4) {
        printf("nic: rank %u: %s: route %u slot %u offset %" PRIu64 " length %u epoch %" PRIu64
               "\n",
               rank, what, r->route, r->slot, r->offset, r->length, w->epoch);
    }
}

/* The next command, when both of its halves carry the lap. */
static bool take(uint32_t rank)
{
    struct nic *n = &nics[rank];
    struct gemmar_fifo_command *at = &n->ring.commands[n->accepted % ENTRIES], command;
    uint64_t lap = gemmar_fifo_lap(n->accepted, ENTRIES);
    struct work *w = &n->work[n->accepted % TAKEN];
    const char *wrong;

    command.word[0] = gemmar_load_acquire(&at->word[0]);
    command.word[1] = gemmar_load_acquire(&at->word[1]);
    if (command.word[0] >> 63 != lap || command.word[1] >> 63 != lap) {
        return false;
    }
    w->request = gemmar_fifo_unpack(&command);
    w->epoch = first_epoch + (w->request.epoch - (uint32_t)first_epoch);
    w->state = TAKEN_OUT;
    w->twice = next_random(&random_state) % 8 == 0;
    w->queue_pair = (uint32_t)(next_random(&random_state) % QUEUE_PAIRS);
    w->not_before =
        gemmar_now_ns() + next_random(&random_state) %
                              (next_random(&random_state) % 64 == 0 ? options.delay_ns : DELAY_NS);
    wrong = judge(rank, w);
    if (wrong != NULL) {
        note(rank, w, wrong);
        w->state = ARRIVED; /* its data would go anywhere; the receiver waits in vain and says so */
    }
    n->count.commands++;
    n->count.bytes += w->request.length;
    n->accepted++;
    gemmar_store_release(n->tail, n->accepted);
    return true;
}

static const char *source_of(uint32_t rank, const struct work *w)
{
    uint32_t nodes = (uint32_t)options.nodes, parity = w->epoch & 1;
    uint32_t kind = w->request.route / nodes, node = w->request.route % nodes;
    uint64_t at = kind == GEMMAR_ROUTE_GATHER ? layout->result[parity] : layout->staging[parity];

    at += kind == GEMMAR_ROUTE_SCATTER ? node * layout->staging_stride : 0;
    return ranks[rank].workspace + layout->data + at + w->request.offset;
}

/* Data, then stamp, then the event, all on the queue pair's stream. */
static void start(uint32_t rank, struct work *w)
{
    const struct gemmar_fifo_request *r = &w->request;
    uint32_t nodes = (uint32_t)options.nodes, me = node_of(rank);
    uint32_t kind = r->route / nodes, node = r->route % nodes, parity = w->epoch & 1;
    const struct rank *from = &ranks[rank], *to = &ranks[rank + (node - me) * options.locals];
    const char *source = source_of(rank, w);
    char *sink = to->workspace + layout->data + gemmar_layout_sink(layout, parity, kind, node, me) +
                 r->offset;
    char *stamp = to->workspace + layout->stamps +
                  gemmar_layout_stamps(layout, parity, kind, node, me) + 8 * (uint64_t)r->slot;
    cudaStream_t queue = nics[rank].queues[w->queue_pair];
    bool same = from->device == to->device;

    use(from);
    *w->stamp = w->epoch;
    if (same || w->twice) {
        must(cudaMemcpyAsync(w->bounce, source, r->length, cudaMemcpyDeviceToHost, queue), "copy");
    }
    if (same) {
        must(cudaMemcpyAsync(sink, w->bounce, r->length, cudaMemcpyHostToDevice, queue), "copy");
        must(cudaMemcpyAsync(stamp, w->stamp, 8, cudaMemcpyHostToDevice, queue), "stamp");
    } else {
        must(cudaMemcpyPeerAsync(sink, to->device, source, from->device, r->length, queue), "copy");
        must(cudaMemcpyAsync(w->on_device, w->stamp, 8, cudaMemcpyHostToDevice, queue), "stamp");
        must(cudaMemcpyPeerAsync(stamp, to->device, w->on_device, from->device, 8, queue), "stamp");
    }
    must(cudaEventRecord(w->done, queue), "record");
    w->state = UNDER_WAY;
}

static void read_again(uint32_t rank, struct work *w)
{
    cudaStream_t queue = nics[rank].queues[w->queue_pair];

    use(&ranks[rank]);
    must(cudaMemcpyAsync(w->again, source_of(rank, w), w->request.length, cudaMemcpyDeviceToHost,
                         queue),
         "copy");
    must(cudaEventRecord(w->done, queue), "record");
    w->state = READ_AGAIN;
}

/* What is under way has ended. */
static void end(uint32_t rank, struct work *w)
{
    if (w->state == READ_AGAIN && memcmp(w->bounce, w->again, w->request.length) != 0) {
        note(rank, w, "bytes written before the command was retired");
    }
    if (w->state == UNDER_WAY && w->twice) {
        w->state = STAMPED;
        w->not_before = gemmar_now_ns() + next_random(&random_state) % options.delay_ns;
    } else {
        w->state = ARRIVED;
    }
}

static bool ended(const struct work *w)
{
    cudaError_t rc = cudaEventQuery(w->done);

    if (rc != cudaErrorNotReady) {
        must(rc, "a copy");
    }
    return rc == cudaSuccess;
}

/* One step of a command, if it is time. *held: those behind it on its queue pair wait. */
static bool step(uint32_t rank, struct work *w, uint64_t now, bool *held)
{
    switch (w->state) {
    case TAKEN_OUT:
        if (*held || now < w->not_before) {
            *held = true;
            return false;
        }
        start(rank, w);
        return true;
    case STAMPED:
        if (now < w->not_before) {
            return false;
        }
        read_again(rank, w);
        return true;
    case UNDER_WAY:
    case READ_AGAIN:
        if (!ended(w)) {
            return false;
        }
        end(rank, w);
        return true;
    default: return false;
    }
}

/* One step of every command, and retire what has ended, in the order of the ring. */
static bool move(uint32_t rank)
{
    struct nic *n = &nics[rank];
    bool held[QUEUE_PAIRS] = {false}, moved = false;
    uint64_t now = gemmar_now_ns();

    for (uint64_t at = n->gone; at < n->accepted; at++) {
        struct work *w = &n->work[at % TAKEN];

        moved |= step(rank, w, now, &held[w->queue_pair]);
    }
    while (n->gone < n->accepted && n->work[n->gone % TAKEN].state == ARRIVED) {
        n->gone++;
    }
    gemmar_store_release(n->retired, n->gone);
    if (moved || n->gone == n->accepted) {
        n->moved_ns = now;
    } else if (now - n->moved_ns > WORK_NS) {
        fprintf(stderr, "checkkernel: nic: rank %u: command %" PRIu64 " has not arrived in 8 s\n",
                rank, n->gone);
        exit(1);
    }
    return moved;
}

static void *run(void *unused)
{
    struct gemmar_wait wait = {0};

    while (gemmar_load_acquire(&stop) == 0) {
        bool moved = false;

        for (uint32_t rank = 0; rank < (uint32_t)options.ranks; rank++) {
            struct nic *n = &nics[rank];

            if (mode == NIC_HOLDS_DATA) {
                n->gone = n->accepted; /* takes all and brings nothing */
            }
            while (mode != NIC_HOLDS_RING && n->accepted - n->gone < TAKEN && take(rank)) {
                moved = true;
            }
            moved |= mode == NIC_RUNS && move(rank);
        }
        if (moved) {
            gemmar_wait_init(&wait, 0);
        } else {
            (void)gemmar_wait_step(&wait);
        }
    }
    return unused;
}

/* ---- main's side ---------------------------------------------------------------------------- */

void nic_reset(void)
{
    for (int i = 0; i < options.ranks; i++) {
        struct nic *n = &nics[i];

        memset(n->ring.base, 0, n->ring.bytes);
        n->accepted = 0;
        n->gone = 0;
    }
}

void nic_start(const struct gemmar_layout *where, const struct gemmar_plan *how, uint64_t epoch,
               uint64_t turns, enum nic_mode what)
{
    layout = where;
    plan = *how;
    first_epoch = epoch;
    calls = turns;
    mode = what;
    random_state = random_state == 0 ? options.seed * 2 + 1 : random_state;
    gemmar_store_release(&stop, 0);
    for (int i = 0; i < options.ranks; i++) {
        nics[i].moved_ns = gemmar_now_ns();
        nics[i].count = (struct count){0};
    }
    if (pthread_create(&thread, NULL, run, NULL) != 0) {
        fprintf(stderr, "checkkernel: no thread for the nic\n");
        exit(1);
    }
}

/* What a rank should have sent in a call. */
static struct count expected(uint32_t rank)
{
    bool direct = plan.algo == GEMMAR_ALGO_DIRECT;
    struct count c = {0};

    for (uint32_t node = 0; node < plan.map.nodes; node++) {
        for (uint32_t kind = 0; node != node_of(rank) && kind < GEMMAR_ROUTE_KINDS; kind++) {
            int64_t first, end;

            if (direct != (kind == GEMMAR_ROUTE_DIRECT)) {
                continue;
            }
            window(rank, kind, node, &first, &end);
            for (int64_t i = 0, next; i < end - first; i = next) {
                c.commands++;
                c.bytes += message_bytes(rank, kind, first, end - first, i, &next);
            }
        }
    }
    return c;
}

uint64_t nic_stop(const uint64_t *tickets)
{
    const struct gemmar_tile_map *map = &plan.map;
    bool whole = map->m % 64 == 0 && map->n % map->tile_n == 0;
    uint64_t failed = 0;
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, 0); /* the thread has a deadline of its own */
    for (int i = 0; mode == NIC_RUNS && i < options.ranks; i++) {
        while (gemmar_load_acquire(nics[i].retired) < tickets[i]) {
            (void)gemmar_wait_step(&wait);
        }
    }
    gemmar_store_release(&stop, 1);
    (void)pthread_join(thread, NULL);
    for (uint32_t i = 0; mode == NIC_RUNS && i < (uint32_t)options.ranks; i++) {
        struct count want = expected(i), got = nics[i].count;
        uint64_t bytes = (uint64_t)gemmar_map_wire_bytes(map, plan.algo == GEMMAR_ALGO_TWO_SHOT,
                                                         node_of(i), i % map->locals);

        failed += got.wrong;
        if (got.commands != calls * want.commands || got.bytes != calls * want.bytes ||
            (whole && want.bytes != bytes)) {
            printf("nic: rank %u sent %" PRIu64 " commands, %" PRIu64 " bytes in %" PRIu64
                   " calls; each should be %" PRIu64 " and %" PRIu64 " (%" PRIu64 " valid)\n",
                   i, got.commands, got.bytes, calls, want.commands, want.bytes, bytes);
            failed++;
        }
    }
    return failed;
}
