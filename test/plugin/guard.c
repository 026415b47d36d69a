// SPDX-License-Identifier: Apache-2.0
// Memory flush against an inaccessible page, poisoned.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/plugin/net.h"

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t body_bytes(size_t bytes)
{
    return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

void *guard_alloc(size_t bytes)
{
    size_t body = body_bytes(bytes);
    char *p =
        mmap(NULL, body + page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + body, page_bytes(), PROT_NONE)) {
        perror("guard page");
        exit(2);
    }
    memset(p, NET_POISON, body);
    return p + body - bytes;
}

void guard_free(void *p, size_t bytes)
{
    size_t body = body_bytes(bytes);
    (void)munmap((char *)p + bytes - body, body + page_bytes()); // our own mapping
}

void *guard_place(enum guard_slot slot, size_t bytes)
{
    static _Thread_local char *end[GUARD_SLOTS];
    if (!end[slot]) {
        end[slot] = (char *)guard_alloc(page_bytes()) + page_bytes();
    }
    return memset(end[slot] - bytes, NET_POISON, bytes);
}

void *guard_copy(enum guard_slot slot, const void *from, size_t bytes)
{
    return memcpy(guard_place(slot, bytes), from, bytes);
}

int guard_untouched(const void *p, size_t bytes)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < bytes; i++) {
        if (b[i] != NET_POISON) {
            return 0;
        }
    }
    return 1;
}
