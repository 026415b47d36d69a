// SPDX-License-Identifier: Apache-2.0
// Layouts that two processes share: the handle, the hello of a connection, and the words that one
// end's NIC writes into the other end's memory. Integers in host order (little endian only).
#ifndef GEMMAR_NET_WIRE_H
#define GEMMAR_NET_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/net_abi.h"
#include "transport/wire.h"

#define NET_WIRE_MAGIC   0x67656d6d61726e74u /* "gemmarnt" */
#define NET_WIRE_VERSION 1u
#define NET_MAX_RAILS    GEMMAR_NET_VDEVICE_DEVICES
#define NET_MAX_LANES    64
#define NET_SLOTS        GEMMAR_NET_MAX_REQUESTS /* grouped receives under way */
#define NET_PARTS        8                       /* receives of a group */

/* What listen gives; NCCL carries it to the connecting side. */
struct net_handle {
    uint64_t magic;
    uint32_t version;
    uint16_t rails; /* of the listening device */
    uint16_t queue_pairs;
    uint64_t cookie;  /* of the listener: a client that does not know it is a stray one */
    uint64_t pending; /* written by connect: which attempt this copy of the handle belongs to */
    uint8_t family;   /* 4 or 6 */
    uint8_t reserved; /* 0 */
    uint16_t port;    /* host order */
    uint32_t scope;   /* of a link-local address */
    uint8_t address[16];
    char build[32];
};

static_assert(sizeof(struct net_handle) <= GEMMAR_NET_HANDLE_SIZE, "the handle fits");
static_assert(offsetof(struct net_handle, build) == 56, "layout of the handle");

/* One port of the sender of the hello. */
struct net_wire_rail {
    char device[40]; /* name and port, for messages */
    uint32_t speed_mbps;
    uint32_t rkey; /* of the words */
};

enum net_wire_end {
    NET_WIRE_CONNECT = 1,
    NET_WIRE_ACCEPT = 2,
};

/* Both ends send one: the connecting side first, the accepting side as its answer. */
struct net_wire_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes; /* sizeof(struct net_wire_hello) */
    char build[32];
    uint64_t cookie;
    uint32_t end;    /* enum net_wire_end */
    uint32_t status; /* 0, or the positive errno of a refusal */
    uint32_t rails;
    uint32_t lanes;
    int32_t traffic_class; /* of the connecting side's communicator, -1: not given */
    uint32_t failover;     /* 1: this end moves traffic off a path that fails */
    uint64_t first;        /* sequence of the first receive; the answer's counts */
    uint64_t words; /* address of what the peer's NIC writes: struct net_send_words or recv_words */
    char text[128]; /* of a refusal */
    struct net_wire_rail rail[NET_MAX_RAILS];
    struct gemmar_wire_qp lane[NET_MAX_LANES];
};

static_assert(sizeof(struct net_wire_rail) == 48, "layout of a rail");
static_assert(offsetof(struct net_wire_hello, build) == 16, "layout of the hello");
static_assert(offsetof(struct net_wire_hello, rail) == 224, "layout of the hello");
static_assert(offsetof(struct net_wire_hello, lane) == 608, "layout of the hello");
static_assert(sizeof(struct net_wire_hello) == 608 + 56 * NET_MAX_LANES, "layout of the hello");

/* "Clear to send": one receive of a group. Writer: the receiver's NIC, 64 bytes at once or a whole
 * group in order. Reader: the sender's CPU, acquire on `stamp`, which is the last word. */
struct net_cts {
    uint64_t address;
    uint64_t bytes;
    uint32_t rkey[NET_MAX_RAILS]; /* by the receiver's rail */
    uint32_t tag;
    uint32_t parts; /* receives in the group */
    uint64_t stamp; /* sequence of the group + 1 */
};

static_assert(sizeof(struct net_cts) == 64, "one cache line");
static_assert(offsetof(struct net_cts, stamp) == 56, "the stamp is the last word");

