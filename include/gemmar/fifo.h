// SPDX-License-Identifier: Apache-2.0
// The device-to-host FIFO as both of its sides see it: command layout, lap bits, ring memory.
//
// A producer (a CTA of the fused kernel, or a thread of the CPU executor) takes a position with one
// atomic add on its own ticket word, waits while the ring is full, and stores one 16-byte command.
// The consumer (the proxy thread) accepts an entry only when the lap bit of BOTH 8-byte halves is
// the one of this turn of the ring, so a store that reaches memory in two pieces is harmless, any
// payload is legal, and a zeroed ring reads as empty.
#ifndef GEMMAR_FIFO_H
#define GEMMAR_FIFO_H

#include <stdint.h>

#if defined(__CUDACC__)
#define GEMMAR_HD static __host__ __device__ inline
#else
#define GEMMAR_HD static inline
#endif

#define GEMMAR_FIFO_OFFSET_UNIT 128u /* bytes; every chunk begins on this boundary */
#define GEMMAR_FIFO_OFFSET_BITS 38   /* in units of 128 B: 32 TiB */
#define GEMMAR_FIFO_LENGTH_BITS 24   /* in bytes: one command moves less than 16 MiB */
#define GEMMAR_FIFO_SLOT_BITS   21   /* chunks of one route */
#define GEMMAR_FIFO_ROUTE_BITS  10
#define GEMMAR_FIFO_EPOCH_BITS  32 /* low half; the proxy extends it to 64 bits */

/*
 * One command, 16 bytes, little endian.
 *   word 0: bit 63 lap, bits 38..61 length, bits 0..37 offset / 128
 *   word 1: bit 63 lap, bits 53..62 route, bits 32..52 slot, bits 0..31 epoch
 * Writer: one producer, one 16-byte release store at system scope (GPU) or two 8-byte stores, the
 * second one a release (CPU). Reader: the proxy thread, acquire loads of both words.
 */
struct gemmar_fifo_command {
    uint64_t word[2];
};

/* What a command says, unpacked. */
struct gemmar_fifo_request {
    uint64_t offset; /* bytes from the route's source and sink windows; a multiple of 128 */
    uint32_t length; /* bytes of data; 0 sends the stamp alone */
    uint32_t slot;   /* index of the arrival stamp in the route's stamp window */
    uint32_t route;  /* index into gemmar_channel_settings.routes */
    uint32_t epoch;  /* low 32 bits of the call's epoch; bit 0 is the parity of the windows */
};

/*
 * Ring memory: host memory, cacheable, 64-byte aligned, made by the transport. A GPU user maps
 * [base, base + bytes) into its device (cudaHostRegister) and uses the device addresses instead.
 */
struct gemmar_fifo_ring {
    struct gemmar_fifo_command *commands; /* [entries] */
    /* Commands taken out of the ring. Writer: proxy (release). Reader: producers, acquire, .sys,
     * only when the ring looks full. Own cache line. */
    const uint64_t *tail;
    /* Commands whose data and stamp have left staging for good: the contiguous frontier over all
     * queue pairs. Writer: proxy (release). Reader: producers, acquire, .sys. Own cache line. */
    const uint64_t *retired;
    uint32_t entries; /* a power of two */
    uint32_t reserved;
    void *base; /* the one allocation that holds commands, tail and retired */
    uint64_t bytes;
};

/* The lap bit that the command at this position of the endless sequence carries: `entries` is a
 * power of two, so one bit of the position counts the turns and no division is needed. */
GEMMAR_HD uint64_t gemmar_fifo_lap(uint64_t position, uint32_t entries)
{
    return (position & entries) == 0;
}

GEMMAR_HD struct gemmar_fifo_command gemmar_fifo_pack(const struct gemmar_fifo_request *r,
                                                      uint64_t lap)
{
    struct gemmar_fifo_command c;

    c.word[0] = lap << 63 | (uint64_t)r->length << GEMMAR_FIFO_OFFSET_BITS |
                r->offset / GEMMAR_FIFO_OFFSET_UNIT;
    c.word[1] = lap << 63 | (uint64_t)r->route << (GEMMAR_FIFO_EPOCH_BITS + GEMMAR_FIFO_SLOT_BITS) |
                (uint64_t)r->slot << GEMMAR_FIFO_EPOCH_BITS | r->epoch;
    return c;
}

GEMMAR_HD struct gemmar_fifo_request gemmar_fifo_unpack(const struct gemmar_fifo_command *c)
{
    struct gemmar_fifo_request r;

    r.offset =
        (c->word[0] & ((UINT64_C(1) << GEMMAR_FIFO_OFFSET_BITS) - 1)) * GEMMAR_FIFO_OFFSET_UNIT;
    r.length =
        (uint32_t)(c->word[0] >> GEMMAR_FIFO_OFFSET_BITS) & ((1u << GEMMAR_FIFO_LENGTH_BITS) - 1);
    r.slot = (uint32_t)(c->word[1] >> GEMMAR_FIFO_EPOCH_BITS) & ((1u << GEMMAR_FIFO_SLOT_BITS) - 1);
    r.route = (uint32_t)(c->word[1] >> (GEMMAR_FIFO_EPOCH_BITS + GEMMAR_FIFO_SLOT_BITS)) &
              ((1u << GEMMAR_FIFO_ROUTE_BITS) - 1);
    r.epoch = (uint32_t)c->word[1];
    return r;
}

#endif
