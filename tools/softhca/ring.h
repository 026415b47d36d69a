// SPDX-License-Identifier: Apache-2.0
// The wire: one ring of packets for each ordered pair of processes, in a file of the fabric.
// One writer (the source's progress thread), one reader (the destination's).
#ifndef GEMMAR_SOFTHCA_RING_H
#define GEMMAR_SOFTHCA_RING_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/softhca/fabric.h"

enum softhca_packet_kind {
    SOFTHCA_SEND = 1,
    SOFTHCA_WRITE,
    SOFTHCA_READ,
    SOFTHCA_CMP_SWP,
    SOFTHCA_FETCH_ADD,
    SOFTHCA_ACK,       // psn: newest executed message
    SOFTHCA_NAK,       // psn: the refused message; syndrome
    SOFTHCA_READ_DATA, // psn, offset, length
    SOFTHCA_ATOMIC_RESULT
};

#define SOFTHCA_FLAG_IMM       1u
#define SOFTHCA_FLAG_SOLICITED 2u
// A WRITE whose bytes are not in the packet: the receiver takes them from the sender's device
// memory. operand: export and gen; swap: offset in the export.
#define SOFTHCA_FLAG_PULL 4u
// Receiver: to device memory, and all of its effects come later than it is executed.
#define SOFTHCA_FLAG_EARLY 8u

enum softhca_syndrome {
    SOFTHCA_NAK_SEQUENCE = 1,
    SOFTHCA_NAK_RNR,
    SOFTHCA_NAK_INVALID,
    SOFTHCA_NAK_ACCESS,
    SOFTHCA_NAK_OPERATION
};

// A packet is this header and length bytes of payload, padded to 64. Layout seen by two processes.
struct softhca_packet {
    uint64_t ready_ns; // not to be looked at before (modelled latency); 0 at once
    uint64_t remote_addr;
    uint64_t operand; // compare, add, or an atomic's result
    uint64_t swap;
    uint32_t dst_qpn;
    uint32_t src_qpn;
    uint32_t psn; // 24 bits; one for each message, not for each packet
    uint32_t imm;
    uint32_t rkey;
    uint32_t total;  // bytes of the message
    uint32_t offset; // of this packet in it
    uint32_t length; // of this packet's payload
    uint8_t kind;
    uint8_t flags;
    uint8_t syndrome;
    uint8_t rnr_timer;
    uint32_t src_lid;
    uint32_t dst_lid;
    uint32_t span;   // bytes of the message that this packet stands for: length, or those to pull
    uint64_t copied; // receiver: its copies are in that batch already; 0 they are not
    uint8_t pad[8];
};
static_assert(sizeof(struct softhca_packet) == 96, "packet header is 96 bytes");
static_assert(offsetof(struct softhca_packet, kind) == 64, "packet layout");

struct softhca_ring_control {
    uint64_t tail; // bytes written. Writer: source. SC, against the reader's sleeping flag
    uint8_t pad0[56];
    uint64_t head; // bytes read. Writer: destination. SC, against the writer's want_space
    uint8_t pad1[56];
    uint32_t want_space; // 1: the source waits for room. Writer: both (source sets, reader clears)
    uint8_t pad2[60];
};

// One end of a ring. The data is mapped twice in a row, so that no packet wraps.
struct softhca_ring {
    struct softhca_ring_control *control;
    uint8_t *data;
    uint64_t bytes;
    uint64_t pos;  // tail of the writer, head of the reader
    uint64_t seen; // the other side's position as last read
    uint32_t slot; // the process at the other end
    uint32_t gen;
};

// Source: make the ring to slot. 0 or a negative errno.
int softhca_ring_create(const struct softhca_member *m, uint32_t slot, uint64_t bytes,
                        struct softhca_ring *out_ring);
// Destination: open the ring from slot.
int softhca_ring_open(const struct softhca_member *m, uint32_t slot, struct softhca_ring *out_ring);
void softhca_ring_release(struct softhca_ring *r);

// Progress thread only. Room for a packet with that payload, or NULL. The caller fills it and
// calls push, which makes it readable.
struct softhca_packet *softhca_ring_reserve(struct softhca_ring *r, uint32_t payload);
void softhca_ring_push(struct softhca_ring *r, const struct softhca_packet *p);

// Progress thread only. The packet at a position not before the oldest, and the position behind it;
// NULL when none has come.
struct softhca_packet *softhca_ring_at(struct softhca_ring *r, uint64_t at, uint64_t *out_next);
// Progress thread only. The oldest packet, or NULL; pop gives it back.
struct softhca_packet *softhca_ring_peek(struct softhca_ring *r);
// 1 when the source waits for the room that this gave back.
int softhca_ring_pop(struct softhca_ring *r, const struct softhca_packet *p);

#endif
