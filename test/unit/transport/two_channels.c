// SPDX-License-Identifier: Apache-2.0
// Two channels in one process over fake verbs.
#include "test/unit/transport/two_channels.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
uint32_t device_count;
struct side a, b;

static int open_side(struct side *s, uint32_t rank, const struct setup *o)
{
    uint32_t peers[1] = {1 - rank}, rails[2] = {0, 1};
    struct gemmar_route_settings route = {.source_offset = {0, WINDOW},
                                          .sink_offset = {2 * WINDOW, 3 * WINDOW},
                                          .stamp_offset = {0, 8 * SLOTS},
                                          .window_bytes = WINDOW,
                                          .slots = SLOTS};
    struct gemmar_channel_settings c = {.size = sizeof(c),
                                        .rank = rank,
                                        .peer_count = 1,
                                        .peer_ranks = peers,
                                        .route_count = 1,
                                        .device_count = device_count,
                                        .routes = &route,
                                        .devices = rails,
                                        .queue_pairs_per_peer = o->queue_pairs,
                                        .ring_entries = o->ring_entries,
                                        .signal = o->signal,
                                        .numa_node = -1,
                                        .first_epoch = o->first_epoch,
                                        .timeout_ns = o->timeout_ns,
                                        .abort_word = &s->abort_word,
                                        .posted_word = &s->posted_word};

    s->ticket = s->tail = s->abort_word = s->posted_word = 0;
    c.data = (struct gemmar_memory){
        .address = s->data, .length = 4 * WINDOW, .dmabuf_fd = -1, .is_gpu = o->gpu};
    c.stamps = (struct gemmar_memory){
        .address = s->stamps, .length = 16 * SLOTS, .dmabuf_fd = -1, .is_gpu = o->gpu_stamps};
    return gemmar_channel_open(devices, device_count, fake_logger(), &c, &s->channel);
}

static int join(void)
{
    char from_a[GEMMAR_CONNECT_BLOB_BYTES], from_b[GEMMAR_CONNECT_BLOB_BYTES];
    int rc = gemmar_channel_blob(a.channel, 0, from_a);

    rc = rc != 0 ? rc : gemmar_channel_blob(b.channel, 0, from_b);
    rc = rc != 0 ? rc : gemmar_channel_connect(a.channel, 0, from_b);
    return rc != 0 ? rc : gemmar_channel_connect(b.channel, 0, from_a);
}

void close_both(void)
{
    gemmar_channel_close(a.channel);
    gemmar_channel_close(b.channel);
    a.channel = b.channel = NULL;
    gemmar_ib_devices_close(devices, device_count);
    device_count = 0;
    ck_assert_int_eq(fake.live, 0);
}

int open_all(const struct setup *o)
{
    struct gemmar_knobs *knobs = fake_knobs();
    int rc;

    knobs->gdr_flush_disable = o->no_flush;
    rc = gemmar_ib_devices_open(fake_table(), knobs, fake_logger(), devices, &device_count);
    rc = rc != 0 ? rc : open_side(&a, 0, o);
    rc = rc != 0 ? rc : open_side(&b, 1, o);
    return rc != 0 ? rc : join();
}

void setup(void)
{
    fake_reset();
    a.data = aligned_alloc(4096, 4 * WINDOW);
    b.data = aligned_alloc(4096, 4 * WINDOW);
    a.stamps = aligned_alloc(4096, 16 * SLOTS);
    b.stamps = aligned_alloc(4096, 16 * SLOTS);
    ck_assert(a.data != NULL && b.data != NULL && a.stamps != NULL && b.stamps != NULL);
    memset(a.data, 0, 4 * WINDOW);
    memset(b.data, 0, 4 * WINDOW);
    memset(a.stamps, 0, 16 * SLOTS);
    memset(b.stamps, 0, 16 * SLOTS);
}

void teardown(void)
{
    free(a.data);
    free(b.data);
    free(a.stamps);
    free(b.stamps);
}

void push(uint32_t slot, uint64_t epoch)
{
    struct gemmar_fifo_request r = {
        .offset = (uint64_t)slot * BYTES, .length = BYTES, .slot = slot, .epoch = (uint32_t)epoch};

    memset(a.data + (epoch & 1) * WINDOW + r.offset, (int)(slot + epoch), BYTES);
    ck_assert(gemmar_fifo_produce(&a.channel->fifo.ring, &a.ticket, &a.tail, &r, &a.abort_word));
}

void push_empty(uint32_t slot, uint64_t epoch)
{
    struct gemmar_fifo_request r = {.slot = slot, .epoch = (uint32_t)epoch};

    ck_assert(gemmar_fifo_produce(&a.channel->fifo.ring, &a.ticket, &a.tail, &r, &a.abort_word));
}

uint64_t stamp_of(uint32_t slot, uint64_t epoch)
{
    return b.stamps[(epoch & 1) * SLOTS + slot];
}

bool data_of(uint32_t slot, uint64_t epoch)
{
    const char *at = b.data + (2 + (epoch & 1)) * WINDOW + (uint64_t)slot * BYTES;

    for (uint32_t i = 0; i < BYTES; i++) {
        if (at[i] != (char)(slot + epoch)) {
            return false;
        }
    }
    return true;
}

uint32_t qp(uint32_t slot)
{
    return gemmar_rdma_write_qp(a.channel, 0, slot)->qp->qp_num;
}

uint64_t retired(void)
{
    return gemmar_load_acquire(a.channel->fifo.ring.retired);
}

void turns(int n)
{
    for (int i = 0; i < n; i++) {
        (void)gemmar_proxy_turn(a.channel);
    }
}
