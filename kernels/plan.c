// SPDX-License-Identifier: Apache-2.0
// The plan of a call.
#include "kernels/plan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES_SMALL (64 << 10) /* decode shapes: the first chunk's latency counts */
#define CHUNK_BYTES_LARGE                                                                          \
    (256 << 10) /* docs/design.md: wire time hides the hand-over from here on */
#define SMALL_M        256
#define TWO_SHOT_BYTES (256 << 10) /* of a slice: below, one hop beats fewer bytes */
#define NET_HOP_US     10.0        /* the second hop of two shots: push, NICs, stamp, reduction */
#define CPU_CTAS       3
#define BAND           8           /* rows of chunks walked together on a GPU */
#define LEAD           2           /* rounds: parts are there when their owner wants them */
#define MESSAGE_BYTES  (128 << 10) /* of a message between nodes: hides what it costs, see below */
#define LINK_BYTES     (1 << 20) /* on their way to other GPUs at once: less does not fill the link */
#define EXCHANGE_BYTES                                                                             \
    (64 << 20)          /* of a piece: a larger C does not wait for a hop most of the time */
#define LEAST_PUSH   2  /* CTAs: a cluster */
#define LEAST_PULL   4  /* one to compute, one to reduce */
#define PULL_CTAS    16 /* docs/design.md: bulk loads of 4 to 8 CTAs fill the link */
#define ROW_UNIT     8  /* rows of a tile are a multiple of it */
#define PART_COLUMNS 64 /* of the narrowest part on a GPU */
#define MAX_ELEMENTS (INT64_C(1) << 46) /* keeps every byte offset far inside 63 bits */

/* Tiles of 128 x 256, or 64 x 128 for a few rows, so that there are chunks enough to go round. The
 * rows are spread evenly over the rows of tiles: 129 rows are 72 + 57 and not 128 + 1, or one owner
 * would hold almost everything. */
static void choose_tile(int64_t m, const struct gemmar_plan_facts *facts, uint32_t *tile_m,
                        uint32_t *tile_n)
{
    uint32_t most = m <= 64 ? 64 : 128;

    *tile_m = most;
    if (m > most) {
        *tile_m = (uint32_t)gemmar_align_up(gemmar_div_up(m, gemmar_div_up(m, most)), ROW_UNIT);
    }
    *tile_m = facts->tile_m != 0 ? facts->tile_m : *tile_m;
    *tile_n = facts->tile_n != 0 ? facts->tile_n : m <= 64 ? 128 : 256;
}

static uint32_t choose_chunk(int64_t m, uint32_t tile_bytes, const struct gemmar_plan_facts *facts)
{
    uint32_t bytes = m <= SMALL_M ? CHUNK_BYTES_SMALL : CHUNK_BYTES_LARGE;

    if (facts->chunk_tiles != 0) {
        return facts->chunk_tiles;
    }
    return bytes > tile_bytes ? bytes / tile_bytes : 1;
}

/* What a rank sends to other nodes for each byte of its slice. */
static double net_factor(uint32_t algo, uint32_t nodes)
{
    double others = nodes - 1.0;

    return algo == GEMMAR_ALGO_TWO_SHOT ? 2 * others / nodes : others;
}

static double net_bytes_per_us(const struct gemmar_plan_facts *facts)
{
    return facts->net_mbps / 8.0;
}

/* The most bytes of a slice that go direct when nothing forces it. With a known NIC: as long as the
 * bytes that two shots save take no more time than their second hop. */
static int64_t direct_limit(const struct gemmar_plan_facts *facts)
{
    double saved = net_factor(GEMMAR_ALGO_DIRECT, facts->nodes) -
                   net_factor(GEMMAR_ALGO_TWO_SHOT, facts->nodes);

    if (facts->nodes <= 2) {
        return INT64_MAX;
    }
    return facts->sms != 0 && facts->net_mbps != 0
               ? (int64_t)(NET_HOP_US * net_bytes_per_us(facts) / saved)
               : TWO_SHOT_BYTES;
}

