// SPDX-License-Identifier: Apache-2.0
// Copies between user memory and the rings, with the visibility that a NIC gives.
#include "tools/softhca/sync.h"

// Up to this many last bytes go word by word: a stamp, a flag at the end of a message and the
// clear-to-send records of a group of NCCL's (8 of 64 bytes) are all inside.
#define TAIL_BYTES 512u

static void write_words(uint8_t *d, const uint8_t *s, uint64_t len)
{
    while (len > 0) {
        if (((uintptr_t)d & 7) == 0 && len >= 8) {
            uint64_t v;
            memcpy(&v, s, 8);
            SOFTHCA_STORE_RELEASE((uint64_t *)(void *)d, v);
            d += 8, s += 8, len -= 8;
        } else if (((uintptr_t)d & 3) == 0 && len >= 4) {
            uint32_t v;
            memcpy(&v, s, 4);
            SOFTHCA_STORE_RELEASE((uint32_t *)(void *)d, v);
            d += 4, s += 4, len -= 4;
        } else {
            SOFTHCA_STORE_RELEASE(d, *s);
            d++, s++, len--;
        }
    }
}

void softhca_dma_write(void *dst, const void *src, uint64_t len)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    if (len > TAIL_BYTES) {
        // keep the tail's start aligned to a word so that the last words are whole
        uint64_t bulk = len - TAIL_BYTES;
        uint64_t off = ((uintptr_t)d + bulk) & 7;
        bulk -= off < bulk ? off : 0;
        memcpy(d, s, bulk);
        d += bulk, s += bulk, len -= bulk;
    }
    write_words(d, s, len);
}

void softhca_dma_read(void *dst, const void *src, uint64_t len)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    if (len > TAIL_BYTES) {
        memcpy(d, s, len);
        return;
    }
    while (len > 0) {
        if (((uintptr_t)s & 7) == 0 && len >= 8) {
            uint64_t v = SOFTHCA_LOAD_ACQUIRE((const uint64_t *)(const void *)s);
            memcpy(d, &v, 8);
            d += 8, s += 8, len -= 8;
        } else if (((uintptr_t)s & 3) == 0 && len >= 4) {
            uint32_t v = SOFTHCA_LOAD_ACQUIRE((const uint32_t *)(const void *)s);
            memcpy(d, &v, 4);
            d += 4, s += 4, len -= 4;
        } else {
            *d = SOFTHCA_LOAD_ACQUIRE(s);
            d++, s++, len--;
        }
    }
}