/*
 * What one end of a connection of several paths tells the other one when a path fails or heals: its
 * whole state, so that a later note replaces an earlier one. Writer: the peer's NIC, 128 bytes in
 * order. Reader: CPU, acquire on `stamp`; a note that is being overwritten has a different `begin`.
 * While an end has no path left it sends the same bytes over the connection of the set-up.
 * Paths are bits.
 */
struct net_note {
    uint64_t begin; /* == stamp */
    uint64_t round; /* sender: recovery that it asks for; receiver: the one it has answered */
    uint64_t head;  /* receiver: sequence of its next receive */
    uint64_t heal;  /* sender: revival that it asks for; receiver: the one it is ready for */
    uint8_t done[NET_SLOTS]; /* receiver: parts that have completed, by slot */
    uint8_t down;            /* paths that this end does not use */
    uint8_t healthy;         /* of those: whose local port is active */
    uint8_t healing;         /* sender: the path that `heal` is about */
    uint8_t reserved[53];    /* 0 */
    uint64_t stamp;          /* counts this end's notes */
};

static_assert(sizeof(struct net_note) == 128, "layout of a note");
static_assert(offsetof(struct net_note, done) == 32, "layout of a note");
static_assert(offsetof(struct net_note, stamp) == 120, "the stamp is the last word");

#define NET_NOTES 8 /* sent and perhaps not read by the NIC yet */

/* In the sender's memory. */
struct net_send_words {
    struct net_cts cts[NET_SLOTS][NET_PARTS]; /* written by the receiver's NIC */
    uint64_t bytes[NET_SLOTS][NET_PARTS];     /* this end's own: source of the receiver's `bytes` */
    struct net_note inbox;                    /* written by the receiver's NIC */
    struct net_note outbox[NET_NOTES];        /* this end's own */
    uint64_t finished[NET_SLOTS];             /* the receiver's, as this end's NIC last read it */
};

/* In the receiver's memory. */
struct net_recv_words {
    uint64_t bytes[NET_SLOTS][NET_PARTS];     /* written by the sender's NIC before the immediate */
    struct net_cts cts[NET_SLOTS][NET_PARTS]; /* this end's own: source of the sender's `cts` */
    struct net_note inbox;                    /* written by the sender's NIC */
    struct net_note outbox[NET_NOTES];        /* this end's own */
    /* Sequence + 1 of the last group of each slot that has come as a whole. Writer: this CPU,
     * release. Reader: the sender's NIC, when nobody here may be awake to answer. */
    uint64_t finished[NET_SLOTS];
};

/*
 * The immediate of a message: which receive it completes. A message that went as one piece and is
 * short carries its size; otherwise the size is in `bytes`, and `stripes` immediates make the
 * receive complete.
 */
#define NET_IMM_SHORT_BYTES ((1u << 22) - 1) /* largest size inside an immediate */
#define NET_IMM_STRIPED     (1u << 31)
#define NET_IMM_MAX_STRIPES 64u

static inline uint32_t net_imm(uint64_t sequence, uint32_t part)
{
    return (uint32_t)(sequence % NET_SLOTS) << 26 | part << 23 |
           (uint32_t)(sequence / NET_SLOTS & 1) << 22;
}

static inline uint32_t net_imm_short(uint64_t sequence, uint32_t part, uint32_t bytes)
{
    return net_imm(sequence, part) | bytes;
}

static inline uint32_t net_imm_striped(uint64_t sequence, uint32_t part, uint32_t stripes)
{
    return NET_IMM_STRIPED | net_imm(sequence, part) | (stripes - 1) << 16;
}

static inline uint32_t net_imm_slot(uint32_t imm)
{
    return imm >> 26 & (NET_SLOTS - 1);
}

static inline uint32_t net_imm_part(uint32_t imm)
{
    return imm >> 23 & (NET_PARTS - 1);
}

static inline uint32_t net_imm_lap(uint32_t imm)
{
    return imm >> 22 & 1;
}

static inline uint32_t net_imm_bytes(uint32_t imm)
{
    return imm & NET_IMM_SHORT_BYTES;
}

static inline uint32_t net_imm_stripes(uint32_t imm)
{
    return (imm >> 16 & (NET_IMM_MAX_STRIPES - 1)) + 1;
}

#endif