static uint32_t choose_algo(int64_t m, int64_t n, uint32_t bytes,
                            const struct gemmar_plan_facts *facts)
{
    if (facts->sms != 0) { /* what travels for it, in whole parts of at least so many columns */
        m = gemmar_align_up(m, GEMMAR_PART_ROWS);
        n = gemmar_align_up(n, PART_COLUMNS);
    }
    if (facts->nodes <= 1) {
        return GEMMAR_ALGO_LOCAL;
    }
    if (facts->algo != 0) {
        return facts->algo;
    }
    return m * n * bytes / facts->locals > direct_limit(facts) ? GEMMAR_ALGO_TWO_SHOT
                                                               : GEMMAR_ALGO_DIRECT;
}

/* Measured on 2 H200 (bf16, docs/design.md section 4): what a cluster computes in a microsecond
 * with a tile's product, and the part of the link's rate that stores of such tiles reach. */
static const struct tile {
    uint32_t m, n;
    double flop_per_us, link_share;
} tiles[GEMMAR_TILE_SHAPES] = {
    [GEMMAR_TILE_256X256] = {256, 256, 11.5e6, 0.885}, /* K 4096: 16 waves in 745 us, alone */
    [GEMMAR_TILE_256X128] = {256, 128, 11.1e6, 0.768}, /* K 4096: 32 waves in 776 us, alone */
    [GEMMAR_TILE_128X256] = {128, 256, 9.9e6, 0.768},  /* 512x8192x4096: 2 waves in 78 us */
    [GEMMAR_TILE_128X128] = {128, 128, 6.8e6, 0.578},  /* 128x8192x4096: 1 wave in 40 us */
};

#define LINK_BYTES_PER_US 390e3 /* of the copy engines, per direction */
#define LEAST_GAIN        0.98  /* between nodes: what a smaller tile's time must be less than */
#define NET_COMMAND_US    0.7   /* of proxy and NIC for a message and its stamp, however short */
#define HOP_US            7.0   /* exchange: less than push, whose results take a second hop */
#define EXCHANGE_US       1.0   /* exchange: of a wave, staging tiles twice */
#define EXCHANGE_MORE_US  6.0   /* of the third wave and more: staging waits for the link, too */

void gemmar_plan_tile(uint32_t shape, uint32_t *out_m, uint32_t *out_n)
{
    *out_m = tiles[shape].m;
    *out_n = tiles[shape].n;
}

void gemmar_plan_tile_rates(uint32_t shape, double *out_flop_per_us, double *out_link_share)
{
    *out_flop_per_us = tiles[shape].flop_per_us;
    *out_link_share = tiles[shape].link_share;
}

/* Chunks that leave in one message, of so many rows of C in all. */
static uint32_t together(uint32_t tile_m, uint32_t tile_n, int64_t m)
{
    uint32_t rows = (uint32_t)gemmar_min64(gemmar_align_up(m, GEMMAR_PART_ROWS), tile_m);
    uint32_t chunks = rows > 0 ? MESSAGE_BYTES / (2 * rows * tile_n) : 0;

    return chunks > 0 ? chunks : 1;
}

