// SPDX-License-Identifier: Apache-2.0
// The device-to-host FIFO on the CPU.
#include "transport/fifo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/order.h"
#include "transport/wait.h"

#define LINE 64

int gemmar_fifo_open(uint32_t entries, struct gemmar_fifo *out)
{
    struct gemmar_fifo f;
    size_t commands = sizeof(struct gemmar_fifo_command) * (size_t)entries, page;
    size_t words = (commands + LINE - 1) / LINE * LINE, bytes = words + 2 * LINE;
    char *base;

    if (entries == 0 || (entries & (entries - 1)) != 0 || entries > 1u << 30) {
        return -EINVAL;
    }
    page = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) / page * page; /* whole pages: a GPU user registers them */
    base = aligned_alloc(page, bytes);
    if (base == NULL) {
        return -ENOMEM;
    }
    memset(base, 0, bytes); /* lap bit 0 is the one of no first turn: empty */
    memset(&f, 0, sizeof(f));
    f.tail = (uint64_t *)(void *)(base + words);
    f.retired = (uint64_t *)(void *)(base + words + LINE);
    f.ring.commands = (struct gemmar_fifo_command *)(void *)base;
    f.ring.tail = f.tail;
    f.ring.retired = f.retired;
    f.ring.entries = entries;
    f.ring.base = base;
    f.ring.bytes = bytes;
    *out = f;
    return 0;
}

void gemmar_fifo_close(struct gemmar_fifo *fifo)
{
    free(fifo->ring.base);
    memset(fifo, 0, sizeof(*fifo));
}

bool gemmar_fifo_peek(const struct gemmar_fifo *fifo, uint32_t ahead,
                      struct gemmar_fifo_request *out)
{
    uint64_t position = fifo->head + ahead;
    const struct gemmar_fifo_command *at =
        &fifo->ring.commands[position & (fifo->ring.entries - 1)];
    uint64_t lap = gemmar_fifo_lap(position, fifo->ring.entries);
    struct gemmar_fifo_command seen;

    seen.word[1] = gemmar_load_acquire(&at->word[1]);
    if (seen.word[1] >> 63 != lap) {
        return false;
    }
    seen.word[0] = gemmar_load_acquire(&at->word[0]);
    if (seen.word[0] >> 63 != lap) {
        return false;
    }
    *out = gemmar_fifo_unpack(&seen);
    return true;
}

void gemmar_fifo_advance(struct gemmar_fifo *fifo, uint32_t count)
{
    fifo->head += count;
    gemmar_store_release(fifo->tail, fifo->head);
}

void gemmar_fifo_retire(struct gemmar_fifo *fifo, uint64_t position)
{
    gemmar_store_release(fifo->retired, position);
}

static bool wait_for_room(const struct gemmar_fifo_ring *ring, uint64_t position,
                          uint64_t *known_tail, const uint64_t *abort_word)
{
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, 0);
    for (;;) {
        *known_tail = gemmar_load_acquire(ring->tail);
        if (position - *known_tail < ring->entries) {
            return true;
        }
        if (abort_word != NULL && gemmar_load_acquire(abort_word) != 0) {
            return false;
        }
        (void)gemmar_wait_step(&wait); /* without a deadline: the abort word ends it */
    }
}

bool gemmar_fifo_produce(const struct gemmar_fifo_ring *ring, uint64_t *ticket,
                         uint64_t *known_tail, const struct gemmar_fifo_request *request,
                         const uint64_t *abort_word)
{
    uint64_t position = gemmar_add_relaxed(ticket, 1);
    struct gemmar_fifo_command *at = &ring->commands[position & (ring->entries - 1)];
    struct gemmar_fifo_command command;

    if (position - *known_tail >= ring->entries &&
        !wait_for_room(ring, position, known_tail, abort_word)) {
        return false;
    }
    command = gemmar_fifo_pack(request, gemmar_fifo_lap(position, ring->entries));
    gemmar_store_release(&at->word[0], command.word[0]);
    gemmar_store_release(&at->word[1], command.word[1]);
    return true;
}
