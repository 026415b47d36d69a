// SPDX-License-Identifier: Apache-2.0
// libFuzzer: connect blobs that no peer of ours would send.
//
// The first byte chooses between a blob that is the input, and a blob of a real peer in which the
// input changes some bytes (two bytes of place, one of value). Whatever it is: refused, or every
// number in it is one that the proxy may use.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/transport/fake_verbs.h"
#include "transport/channel.h"

#define SLOTS 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct gemmar_ib_device devices[GEMMAR_MAX_DEVICES];
static struct gemmar_channel *channel;
static char genuine[GEMMAR_CONNECT_BLOB_BYTES];

static struct gemmar_channel *open_rank(uint32_t rank)
{
    static char memory[2][32768] __attribute__((aligned(4096)));
    uint32_t peers[1] = {1 - rank}, rails[1] = {0};
    struct gemmar_route_settings routes[3] = {
        {.window_bytes = 4096, .slots = SLOTS, .sink_offset = {8192, 12288}},
        {.peer = GEMMAR_ROUTE_UNUSED},
        {.peer_route = 2, .window_bytes = 128, .slots = 1}};
    struct gemmar_channel_settings s = {
        .size = sizeof(s),
        .rank = rank,
        .peer_count = 1,
        .peer_ranks = peers,
        .route_count = 3,
        .device_count = 1,
        .routes = routes,
        .devices = rails,
        .data = {.address = memory[rank], .length = 16384, .dmabuf_fd = -1},
        .stamps = {.address = memory[rank] + 16384, .length = 4096, .dmabuf_fd = -1},
        .queue_pairs_per_peer = 2,
        .ring_entries = 8,
        .numa_node = -1,
        .first_epoch = 1,
        .timeout_ns = 1000000000};
    struct gemmar_channel *c;

    if (gemmar_channel_open(devices, 1, fake_logger(), &s, &c) != 0) {
        abort();
    }
    return c;
}

static void open_once(void)
{
    struct gemmar_channel *peer;
    uint32_t count;

    if (channel != NULL) {
        return;
    }
    fake_reset();
    if (gemmar_ib_devices_open(fake_table(), fake_knobs(), fake_logger(), devices, &count) != 0) {
        abort();
    }
    channel = open_rank(0);
    peer = open_rank(1);
    if (gemmar_channel_blob(peer, 0, genuine) != 0 ||
        gemmar_channel_connect(channel, 0, genuine) != 0) {
        abort(); /* the starting point must be good */
    }
    gemmar_channel_close(peer);
}

static void expect(int ok)
{
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char blob[GEMMAR_CONNECT_BLOB_BYTES];
    int rc;

    open_once();
    if (size < 1) {
        return 0;
    }
    if (data[0] & 1) {
        size_t length = size - 1 < sizeof(blob) ? size - 1 : sizeof(blob);

        memset(blob, 0, sizeof(blob));
        memcpy(blob, data + 1, length);
    } else {
        memcpy(blob, genuine, sizeof(blob));
        for (size_t i = 1; i + 3 <= size; i += 3) {
            blob[(data[i] << 8 | data[i + 1]) % sizeof(struct gemmar_wire_blob)] =
                (char)data[i + 2];
        }
    }
    fake_log_clear();
    rc = gemmar_channel_connect(channel, 0, blob);
    expect(rc <= 0);
    for (uint32_t i = 0; i < channel->qp_count; i++) {
        expect(channel->qps[i].other.rail < GEMMAR_WIRE_MAX_RAILS);
    }
    expect(!channel->routes[1].known);
    expect(channel->routes[0].local.slots == SLOTS && channel->routes[2].local.slots == 1);
    expect(channel->routes[0].lane < GEMMAR_WIRE_MAX_ROUTES);
    return 0;
}