/* Microseconds that the NIC is busy with a call; 0: one node, or a NIC of unknown rate. */
static double net_time(const struct tile *t, int64_t m, int64_t n,
                       const struct gemmar_plan_facts *facts)
{
    uint32_t algo = choose_algo(m, n, 2, facts);
    double factor = net_factor(algo, facts->nodes) / facts->locals;
    double chunks = (double)gemmar_div_up(m, t->m) * (double)gemmar_div_up(n, t->n);
    uint32_t columns = t->n * t->m / (GEMMAR_CHUNK_PARTS * GEMMAR_PART_ROWS); /* of a part */
    double commands, bytes;

    if (facts->nodes <= 1 || facts->net_mbps == 0) {
        return 0;
    }
    commands = chunks / (algo == GEMMAR_ALGO_DIRECT ? together(t->m, t->n, m) : 1) * factor *
               NET_COMMAND_US;
    bytes = 2.0 * (double)gemmar_align_up(m, GEMMAR_PART_ROWS) *
            (double)gemmar_align_up(n, columns) * factor / net_bytes_per_us(facts);
    return commands > bytes ? commands : bytes;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Bytes of a piece of the exchange that holds whole tiles of any shape. */
static uint64_t exchange_bytes(int64_t m, int64_t n)
{
    return (uint64_t)(gemmar_align_up(m, 256) * gemmar_align_up(n, 256)) * 2;
}

bool gemmar_plan_can_exchange(int64_t m, int64_t n, uint32_t nodes, uint32_t locals)
{
    return nodes <= 1 && locals == 2 && exchange_bytes(m, n) <= EXCHANGE_BYTES;
}

/* Microseconds of a call with this tile but for what all have alike. Either the product is the
 * longest part, and the last wave's tiles still travel when it is done; or the link or the NIC is,
 * and idles until the first wave is done. Push and exchange move the same bytes over the link, push
 * in two hops, but in an exchange a consumer stages and adds every tile. Measured for the waves of
 * a few microseconds that the shapes of docs/design.md, section 4, have. */
static double cost(const struct tile *t, uint32_t strategy, int64_t m, int64_t n, int64_t k,
                   const struct gemmar_plan_facts *facts, uint32_t clusters)
{
    bool exchange = strategy == GEMMAR_STRATEGY_EXCHANGE;
    uint32_t locals = facts->locals;
    double chunks = (double)gemmar_div_up(m, t->m) * (double)gemmar_div_up(n, t->n);
    double waves = (double)gemmar_div_up((int64_t)chunks, clusters);
    double wave = 2.0 * t->m * t->n * (double)k / t->flop_per_us;
    double more = EXCHANGE_US * waves + EXCHANGE_MORE_US * larger(waves - 2, 0) - HOP_US;
    /* Parts to their owners and results to all, for each byte of C and direction. */
    double per_byte = 2.0 * (locals - 1) / locals / (LINK_BYTES_PER_US * t->link_share);
    double last = chunks < clusters ? chunks : clusters;
    double net = net_time(t, m, n, facts);
    double tail = larger(2.0 * t->m * t->n * last * per_byte, net * last / larger(chunks, 1));

    return larger(waves * wave + tail, wave + larger(2.0 * (double)m * (double)n * per_byte, net)) +
           (exchange ? more : 0);
}

/* What nobody has measured: the tile and strategy that the model finds fastest, and what was best
 * for most of the measured shapes. Push was faster than pull on all of them. */
static struct gemmar_tuned model(int64_t m, int64_t n, int64_t k,
                                 const struct gemmar_plan_facts *facts)
{
    struct gemmar_tuned how = {GEMMAR_TILE_256X256, GEMMAR_STRATEGY_PUSH, LEAD, LINK_BYTES, BAND};
    uint32_t clusters = facts->sms > 2 ? facts->sms / 2 : 1;
    /* Smaller tiles only begin sooner when a NIC is busy to the end. */
    double gain = facts->nodes > 1 ? LEAST_GAIN : 1, least = 0;
    bool exchange = facts->strategy == GEMMAR_STRATEGY_EXCHANGE + 1;
    bool either =
        facts->strategy == 0 && gemmar_plan_can_exchange(m, n, facts->nodes, facts->locals);

    for (uint32_t i = 0; i < GEMMAR_TILE_SHAPES * (either ? 2 : 1); i++) {
        uint32_t shape = i % GEMMAR_TILE_SHAPES;
        uint32_t strategy =
            exchange || i >= GEMMAR_TILE_SHAPES ? GEMMAR_STRATEGY_EXCHANGE : GEMMAR_STRATEGY_PUSH;
        double us = cost(&tiles[shape], strategy, m, n, k, facts, clusters);

        if (i == GEMMAR_TILE_SHAPES + GEMMAR_TILE_256X256) {
            continue; /* in two waves of them push was 3 to 17% faster */
        }
        if (i == 0 || us < least * gain) {
            how.shape = shape;
            how.strategy = strategy;
            least = us;
        }
    }
    if (how.strategy == GEMMAR_STRATEGY_EXCHANGE &&
        gemmar_div_up(m, tiles[how.shape].m) * gemmar_div_up(n, tiles[how.shape].n) <= clusters) {
        how.link_bytes = 0; /* one wave: stores hold nothing up */
    }
    return how;
}

/* The tile that the communicator's settings force; GEMMAR_TILE_SHAPES: there is none like it. */
static uint32_t forced_tile(const struct gemmar_plan_facts *facts)
{
    uint32_t shape = 0;

    while (shape < GEMMAR_TILE_SHAPES &&
           ((facts->tile_m != 0 && tiles[shape].m != facts->tile_m) ||
            (facts->tile_n != 0 && tiles[shape].n != facts->tile_n))) {
        shape++;
    }
    return shape;
}

/* Settings before the table, the table before the model. */
static struct gemmar_tuned choose(int64_t m, int64_t n, int64_t k, uint32_t dtype,
                                  const struct gemmar_plan_facts *facts)
{
    const struct gemmar_tuning_entry *entry =
        gemmar_tuning_find(facts->tuning, m, n, k, dtype, facts->locals);
    struct gemmar_tuned how = entry != NULL ? entry->how : model(m, n, k, facts);

    if (facts->tile_m != 0 || facts->tile_n != 0) {
        how.shape = forced_tile(facts);
    }
    how.strategy = facts->strategy != 0 ? facts->strategy - 1 : how.strategy;
    how.lead = facts->lead != 0 ? facts->lead : how.lead;
    how.band = facts->band != 0 ? facts->band : how.band;
    if (facts->strategy == 0 && how.strategy == GEMMAR_STRATEGY_EXCHANGE &&
        !gemmar_plan_can_exchange(m, n, facts->nodes, facts->locals)) {
        how.strategy = GEMMAR_STRATEGY_PUSH; /* a table's, that of a smaller C */
    }
    return how;
}

/* Can this call run as it is to? */
static int can_run_so(int64_t m, int64_t n, const struct gemmar_tuned *how,
                      const struct gemmar_plan_facts *facts, uint32_t resident, char *why,
                      size_t why_bytes)
{
    uint32_t least = how->strategy == GEMMAR_STRATEGY_PULL ? LEAST_PULL : LEAST_PUSH;

    if (how->shape == GEMMAR_TILE_SHAPES) {
        (void)snprintf(why, why_bytes,
                       "tiles of %ux%u: a GPU has 256x256, 256x128, 128x256 and 128x128",
                       facts->tile_m, facts->tile_n);
        return -EINVAL;
    }
    if (resident < least) {
        (void)snprintf(why, why_bytes,
                       "%u thread blocks fit on a GPU at once, %s needs %u (GEMMAR_MAX_CTAS, MPS "
                       "limits, green contexts)",
                       resident, gemmar_strategy_name(how->strategy), least);
        return -EINVAL;
    }
    if (how->strategy == GEMMAR_STRATEGY_EXCHANGE &&
        !gemmar_plan_can_exchange(m, n, facts->nodes, facts->locals)) {
        (void)snprintf(why, why_bytes,
                       "strategy exchange: for one node of two GPUs and a C of %d MiB at most in "
                       "whole tiles, not %u nodes of %u and %lld x %lld",
                       EXCHANGE_BYTES >> 20, facts->nodes, facts->locals, (long long)m,
                       (long long)n);
        return -EINVAL;
    }
    return 0;
}

static int plan_gpu(int64_t m, int64_t n, int64_t k, uint32_t dtype,
                    const struct gemmar_plan_facts *facts, struct gemmar_plan *plan, char *why,
                    size_t why_bytes)
{
    uint32_t resident = facts->resident != 0 ? facts->resident : facts->sms;
    struct gemmar_tuned how = choose(m, n, k, dtype, facts);
    int rc = can_run_so(m, n, &how, facts, resident, why, why_bytes);

    if (rc != 0) {
        return rc;
    }
    plan->gpu = 1;
    plan->link_bytes = how.link_bytes;
    plan->tensor.shape = how.shape;
    plan->tensor.strategy = how.strategy;
    plan->tensor.order = (struct gemmar_visit_order){
        .block = resident / 2,
        .lead = how.lead,
        .band = how.band,
        .together = together(tiles[how.shape].m, tiles[how.shape].n, m),
    };
    plan->map = gemmar_map_init(m, n, 2, tiles[how.shape].m, tiles[how.shape].n, 1, facts->nodes,
                                facts->locals);
    return 0;
}

/* Limits of the FIFO command and of the protocol's tables. */
static int can_run(const struct gemmar_plan *plan, char *why, size_t why_bytes)
{
    const struct gemmar_tile_map *map = &plan->map;
    uint64_t chunk = (uint64_t)map->tile_m * map->tile_n * map->chunk_tiles * map->element_bytes;
    uint64_t slots = (uint64_t)gemmar_div_up(map->chunks, map->locals);

    if (chunk >= UINT64_C(1) << GEMMAR_FIFO_LENGTH_BITS) {
        (void)snprintf(why, why_bytes,
                       "a chunk of %u tiles of %ux%u is %llu bytes; a command moves less than %u",
                       map->chunk_tiles, map->tile_m, map->tile_n, (unsigned long long)chunk,
                       1u << GEMMAR_FIFO_LENGTH_BITS);
        return -EINVAL;
    }
    if (slots > UINT64_C(1) << GEMMAR_FIFO_SLOT_BITS) {
        (void)snprintf(why, why_bytes, "%llu chunks per rank; a route has %u slots",
                       (unsigned long long)slots, 1u << GEMMAR_FIFO_SLOT_BITS);
        return -EOVERFLOW;
    }
    return 0;
}

int gemmar_plan_make(int64_t m, int64_t n, int64_t k, uint32_t dtype,
                     const struct gemmar_plan_facts *facts, struct gemmar_plan *out, char *why,
                     size_t why_bytes)
{
    uint32_t bytes = gemmar_dtype_bytes(dtype), tile_m, tile_n, chunk;
    struct gemmar_plan plan;
    int rc;

    if (m < 0 || n < 0) {
        (void)snprintf(why, why_bytes, "negative size: m %lld n %lld", (long long)m, (long long)n);
        return -EINVAL;
    }
    if (n != 0 && m > MAX_ELEMENTS / n) {
        (void)snprintf(why, why_bytes, "an output of %lld x %lld elements is too large",
                       (long long)m, (long long)n);
        return -EOVERFLOW;
    }
    memset(&plan, 0, sizeof(plan));
    if (facts->sms != 0) {
        rc = plan_gpu(m, n, k, dtype, facts, &plan, why, why_bytes);
        if (rc != 0) {
            return rc;
        }
    } else {
        choose_tile(m, facts, &tile_m, &tile_n);
        chunk = choose_chunk(m, tile_m * tile_n * bytes, facts);
        plan.map = gemmar_map_init(m, n, bytes, tile_m, tile_n, chunk, facts->nodes, facts->locals);
    }
    plan.direct_most = facts->algo == 0 ? direct_limit(facts) : 0;
    plan.algo = choose_algo(m, n, bytes, facts);
    rc = can_run(&plan, why, why_bytes);
    if (rc == 0) {
        *out = plan;
    }
    return rc;
}

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

int64_t gemmar_plan_out_ld(int64_t n)
{
    return gemmar_align_up(n, 8); /* rows begin on 16 bytes, for bulk stores */
}

/* The most chunks of an owner, in tiles of `t`, among the shapes with fewer rows or columns that go
 * direct where this one is two-shot. Rows and columns of tiles are each at most one more than what
 * they would be without a rest, and neither has more rows or columns than the shape has elements.
 */
static uint64_t direct_slots(const struct gemmar_plan *plan, const struct tile *t, uint64_t slots)
{
    const struct gemmar_tile_map *map = &plan->map;
    int64_t elements = (plan->direct_most + 1) * map->locals / map->element_bytes;
    int64_t chunks = gemmar_div_up(elements, (int64_t)t->m * t->n) +
                     gemmar_div_up(gemmar_min64(map->m, elements), t->m) +
                     gemmar_div_up(gemmar_min64(map->n, elements), t->n) + 1;

    return (uint64_t)gemmar_min64((int64_t)slots, gemmar_div_up(chunks, map->locals));
}

/* Windows of the network, which hold the `slots` chunks of an owner in whole tiles. */
static void capacity_windows(const struct gemmar_plan *plan, const struct tile *t, uint64_t slots,
                             struct gemmar_capacity *c)
{
    uint64_t bytes = (uint64_t)t->m * t->n * plan->map.element_bytes;
    uint64_t sub = (uint64_t)gemmar_div_up((int64_t)slots, plan->map.nodes);

    if (plan->algo == GEMMAR_ALGO_DIRECT) {
        c->slice_bytes = max64(c->slice_bytes, slots * bytes);
    } else if (plan->algo == GEMMAR_ALGO_TWO_SHOT) {
        c->sub_slots = max64(c->sub_slots, sub);
        c->sub_bytes = max64(c->sub_bytes, sub * bytes);
        if (plan->direct_most > 0) {
            c->direct = 1;
            c->slice_bytes = max64(c->slice_bytes, direct_slots(plan, t, slots) * bytes);
        }
    }
}

/* Whole tiles of any of the kernel's shapes: of all chunks (pull), or of the other ranks' products
 * of own chunks (push). So what holds a shape holds all with fewer rows or columns, whatever K,
 * type and tuning table make of them. */
static void capacity_gpu(const struct gemmar_plan *plan, struct gemmar_capacity *c)
{
    const struct gemmar_tile_map *map = &plan->map;

    for (uint32_t i = 0; map->chunks > 0 && i < GEMMAR_TILE_SHAPES; i++) {
        uint64_t bytes = (uint64_t)tiles[i].m * tiles[i].n * map->element_bytes;
        uint64_t chunks =
            (uint64_t)(gemmar_div_up(map->m, tiles[i].m) * gemmar_div_up(map->n, tiles[i].n));
        uint64_t slots = (uint64_t)gemmar_div_up((int64_t)chunks, map->locals);

        c->chunks = max64(c->chunks, chunks);
        c->slots = max64(c->slots, slots);
        c->partial_bytes =
            max64(c->partial_bytes, bytes * max64(chunks, slots * (map->locals - 1)));
        capacity_windows(plan, &tiles[i], slots, c);
    }
    if (map->nodes <= 1 && map->locals == 2 &&
        map->chunks > 0) { /* smaller shapes may use it all */
        uint64_t bytes = exchange_bytes(map->m, map->n);

        c->exchange_bytes = bytes < EXCHANGE_BYTES ? bytes : EXCHANGE_BYTES;
    }
    c->parts = GEMMAR_CHUNK_PARTS;
    c->out_bytes = (uint64_t)map->m * (uint64_t)gemmar_plan_out_ld(map->n) * map->element_bytes;
}

struct gemmar_capacity gemmar_plan_capacity(const struct gemmar_plan *plan)
{
    const struct gemmar_tile_map *map = &plan->map;
    struct gemmar_capacity c;

    memset(&c, 0, sizeof(c));
    c.partial_bytes = (uint64_t)gemmar_map_chunk_offset(map, map->chunks);
    c.out_bytes = c.partial_bytes;
    c.parts = 1;
    c.chunks = (uint64_t)map->chunks;
    c.direct = plan->algo == GEMMAR_ALGO_DIRECT;
    for (uint32_t g = 0; map->chunks > 0 && g < map->locals; g++) {
        int64_t first = gemmar_map_first(map, g), end = gemmar_map_first(map, g + 1);

        c.slots = max64(c.slots, (uint64_t)(end - first));
        if (plan->algo == GEMMAR_ALGO_LOCAL) {
            continue;
        }
        c.slice_bytes = max64(c.slice_bytes, (uint64_t)gemmar_map_distance(map, first, end));
        for (uint32_t n = 0; plan->algo == GEMMAR_ALGO_TWO_SHOT && n < map->nodes; n++) {
            int64_t sub = gemmar_map_sub_first(map, g, n),
                    next = gemmar_map_sub_first(map, g, n + 1);

            c.sub_slots = max64(c.sub_slots, (uint64_t)(next - sub));
            c.sub_bytes = max64(c.sub_bytes, (uint64_t)gemmar_map_distance(map, sub, next));
        }
    }
    if (plan->gpu) {
        c.slice_bytes = c.sub_bytes = 0; /* those of chunks without their gaps */
        capacity_gpu(plan, &c);
    }
    return c;
}

struct gemmar_capacity gemmar_capacity_max(const struct gemmar_capacity *a,
                                           const struct gemmar_capacity *b)
{
    struct gemmar_capacity c = {
        .partial_bytes = max64(a->partial_bytes, b->partial_bytes),
        .out_bytes = max64(a->out_bytes, b->out_bytes),
        .exchange_bytes = max64(a->exchange_bytes, b->exchange_bytes),
        .parts = max64(a->parts, b->parts),
        .slice_bytes = max64(a->slice_bytes, b->slice_bytes),
        .sub_bytes = max64(a->sub_bytes, b->sub_bytes),
        .chunks = max64(a->chunks, b->chunks),
        .slots = max64(a->slots, b->slots),
        .sub_slots = max64(a->sub_slots, b->sub_slots),
        .direct = max64(a->direct, b->direct),
    };

    return c;
}

static uint64_t grown(uint64_t have, uint64_t need)
{
    return need > have ? max64(need, 2 * have) : have;
}

struct gemmar_capacity gemmar_capacity_grown(const struct gemmar_capacity *have,
                                             const struct gemmar_capacity *need)
{
    struct gemmar_capacity c = gemmar_capacity_max(have, need);

    c.partial_bytes = grown(have->partial_bytes, need->partial_bytes);
    c.out_bytes = grown(have->out_bytes, need->out_bytes);
    c.exchange_bytes = grown(have->exchange_bytes, need->exchange_bytes);
    c.exchange_bytes = c.exchange_bytes < EXCHANGE_BYTES ? c.exchange_bytes : EXCHANGE_BYTES;
    c.chunks = grown(have->chunks, need->chunks);
    c.slots = grown(have->slots, need->slots);
    c.slice_bytes = grown(have->slice_bytes, need->slice_bytes);
    c.sub_bytes = grown(have->sub_bytes, need->sub_bytes);
    c.sub_slots = grown(have->sub_slots, need->sub_slots);
    return c;
}

int gemmar_capacity_holds(const struct gemmar_capacity *have, const struct gemmar_capacity *need)
{
    return have->partial_bytes >= need->partial_bytes && have->out_bytes >= need->out_bytes &&
           have->exchange_bytes >= need->exchange_bytes && have->parts >= need->parts &&
           have->slice_bytes >= need->slice_bytes && have->sub_bytes >= need->sub_bytes &&
           have->chunks >= need->chunks && have->slots >= need->slots &&
           have->sub_slots >= need->sub_slots && have->direct >= need->direct;
}

struct gemmar_local_plan gemmar_plan_local(const struct gemmar_plan *plan, uint32_t ctas)
{
    struct gemmar_local_plan p;
    uint32_t all = ctas != 0 ? ctas : CPU_CTAS;
    uint32_t reduce = all / 3 > 0 ? all / 3 : 1;

    (void)plan;
    memset(&p, 0, sizeof(p));
    p.ctas = all;
    p.inter.count = reduce;
    p.inter.first = all - reduce;
    p.intra.count = reduce;
    p.intra.first = all >= 2 * reduce ? all - 2 * reduce : 0;
    p.compute.count = p.intra.first > 0 ? p.intra.first : 1;
    p.copy.count = all;
    return p;
}

/* Couriers that store to other GPUs at once, a part of a chunk each; 0: all. */
static uint32_t senders(const struct gemmar_plan *plan)
{
    uint32_t part =
        plan->map.tile_m * plan->map.tile_n * plan->map.element_bytes / GEMMAR_CHUNK_PARTS;

    return plan->link_bytes == 0 ? 0 : plan->link_bytes < part ? 1 : plan->link_bytes / part;
}

struct gemmar_local_plan gemmar_plan_local_gpu(const struct gemmar_plan *plan, uint32_t most,
                                               uint32_t ctas)
{
    bool pull = plan->tensor.strategy == GEMMAR_STRATEGY_PULL && plan->map.locals > 1;
    uint32_t all = (ctas != 0 && ctas < most ? ctas : most) & ~1u;
    uint32_t reduce = !pull ? 0 : all / 4 < PULL_CTAS ? (all / 4 & ~1u) : PULL_CTAS;
    uint32_t work;
    struct gemmar_local_plan p;

    memset(&p, 0, sizeof(p));
    reduce = pull && reduce < 2 ? 2 : reduce;
    work = (uint32_t)gemmar_min64(all > reduce + 2 ? all - reduce : 2, 2 * plan->map.chunks);
    p.compute.count = work;
    p.intra.first = work;
    p.intra.count = reduce;
    p.ctas = work + reduce;
    p.senders = senders(plan);
    return p;
}
