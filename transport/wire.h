// SPDX-License-Identifier: Apache-2.0
// Layouts that two processes exchange: the connect blob of a channel.
#ifndef GEMMAR_WIRE_H
#define GEMMAR_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include <gemmar/transport.h>

#define GEMMAR_WIRE_MAGIC      0x67656d6d61723031u /* "gemmar01" */
#define GEMMAR_WIRE_VERSION    1u
#define GEMMAR_WIRE_MAX_QPS    32
#define GEMMAR_WIRE_MAX_RAILS  8
#define GEMMAR_WIRE_MAX_ROUTES 4 /* with one peer: the immediate has two bits for them */

/* One queue pair of the sender of the blob; integers in host order (little endian only). */
struct gemmar_wire_qp {
    uint32_t qp_number;
    uint32_t packet_number; /* first one that this end sends */
    uint32_t rail;          /* index into the rkeys below */
    uint16_t lid;
    uint8_t port;
    uint8_t mtu; /* enum ibv_mtu of the port */
    uint8_t gid[16];
    uint8_t link_layer; /* enum gemmar_link_layer */
    uint8_t grh;        /* 1: this port demands a global header */
    uint8_t reserved[6];
    uint32_t ece_vendor, ece_options, ece_mask, ece_valid;
};

/* Where commands of the receiver of the blob arrive. */
struct gemmar_wire_route {
    uint32_t route;    /* index in the receiver's table */
    uint32_t reserved; /* 0 */
    uint64_t sink[2];  /* addresses, by epoch parity */
    uint64_t stamp[2];
    uint64_t window_bytes;
    uint64_t slots;
};

struct gemmar_wire_blob {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes; /* sizeof(struct gemmar_wire_blob) */
    char build[32];
    uint32_t rank;   /* of the sender */
    uint32_t to;     /* rank that this blob is for */
    uint32_t signal; /* enum gemmar_signal_mode */
    uint32_t qp_count;
    uint32_t rail_count;
    uint32_t route_count;
    uint32_t data_rkey[GEMMAR_WIRE_MAX_RAILS];
    uint32_t stamp_rkey[GEMMAR_WIRE_MAX_RAILS];
    struct gemmar_wire_route route[GEMMAR_WIRE_MAX_ROUTES];
    struct gemmar_wire_qp qp[GEMMAR_WIRE_MAX_QPS];
};

static_assert(sizeof(struct gemmar_wire_qp) == 56, "layout of a queue pair");
static_assert(offsetof(struct gemmar_wire_qp, gid) == 16, "layout of a queue pair");
static_assert(offsetof(struct gemmar_wire_qp, ece_vendor) == 40, "layout of a queue pair");
static_assert(sizeof(struct gemmar_wire_route) == 56, "layout of a route");
static_assert(offsetof(struct gemmar_wire_blob, build) == 16, "layout of the blob");
static_assert(offsetof(struct gemmar_wire_blob, data_rkey) == 72, "layout of the blob");
static_assert(offsetof(struct gemmar_wire_blob, route) == 136, "layout of the blob");
static_assert(offsetof(struct gemmar_wire_blob, qp) == 360, "layout of the blob");
static_assert(sizeof(struct gemmar_wire_blob) <= GEMMAR_CONNECT_BLOB_BYTES, "the blob fits");

#endif
